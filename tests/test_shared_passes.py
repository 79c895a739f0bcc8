"""Requests that share passes give what they give alone: every family, plain, speculating and seeded, as they join,
leave and are cancelled at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import axlm
import pytest
from axlm.generate import BatchGenerator
from axlm.sample_utils import make_logits_processors, make_sampler
from batches import at_once, prompts
from oracle import ours

Tiny = Callable[[str], Path]

FAMILIES = [
    "llama-f32", "llama-sliding-f32", "qwen2-f32", "qwen3-f32", "qwen3_moe-f32", "qwen3_5-f32", "qwen3_5_moe-f32",
    "gemma3-f32", "gemma4-f32", "gemma4_moe-f32",
]  # fmt: skip
LENGTHS = (1, 37, 5, 12, 70, 3, 20, 9)
MOST = 24
EAGER = axlm.NgramConfig(adaptive=False, max_draft_tokens=3, ema_threshold=0)


def alone(model: Any, prompt: list[int], **options: Any) -> list[int]:
    return [token for token, _ in axlm.generate_step(prompt, model, max_tokens=MOST, ngram=False, **options)]


def repeated(prompt: list[int]) -> list[int]:
    """A prompt after which n-grams have something to propose."""
    return prompt * 3


@pytest.mark.parametrize("ngram", [False, EAGER], ids=["plain", "speculating"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_that_changes_gives_solo_tokens(tiny: Tiny, family: str, ngram: Any) -> None:
    model, _ = ours(tiny(family))
    draw = random.Random(family)
    waiting = [repeated(prompt) for prompt in prompts(*LENGTHS)]
    expected = [alone(model, prompt) for prompt in waiting]
    before = model.stats()["passes"]
    generator = BatchGenerator(model, max_tokens=MOST, ngram=ngram, completion_batch_size=6, prefill_step_size=32)
    numbers: dict[int, int] = {}
    found: dict[int, list[int]] = {}
    inserted = 0
    gone: set[int] = set()
    while True:
        if inserted < len(waiting) and (draw.random() < 0.5 or not numbers):
            (uid,) = generator.insert([waiting[inserted]])
            numbers[uid], found[uid] = inserted, []
            inserted += 1
        progress, tokens = generator.next()
        for response in tokens:
            found[response.uid].append(response.token)
        if draw.random() < 0.02 and len(gone) < 2:
            uid = draw.choice(list(numbers))
            gone.add(uid)
            generator.remove([uid])
        if not progress and not tokens and inserted == len(waiting):
            break
    generator.close()
    for uid, number in numbers.items():
        want = expected[number]
        assert found[uid] == (want[: len(found[uid])] if uid in gone else want), (uid, number)
    after = model.stats()["passes"]
    assert after["requests"] - before["requests"] > 2 * (after["passes"] - before["passes"])


@pytest.mark.parametrize("family", ["qwen3-f32", "qwen3_5-f32", "gemma4-f32"])
def test_threads_share_passes(tiny: Tiny, family: str) -> None:
    """Eight threads at once, each with its own seed, sampler and processors."""
    model, _ = ours(tiny(family))

    def options(number: int) -> dict[str, Any]:
        sampler = make_sampler(1.1, top_k=50) if number % 3 == 0 else make_sampler(0.9) if number % 3 == 1 else None
        processors = make_logits_processors(repetition_penalty=1.2) if number % 2 else None
        return {"sampler": sampler, "logits_processors": processors, "seed": number}

    texts = prompts(*LENGTHS)
    expected = [alone(model, text, **options(number)) for number, text in enumerate(texts)]
    before = model.stats()["passes"]

    def run(number: int) -> list[int]:
        steps = axlm.generate_step(texts[number], model, max_tokens=MOST, ngram=number % 2 == 0, **options(number))
        return [token for token, _ in steps]

    assert at_once(partial(run, number) for number in range(len(texts))) == expected
    after = model.stats()["passes"]
    assert after["requests"] - before["requests"] > after["passes"] - before["passes"]
