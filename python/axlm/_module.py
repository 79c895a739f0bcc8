"""A model as scripts that use MLX see it: mlx_lm's own module of its family, with the core's arrays for weights.

The module comes from mlx_lm's loader, which builds it without reading weights, so its names, shapes and classes are
right by construction, and loading draws from MLX's random generator what it draws in mlx_lm. The arrays are put in when
somebody looks; until then they cost nothing.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from pathlib import Path
from typing import Any, NoReturn

import mlx.core as mx
import mlx.nn as nn

from . import _bridge
from ._fixed import fix, refuse
from .model import Model

_WRAPPED = ("linear", "embedding")
"""Where modules of mlx_lm's tuner keep the layer that they adapt."""

_filling = threading.RLock()


def build(folder: Path, model_config: dict[str, Any] | None, adapter_path: str | os.PathLike[str] | None) -> nn.Module:
    """Make mlx_lm's module of a model folder. No weights are read.

    Args:
        folder: the model folder.
        model_config: entries that override ``config.json``'s.
        adapter_path: an adapter's folder.

    Raises:
        Exception: what mlx_lm's loader raises where it cannot load the folder.
    """
    from mlx_lm.utils import load_adapters, load_model

    module, _ = load_model(folder, lazy=True, model_config=model_config)
    if adapter_path is not None:
        module = load_adapters(module, os.fspath(adapter_path))
        module.eval()
    return module


def model(
    handle: int, folder: Path, config: dict[str, Any], overrides: dict[str, Any] | None, module: nn.Module
) -> Model:
    """Make the model of a core's handle.

    Args:
        handle: the core's, given up to the model.
        folder: the model folder.
        config: the configuration.
        overrides: the entries of it that the caller replaced.
        module: from :func:`build`; it becomes the model's.

    Returns:
        A model that is an instance of the module's class, too.
    """
    return _class(type(module))(handle, folder, config, overrides, module)


@functools.cache
def _class(family: type[nn.Module]) -> type[_ModuleModel]:
    names: dict[str, Any] = {
        "__module__": Model.__module__,
        "__qualname__": Model.__qualname__,
        "__doc__": Model.__doc__,
    }
    if hasattr(family, "make_cache"):
        names["make_cache"] = _maker(family)
    return type(Model.__name__, (_ModuleModel, family), names)


def _maker(family: Any) -> Callable[[Any], list[Any]]:
    """The family's ``make_cache``. It counts layers, for which no weights need be fetched."""

    @functools.wraps(family.make_cache)
    def make_cache(self: _ModuleModel) -> list[Any]:
        module = vars(self).get("_module")
        return family.make_cache(self if module is None else module)

    return make_cache


def _is_floating(dtype: mx.Dtype) -> bool:
    return mx.issubdtype(dtype, mx.floating)


