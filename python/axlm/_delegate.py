"""Names that are mlx_lm's own under axlm's: loaded at their first use, so that ``import axlm`` stays cheap.

Three kinds of modules need it, each named as in mlx_lm:

- what has nothing to do with generating (``axlm.lora``) *is* mlx_lm's module: :func:`alias`;
- a module of ours (``axlm.utils``) takes the names that it does not define from mlx_lm's: :func:`delegate`;
- a package (``axlm.tuner``) does that too, and its submodules are mlx_lm's unless a file of ours is there.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from ._install import command as install_command

_OURS, _THEIRS = "axlm", "mlx_lm"
_MISSING = object()


def alias(name: str) -> None:
    """Put mlx_lm's module of that name in the place of the module ``name``, which is being imported."""
    sys.modules[name] = importlib.import_module(_their_name(name))


def delegate(name: str, command: str | None = None) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a module that leaves names to mlx_lm's module of the same name.

    What mlx_lm's module imported from another one comes from axlm's counterpart of that other one, so that
    ``axlm.generate.load`` is axlm's. A package also gets the submodules of mlx_lm's package.

    Args:
        name: the module's ``__name__``.
        command: the subcommand of ours that the module stands for; it gets mlx_lm's ``main()``, and
            ``setup_arg_parser()``, from that.

    Returns:
        The two functions, to be bound in the module.
    """
    module = sys.modules[name]
    ours, theirs = _submodules(module)
    _register(module, theirs - ours)

    def get(attribute: str) -> Any:
        if attribute in ours:
            return _child(f"{name}.{attribute}")
        if attribute == "__all__":
            return [word for word in listing() if not word.startswith("_")]
        if command is not None and attribute in ("main", "setup_arg_parser"):
            from . import cli

            return functools.partial(cli.run_command if attribute == "main" else cli.command_parser, command)
        if attribute.startswith("__"):  # Python's own questions, which must not load anything
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        value = getattr(importlib.import_module(_their_name(name)), attribute, _MISSING)
        if attribute in theirs and (value is _MISSING or isinstance(value, ModuleType)):
            return _child(f"{name}.{attribute}")
        if value is _MISSING:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return _counterpart(value, _their_name(name))

    def listing() -> list[str]:
        return sorted({*vars(module), *ours, *theirs, *dir(importlib.import_module(_their_name(name)))})

    return get, listing


def run_as(name: str) -> NoReturn:
    """Be the command ``axlm NAME`` with this process's arguments: what ``python -m axlm.NAME`` does."""
    from .cli import main

    sys.exit(main([name, *sys.argv[1:]]))


class _Placeholder(ModuleType):
    """Stands in sys.modules for a submodule of mlx_lm's until one of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name != "__all__" and name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module = _child(self.__name__)
        if name == "__all__" and not hasattr(module, name):
            return [word for word in dir(module) if not word.startswith("_")]
        return getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(_child(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_child(self.__name__), name)

    def __dir__(self) -> Iterable[str]:
        return dir(_child(self.__name__))


def _their_name(name: str) -> str:
    return _THEIRS + name.removeprefix(_OURS)


def _submodules(module: ModuleType) -> tuple[set[str], set[str]]:
    """Name the submodules that a package of ours has, and those that mlx_lm's has; a plain module has none."""
    if not hasattr(module, "__path__"):
        return set(), set()
    folder = str(_their_folder(module))
    return tuple({found.name for found in pkgutil.iter_modules(path)} for path in (module.__path__, [folder]))


def _their_folder(package: ModuleType) -> Path:
    """The folder of mlx_lm's package of that name, found without importing anything."""
    spec = importlib.util.find_spec(_THEIRS)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"axlm needs mlx_lm: {install_command(package='mlx-lm')}")
    return Path(spec.submodule_search_locations[0]).joinpath(*package.__name__.split(".")[1:])


def _register(package: ModuleType, children: Iterable[str]) -> None:
    """Put placeholders for submodules into sys.modules, where the import statement looks first."""
    for child in children:
        name = f"{package.__name__}.{child}"
        placeholder = _Placeholder(name, f"mlx_lm's {_their_name(name)}.")
        placeholder.__spec__ = ModuleSpec(name, None, origin=str(_their_folder(package) / f"{child}.py"))
        sys.modules.setdefault(name, placeholder)


def _child(name: str) -> ModuleType:
    """Import a submodule; mlx_lm's own takes its placeholder's place."""
    module = importlib.import_module(name)
    if isinstance(module, _Placeholder):
        module = sys.modules[name] = importlib.import_module(_their_name(name))
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)
    return module


def _counterpart(value: Any, home: str) -> Any:
    """A name that mlx_lm's module ``home`` took from another of its modules, as axlm's module there has it."""
    origin = getattr(value, "__module__", None)
    if not isinstance(origin, str) or origin == home or not origin.startswith(f"{_THEIRS}."):
        return value
    try:
        ours = importlib.import_module(_OURS + origin.removeprefix(_THEIRS))
    except ModuleNotFoundError:  # axlm has no such module
        return value
    return getattr(ours, getattr(value, "__name__", ""), value)
