"""Prompt caches that the core holds for a while.

Scripts hold mlx_lm's cache objects. The core works on a state of its own form, which it makes of their arrays without a
copy. So the arrays are lent: they leave the objects, and come back when somebody looks at one, even while a request is
using them. Between the turns of a chat nobody does, and nothing crosses.

A lent object is of a class derived from its own, under the same name. It has no attributes of its own: to ask for one
brings the state back, and the object's class with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _bridge
from ._signals import Uninterrupted

if TYPE_CHECKING:
    import mlx.core as mx

    from .model import Model

_LOAN = "_axlm_loan"

moving = threading.RLock()
"""Held while states move to the core or back, so that another thread's look at a cache comes before or after."""


def _after_fork() -> None:
    global moving
    moving = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


class _Layer(NamedTuple):
    """A cache object's state: its arrays, and the numbers beside them."""

    arrays: list[mx.array]
    numbers: dict[str, Any]


def _full(cache: Any) -> _Layer:
    return _Layer(_pair(cache), {"offset": cache.offset})


def _rotating(cache: Any) -> _Layer:
    numbers = {"offset": cache.offset, "keep": cache.keep, "max_size": cache.max_size, "next": cache._idx}
    return _Layer(_pair(cache), numbers)


def _quantised(cache: Any) -> _Layer:
    arrays = [] if cache.keys is None else [*cache.keys, *cache.values]
    return _Layer(arrays, {"offset": cache.offset, "group_size": cache.group_size, "bits": cache.bits})


def _padded(cache: Any) -> bool:
    """Tell whether an ``ArraysCache`` is of rows that are padded to one length."""
    return cache.left_padding is not None or cache.lengths is not None


def _recurrent(cache: Any) -> _Layer:
    if _padded(cache):
        raise NotImplementedError("padded batches are not supported yet")
    arrays = [array for array in cache.cache if array is not None]
    if len(cache.cache) != 2 or len(arrays) == 1:
        raise ValueError("want a convolution and a state, or neither")
    return _Layer(arrays, {})


def _pair(cache: Any) -> list[mx.array]:
    return [] if cache.keys is None else [cache.keys, cache.values]


_DESCRIBE = {
    "KVCache": _full,
    "RotatingKVCache": _rotating,
    "QuantizedKVCache": _quantised,
    "ArraysCache": _recurrent,
}


