"""A request's own seed, and a random state that a refused setting leaves as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm
import pytest
from axlm.generate import speculative_generate_step
from axlm.sample_utils import make_logits_processors, make_sampler
from batches import at_once
from mlx_lm import sample_utils as upstream
from oracle import theirs

Tiny = Callable[[str], Path]
PROMPT = [5, 6, 7, 8, 5, 6, 7]


@pytest.fixture
def model(tiny: Tiny) -> Iterator[Any]:
    model, _ = axlm.load(tiny("qwen3-f32"))
    yield model
    model.close()


def drawn(model: Any, **options: Any) -> list[int]:
    options = {"sampler": make_sampler(1.0), "max_tokens": 12, **options}
    return [token for token, *_ in axlm.generate_step(PROMPT, model, **options)]


def by_python(logprobs: mx.array) -> mx.array:
    return mx.random.categorical(logprobs)


SAMPLERS = [
    make_sampler(1.0),
    make_sampler(0.9, xtc_probability=0.5, top_p=0.9),
    upstream.make_sampler(0.8),
    by_python,
]


@pytest.mark.parametrize("seed", [0, 7, 2**63 + 5, 2**64 - 1])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=["core", "xtc", "mlx_lm", "python"])
def test_a_seed_draws_what_the_global_one_does(model: Any, tiny: Tiny, sampler: Any, seed: int) -> None:
    other = theirs(tiny("qwen3-f32"))[0]  # which mlx_lm runs; loading it draws
    mx.random.seed(seed)
    expected = drawn(other, sampler=sampler)
    mx.random.seed(seed)
    assert drawn(model, sampler=sampler) == expected
    mx.random.seed(123)
    assert drawn(model, sampler=sampler, seed=seed) == expected
    assert drawn(model, sampler=sampler, seed=seed, ngram=False) == expected
    assert drawn(other, sampler=sampler, seed=seed) == expected
    assert mx.random.state[0].tolist() == [0, 123]


def test_every_function_takes_a_seed(model: Any, tiny: Tiny) -> None:
    _, tokenizer = theirs(tiny("qwen3-f32"))
    options: dict[str, Any] = {"sampler": make_sampler(1.0), "max_tokens": 8}
    mx.random.seed(3)
    expected = mlx_lm.generate(theirs(tiny("qwen3-f32"))[0], tokenizer, PROMPT, **options)
    mx.random.seed(50)
    assert axlm.generate(model, tokenizer, PROMPT, seed=3, **options) == expected
    pieces = axlm.stream_generate(model, tokenizer, PROMPT, seed=3, **options)
    assert "".join(piece.text for piece in pieces) == expected
    drafted = speculative_generate_step(PROMPT, model, model, seed=3, **options)
    assert [token for token, *_ in drafted] == drawn(model, seed=3, max_tokens=8)
    assert mx.random.state[0].tolist() == [0, 50]


@pytest.mark.parametrize("sampler", [make_sampler(1.0), by_python], ids=["core", "python"])
def test_requests_side_by_side_and_the_caller_do_not_disturb_each_other(model: Any, sampler: Any) -> None:
    expected = [drawn(model, sampler=sampler, seed=seed) for seed in (1, 2)]
    assert expected[0] != expected[1]
    running = [axlm.generate_step(PROMPT, model, sampler=sampler, max_tokens=12, seed=seed) for seed in (1, 2)]
    mx.random.seed(9)
    values = []
    found: list[list[int]] = [[], []]
    for pair in zip(*running, strict=True):
        for tokens, (token, _) in zip(found, pair, strict=True):
            tokens.append(token)
        values.append(mx.random.uniform().item())
    assert found == expected
    mx.random.seed(9)
    assert values == [mx.random.uniform().item() for _ in values]


def test_threads_with_seeds_draw_their_own(model: Any) -> None:
    expected = {seed: drawn(model, seed=seed) for seed in range(3)}
    found = at_once(partial(drawn, model, seed=seed) for seed in expected)
    assert dict(enumerate(found)) == expected and len(set(map(tuple, expected.values()))) == 3


@pytest.mark.parametrize(
    ("seed", "error"), [(-1, ValueError), (2**64, ValueError), (True, TypeError), (1.0, TypeError), ("1", TypeError)]
)
def test_a_wrong_seed_is_named(model: Any, tiny: Tiny, seed: Any, error: type[Exception]) -> None:
    for runs in (model, theirs(tiny("qwen3-f32"))[0]):
        with pytest.raises(error, match="seed must"):
            drawn(runs, seed=seed)
    assert len(drawn(model, seed=1)) == 12


def unchanged(tokens: mx.array, logits: mx.array) -> mx.array:
    return logits


def failing(tokens: mx.array, logits: mx.array) -> mx.array:
    mx.random.uniform()
    raise ValueError("no")


REFUSED: dict[str, dict[str, Any]] = {
    "top_k": {"sampler": make_sampler(0.8, top_k=99999), "logits_processors": [unchanged]},
    "min_p": {"sampler": make_sampler(0.8, min_p=2.0), "logits_processors": [unchanged]},
    "xtc": {
        "sampler": make_sampler(0.8, xtc_probability=0.5, xtc_threshold=0.9),
        "logits_processors": [unchanged],
    },
    "mlx_lm's": {"sampler": upstream.make_sampler(0.8, top_k=99999), "logits_processors": [unchanged]},
    "in the core": {"sampler": make_sampler(0.8, top_k=99999)},
    "a processor": {"sampler": make_sampler(0.8), "logits_processors": [failing]},
    "seeded": {"sampler": make_sampler(0.8, top_k=99999), "logits_processors": [unchanged], "seed": 4},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_setting_leaves_the_random_state(model: Any, name: str) -> None:
    expected = drawn(model, seed=11)
    mx.random.seed(11)
    with pytest.raises(ValueError):
        drawn(model, **REFUSED[name])
    assert mx.random.state[0].tolist() == [0, 11]
    assert drawn(model, ngram=False, sampler=None)
    mx.random.seed(11)
    assert drawn(model) == expected


def test_a_sampler_called_on_arrays_leaves_it_too() -> None:
    mx.random.seed(12)
    with pytest.raises(ValueError, match="top_k"):
        make_sampler(0.8, top_k=9)(mx.zeros((1, 5)))
    assert mx.random.state[0].tolist() == [0, 12]
    assert make_logits_processors(repetition_penalty=1.5)
