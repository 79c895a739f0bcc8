"""Modules that cannot be changed: those of a model that the core runs, where a change would have no effect.

Fixed modules are of classes derived from their own, so ``isinstance`` tells no difference. Copies of them are of the
original classes, and can be changed.
"""

from __future__ import annotations

import copyreg
import functools
from typing import Any, NoReturn

import mlx.nn as nn


def refuse(what: str) -> NoReturn:
    """Raise the NotImplementedError for an attempt to change ``what``."""
    raise NotImplementedError(
        f"{what} cannot be changed: the core runs this model, with the layers and weights that it was loaded with; "
        "mlx_lm.load gives a module that can be changed and trained, and axlm generates with it, too"
    )


class _Fixed:
    """What a fixed module's class has before its own."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):  # _training and _no_grad change nothing
            refuse(f"{type(self).__name__}.{name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        refuse(f"{type(self).__name__}.{name}")

    def __setitem__(self, key: str, value: Any) -> None:
        refuse(f"{type(self).__name__}[{key!r}]")

    def __delitem__(self, key: str) -> None:
        refuse(f"{type(self).__name__}[{key!r}]")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        original = type(self).__mro__[2]
        return copyreg.__newobj__, (original,), vars(self), None, iter(self.items())


class _FixedList(list):
    """A list of modules that cannot be changed; a copy can."""

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        refuse("the list of layers")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return list, (list(self),)


@functools.cache
def _class(original: type) -> type:
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    return type(original.__name__, (_Fixed, original), names)


def fix(module: nn.Module) -> None:
    """Fix a module, and all those in it."""
    for part in module.modules():
        for key, value in part.items():
            if type(value) is list:
                dict.__setitem__(part, key, _FixedList(value))
        if not isinstance(part, _Fixed):  # one module may be in several places
            part.__class__ = _class(type(part))
