"""Every public signature of mlx_lm's modules beside ours: what differs is listed in docs/compatibility.md, no more."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import axlm
import mlx_lm
import pytest

MODULES = (
    "benchmark",
    "cache_prompt",
    "chat",
    "convert",
    "evaluate",
    "generate",
    "generate_utils",
    "models.cache",
    "perplexity",
    "sample_utils",
    "tokenizer_utils",
    "utils",
)
LATER = {"server", "cli"}
"""Modules of mlx_lm that axlm does not have under that name, or as something else: the document says so."""

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"


@pytest.fixture(autouse=True)
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something in place of lm_eval, where it is not installed, so that mlx_lm.evaluate can be imported."""
    if importlib.util.find_spec("lm_eval") is None:
        for name in ("lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.api.registry"):
            monkeypatch.setitem(sys.modules, name, MagicMock())
        sys.modules["lm_eval.api.model"].LM = type("LM", (), {})  # type: ignore[attr-defined]
        sys.modules["lm_eval.api.registry"].register_model = lambda *_: lambda kind: kind  # type: ignore[attr-defined]
        monkeypatch.delitem(sys.modules, "mlx_lm.evaluate", raising=False)
        monkeypatch.delitem(sys.modules, "axlm.evaluate", raising=False)


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The names that a module defines itself: functions, classes, and constants in capitals."""
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if inspect.isfunction(value) or inspect.isclass(value):
            if value.__module__ == module.__name__:
                yield name, value
        elif name.isupper():
            yield name, value


def differences(name: str, ours: Any, theirs: Any) -> Iterator[tuple[str, str]]:
    """(name, difference) of everything in which ours is not what theirs is."""
    if ours is theirs:
        return
    if inspect.isclass(theirs):
        yield from of_classes(name, ours, theirs)
    elif callable(theirs):
        yield from ((name, text) for text in of_signatures(ours, theirs))
    elif ours != theirs:
        yield name, f"is `{ours!r}`, not `{theirs!r}`"


def of_classes(name: str, ours: Any, theirs: Any) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(theirs):
        yield from ((name, text) for text in of_fields(ours, theirs))
    elif theirs.__init__ is not object.__init__ and not getattr(theirs, "_is_protocol", False):
        yield from ((name, text) for text in of_signatures(ours.__init__, theirs.__init__))
    for attribute, value in vars(theirs).items():
        if attribute.startswith("_") and attribute != "__call__":
            continue
        if not hasattr(ours, attribute):
            if attribute not in getattr(theirs, "__dataclass_fields__", {}):
                yield f"{name}.{attribute}", "missing"
        elif inspect.isfunction(value):
            yield from ((f"{name}.{attribute}", text) for text in of_signatures(getattr(ours, attribute), value))
        elif inspect.isclass(value):
            yield from differences(f"{name}.{attribute}", getattr(ours, attribute), value)


def of_fields(ours: Any, theirs: Any) -> Iterator[str]:
    def described(kind: Any) -> dict[str, Any]:
        return {field.name: (field.default, field.default_factory) for field in dataclasses.fields(kind)}

    mine, expected = described(ours), described(theirs)
    for field, default in expected.items():
        if field not in mine:
            yield f"lacks the field `{field}`"
        elif mine[field] != default:
            yield f"another default of `{field}`"
    if [field for field in mine if field in expected] != [field for field in expected if field in mine]:
        yield "another order of the fields"
    yield from (f"adds the field `{field}`" for field in mine if field not in expected)


def same(ours: Any, theirs: Any) -> bool:
    """Whether two defaults are equal; some of MLX's objects can be compared with their own kind only."""
    return type(ours) is type(theirs) and ours == theirs


def of_signatures(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Iterator[str]:
    mine, expected = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
    for parameter in expected.values():
        if parameter.name not in mine:
            yield f"lacks `{parameter.name}`"
        elif not same(mine[parameter.name].default, parameter.default):
            yield f"another default of `{parameter.name}`"
        elif mine[parameter.name].kind != parameter.kind:
            yield f"`{parameter.name}` is given otherwise"
    if [name for name in mine if name in expected] != [name for name in expected if name in mine]:
        yield "another order of the arguments"
    for name, parameter in mine.items():
        if name not in expected:
            yield f"adds `{name}`" if parameter.default is parameter.empty else f"adds `{name}={parameter.default!r}`"


def found() -> set[tuple[str, str]]:
    """Every difference that there is."""
    result: set[tuple[str, str]] = set()
    for module in MODULES:
        ours, theirs = (importlib.import_module(f"{package}.{module}") for package in ("axlm", "mlx_lm"))
        for name, value in public(theirs):
            if hasattr(ours, name):
                result.update(differences(f"{module}.{name}", getattr(ours, name), value))
            else:
                result.add((f"{module}.{name}", "missing"))
    return result


def listed() -> set[tuple[str, str]]:
    """The differences that the document's table names."""
    _, heading, rest = DOCUMENT.read_text(encoding="utf-8").partition("\n## Signatures\n")
    assert heading, f"{DOCUMENT} has no table"
    return set(re.findall(r"^\| `([a-zA-Z0-9_.]+)` \| (.+?) \| .+ \|$", rest.partition("\n## ")[0], re.M))


needs_this_version = pytest.mark.skipif(
    not mlx_lm.__version__.startswith("0.32."), reason="the document is about mlx_lm 0.32; Python 3.10 has an older one"
)


@needs_this_version
def test_what_differs_is_what_the_document_lists() -> None:
    there, told = found(), listed()
    assert sorted(there - told) == [], "not in docs/compatibility.md"
    assert sorted(told - there) == [], "in docs/compatibility.md, but not so"


def test_the_comparison_sees_what_differs() -> None:
    def theirs(a: int, b: int = 1, *, c: int = 2) -> None: ...
    def ours(b: int, a: int = 1, *, c: int = 3, d: int = 4) -> None: ...

    assert set(of_signatures(ours, theirs)) == {
        "another default of `a`",
        "another default of `b`",
        "another default of `c`",
        "another order of the arguments",
        "adds `d=4`",
    }
    assert list(of_signatures(theirs, theirs)) == []
    assert list(of_signatures(lambda a, b=1: None, theirs)) == ["lacks `c`"]


def test_the_package_has_mlx_lms_names() -> None:
    for name in mlx_lm.__all__:
        ours, theirs = getattr(axlm, name), getattr(mlx_lm, name)
        assert name in axlm.__all__ and type(ours) is type(theirs)


def test_every_module_of_mlx_lm_is_there() -> None:
    """Under axlm's name, and the same objects unless axlm has its own."""
    theirs = {module.name for module in pkgutil.iter_modules(mlx_lm.__path__) if not module.name.startswith("_")}
    missing = {name for name in theirs if importlib.util.find_spec(f"axlm.{name}") is None}
    assert missing == LATER - {"cli"}
    for package in (module.name for module in pkgutil.iter_modules(mlx_lm.__path__) if module.ispkg):
        names = {module.name for module in pkgutil.iter_modules([str(Path(mlx_lm.__path__[0]) / package)])}
        assert names and all(importlib.import_module(f"axlm.{package}.{name}") for name in names)
