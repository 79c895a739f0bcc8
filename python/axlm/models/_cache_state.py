"""What must hold of a cache object that came from a file."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

_COUNTS = {"offset", "_idx", "_offset", "keep", "max_size", "chunk_size", "start_position", "group_size", "bits"}


def flaw(cache: Any) -> str | None:
    """Say what is wrong with a cache object; None if it can be worked with, empty ones included.

    Args:
        cache: an object of one of mlx_lm's classes.
    """
    if (caches := getattr(cache, "caches", None)) is not None:
        return next((f"{type(c).__name__}: {wrong}" for c in caches if (wrong := flaw(c))), None)
    state = vars(cache)
    for name in _COUNTS & state.keys():
        value = state[name]
        if name == "offset" and "left_padding" in state:  # one for each row
            if not isinstance(value, mx.array):
                return f"{name} is {value!r}, not an array"
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            return f"{name} is {value!r}, not a count"
    return _rows_flaw(state) if "keys" in state else None


_LEFT_OUT = {"BatchKVCache": "_right_padding", "BatchRotatingKVCache": "_lengths"}


def complete(cache: Any) -> None:
    """Give a cache object what its class's constructor sets and its state leaves out.

    Without it mlx_lm's batches, once loaded, cannot go on.
    """
    for inner in getattr(cache, "caches", ()):
        complete(inner)
    name = _LEFT_OUT.get(type(cache).__name__)
    if name is not None and not hasattr(cache, name):
        setattr(cache, name, None)


def _rows_flaw(state: dict[str, Any]) -> str | None:
    keys, values = (_parts(state[name]) for name in ("keys", "values"))
    if keys is None and values is None:
        return None
    if not keys or not values or len(keys) != len(values):
        return "it has not as many arrays of values as of keys"
    for part in (*keys, *values):
        if not isinstance(part, mx.array) or part.ndim != 4 or part.shape[:3] != keys[0].shape[:3]:
            shapes = [list(getattr(part, "shape", ())) for part in (*keys, *values)]
            return f"keys and values do not fit each other: {shapes}"
    rows = keys[0].shape[2]
    # A window's offset counts the tokens that it has forgotten, too.
    counted = "_idx" if "_idx" in state else "offset"
    used = state[counted] - state.get("start_position", 0)
    if not 0 <= used <= rows:
        return f"{used} rows are in use, of {rows}"
    return None


def _parts(arrays: Any) -> list[Any] | None:
    if arrays is None:
        return None
    return list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
