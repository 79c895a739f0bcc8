"""Check the installation: versions, backend, libraries, memory, and ten tokens from a random model."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import struct
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _install
from ._version import __version__

BACKENDS = ("mlx-cpu", "mlx-cuda-13", "mlx-cuda-12", "mlx-metal")
TEST_TOKENS = 10
NEAR_TIE = 0.05
"""Two engines may choose differently where the best two log probabilities are closer than this."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are no options."""


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 0 if all is well, 1 otherwise."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("axlm", _versions),
        ("backend", _backend),
        ("mlx-c", _library),
        ("device", _device),
        ("memory", _memory),
        ("BLAS", _blas),
        ("demo model", _demo),
        ("self-test", _self_test),
    ]
    healthy = True
    for name, check in checks:
        try:
            finding = check()
        except Exception as error:
            from .cli import describe

            healthy = False
            finding = f"FAILED: {describe(error)}"
        print(f"{name:12}{finding}", flush=True)
    return 0 if healthy else 1


def environment() -> dict[str, Any]:
    """Describe, in JSON types, what a measurement ran on."""
    from . import _bridge

    device = _bridge.device()
    return {
        "axlm": __version__,
        "mlx": device["mlx_version"],
        "mlx_lm": _installed("mlx-lm"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "backend": _backends(),
        "device": device["device"],
        "device_name": device["device_name"],
        "mlxc": device["library"],
        "blas": _bridge.blas_info()["name"],
    }


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _backends() -> list[str]:
    return [f"{name} {version}" for name in BACKENDS if (version := _installed(name))]


def _versions() -> str:
    others = [f"{name} {_installed(name) or 'not installed'}" for name in ("mlx", "mlx-lm", "transformers")]
    return f"{__version__}, Python {platform.python_version()}, {', '.join(others)}"


def _backend() -> str:
    found = _backends()
    if not found:
        raise ImportError(f"MLX has no backend here: {_install.backend()}")
    return f"{', '.join(found)} on {platform.system()} {platform.machine()}"


def _library() -> str:
    from . import _bridge

    origin = "named by AXLM_MLXC" if os.environ.get(_bridge.LIBRARY) else "compiled when axlm was installed"
    device = _bridge.device()
    return f"{device['library']} ({origin}), MLX {device['mlx_version']}"


def _device() -> str:
    from . import _bridge

    device = _bridge.device()
    parts = [str(device["device"])]
    if name := device["device_name"]:
        parts.append(str(name))
    if size := device["memory_size"]:
        parts.append(f"{size / 1e9:.1f} GB of memory")
    if size := device.get("working_set"):
        parts.append(f"{size / 1e9:.1f} GB of it recommended for models")
    return ", ".join(parts)


def _memory() -> str:
    from . import _bridge

    return ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in _bridge.memory().items())


def _blas() -> str:
    from . import _bridge

    blas = _bridge.blas_info()
    text = f"{blas['name']} ({blas['detail']})" if blas["detail"] else str(blas["name"])
    return f"{text}; for a faster one {blas['advice']}" if blas["advice"] else text


def _demo() -> str:
    from . import demo

    if demo.is_available():
        return f"{demo.DEFAULT} can be loaded"
    return f"{demo.DEFAULT} is not installed; to install it: {' && '.join(demo.INSTALL)}"


def _self_test() -> str:
    """Generate from a random model with both engines, and demand the same tokens."""
    from .generate import generate_step
    from .utils import load_model

    with tempfile.TemporaryDirectory(prefix="axlm-doctor-") as name:
        folder = Path(name)
        write_random_model(folder)
        prompt = list(range(1, 17))
        model, _ = load_model(folder)
        try:
            started = time.perf_counter()
            ours = [token for token, _ in generate_step(prompt, model, max_tokens=TEST_TOKENS)]
            seconds = time.perf_counter() - started
        finally:
            model.close()
        difference = _first_difference(folder, prompt, ours)
    if len(ours) != TEST_TOKENS:
        raise RuntimeError(f"{len(ours)} tokens came instead of {TEST_TOKENS}")
    verdict = f"{TEST_TOKENS} tokens in {seconds:.2f} s"
    if difference is None:
        return f"ok: {verdict}, the same as mlx_lm's"
    index, margin = difference
    if margin > NEAR_TIE:
        raise RuntimeError(f"token {index} is not mlx_lm's, whose own leads by {margin:.3f}")
    return f"ok: {verdict}; token {index} differs from mlx_lm's at a tie (margin {margin:.3f})"


def _first_difference(folder: Path, prompt: list[int], ours: list[int]) -> tuple[int, float] | None:
    """Find where mlx_lm goes another way: (index of the token, how far its best log probability leads there)."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    model, _ = load_model(folder)
    for index, (token, logprobs) in enumerate(generate_step(mx.array(prompt), model, max_tokens=len(ours))):
        if token != ours[index]:
            second, first = mx.sort(logprobs.astype(mx.float32))[-2:].tolist()
            return index, first - second
    return None


def write_random_model(folder: Path) -> None:
    """Write a llama model of 0.2 million random float32 weights, the same ones every time."""
    hidden, heads, kv_heads, inner, vocabulary, layers = 128, 2, 1, 256, 256, 2
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": vocabulary,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    kv_width = kv_heads * hidden // heads
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(layers):
        names = {
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (kv_width, hidden),
            "self_attn.v_proj": (kv_width, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
        }
        shapes.update({f"model.layers.{layer}.{name}.weight": shape for name, shape in names.items()})
    shapes["model.norm.weight"] = (hidden,)
    draw = random.Random(0)
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    data = bytearray()
    for name, shape in shapes.items():
        if len(shape) == 1:
            # The last norm scales the logits: large ones keep the best two apart.
            values = array("f", [8.0 if name == "model.norm.weight" else 1.0]) * shape[0]
        else:
            bound = (3 / shape[1]) ** 0.5  # makes the variance of a product that of its input
            values = array("f", (draw.uniform(-bound, bound) for _ in range(shape[0] * shape[1])))
        start = len(data)
        data += values.tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
