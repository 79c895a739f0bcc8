"""Calling a model: the arguments that mlx_lm's class of the family has, by place and by name, and its logits."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm.model import Model
from fixtures import tiny_models
from oracle import ours, theirs

Tiny = Callable[[str], Path]


@pytest.fixture(params=tiny_models.FAMILIES)
def pair(request: pytest.FixtureRequest, tiny: Tiny) -> tuple[Any, Any]:
    folder = tiny(f"{request.param}-f32")
    return ours(folder)[0], theirs(folder)[0]


def test_the_class_is_the_package_s() -> None:
    assert axlm.Model is Model and "Model" in axlm.__all__


def test_arguments_are_those_of_the_family_s_class(pair: tuple[Any, Any]) -> None:
    mine, wanted = (list(inspect.signature(type(model).__call__).parameters.values()) for model in pair)
    kinds = [[(p.name, p.kind, p.default) for p in parameters] for parameters in (mine, wanted)]
    assert kinds[0][: len(kinds[1])] == kinds[1]
    assert all(p.default is None for p in mine[len(wanted) :]), "what is added can be left out"


def test_by_name_and_by_place(pair: tuple[Any, Any]) -> None:
    model, other = pair
    ids = mx.array([[5, 9, 2, 7]])
    table = getattr(other, "language_model", other).model.embed_tokens
    embeddings = table(ids[:, ::-1])
    before = mx.array(embeddings)
    calls: list[Callable[[Any], mx.array]] = [
        lambda m: m(inputs=ids),
        lambda m: m(inputs=ids, cache=m.make_cache() if hasattr(m, "make_cache") else None),
        lambda m: m(ids, None, mx.array(embeddings)),  # mlx_lm's Gemma 3 scales them in place
        lambda m: m(ids, None, None),
        lambda m: m(input_embeddings=mx.array(embeddings), inputs=ids),
    ]
    for call in calls:
        wanted = call(other)
        assert mx.allclose(call(model), wanted, rtol=1e-4, atol=1e-4 * mx.abs(wanted).max().item()).item()
    model(ids, None, embeddings)
    assert mx.array_equal(embeddings, before).item(), "what is the caller's stays as it is"


def test_padded_batches(pair: tuple[Any, Any]) -> None:
    """mlx_lm's generator runs our model on its batch caches: by its own layers, on the core's weights."""
    from mlx_lm.generate import BatchGenerator

    def run(model: Any) -> list[list[int]]:
        generator = BatchGenerator(model, max_tokens=6)
        numbers = generator.insert([[5, 6, 7, 8, 9], [7], [3, 4, 5]])
        found: dict[int, list[int]] = {number: [] for number in numbers}
        while responses := generator.next_generated():
            for response in responses:
                found[response.uid].append(response.token)
        return [found[number] for number in numbers]

    model, other = pair
    assert run(model) == run(other)
    ids = mx.array([[5, 9, 2, 7]])
    assert model(ids).shape == (1, 4, model.vocab_size), "the core goes on"


def test_what_the_core_does_not_take_is_refused(pair: tuple[Any, Any]) -> None:
    model, other = pair
    ids = mx.array([[5, 9]])
    for name in ("mask", "per_layer_inputs"):
        with pytest.raises(NotImplementedError, match=name):
            model(ids, **{name: mx.zeros((1, 2))})
    with pytest.raises(TypeError):
        model(tokens=ids)
    assert model(ids).shape == other(ids).shape


def test_every_family_of_the_core_is_called_alike() -> None:
    """Of mlx_lm's classes themselves, those that have no small model here included."""
    mine = list(inspect.signature(Model.__call__).parameters)
    for family in ("llama", "mistral3", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "gemma3", "gemma4"):
        wanted = list(inspect.signature(importlib.import_module(f"mlx_lm.models.{family}").Model.__call__).parameters)
        assert mine[: len(wanted)] == wanted