class _ModuleModel(Model):
    """A model that is a module. Its classes have the family's of mlx_lm behind this one.

    A module is a dictionary, here an empty one until it is looked into.
    """

    def __init__(
        self, handle: int, path: Path, config: dict[str, Any], overrides: dict[str, Any] | None, module: nn.Module
    ) -> None:
        vars(self).update(vars(module))  # args, model_type, …
        vars(self)["_module"] = module
        super().__init__(handle, path, config, overrides)

    def _fill(self) -> None:
        """Take the module's contents over, with the core's arrays."""
        if vars(self).get("_module") is None:
            return
        with _filling:
            module = vars(self)["_module"]
            if module is None or self._handle is None:
                return
            self._receive(module)
            fix(module)
            dict.update(self, module)
            vars(self)["_module"] = None

    def _receive(self, module: nn.Module) -> None:
        """Put the core's arrays into a module. What the core does not have in this form stays mlx_lm's."""
        places = list(_arrays(module))
        arrays = _bridge.parameters(self.handle, [name for _, _, name in places])
        for part, key, name in places:
            if name in arrays and arrays[name].shape == dict.__getitem__(part, key).shape:
                dict.__setitem__(part, key, arrays[name])

    def _traced_call(self, inputs: mx.array | None, cache: Any, input_embeddings: mx.array | None) -> mx.array:
        family: Any = super(Model, self)
        given = {} if input_embeddings is None else {"input_embeddings": input_embeddings}
        return family.__call__(inputs, cache, **given)

    def _adapt(self, adapter_path: str | os.PathLike[str]) -> None:
        super()._adapt(adapter_path)
        module = build(self.path, self._overrides, adapter_path)
        with _filling:
            dict.clear(self)
            vars(self)["_module"] = module

    def set_dtype(self, dtype: mx.Dtype, predicate: Callable[[mx.Dtype], bool] | None = _is_floating) -> None:
        """Cast the weights, in the core. A request that is running ends with a ValueError.

        Args:
            dtype: float16, bfloat16 or float32.
            predicate: tells whether weights of a dtype are to be cast; None casts all. By default those of a
                floating-point type are: packed weights stay, and their scales change.

        Raises:
            ValueError: another dtype, packed weights are to be cast, a closed model.
        """
        present = {array.dtype for _, _, array in self._weights()}
        chosen = [old for old in present if predicate is None or predicate(old)]
        if packed := [old for old in chosen if not _is_floating(old)]:
            raise ValueError(f"weights of type {_name(packed[0])} are packed and cannot be cast to {_name(dtype)}")
        self._info = _bridge.set_dtype(self.handle, _name(dtype), [_name(old) for old in chosen])
        with _filling:
            for part, key, array in self._weights():  # what is not the core's
                if array.dtype in chosen:
                    dict.__setitem__(part, key, array.astype(dtype))
            self._receive(self)

    def _weights(self) -> list[tuple[nn.Module, str, mx.array]]:
        if self._handle is None:
            raise ValueError(f"this model is closed: {self.path}")
        self._fill()
        return [(part, key, dict.__getitem__(part, key)) for part, key, _ in _arrays(self)]

    def update(self, parameters: dict[str, Any], strict: bool = True) -> NoReturn:
        """Refuse: the core's weights are fixed.

        Raises:
            NotImplementedError: always.
        """
        refuse("a model's weights")

    def update_modules(self, modules: dict[str, Any], strict: bool = True) -> NoReturn:
        """Refuse: the core's layers are fixed.

        Raises:
            NotImplementedError: always.
        """
        refuse("a model's layers")

    def close(self) -> None:
        """Give the model's memory back. What still uses it gets a ValueError; closing twice is harmless."""
        super().close()
        with _filling:
            vars(self)["_module"] = None
            dict.clear(self)

    # Attributes: the dictionary has the weights and layers, which stay; everything else is as in any object.

    def __getattr__(self, name: str) -> Any:
        # Displays and copies ask every object for names with an underscore, which a module's parts do not have. And a
        # question for what is not there must not fetch the weights.
        if name.startswith("_") or not self._has(name):
            return self._missing(name)
        if (value := self.get(name)) is not None:
            return value
        return self._missing(name)

    def _has(self, name: object) -> bool:
        """Whether the module's contents have a name, without looking into them."""
        return dict.__contains__(self._contents(), name)

    def _contents(self) -> dict[str, Any]:
        """The module's contents, in which the arrays may not be the core's yet."""
        module = vars(self).get("_module")
        return self if module is None else module

    def _missing(self, name: str) -> Any:
        if self._handle is None and not name.startswith("_"):
            raise AttributeError(f"{name}: this model is closed: {self.path}", name=name, obj=self)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._has(name) or isinstance(value, (mx.array, nn.Module)):
            refuse(f"model.{name}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if self._has(name):
            refuse(f"model.{name}")
        object.__delattr__(self, name)

    # A dictionary's methods, on the module's contents.

    def __getitem__(self, key: str) -> Any:
        self._fill()
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        refuse(f"model[{key!r}]")

    def __delitem__(self, key: str) -> NoReturn:
        refuse(f"model[{key!r}]")

    def get(self, key: str, default: Any = None) -> Any:
        self._fill()
        return super().get(key, default)

    def keys(self) -> KeysView[str]:
        return dict.keys(self._contents())

    def values(self) -> ValuesView[Any]:
        self._fill()
        return super().values()

    def items(self) -> ItemsView[str, Any]:
        self._fill()
        return super().items()

    def __contains__(self, key: object) -> bool:
        return self._has(key)

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._contents())

    def __len__(self) -> int:
        return dict.__len__(self._contents())

    # Two models are never the same, and a model is always true, as objects that are no dictionaries have it.

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return True


def _arrays(module: nn.Module) -> Iterator[tuple[nn.Module, str, str]]:
    """The places of a module's parameters: the part, the key in it, and the core's name."""
    for path, part in module.named_modules():
        for key, value in dict.items(part):
            if isinstance(value, mx.array) and not key.startswith("_"):
                parts = [name for name in path.split(".") if name and name not in _WRAPPED]
                yield part, key, ".".join([*parts, key])


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).rpartition(".")[2]
