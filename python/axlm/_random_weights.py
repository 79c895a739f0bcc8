"""Random weights on disk: safetensors written tensor by tensor, each computed and quantised in pieces."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import mlx.core as mx
    import numpy as np

Plan = Mapping[str, tuple[tuple[int, ...], str]]
Law = Callable[[str, tuple[int, ...]], tuple[float, float]]

SHARD = 2 << 30
"""Bytes of tensors in one file, unless a tensor is larger."""

PIECE = 1 << 24
"""Weights computed at a time. MLX's indices are 32-bit in places, and one embedding of Gemma has 2.3 billion."""

_BYTES = {"bfloat16": 2, "float32": 4, "uint32": 4}
_SAFETENSORS = {"bfloat16": "BF16", "float32": "F32", "uint32": "U32"}

CYCLE = 8
"""Tokens of the loop that an untied head leads through."""


def nbytes(shape: tuple[int, ...], dtype: str) -> int:
    """Return a tensor's size in bytes."""
    return math.prod(shape) * _BYTES[dtype]


def write(
    folder: Path, config: Mapping[str, Any], plan: Plan, law: Law, seed: int, progress: Callable[[int], None]
) -> None:
    """Write a model folder into one that exists.

    Args:
        folder: where to.
        config: the contents of ``config.json``; its ``quantization`` says how weights with scales are packed.
        plan: {tensor: (shape, dtype)}. A weight with ``.scales`` and ``.biases`` beside it is quantised.
        law: (tensor, its shape before quantisation) → (centre, half width) of the uniform values.
        seed: of the random numbers; each tensor has a stream of its own.
        progress: called with the bytes written so far.
    """
    shards = _shards(plan)
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    if len(files) == 1:
        files = ["model.safetensors"]
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress(done)

    for file, names in zip(files, shards, strict=True):
        _write_shard(folder / file, {name: plan[name] for name in names}, config, law, seed, add)
    total = sum(nbytes(*entry) for entry in plan.values())
    places = {name: file for file, names in zip(files, shards, strict=True) for name in names}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _shards(plan: Plan) -> list[list[str]]:
    """Share tensors out among files, those of one module staying together."""
    modules: dict[str, list[str]] = {}
    for name in plan:
        modules.setdefault(_module(name), []).append(name)
    shards: list[list[str]] = [[]]
    size = 0
    for names in modules.values():
        more = sum(nbytes(*plan[name]) for name in names)
        if shards[-1] and size + more > SHARD:
            shards.append([])
            size = 0
        shards[-1].extend(names)
        size += more
    return shards


def _write_shard(
    path: Path, plan: Plan, config: Mapping[str, Any], law: Law, seed: int, add: Callable[[int], None]
) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    position = 0
    for name, (shape, dtype) in plan.items():
        end = position + nbytes(shape, dtype)
        header[name] = {"dtype": _SAFETENSORS[dtype], "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        places = {name: start + header[name]["data_offsets"][0] for name in plan}
        for name in plan:
            if _part_of_quantised(name, plan):
                continue
            add(_write_tensor(file, name, plan, places, config, law, seed))


def _part_of_quantised(name: str, plan: Plan) -> bool:
    """Whether a tensor is written along with its module's weight."""
    module = _module(name)
    return name.endswith((".scales", ".biases")) and f"{module}.weight" in plan and f"{module}.scales" in plan


def _write_tensor(
    file: BinaryIO, name: str, plan: Plan, places: dict[str, int], config: Mapping[str, Any], law: Law, seed: int
) -> int:
    """Write one tensor, with its scales and biases where it is quantised; return the bytes written."""
    import mlx.core as mx

    shape, dtype = plan[name]
    module = _module(name)
    parts = [name]
    quantisation = None
    if f"{module}.scales" in plan:
        quantisation = {**config["quantization"], **config["quantization"].get(module, {})}
        parts += [f"{module}.scales", f"{module}.biases"]
        shape = (*shape[:-1], shape[-1] * 32 // quantisation["bits"])
    centre, half_width = law(name, shape)
    rows, width = shape[0], math.prod(shape[1:])
    # Whole cycles of rows in a piece, so that an untied head can be the embedding with rows exchanged.
    step = max(PIECE // width // CYCLE, 1) * CYCLE
    written = 0
    for first in range(0, rows, step):
        count = min(step, rows - first)
        if half_width:
            values = mx.random.uniform(
                centre - half_width, centre + half_width, (count, *shape[1:]), key=_key(name, first, seed)
            )
            if name.endswith("lm_head.weight") and rows % CYCLE == 0:
                values = mx.roll(values.reshape(count // CYCLE, CYCLE, width), 1, axis=1).reshape(count, width)
        else:
            values = mx.full((count, *shape[1:]), centre)
        if quantisation is None:
            pieces = [values.astype(getattr(mx, dtype))]
        else:
            pieces = list(
                mx.quantize(
                    values.astype(mx.bfloat16), group_size=quantisation["group_size"], bits=quantisation["bits"]
                )
            )
        for part, piece in zip(parts, pieces, strict=True):
            data = memoryview(_host(piece)).cast("B")
            file.seek(places[part] + first * (nbytes(*plan[part]) // rows))
            written += file.write(data)
    return written


def _key(name: str, piece: int, seed: int) -> mx.array:
    """The random key of one piece of a tensor. An untied head draws what the embedding draws."""
    import mlx.core as mx

    name = name.replace("model.embed_tokens.", "lm_head.")
    digest = hashlib.sha256(f"{seed}/{name}/{piece}".encode()).digest()
    return mx.random.key(int.from_bytes(digest[:8], "big"))


def _host(array: mx.array) -> np.ndarray:
    """The array's bytes on the host; numpy has no bfloat16."""
    import mlx.core as mx
    import numpy as np

    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
