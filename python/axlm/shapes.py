"""Published model shapes without their weights: configurations, and folders of random weights in those shapes.

Speed depends on shapes and quantisation, hardly on what the weights say. ``make("qwen3-4b", folder)`` writes an MLX
folder that mlx_lm and axlm load and time as they would the real model. Nobody should read its text.
"""

from __future__ import annotations

import copy
import errno
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ._errors import file_error
from ._progress import Bar

BITS = (4, 8, 16)
"""Affine quantisation in groups of 64 with bfloat16 scales, as mlx_lm.convert's default; 16 is plain bfloat16."""

FORMAT = 1
"""Part of the names of cached folders: raise it when the same arguments come to mean other weights."""

_GROUP = 64

# From the config.json of Qwen/Qwen3-4B.
_QWEN3_4B: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}

# From the config.json of Qwen/Qwen3.5-9B, whose text model mlx_lm runs. Every fourth layer has full attention.
_QWEN3_5_9B: dict[str, Any] = {
    "model_type": "qwen3_5",
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "intermediate_size": 12288,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "rms_norm_eps": 1e-6,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "dtype": "bfloat16",
        "rope_parameters": {
            "rope_type": "default",
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
        },
    },
}


def _gemma4(pattern: int, **dimensions: Any) -> dict[str, Any]:
    """Make a gemma4 configuration in which every ``pattern``-th layer has full attention; what E2B and E4B share."""
    return {
        "model_type": "gemma4",
        "architectures": ["Gemma4ForConditionalGeneration"],
        "vocab_size": 262144,
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "gemma4_text",
            "num_attention_heads": 8,
            "head_dim": 256,
            "global_head_dim": 512,
            "rms_norm_eps": 1e-6,
            "vocab_size": 262144,
            "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256,
            "sliding_window": 512,
            "sliding_window_pattern": pattern,
            "max_position_embeddings": 131072,
            "final_logit_softcapping": 30.0,
            "attention_k_eq_v": False,
            "enable_moe_block": False,
            "tie_word_embeddings": True,
            "dtype": "bfloat16",
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional",
                    "rope_theta": 1000000.0,
                    "partial_rotary_factor": 0.25,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
            **dimensions,
        },
    }


# The defaults of mlx_lm's gemma4_text are the numbers of google/gemma-4-E2B-it.
_GEMMA4_E2B = _gemma4(
    5,
    hidden_size=1536,
    num_hidden_layers=35,
    intermediate_size=6144,
    num_key_value_heads=1,
    num_kv_shared_layers=20,
    use_double_wide_mlp=True,
)

# From the config.json of google/gemma-4-E4B-it; layers, width, MLP and pattern also in google/gemma.cpp's
# ConfigGemma4_E4B (pull request 919), the shared layers and heads in GGUF headers of the model.
_GEMMA4_E4B = _gemma4(
    6,
    hidden_size=2560,
    num_hidden_layers=42,
    intermediate_size=10240,
    num_key_value_heads=2,
    num_kv_shared_layers=18,
    use_double_wide_mlp=False,
)

_SHAPES = {
    "qwen3-4b": _QWEN3_4B,
    "gemma-4-e2b-it": _GEMMA4_E2B,
    "gemma-4-e4b-it": _GEMMA4_E4B,
    "qwen3.5-9b": _QWEN3_5_9B,
}

NAMES = tuple(_SHAPES)
"""The shapes that there are."""


class Parameter(NamedTuple):
    """One tensor of a model: its shape, and its dtype by MLX's name (``"bfloat16"``, ``"uint32"``, ``"float32"``)."""

    shape: tuple[int, ...]
    dtype: str


