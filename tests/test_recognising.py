"""Samplers and logits processors of mlx_lm's own run in the core; of others it is said that they do not."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm import _choice
from axlm._choice import choice
from axlm._recognise import recognised
from axlm.sample_utils import Sampler, make_logits_processors, make_sampler
from mlx_lm import sample_utils as upstream
from mlx_lm.generate import generate_step as their_step
from oracle import ours, theirs
from test_sampling import PROCESSORS, SAMPLERS, run

Tiny = Callable[[str], Path]


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_mlx_lm_makes_runs_in_the_core(tiny: Tiny, sampler: str, processors: str) -> None:
    folder = tiny("qwen3-nano-f32")
    options: dict[str, Any] = {
        "sampler": upstream.make_sampler(**SAMPLERS[sampler]),
        "logits_processors": upstream.make_logits_processors(**PROCESSORS[processors]),
    }
    assert not choice(**options).by_reader
    prompt = [3, 5, 9, 5, 7, 3, 5]
    expected = run(their_step, theirs(folder)[0], prompt, 3, **options)
    found = run(axlm.generate_step, ours(folder)[0], prompt, 3, **options)
    assert found == expected if SAMPLERS[sampler] else found[0] == expected[0]


def test_they_speculate(tiny: Tiny) -> None:
    model, tokenizer = ours(tiny("qwen3-f32"))
    options: dict[str, Any] = {
        "sampler": upstream.make_sampler(0.01),
        "logits_processors": upstream.make_logits_processors({9: 100.0}),
        "ngram": axlm.NgramConfig(adaptive=False, ema_threshold=0),
    }
    *_, last = axlm.stream_generate(model, tokenizer, [5, 6, 7], max_tokens=40, **options)
    assert last.token == 9 and last.stats is not None and last.stats["speculation"]["accepted"] > 20


def test_every_setting_is_read() -> None:
    settings: dict[str, Any] = {
        "temp": 0.7, "top_p": 0.8, "min_p": 0.1, "min_tokens_to_keep": 3, "top_k": 40,
        "xtc_probability": 0.2, "xtc_threshold": 0.3, "xtc_special_tokens": [4, 5],
    }  # fmt: skip
    assert recognised(upstream.make_sampler(**settings)) == make_sampler(**settings)
    assert recognised(upstream.make_sampler(0.0, top_k=3)) == Sampler()
    assert recognised(upstream.make_sampler(1)) == Sampler(1.0)
    changes: dict[str, Any] = {
        "logit_bias": {5: 2.0, 1023: float("-inf")},
        "repetition_penalty": 1.5, "repetition_context_size": 7,
        "presence_penalty": 0.25, "presence_context_size": 8,
        "frequency_penalty": 0.5, "frequency_context_size": 0,
    }  # fmt: skip
    assert [recognised(f) for f in upstream.make_logits_processors(**changes)] == make_logits_processors(**changes)


def sampler(logprobs: mx.array) -> mx.array:
    return mx.argmax(logprobs, axis=-1)


sampler.__module__, sampler.__qualname__ = "mlx_lm.sample_utils", "make_sampler.<locals>.sampler"


@pytest.mark.parametrize(
    "function",
    [
        sampler,
        functools.partial(upstream.greedy_sampler),
        upstream.categorical_sampling,
        upstream.make_repetition_penalty(0.0),
        upstream.make_presence_penalty(0.5, None),
        upstream.make_frequency_penalty(0.5, -3),
        upstream.make_sampler(float("inf")),
        upstream.make_sampler,
        None,
        7,
    ],
)
def test_what_is_not_is_left_as_it_is(function: Any) -> None:
    assert recognised(function) is function


def test_that_python_chooses_is_said_once(tiny: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    model, tokenizer = ours(tiny("qwen3-f32"))

    def run(**options: Any) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "axlm"):
            axlm.generate(model, tokenizer, [5, 6], max_tokens=2, **options)
        return [record.getMessage() for record in caplog.records]

    _choice._say_that_python_chooses.cache_clear()
    assert run() == run(sampler=make_sampler(0.5)) == run(sampler=upstream.make_sampler(0.5)) == []
    assert run(sampler=sampler, ngram=False) == []
    (said,) = run(sampler=sampler)
    assert "nothing is drafted" in said and "mlx_lm.sample_utils" in said
    assert run(sampler=sampler) == []
    _choice._say_that_python_chooses.cache_clear()
    axlm.batch_generate(model, tokenizer, [[5, 6], [7]], max_tokens=2, sampler=sampler)
    assert [record.getMessage() for record in caplog.records] == [said]
