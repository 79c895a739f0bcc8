"""N-gram speculation through the Python face: it changes no token, counts what it does and ends where it must."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm import NgramConfig
from axlm.ngram import ngram_options
from axlm.sample_utils import make_logits_processors, make_sampler
from oracle import ours, reference

Tiny = Callable[[str], Path]

EVERY_STEP = NgramConfig(adaptive=False, max_draft_tokens=4, ema_threshold=0.0)
"""Drafts whenever anything matches, right or wrong."""

LOOP = [3, 5, 9, 5, 7] * 6
"""A prompt that repeats itself, so that there is something to draft from the first step on."""


def tokens(model: Any, prompt: list[int], **options: Any) -> list[int]:
    return [token for token, _ in axlm.generate_step(prompt, model, **options)]


@pytest.mark.parametrize("name", ["qwen3-nano-f32", "llama-nano-f32", "qwen3-f32", "llama-f32"])
@pytest.mark.parametrize("prompt", [LOOP, [1, 1, 1], [10, 20, 30, 40, 50]], ids=["loop", "short loop", "no match"])
def test_ids_are_those_of_mlx_lm(tiny: Tiny, name: str, prompt: list[int]) -> None:
    folder = tiny(name)
    model, _ = ours(folder)
    expected = reference(folder, prompt, 96).ids
    for ngram in (True, EVERY_STEP, NgramConfig(adaptive=False, max_draft_tokens=1, ema_threshold=0.0)):
        assert tokens(model, prompt, max_tokens=96, ngram=ngram) == expected, ngram


def test_drafts_are_marked_and_counted(tiny: Tiny) -> None:
    model, tokenizer = ours(tiny("qwen3-nano-f32"))
    # A bias so strong that the text must loop: every draft is right.
    forced = make_logits_processors(logit_bias={7: 1e4})
    before = model.stats()["ngram"]["accepted"]
    responses = list(
        axlm.stream_generate(model, tokenizer, [7] * 8, max_tokens=60, logits_processors=forced, ngram=EVERY_STEP)
    )
    assert [response.token for response in responses] == [7] * 60
    drafted = sum(response.from_draft for response in responses)
    stats = responses[-1].stats
    assert stats is not None and all(response.stats is None for response in responses[:-1])
    speculation = stats["speculation"]
    assert drafted == speculation["accepted"] > 30
    assert speculation["drafted"] >= speculation["accepted"]
    assert stats["decode_steps"] < 30
    json.dumps(stats)
    assert model.stats()["ngram"]["accepted"] == before + drafted


@pytest.mark.parametrize("options", [{}, {"temp": 1.2}, {"temp": 1.5, "top_p": 0.9, "xtc_probability": 0.3}])
def test_sampling_is_not_changed(tiny: Tiny, options: dict[str, Any]) -> None:
    model, _ = ours(tiny("qwen3-nano-f32"))
    processors = make_logits_processors(repetition_penalty=1.1, frequency_penalty=0.1)
    for seed in range(4):
        outcomes = []
        for ngram in (False, True, EVERY_STEP):
            mx.random.seed(seed)
            how = {"sampler": make_sampler(**options), "logits_processors": processors, "ngram": ngram}
            outcomes.append(tokens(model, LOOP, max_tokens=64, **how))
        assert outcomes[0] == outcomes[1] == outcomes[2]


def test_texts_end_inside_a_block(tiny: Tiny) -> None:
    """Cases 7 and 8: an end token, or the limit, inside an accepted block."""
    model, tokenizer = ours(tiny("qwen3-f32"))
    forced = make_logits_processors(logit_bias={tokenizer.encode("a")[0]: 1e4})
    loop = tokenizer.encode("a") * 8
    usual = tokenizer.eos_token_ids
    for limit in range(1, 20):
        responses = list(
            axlm.stream_generate(model, tokenizer, loop, max_tokens=limit, logits_processors=forced, ngram=EVERY_STEP)
        )
        assert len(responses) == limit and responses[-1].finish_reason == "length"
    plain = [response.token for response in axlm.stream_generate(model, tokenizer, LOOP, max_tokens=40, ngram=False)]
    try:
        tokenizer.eos_token_ids = {plain[9]}
        found = list(axlm.stream_generate(model, tokenizer, LOOP, max_tokens=40, ngram=EVERY_STEP))
    finally:
        tokenizer.eos_token_ids = usual
    assert [response.token for response in found] == plain[: plain.index(plain[9]) + 1]
    assert found[-1].finish_reason == "stop"


def test_logprobs_are_those_of_plain_decoding(tiny: Tiny) -> None:
    model, _ = ours(tiny("llama-f32"))
    plain = list(axlm.generate_step(LOOP, model, max_tokens=48, ngram=False))
    for (token, values), (other, expected) in zip(
        axlm.generate_step(LOOP, model, max_tokens=48, ngram=EVERY_STEP), plain, strict=True
    ):
        assert token == other and values.shape == expected.shape
        assert mx.allclose(values, expected, rtol=0, atol=1e-4)


def test_settings_are_checked(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-nano-f32"))
    for ngram, error, culprit in (
        (NgramConfig(max_draft_tokens=99), ValueError, "max_draft_tokens"),
        (NgramConfig(ema_decay=0.0), ValueError, "ema_decay"),
        ({"max_drafts": 3}, ValueError, "max_drafts"),
        (4, TypeError, "ngram"),
    ):
        with pytest.raises(error, match=culprit):
            next(axlm.generate_step([1, 2], model, ngram=ngram))
    assert len(tokens(model, [1, 2], max_tokens=3, ngram={"adaptive": False, "max_draft_tokens": 2})) == 3


def test_a_closed_stream_frees_its_request(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-nano-f32"))
    for stop in range(1, 12):
        stream = axlm.generate_step(LOOP, model, max_tokens=40, ngram=EVERY_STEP)
        for _ in range(stop):
            next(stream)
        stream.close()
    assert model.stats()["requests"] == 0


def test_ropes_that_look_at_a_forwards_length_are_not_drafted_for(tiny: Tiny) -> None:
    """Dynamic ropes turn tokens by the end of the forward they are in, past the length that the model was made for."""
    folder = tiny("llama-dynamic-f32")  # made for 64 tokens
    model, _ = ours(folder)
    for prompt in ([7, 8, 9] * 34, [7, 8, 9] * 15, [1, 1, 1]):
        expected = reference(folder, prompt, 60).ids
        for ngram in (False, True, EVERY_STEP):
            assert tokens(model, prompt, max_tokens=60, ngram=ngram) == expected, (len(prompt), ngram)


def test_settings_of_a_wrong_type_are_named() -> None:
    for settings, error in (
        ({"max_draft_tokens": "4"}, TypeError),
        ({"max_draft_tokens": 2.5}, TypeError),
        ({"adaptive": 1}, TypeError),
        ({"min_support": 2**64}, ValueError),
        ({"ema_decay": float("nan")}, ValueError),
    ):
        with pytest.raises(error, match=next(iter(settings))):
            ngram_options(settings)
        with pytest.raises(error, match=next(iter(settings))):
            ngram_options(NgramConfig(**settings))
