"""Samplers and logits processors that ``mlx_lm.sample_utils`` made, told by their code and read from their closures."""

from __future__ import annotations

import sys
from dataclasses import fields
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .sample_utils import LogitsProcessor, Sampler, make_logits_processors, make_sampler

_KINDS = ("repetition", "presence", "frequency")


def recognised(function: Any) -> Any:
    """Return the core's form of a function of mlx_lm's, and anything else as it is.

    A function is mlx_lm's if its code is part of the code of the function that makes such ones, whatever it is called.
    """
    theirs = sys.modules.get("mlx_lm.sample_utils")
    if theirs is None or not isinstance(function, FunctionType):
        return function
    try:
        return _sampler(theirs, function) or _processor(theirs, function) or function
    except (AttributeError, LookupError, TypeError, ValueError):  # another version's, or settings that mlx_lm refuses
        return function


def _sampler(theirs: ModuleType, function: FunctionType) -> Sampler | None:
    if function is getattr(theirs, "greedy_sampler", None):
        return Sampler()
    makes = theirs.make_sampler
    if not _made_by(makes, function):
        return None
    settings = _closure(function)
    if not settings:  # the greedy one before mlx_lm 0.32
        return Sampler()
    for method in settings.pop("sampling_methods"):
        if not _made_by(makes, method):
            return None
        settings.update(_closure(method))
    if "temp" not in settings or not settings.keys() <= {field.name for field in fields(Sampler)}:
        return None
    return make_sampler(**settings)


def _processor(theirs: ModuleType, function: FunctionType) -> LogitsProcessor | None:
    if _made_by(theirs.make_logits_processors, function):
        settings = _closure(function)
        if settings.keys() == {"indices", "values"}:
            tokens, values = settings["indices"].tolist(), settings["values"].tolist()
            return make_logits_processors(dict(zip(tokens, values, strict=True)))[0]
    for kind in _KINDS:
        if _made_by(getattr(theirs, f"make_{kind}_penalty"), function):
            settings = _closure(function)
            if settings.keys() != {"penalty", "context_size"} or settings["context_size"] is None:
                return None
            names = {f"{kind}_penalty": settings["penalty"], f"{kind}_context_size": settings["context_size"]}
            return make_logits_processors(**names)[0]
    return None


def _made_by(maker: FunctionType, function: Any) -> bool:
    """Tell whether one function's code lies in another's."""
    parts = (part for part in maker.__code__.co_consts if isinstance(part, CodeType))
    return isinstance(function, FunctionType) and any(function.__code__ is part for part in parts)


def _closure(function: FunctionType) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}
