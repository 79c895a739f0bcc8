"""A cache object of each of mlx_lm's classes, in the states that it can be in, and how to compare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from axlm.models import cache as ours
from mlx.utils import tree_flatten
from mlx_lm.models import cache as theirs

Make = Callable[[], Any]

CURRENT = pytest.mark.skipif(
    hasattr(theirs.KVCache, "meta_state"), reason="this mlx_lm lays files out as before 0.32, without empty caches"
)
SUFFIXES = pytest.mark.parametrize("suffix", [".safetensors", ".safetensors.zst"], ids=["plain", "zst"])


def rows(count: int, batch: int = 1, dtype: mx.Dtype = mx.float32, dim: int = 32) -> tuple[mx.array, mx.array]:
    """Keys and values [batch, 2, count, dim]."""
    shape = (batch, 2, count, dim)
    return mx.random.normal(shape).astype(dtype), mx.random.normal(shape).astype(dtype)


def filled(cache: Any, *counts: int, **options: Any) -> Any:
    for count in counts:
        cache.update_and_fetch(*rows(count, **options))
    return cache


def trimmed(cache: Any, count: int) -> Any:
    assert cache.trim(count) == count
    return cache


def chunked() -> Any:
    cache = filled(ours.ChunkedKVCache(8), 7)
    cache.maybe_trim_front()
    filled(cache, 6).maybe_trim_front()
    return cache


def arrays(*, padded: bool = False) -> Any:
    cache = ours.ArraysCache(2, left_padding=[1, 0, 2] if padded else None)
    cache[0] = mx.random.normal((3, 4, 8)).astype(mx.bfloat16)
    if padded:
        cache.prepare(lengths=[4, 5, 3])
    else:
        cache[1] = mx.random.normal((3, 2, 8, 8))
    return cache


CACHES: dict[str, Make] = {
    "KVCache": lambda: filled(ours.KVCache(), 5),
    "KVCache without padding": lambda: filled(ours.KVCache(), 256),
    "KVCache in bfloat16": lambda: filled(ours.KVCache(), 300, 1, 1, dtype=mx.bfloat16),
    "KVCache in float16, trimmed": lambda: trimmed(filled(ours.KVCache(), 9, dtype=mx.float16), 4),
    "KVCache of several rows": lambda: filled(ours.KVCache(), 9, batch=3),
    "RotatingKVCache not full": lambda: filled(ours.RotatingKVCache(16, keep=4), 5, 1),
    "RotatingKVCache that turned": lambda: filled(ours.RotatingKVCache(8, keep=4), 7, *[1] * 9),
    "RotatingKVCache with more than its size": lambda: filled(ours.RotatingKVCache(8), 7, 5),
    "QuantizedKVCache": lambda: filled(ours.QuantizedKVCache(group_size=32, bits=4), 6, 1),
    "QuantizedKVCache of a KVCache": lambda: filled(ours.KVCache(), 6, dtype=mx.bfloat16).to_quantized(32, 8),
    "ConcatenateKVCache": lambda: filled(ours.ConcatenateKVCache(), 5, 2),
    "ChunkedKVCache": chunked,
    "ArraysCache": arrays,
    "ArraysCache with padding and a gap": lambda: arrays(padded=True),
    "CacheList": lambda: ours.CacheList(filled(ours.KVCache(), 3), arrays(), filled(ours.RotatingKVCache(8), 9)),
    "CacheList in a CacheList": lambda: ours.CacheList(ours.CacheList(filled(ours.KVCache(), 3)), arrays()),
    "BatchKVCache": lambda: filled(ours.BatchKVCache([1, 0]), 4, 1, batch=2),
    "BatchKVCache of merged ones": lambda: ours.KVCache.merge([filled(ours.KVCache(), n) for n in (3, 5, 4)]),
    "BatchRotatingKVCache": lambda: filled(ours.BatchRotatingKVCache(8, [1, 0]), 4, 1, batch=2),
    "BatchRotatingKVCache that turned": lambda: filled(ours.BatchRotatingKVCache(8, [1, 0]), 6, *[1] * 6, batch=2),
}

if hasattr(theirs.KVCache, "meta_state"):  # before mlx_lm 0.32, states could not have gaps, nor end before the arrays
    for name in ("ArraysCache with padding and a gap", "ChunkedKVCache"):
        del CACHES[name]

EMPTY: dict[str, Make] = {
    "KVCache": ours.KVCache,
    "RotatingKVCache": lambda: ours.RotatingKVCache(8, keep=4),
    "QuantizedKVCache": ours.QuantizedKVCache,
    "ConcatenateKVCache": ours.ConcatenateKVCache,
    "ChunkedKVCache": lambda: ours.ChunkedKVCache(8),
    "ArraysCache": lambda: ours.ArraysCache(2),
    "CacheList": lambda: ours.CacheList(ours.KVCache(), ours.ArraysCache(1)),
    "BatchKVCache": lambda: ours.BatchKVCache([2, 0]),
    "BatchRotatingKVCache": lambda: ours.BatchRotatingKVCache(8, [2, 0]),
}


def state_of(cache: list[Any]) -> list[tuple[str, Any]]:
    """Names and values, arrays as (dtype, shape, bytes): bits are compared, not numbers."""

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, mx.array):
            return type(leaf), leaf
        return str(leaf.dtype), leaf.shape, bytes(memoryview(mx.contiguous(leaf.reshape(-1)).view(mx.uint8)))

    return [(type(c).__name__, [(name, value(leaf)) for name, leaf in tree_flatten(c.state)]) for c in cache]


def check_equal(found: list[Any], wanted: list[Any]) -> None:
    assert state_of(found) == state_of(wanted)
    assert [type(c) for c in found] == [type(c) for c in wanted]
