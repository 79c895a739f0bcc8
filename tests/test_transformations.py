"""The model under MLX's transformations: mlx_lm's values, or an error that names the way out; never silent zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx.nn as nn
import pytest
from axlm.models.cache import make_prompt_cache
from axlm.tuner.utils import linear_to_lora_layers
from oracle import theirs

Tiny = Callable[[str], Path]

IDS = mx.array([[5, 6, 7, 8]])


@pytest.fixture(params=["qwen3-f32", "llama-f32", "qwen3_5-f32", "gemma3-f32"])
def pair(request: pytest.FixtureRequest, tiny: Tiny) -> Iterator[tuple[Any, Any]]:
    """The core's model and mlx_lm's."""
    folder = tiny(request.param)
    model, _ = axlm.load(folder)
    yield model, theirs(folder)[0]
    model.close()


def embedded(model: Any) -> mx.array:
    inner = model.language_model if "language_model" in model else model
    return inner.model.embed_tokens(IDS)


def same(compute: Callable[[Any], Any], pair: tuple[Any, Any]) -> None:
    mine, other = compute(pair[0]), compute(pair[1])
    assert mx.abs(other).max().item() > 0
    assert mine.shape == other.shape and mx.allclose(mine, other, rtol=1e-4, atol=1e-6).item()


def logit(model: Any, embeddings: mx.array, **options: Any) -> mx.array:
    return model(IDS, input_embeddings=embeddings, **options)[0, -1, 5]


DERIVATIVES: dict[str, Callable[..., mx.array]] = {
    "grad": lambda f, e: mx.grad(f)(e),
    "value_and_grad": lambda f, e: mx.value_and_grad(f)(e)[1],
    "chain": lambda f, e: mx.grad(lambda e: f(e * 2 + 1))(e),
    "vjp": lambda f, e: mx.vjp(f, [e], [mx.array(3.0)])[1][0],
    "jvp": lambda f, e: mx.jvp(f, [e], [mx.ones_like(e)])[1][0],
    "checkpoint": lambda f, e: mx.grad(mx.checkpoint(f))(e),
    "constant": lambda f, e: mx.grad(lambda w: f(e) * w)(mx.array(1.0)),  # as a teacher's logits are
    "compile": lambda f, e: mx.compile(f)(e),
}


def test_gradients(pair: tuple[Any, Any]) -> None:
    same(lambda model: mx.grad(lambda e: logit(model, e))(embedded(model)), pair)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_functions_of_embeddings(name: str, tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = axlm.load(folder)
    other, _ = theirs(folder)
    same(lambda model: DERIVATIVES[name](lambda e: logit(model, e), embedded(model)), (model, other))
    model.close()


def test_compiled_functions_of_tokens(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = axlm.load(folder)
    other, _ = theirs(folder)
    compiled = mx.compile(model)
    for tokens in (IDS, IDS + 1):  # the second call runs what the first one compiled
        assert mx.allclose(compiled(tokens), other(tokens), rtol=1e-4, atol=1e-5).item()
    model.close()


def test_mapped_functions(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = axlm.load(folder)
    pair = model, theirs(folder)[0]
    rows = mx.stack([IDS, IDS + 1, IDS + 2])
    same(lambda model: mx.vmap(model)(rows), pair)
    many = mx.stack([embedded(pair[1]), 2 * embedded(pair[1])])
    same(lambda model: mx.vmap(lambda e: logit(model, e))(many), pair)
    same(lambda model: mx.vmap(mx.grad(lambda e: logit(model, e)))(many), pair)
    model.close()


def test_derivatives_through_a_cache(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = axlm.load(folder)
    pair = model, theirs(folder)[0]

    def kept(model: Any) -> mx.array:
        """The first call's embeddings matter to the second call through the cache alone."""

        def function(e: mx.array) -> mx.array:
            cache = make_prompt_cache(model)
            model(IDS, cache, input_embeddings=e)
            return model(mx.array([[9]]), cache)[0, -1, 5]

        return mx.grad(function)(embedded(model))

    def contents(model: Any) -> mx.array:
        """As in prefix tuning: the cache's keys are what is differentiated."""
        cache = make_prompt_cache(model)
        model(IDS, cache)
        keys = cache[0].keys

        def function(keys: mx.array) -> mx.array:
            fresh = make_prompt_cache(model)
            for layer, old in zip(fresh, cache, strict=True):
                layer.keys, layer.values, layer.offset = old.keys, old.values, old.offset
            fresh[0].keys = keys
            return model(mx.array([[9]]), fresh)[0, -1, 5]

        return mx.grad(function)(keys)

    same(kept, pair)
    same(contents, pair)
    model.close()


def test_outside_of_transformations_the_core_answers(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = axlm.load(tiny("qwen3-f32"))
    e = embedded(model)
    mx.grad(lambda e: logit(model, e))(e)
    monkeypatch.setattr(type(model), "_traced_call", lambda *_: pytest.fail("mlx_lm's class was called"))
    assert logit(model, e).shape == () and model(IDS, make_prompt_cache(model)).shape[:2] == (1, 4)
    mx.grad(lambda w: (model(IDS)[0, -1, 5] + logit(model, e)) * w)(mx.array(1.0))  # nothing traced reaches the model
    model.close()


def test_generating_is_refused(tiny: Tiny) -> None:
    model, _ = axlm.load(tiny("qwen3-f32"))
    e = embedded(model)

    def function(e: mx.array) -> mx.array:
        return next(axlm.generate_step([], model, input_embeddings=e[0]))[1][5]

    for transformed in (mx.grad(function), mx.compile(function), lambda e: mx.jvp(function, [e], [e])):
        with pytest.raises(NotImplementedError, match="call the model instead"):
            transformed(e)
    assert next(axlm.generate_step([], model, input_embeddings=e[0]))[0] >= 0
    model.close()


def test_training_is_refused_with_the_way_out(pair: tuple[Any, Any]) -> None:
    model = pair[0]

    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = model
            self.head = nn.Linear(2, 2)

        def __call__(self, ids: mx.array) -> mx.array:
            return self.teacher(ids)

    def loss(model: Any, ids: mx.array) -> mx.array:
        return model(ids).sum()

    student = Student()
    for train in (
        lambda: nn.value_and_grad(model, loss)(model, IDS),
        lambda: nn.value_and_grad(student, loss)(student, IDS),
        lambda: mx.grad(lambda p: loss(model.update(p), IDS))(model.parameters()),
        lambda: linear_to_lora_layers(model, 1, {"rank": 2, "scale": 1.0, "dropout": 0.0}),
    ):
        with pytest.raises(NotImplementedError, match=r"mlx_lm\.load gives a module that can be changed and trained"):
            train()
    assert mx.allclose(model(IDS), pair[1](IDS), rtol=1e-4, atol=1e-5).item()
