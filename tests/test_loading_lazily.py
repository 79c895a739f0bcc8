"""What a load does not do before somebody looks: a model's weights are fetched as arrays when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axlm
import pytest
from axlm import _bridge
from axlm.models.cache import make_prompt_cache
from fixtures import tiny_models
from mlx_lm.models import cache as mlx_cache
from oracle import theirs

Tiny = Callable[[str], Path]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each fetch of a model's arrays."""
    calls: list[int] = []
    real = _bridge.parameters

    def parameters(model: int, names: list[str]) -> dict[str, Any]:
        calls.append(len(names))
        return real(model, names)

    monkeypatch.setattr(_bridge, "parameters", parameters)
    return calls


@pytest.fixture(params=tiny_models.FAMILIES)
def folder(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    return tiny(f"{request.param}-f32")


@pytest.fixture
def model(folder: Path) -> Iterator[Any]:
    model, _ = axlm.load(folder, lazy=True)
    yield model
    model.close()


def test_generating_fetches_nothing(model: Any, fetched: list[int]) -> None:
    for options in ({}, {"max_kv_size": 16}, {"kv_bits": None, "ngram": False}):
        assert len(list(axlm.generate_step([1, 2, 3], model, max_tokens=3, **options))) == 3
    assert len(list(axlm.generate_step([1, 2], model, max_tokens=3, prompt_cache=make_prompt_cache(model)))) == 3
    assert not hasattr(model, "nothing") and "nothing" not in model and model.args is not None and repr(model)
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.nothing
    assert fetched == []
    assert len(model) == len(list(model)) == len(model.keys()) > 0
    assert fetched == []
    assert model.parameters() and len(fetched) == 1


@pytest.mark.parametrize("size", [None, 8])
def test_caches_are_those_that_mlx_lm_makes(model: Any, folder: Path, size: int | None, fetched: list[int]) -> None:
    def described(caches: list[Any]) -> list[Any]:
        return [(type(c), getattr(c, "max_size", None), getattr(c, "keep", None)) for c in caches]

    mine = make_prompt_cache(model, size)
    assert fetched == []
    other, _ = theirs(folder)
    expected = described(mlx_cache.make_prompt_cache(other, size))
    assert described(mine) == described(make_prompt_cache(other, size)) == expected
    assert described(mlx_cache.make_prompt_cache(model, size)) == expected