def configuration(name: str, *, layers: int | None = None, **changes: Any) -> dict[str, Any]:
    """Return a shape's ``config.json``, before quantisation.

    Args:
        name: one of :data:`NAMES`.
        layers: how many layers to keep, for tests; all by default.
        changes: other entries of the (text) configuration to replace, for tests: ``hidden_size=128``.

    Raises:
        ValueError: an unknown shape, a count of layers that it cannot have, or an entry that it does not have.
    """
    if name not in _SHAPES:
        raise ValueError(f"no shape {name!r}; there are {', '.join(NAMES)}")
    config = copy.deepcopy(_SHAPES[name])
    text = config.get("text_config", config)
    for key, value in changes.items():
        if key not in text:
            raise ValueError(f"{name} has no {key!r} to change")
        for part in (config, text):
            if key in part:
                part[key] = value
    if "vocab_size" in changes and "vocab_size_per_layer_input" in text:
        text.setdefault("vocab_size_per_layer_input", changes["vocab_size"])
        if "vocab_size_per_layer_input" not in changes:
            text["vocab_size_per_layer_input"] = changes["vocab_size"]
    published = text["num_hidden_layers"]
    if layers is not None:
        if not 1 <= layers <= published:
            raise ValueError(f"layers: {name} has {published}; keep 1 to {published} of them, not {layers}")
        text["num_hidden_layers"] = layers
    if pattern := text.get("sliding_window_pattern"):
        count = text["num_hidden_layers"]
        kinds = ["sliding_attention" if (layer + 1) % pattern else "full_attention" for layer in range(count)]
        text["layer_types"] = kinds
        text["num_kv_shared_layers"] = _shared_layers(kinds, text["num_kv_shared_layers"] * count // published)
    return config


def _shared_layers(kinds: list[str], wanted: int) -> int:
    """The most layers up to ``wanted`` that can share: each needs one of its kind among those that do not."""
    for shared in range(wanted, 0, -1):
        own = len(kinds) - shared
        if set(kinds[own:]) <= set(kinds[:own]):
            return shared
    return 0


def parameters(config: Mapping[str, Any], bits: int = 4) -> dict[str, Parameter]:
    """Tell what tensors a model has, without computing any of them.

    Args:
        config: from :func:`configuration`.
        bits: one of :data:`BITS`.

    Returns:
        Name: shape and dtype, in the order of the model's modules.
    """
    return {name: Parameter(*plan) for name, plan in _plan(config, bits)[0].items()}


def make(shape: str, out: Path, bits: int = 4, seed: int = 0, *, layers: int | None = None, **changes: Any) -> Path:
    """Write a model folder with random weights: ``config.json`` and safetensors, without a tokenizer.

    Greedy decoding of these weights falls into a loop after a few tokens, and sampling at temperature 1 hardly ever
    repeats itself (the published vocabularies are wide enough for both), so the same folder times both ends of
    speculation. The weights depend on the arguments alone. They are computed on MLX's default device, in pieces: what
    it takes in memory is about 200 MB, whatever the shape.

    Args:
        shape: one of :data:`NAMES`.
        out: the folder to make; it appears whole or not at all. One that exists is replaced.
        bits: one of :data:`BITS`.
        seed: of the random numbers.
        layers: as for :func:`configuration`.
        changes: as for :func:`configuration`.

    Returns:
        ``out``.

    Raises:
        ValueError: an unknown shape, other bits, or what :func:`configuration` raises it for.
        OSError: the folder cannot be written, or the disk has too little room.
    """
    from . import _random_weights

    config = configuration(shape, layers=layers, **changes)
    plan, quantised = _plan(config, bits)
    size = sum(_random_weights.nbytes(dims, dtype) for dims, dtype in plan.values())
    out.parent.mkdir(parents=True, exist_ok=True)
    room = shutil.disk_usage(out.parent).free
    if room < size + (64 << 20):
        raise file_error(
            f"{shape} takes {size / 1e9:.1f} GB, and {out.parent} has room for {room / 1e9:.1f} GB",
            out.parent,
            errno.ENOSPC,
        )
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.tmp-", dir=out.parent))
    bar = Bar(f"Making {shape}", "B")
    try:
        _random_weights.write(work, quantised, plan, law(config), seed, lambda done: bar.update(done, size))
        work.chmod(0o755)  # mkdtemp's folders are their owner's only
        shutil.rmtree(out, ignore_errors=True)
        work.rename(out)
    finally:
        bar.close()
        shutil.rmtree(work, ignore_errors=True)
    return out


def cached(shape: str, bits: int = 4, seed: int = 0) -> Path:
    """Return a shape's folder in the cache of :mod:`axlm.demo`, made there at the first call.

    Raises:
        ValueError, OSError: as :func:`make`.
    """
    from .demo import cache_dir

    configuration(shape)  # a wrong name is a ValueError, not a path
    folder = cache_dir() / "shapes" / f"{shape}-{bits}bit-seed{seed}-v{FORMAT}"
    return folder if (folder / "config.json").is_file() else make(shape, folder, bits, seed)


def _plan(config: Mapping[str, Any], bits: int) -> tuple[dict[str, tuple[tuple[int, ...], str]], dict[str, Any]]:
    """({tensor: (shape, dtype)}, config with its quantisation) as mlx_lm's own modules have it."""
    import contextlib
    import importlib
    import io

    if bits not in BITS:
        raise ValueError(f"bits: want one of {', '.join(map(str, BITS))}, not {bits}")
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import quantize_model

    finished = copy.deepcopy(dict(config))
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    # The constructors keep and change parts of the config. What they compute is never evaluated: it only has shapes.
    model = module.Model(module.ModelArgs.from_dict(copy.deepcopy(finished)))
    if bits < 16:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints bits per weight
            model, finished = quantize_model(model, finished, _GROUP, bits)
    keep: Callable[[str], bool] = getattr(model, "cast_predicate", lambda _: True)
    plan = {}
    for name, array in tree_flatten(model.parameters()):
        narrow = mx.issubdtype(array.dtype, mx.floating) and keep(name)
        dtype = mx.bfloat16 if narrow else array.dtype
        plan[name] = (tuple(array.shape), str(dtype).rpartition(".")[2])
    return plan, finished


def law(config: Mapping[str, Any]) -> Callable[[str, tuple[int, ...]], tuple[float, float]]:
    """Tell how random weights are drawn: a function of a tensor's name and shape that gives (centre, half width).

    With embeddings and heads of unit rows and a final norm of 1, logits are normal with deviation 1. To them comes what
    the stream keeps of its last token's embedding, whose own logit (or its successor's, where the head is a matrix of
    its own) should lead: by enough for greedy decoding to take it again and again, by too little for sampling to do so
    more than once in fifty tokens. It is ln V − 4, where ln V + ½ is the logarithm of all others' weight together.
    What each layer adds to the stream is sized for that.
    """
    text = config.get("text_config", config)
    hidden, layers = text["hidden_size"], text["num_hidden_layers"]
    lead = max(math.log(text["vocab_size"]) - 4, 1.0)
    cosine = min(lead / math.sqrt(hidden), 0.9)
    gemma = "hidden_size_per_layer_input" in text
    additions = layers
    if gemma:
        additions = 3 * layers  # attention, MLP, per-layer input: each normalised, hence of known size
    elif interval := text.get("full_attention_interval"):
        additions += layers - layers // interval  # a gated delta layer adds as much as an MLP; attention hardly counts
    stream = 1.0 if gemma else 1 / math.sqrt(hidden)  # deviation of the embedding's elements in the stream
    step = stream * math.sqrt((1 / cosine**2 - 1) / additions)

    def draw(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
        owner = name.split(".")[-2] if "." in name else ""
        if name.endswith(("A_log", "dt_bias", ".bias")):
            return 0.0, 0.0
        if gemma and owner in ("post_attention_layernorm", "post_feedforward_layernorm", "post_per_layer_input_norm"):
            return step, 0.0
        if len(shape) == 1:  # the other norms, and layer scalars
            return 1.0, 0.0
        deviation = 1 / math.sqrt(shape[1])
        if owner in ("down_proj", "out_proj"):
            deviation *= step / 0.6  # the deviation of silu(a)·b for normal a and b
        elif owner == "o_proj":
            deviation *= 0.3 * step
        return 0.0, deviation * math.sqrt(3)

    return draw