def _contents(kind: str, arrays: list[mx.array], layer: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an mlx_lm cache object with the core's state."""
    if kind == "ArraysCache":
        return {"cache": arrays or [None, None]}
    half = len(arrays) // 2
    keys: Any = None
    values: Any = None
    if arrays:
        keys, values = (arrays[0], arrays[1]) if half == 1 else (tuple(arrays[:half]), tuple(arrays[half:]))
    found = {"keys": keys, "values": values, "offset": layer["offset"]}
    if kind == "RotatingKVCache":
        found.update(keep=layer["keep"], max_size=layer["max_size"], _idx=layer["next"])
    if kind == "QuantizedKVCache":
        found.update(group_size=layer["group_size"], bits=layer["bits"])
    return found


class _Lent:
    """What a cache object is while the core holds its state."""

    def __getattribute__(self, name: str) -> Any:
        # Methods and __class__ too: the object may come back as one of another class.
        if name == "__dict__":
            return object.__getattribute__(self, name)
        _reclaim(self)
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _reclaim(self)
        setattr(self, name, value)

    def __delattr__(self, name: str) -> None:
        _reclaim(self)
        delattr(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _reclaim(self)
        return self.__reduce_ex__(protocol)


def _reclaim(cache: _Lent) -> None:
    if (loan := vars(cache).get(_LOAN)) is not None:  # another thread may have been faster
        loan.reclaim()


@functools.cache
def _lent(cls: type) -> type:
    return type(cls.__name__, (_Lent, cls), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})


class _Member(NamedTuple):
    cache: weakref.ref[Any]
    cls: type
    kept: dict[str, Any]  # attributes that are no part of the state


class Loan:
    """The state of cache objects, one a layer, in the core's hands. :func:`lend` makes them."""

    def __init__(self, handle: int, model: int, members: list[_Member]) -> None:
        self.handle = handle
        self.model = model
        self.user: Any = None
        """The request that uses the state."""
        self._members = members
        self._leaving = False  # somebody looked
        self._taking: list[int] = []  # the job that brings the state back, if somebody looked and was interrupted
        self._finalizer = weakref.finalize(self, _free, handle, self._taking, os.getpid())
        # At exit the system takes the memory back; the core may be busy then.
        self._finalizer.atexit = False

    @property
    def held(self) -> bool:
        """Whether the core has the state, and nobody is taking it back."""
        return bool(self.handle) and not self._leaving

    def of(self, model: int, caches: Sequence[Any]) -> bool:
        """Whether it is these objects' state, for this model, and nobody is using it."""
        return (
            self.held
            and self.user is None
            and self.model == model
            and len(caches) == len(self._members)
            and all(member.cache() is cache for member, cache in zip(self._members, caches, strict=True))
        )

    def reclaim(self) -> None:
        """Bring the state back into the objects.

        A request that uses it is brought to where mlx_lm has it then: the prompt and the tokens that were read are in
        the cache, the next token is chosen.

        Whoever is interrupted meanwhile leaves the state with the core, where the next look finds it.

        Raises:
            RuntimeError, ValueError: the state is lost, since its request failed or its model was closed. The objects
                are empty then.
        """
        with moving:
            if not self.handle:
                return
            self._leaving = True  # before the core hears of it: a request goes on only with what it is lent again
            layers: list[dict[str, Any]] | None = None
            try:
                with Uninterrupted():
                    if not self._taking:
                        self._taking.append(_bridge.cache_take(self.handle))
                _bridge.job_wait(self._taking[0])
                with Uninterrupted():
                    layers = _bridge.cache_layers(self._taking[0])
                    self._give_back(layers)
            except Exception:  # an interrupt is none: the state stays where it is
                with Uninterrupted():
                    if layers is None:
                        self._give_back(None)
                raise

    def _give_back(self, layers: list[dict[str, Any]] | None) -> None:
        """Fill the objects; without layers, as empty ones."""
        self.handle = 0
        self._finalizer.detach()
        for index, member in enumerate(self._members):
            _restore(member, layers[index] if layers else None)


def _restore(member: _Member, layer: dict[str, Any] | None) -> None:
    """Give a cache object its class and its attributes again; without a layer, those of an empty one."""
    cache = member.cache()
    if cache is None:
        for handle in layer["arrays"] if layer else ():
            _bridge.array_free(handle)
        return
    kind, cls = member.cls.__name__, member.cls
    arrays: list[mx.array] = []
    if layer is None:
        layer = {"offset": 0, "next": 0, **member.kept}
        layer.setdefault("keep", 0)
    else:
        arrays = [_bridge.array_out(handle) for handle in layer["arrays"]]
        if layer["kind"] != kind:  # it became quantised
            import mlx_lm.models.cache as classes

            kind = layer["kind"]
            cls = getattr(classes, kind)
    # The class last: until then, other threads that look at the object wait for this one.
    attributes = vars(cache)
    attributes.update(member.kept)
    attributes.update(_contents(kind, arrays, layer))
    object.__setattr__(cache, "__class__", cls)
    del attributes[_LOAN]


def _free(handle: int, taking: list[int], owner: int) -> None:
    if os.getpid() != owner:  # the core does not live on in a forked child
        return
    for job in taking:
        _bridge.job_drop(job)
    _bridge.cache_free(handle)


def only_theirs(caches: Any) -> bool:
    """Tell whether there are objects of mlx_lm's cache classes among caches that its own layers alone can work with.

    They are batches of rows that are padded to one length, and wrappers of other caches.
    """
    for cache in caches if isinstance(caches, (list, tuple)) else ():
        cls = type(cache)
        if loan_of(cache) is not None or cls.__module__ != "mlx_lm.models.cache":
            continue
        if cls.__name__ not in _DESCRIBE or (cls.__name__ == "ArraysCache" and _padded(cache)):
            return True
    return False


def lend(model: Model, caches: Sequence[Any]) -> Loan:
    """Hand the state of cache objects to the core, or find it there.

    Args:
        model: the model that made them.
        caches: mlx_lm's cache objects, one for each layer that has a state.

    Raises:
        TypeError: they are no list, or one is of a class that the core has no form for.
        ValueError: they do not fit the model.
    """
    if not isinstance(caches, (list, tuple)):
        raise TypeError(f"prompt_cache: want a list of cache objects, one a layer, not {type(caches).__name__}")
    with moving:
        return _lend(model, caches)


def _lend(model: Model, caches: Sequence[Any]) -> Loan:
    loans = {id(loan): loan for cache in caches if (loan := loan_of(cache)) is not None}
    for loan in loans.values():
        if loan.of(model.handle, caches):
            return loan
        loan.reclaim()
    if len({id(cache) for cache in caches}) < len(caches):
        raise ValueError("prompt_cache: one object serves two layers")
    return _adopt(model, caches)


def loan_of(cache: Any) -> Loan | None:
    """Return the loan of an object, without looking at it."""
    return vars(cache).get(_LOAN) if isinstance(cache, _Lent) else None


def _adopt(model: Model, caches: Sequence[Any]) -> Loan:
    import mlx.core as mx

    found = []
    for index, cache in enumerate(caches):
        describe = _DESCRIBE.get(type(cache).__name__) if type(cache).__module__ == "mlx_lm.models.cache" else None
        if describe is None:
            raise TypeError(f"prompt_cache: layer {index}: the core has no form for a {type(cache).__name__}")
        try:
            found.append(describe(cache))
        except (NotImplementedError, ValueError) as error:
            raise type(error)(f"prompt_cache: layer {index}: {error}") from None
    mx.eval([layer.arrays for layer in found])
    handles: list[int] = []
    layers = []
    try:
        for cache, layer in zip(caches, found, strict=True):
            first = len(handles)
            handles.extend(_bridge.array_in(array) for array in layer.arrays)
            layers.append({"kind": type(cache).__name__, "arrays": handles[first:], **layer.numbers})
        job = _bridge.cache_new(model.handle, layers)
    except BaseException:
        for array in handles:
            with contextlib.suppress(Exception):
                _bridge.array_free(array)
        raise
    try:
        _bridge.job_wait(job)
        with Uninterrupted():  # all objects are lent, or none
            loan = Loan(_bridge.job_number(job), model.handle, _members(caches))
            del found  # it holds the arrays
            for cache in caches:
                attributes = vars(cache)
                attributes[_LOAN] = loan
                cache.__class__ = _lent(type(cache))
                for name in attributes.keys() - {_LOAN}:
                    del attributes[name]
    except BaseException:
        _bridge.job_drop(job)
        raise
    return loan


def _members(caches: Sequence[Any]) -> list[_Member]:
    return [_Member(weakref.ref(cache), type(cache), _kept(cache)) for cache in caches]


_STATE = {"keys", "values", "cache", "offset", "_idx"}


def _kept(cache: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(cache).items() if name not in _STATE}
