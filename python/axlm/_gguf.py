"""Exact conversion of a llama-family GGUF file into an MLX model folder.

Only what the demo model needs: tensors of types F32, F16, Q4_1 and Q8_0 and the byte-level
tokenizer of SmolLM2; anything else is a ValueError that names it. numpy and gguf do the work, not
MLX: on Linux a faster BLAS has to be loaded before mlx.core is (see the README), and a conversion
that comes first must not spoil that.

Q4_1 stores a block of 32 weights as ``scale * q + minimum``, which is MLX's affine 4-bit form with
groups of 32; Q8_0 is ``scale * q`` with signed q, which is the affine 8-bit form with the bias
``-128 * scale``. Both therefore convert without rounding as long as the scales keep float16's
precision: they do in float16 and float32, not in bfloat16.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

GROUP = 32
BYTES = {"U32": 4, "F32": 4, "F16": 2, "BF16": 2}  # safetensors' dtype names
TORCH_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
QUANTISED = {"Q4_1": 4, "Q8_0": 8}  # GGUF tensor type: bits
PLAIN = ("F32", "F16")

TOP_LEVEL = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # GGUF token types

Progress = Callable[[int, int], None]


class Spec(NamedTuple):
    """One tensor of the safetensors file: its name, dtype (safetensors' name) and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return BYTES[self.dtype] * int(np.prod(self.shape, dtype=np.int64))


def convert(source: Path, folder: Path, *, dtype: str, quantised: bool, progress: Progress | None = None) -> None:
    """Write the model of a GGUF file as an MLX folder: weights, config and tokenizer.

    Args:
        source: the GGUF file, architecture llama.
        folder: an existing, empty folder to write into.
        dtype: "F32", "F16" or "BF16", of all floating-point tensors. With ``quantised`` that is the
            scales, biases and norms; without it, of the dequantised weights too.
        quantised: keep Q4_1 and Q8_0 matrices quantised (affine, groups of 32); else dequantise.
        progress: called with (bytes of the GGUF's tensors done, total).

    Raises:
        ValueError: the file is not GGUF, or holds an architecture, a tensor or a tokenizer that
            this conversion does not know.
        OSError: reading or writing failed.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(str(source))
    except (ValueError, IndexError) as error:  # a wrong magic; an end that comes too early
        raise ValueError(f"{source}: not a readable GGUF file: {error}") from error
    meta = {key: field.contents() for key, field in reader.fields.items()}
    architecture = meta.get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"{source}: architecture {architecture!r} cannot be converted, only 'llama'")
    try:
        config = _config(meta, {tensor.name: tensor for tensor in reader.tensors}, dtype, quantised)
        tokenizer, tokenizer_config = _tokenizer(meta)
    except KeyError as error:
        raise ValueError(f"{source}: the GGUF key {error} is missing") from error
    _write_weights(folder / "model.safetensors", reader.tensors, config, dtype, quantised, progress)
    end_tokens = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config}
    _write_json(folder / "generation_config.json", end_tokens)
    _write_json(folder / "tokenizer.json", tokenizer)
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    _write_json(folder / "config.json", config)


def _config(meta: dict[str, Any], tensors: dict[str, Any], dtype: str, quantised: bool) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **dimensions(meta),
        "rope_scaling": None,
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "torch_dtype": TORCH_NAMES[dtype],
    }
    if quantised:
        quantisation: dict[str, Any] = {"group_size": GROUP, "bits": 4, "mode": "affine"}
        for name, tensor in tensors.items():
            bits = QUANTISED.get(tensor.tensor_type.name)
            if bits == 8:
                quantisation[_path(name)] = {"group_size": GROUP, "bits": 8, "mode": "affine"}
            elif bits is None and len(tensor.shape) == 2:
                quantisation[_path(name)] = False
        config["quantization"] = config["quantization_config"] = quantisation
    return config


def dimensions(meta: dict[str, Any]) -> dict[str, Any]:
    """The keys of config.json that families share: sizes, counts, the norms' epsilon, the rope's base, token ids."""
    architecture = meta["general.architecture"]
    heads = meta[f"{architecture}.attention.head_count"]
    config: dict[str, Any] = {
        "hidden_size": meta[f"{architecture}.embedding_length"],
        "intermediate_size": meta[f"{architecture}.feed_forward_length"],
        "num_hidden_layers": meta[f"{architecture}.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get(f"{architecture}.attention.head_count_kv", heads),
        "max_position_embeddings": meta[f"{architecture}.context_length"],
        # a float32 in the file: the shortest decimal that means it is the value the model was made with
        "rms_norm_eps": float(str(np.float32(meta[f"{architecture}.attention.layer_norm_rms_epsilon"]))),
        "rope_theta": meta.get(f"{architecture}.rope.freq_base", 10000.0),
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
    }
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if f"tokenizer.ggml.{name}_token_id" in meta:
            config[f"{key}_token_id"] = meta[f"tokenizer.ggml.{name}_token_id"]
    return config


# ------------------------------------------------------------------------------------- weights


def _path(name: str) -> str:
    """MLX's module path of a GGUF tensor, without its final ".weight"."""
    module, _, kind = name.rpartition(".")
    if kind == "weight" and (path := module_path(module, IN_LAYER)):
        return path
    raise ValueError(f"GGUF tensor {name}: not part of a llama model as known here")


def module_path(module: str, in_layer: dict[str, str]) -> str | None:
    """MLX's path of a GGUF module ("blk.3.attn_q") by the family's names within a layer, or None."""
    if module in TOP_LEVEL:
        return TOP_LEVEL[module]
    if (match := re.fullmatch(r"blk\.(\d+)\.([a-z_]+)", module)) and match[2] in in_layer:
        return f"model.layers.{match[1]}.{in_layer[match[2]]}"
    return None


def _rotary_heads(name: str, config: dict[str, Any]) -> int:
    """How many heads' rows the file stores reordered for interleaved rotation; 0: none."""
    if name.endswith(".attn_q.weight"):
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if name.endswith(".attn_k.weight") else 0


def _halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Put each head's rows back from interleaved pairs (0, h/2, 1, h/2+1, …) to two halves."""
    if heads == 0:
        return rows
    return rows.reshape(heads, len(rows) // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _specs(tensor: Any, dtype: str, quantised: bool) -> list[Spec]:
    path, kind = _path(tensor.name), tensor.tensor_type.name
    shape = tuple(int(n) for n in reversed(tensor.shape))  # GGUF counts dimensions from the fastest
    if kind not in QUANTISED and kind not in PLAIN:
        raise ValueError(f"GGUF tensor {tensor.name}: type {kind} cannot be converted exactly")
    if kind in PLAIN or not quantised:
        return [Spec(f"{path}.weight", dtype, shape)]
    rows, columns = shape
    groups = Spec(f"{path}.scales", dtype, (rows, columns // GROUP))
    weight = Spec(f"{path}.weight", "U32", (rows, columns * QUANTISED[kind] // 32))
    return [weight, groups, groups._replace(name=f"{path}.biases")]


def _arrays(tensor: Any, config: dict[str, Any], dtype: str, quantised: bool) -> Iterator[np.ndarray]:
    """The data of _specs(tensor), in that order."""
    from gguf.quants import dequantize

    kind, heads = tensor.tensor_type.name, _rotary_heads(tensor.name, config)
    if kind in PLAIN or not quantised:
        yield _cast(_halves(dequantize(tensor.data, tensor.tensor_type), heads), dtype)
        return
    scale, bias, values = (_halves(part, heads) for part in _unpack(tensor))
    if QUANTISED[kind] == 4:
        values = values[:, 0::2] | (values[:, 1::2] << 4)  # the first weight in the lowest bits
    yield np.ascontiguousarray(values).view("<u4")
    yield _cast(scale, dtype)
    yield _cast(bias, dtype)


def _unpack(tensor: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales and biases [rows, groups] float32 and values [rows, columns] uint8 of a quantised matrix."""
    rows = int(tensor.shape[1])
    size = 20 if tensor.tensor_type.name == "Q4_1" else 34
    blocks = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(rows, -1, size)
    scale = _half(blocks[..., 0:2])
    if size == 20:  # scale, minimum, then 16 bytes: weights 0–15 in the low halves, 16–31 in the high
        packed = blocks[..., 4:]
        bias, values = _half(blocks[..., 2:4]), np.concatenate([packed & 15, packed >> 4], axis=-1)
    else:  # scale, then 32 signed bytes
        bias, values = -128 * scale, blocks[..., 2:] ^ 0x80  # signed q + 128, as a byte
    return scale, bias, values.reshape(rows, -1)


def _half(pairs: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(pairs).view("<f2")[..., 0].astype(np.float32)


def _cast(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 → the named dtype (bfloat16 as its 16 bits), rounded to nearest, ties to even."""
    values = np.ascontiguousarray(values, "<f4")
    if dtype == "F32":
        return values
    if dtype == "F16":
        return values.astype("<f2")
    bits = values.view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def _write_weights(
    file: Path,
    tensors: list[Any],
    config: dict[str, Any],
    dtype: str,
    quantised: bool,
    progress: Progress | None,
) -> None:
    """One safetensors file, tensor by tensor, so that memory holds one of them and not the model."""
    specs = [spec for tensor in tensors for spec in _specs(tensor, dtype, quantised)]
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    position, start = 0, {}
    for spec in sorted(specs, key=lambda spec: (-BYTES[spec.dtype], spec.name)):  # keeps all aligned
        start[spec.name] = position
        position += spec.nbytes
        header[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [start[spec.name], position],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    done, total = 0, sum(int(tensor.n_bytes) for tensor in tensors)
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            arrays = _arrays(tensor, config, dtype, quantised)
            for spec, array in zip(_specs(tensor, dtype, quantised), arrays, strict=True):
                if array.nbytes != spec.nbytes:
                    raise ValueError(f"GGUF tensor {tensor.name}: {array.nbytes} bytes, want {spec.nbytes}")
                out.seek(8 + len(text) + start[spec.name])
                out.write(array.data)
            done += int(tensor.n_bytes)
            if progress is not None:
                progress(done, total)
        out.flush()
        os.fsync(out.fileno())


# ----------------------------------------------------------------------------------- tokenizer


def _tokenizer(meta: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """tokenizer.json and tokenizer_config.json of a byte-level BPE vocabulary that splits digits."""
    kind = (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"GGUF tokenizer {'/'.join(kind)}: cannot be converted, only gpt2/smollm")
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": index, "content": token, **flags, "special": kind == CONTROL}
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]],
        },
    }
    config: dict[str, Any] = {
        # not GPT2Tokenizer, the class this vocabulary came with: transformers 5 replaces the
        # pre-tokenizer above for that class, digits are no longer split and the ids differ
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta["llama.context_length"],
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in added
        },
    }
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        index = meta.get(f"tokenizer.ggml.{name}_token_id")
        config[f"{key}_token"] = None if index is None else tokens[index]
    if "tokenizer.chat_template" in meta:
        config["chat_template"] = meta["tokenizer.chat_template"]
    return tokenizer, config


def _write_json(file: Path, content: dict[str, Any]) -> None:
    with open(file, "w", encoding="utf-8") as out:
        json.dump(content, out, ensure_ascii=False, indent=1)
        out.flush()
        os.fsync(out.fileno())
