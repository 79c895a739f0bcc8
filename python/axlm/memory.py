"""How much memory requests may take."""

from __future__ import annotations

from . import _bridge
from ._request import integer


def set_kv_bytes(limit: int | None) -> None:
    """Bound what the caches (keys, values and states) of all requests take together.

    Where they do not fit together, requests wait for one another, the youngest are set aside and computed again when
    there is room, and only one that does not fit alone fails, with a MemoryError. Caches that a caller brings, and
    whose beginnings are unknown therefore, are not counted.

    Args:
        limit: bytes; None for what the device has room for beside the weights, which holds from the start: its
            recommended working set, or three quarters of the memory where it does not name one.

    Raises:
        TypeError: the limit is no integer.
        ValueError: it is not positive.
    """
    _bridge.set_kv_bytes(0 if limit is None else integer("limit", limit, 1))
