"""Token ids and arrays on their way between Python and the core.

An mx.array is a nanobind instance: a Python object that says, at a fixed place, how far behind its own start the C++
array lies. The core assigns into and reads from that C++ array, so logits reach Python in 2 µs without a copy. Because
this rests on nanobind's layout, it is checked once on an array whose contents are known; where the check fails, the
core assigns into a C++ array of ours, whose contents are then copied.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import threading
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.core as mx

_INT32_MAX = 2**31 - 1

# nanobind's nb_inst, after the reference count and the type: where the C++ object lies, then flags.
_OFFSET_AT = 16
_FLAGS_AT = 20
_READY_AND_DIRECT = 0b110  # the object is constructed (state 2 of bits 0–1) and lies inside the instance (bit 2)
_ARRAY_BYTES = 16  # mlx::core::array is one shared_ptr


def pack_ids(ids: Iterable[int] | mx.array) -> array[int]:
    """Bring token ids to the form that the core takes.

    Args:
        ids: integers, or a one-dimensional integer array (``mx.array``, numpy).

    Returns:
        The ids as a C array of int32; its ``tobytes()`` is what crosses.

    Raises:
        TypeError: an id that is no integer (a bool is none), with its place; a string.
        ValueError: an id that is negative or does not fit 32 bits, with its place; more than one dimension.
    """
    if isinstance(ids, (str, bytes, bytearray)):
        raise TypeError(f"token ids must be integers, not {type(ids).__name__}")
    if getattr(ids, "ndim", 1) != 1:
        raise ValueError(f"token ids must have one dimension, not shape {list(ids.shape)}")
    values = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    try:
        if bool in set(map(type, values)):
            raise TypeError
        packed = array("i", values)
        if min(packed, default=0) < 0:
            raise OverflowError
    except (TypeError, OverflowError):
        raise _first_bad(values) from None
    return packed


def _first_bad(values: list[Any]) -> Exception:
    for index, value in enumerate(values):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            return TypeError(f"token ids must be integers: element {index} is {value!r} ({type(value).__name__})")
        if not 0 <= int(value) <= _INT32_MAX:
            return ValueError(f"token ids must lie in 0 … {_INT32_MAX}: element {index} is {value}")
    raise AssertionError("no bad token id")


class Crossing:
    """Moves arrays from the core to Python, without a copy where the layout holds.

    Args:
        probe: the core's ``array_probe``: the address of a C++ array → JSON of its ``shape``, its ``dtype`` and the
            address of its ``data``.
        forget: the core's ``array_forget``, which assigns a zero to the C++ array at an address.
        direct: False where arrays are to cross as copies in any case.
    """

    def __init__(self, probe: Callable[[int], str], forget: Callable[[int], Any], direct: bool | None = None) -> None:
        self._probe = probe
        self._forget = forget
        self._direct = direct
        # Zeros are a C++ array that holds nothing (an empty shared_ptr), to be assigned to like any other.
        self._slot = (ctypes.c_uint64 * (_ARRAY_BYTES // 8))()
        self._slot_lock = threading.Lock()

    @property
    def direct(self) -> bool:
        """Whether arrays cross without a copy. The first question imports mlx.core and makes the check."""
        if self._direct is None:
            self._direct = self._layout_holds()
        return self._direct

    def receive(self, fill: Callable[[int], Any]) -> mx.array:
        """Take an evaluated array from the core.

        Args:
            fill: assigns the core's array to the C++ array at the address that it is called with.
        """
        import mlx.core as mx

        if not self.direct:
            return self._copy(fill)
        result = mx.array(0)
        fill(address(result))
        return result

    def receive_named(self, names: list[str], fill: Callable[[list[str], list[int]], list[str]]) -> dict[str, mx.array]:
        """Take several evaluated arrays from the core.

        Args:
            names: of the arrays.
            fill: assigns the arrays of some names to the C++ arrays at as many addresses, and returns the names of
                which there is no array.

        Returns:
            The arrays by name, without those that there are not.
        """
        import mlx.core as mx

        if self.direct:
            arrays = {name: mx.array(0) for name in names}
            for missing in fill(names, [address(arrays[name]) for name in names]):
                del arrays[missing]
            return arrays
        return {name: array for name in names if (array := self._copy_named(name, fill)) is not None}

    def _copy_named(self, name: str, fill: Callable[[list[str], list[int]], list[str]]) -> mx.array | None:
        def one(place: int) -> None:
            if fill([name], [place]):
                raise LookupError

        with contextlib.suppress(LookupError):
            return self._copy(one)
        return None

    def send(
        self,
        array: mx.array,
        share: Callable[[int], int],
        copy: Callable[[bytes, dict[str, Any]], int],
    ) -> int:
        """Hand an evaluated array to the core.

        Args:
            array: the array.
            share: takes the address of its C++ array.
            copy: takes its elements, as bytes in row-major order, and their ``dtype`` and ``shape``.

        Returns:
            What the function that was called returns.
        """
        if self.direct and (place := address(array)):
            return share(place)
        import mlx.core as mx

        data = bytes(memoryview(mx.contiguous(array).reshape(-1).view(mx.uint8))) if array.size else b""
        return copy(data, {"dtype": _dtype_name(array), "shape": list(array.shape)})

    def _copy(self, fill: Callable[[int], Any]) -> mx.array:
        import mlx.core as mx

        with self._slot_lock:
            place = ctypes.addressof(self._slot)
            fill(place)
            try:
                described = json.loads(self._probe(place))
                dtype = getattr(mx, described["dtype"])
                size = math.prod(described["shape"]) * dtype.size
                raw = ctypes.string_at(described["data"], size) if size else b""
            finally:
                self._forget(place)
        return mx.array(memoryview(raw), dtype=mx.uint8).view(dtype).reshape(described["shape"])

    def _layout_holds(self) -> bool:
        import mlx.core as mx
        import numpy as np

        known = mx.arange(6, dtype=mx.int16).reshape(2, 3) + 1
        scalar = mx.array(0)
        mx.eval(known, scalar)
        for sample in (known, scalar):
            place = address(sample)
            if not place:
                return False
            found = json.loads(self._probe(place))
            expected = {
                "shape": list(sample.shape),
                "dtype": _dtype_name(sample),
                "data": np.asarray(sample).__array_interface__["data"][0],
            }
            if {key: found.get(key) for key in expected} != expected:
                return False
        return True


def _dtype_name(array: mx.array) -> str:
    return str(array.dtype).rpartition(".")[2]


def address(instance: mx.array) -> int:
    """Return the address of the C++ array inside an mx.array, or 0 if the instance is not laid out as expected."""
    base = id(instance)
    offset = ctypes.c_int32.from_address(base + _OFFSET_AT).value
    flags = ctypes.c_uint32.from_address(base + _FLAGS_AT).value
    inside = _FLAGS_AT + 4 <= offset <= type(instance).__basicsize__ - _ARRAY_BYTES and offset % 8 == 0
    return base + offset if inside and flags & 0b111 == _READY_AND_DIRECT else 0
