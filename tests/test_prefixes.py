"""States of prompts and answers that are kept: requests that begin alike go on from them, with their own tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm import memory
from axlm.models.cache import make_prompt_cache
from batches import at_once, prompts

Tiny = Callable[[str], Path]

FAMILIES = ["llama-sliding-f32", "qwen2-f32", "qwen3-f32", "qwen3_moe-f32", "qwen3_5-f32", "gemma3-f32", "gemma4-f32"]


def run(model: Any, prompt: list[int], **options: Any) -> list[int]:
    return [token for token, _ in axlm.generate_step(prompt, model, max_tokens=12, **options)]


@pytest.fixture
def fresh(tiny: Tiny) -> Any:
    """Load a model that no other test has."""
    models = []

    def load(name: str) -> Any:
        models.append(axlm.load(tiny(name))[0])
        return models[-1]

    yield load
    for model in models:
        model.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_a_cold_start(fresh: Any, family: str) -> None:
    model = fresh(family)
    (base,) = prompts(600)
    texts = [base, [*base[:512], 7, 8, 9], base[:290] + base[:70], [*base, *[5] * 30], base]
    cold = [run(model, text) for text in texts]
    model.keep_prefixes(1 << 28)
    for ngram in (False, True):
        assert [run(model, text, ngram=ngram, prefill_step_size=150) for text in texts] == cold
    stats = model.stats()
    assert stats["prefixes"]["Hits"] >= 8 and stats["reused_tokens"] >= 4 * 256
    model.keep_prefixes(None)
    assert [run(model, text) for text in texts] == cold and "prefixes" not in model.stats()


def test_conversations_in_threads(fresh: Any) -> None:
    """Each turn's prompt is the text so far: it goes on from the answer."""
    model = fresh("qwen3-f32")
    starts = prompts(300, 310, 320, 300)

    def talk(prompt: list[int]) -> list[int]:
        text = list(prompt)
        for turn in range(3):
            text += [*run(model, text), 100 + turn]
        return text

    expected = [talk(start) for start in starts]
    model.keep_prefixes(1 << 28)
    assert at_once(partial(talk, start) for start in starts) == expected
    assert model.stats()["reused_tokens"] > 0


def test_what_nothing_is_kept_of(fresh: Any) -> None:
    model = fresh("qwen3-f32")
    (base,) = prompts(200)
    options: list[dict[str, Any]] = [
        {"max_kv_size": 64},
        {"kv_bits": 8, "quantized_kv_start": 0},
        {"input_embeddings": mx.zeros((200, 128))},
        {},
    ]
    cold = [run(model, base, **each) for each in options]
    model.keep_prefixes(1 << 28)
    for _ in range(2):
        assert [run(model, base, **each) for each in options] == cold
    cache = make_prompt_cache(model, 64)
    assert run(model, base, prompt_cache=cache) == cold[0]
    cache = make_prompt_cache(model)
    assert run(model, base, prompt_cache=cache) == cold[3] and cache[0].offset == 212
    assert run(model, [5], prompt_cache=cache) == run(model, [*base, *cold[3], 5])


def test_new_weights_forget_what_was_kept(fresh: Any) -> None:
    model = fresh("qwen3-f32")
    (base,) = prompts(200)
    model.keep_prefixes(1 << 28)
    run(model, base)
    model.set_dtype(mx.float16)
    assert run(model, base) == run(model, base)
    other = fresh("qwen3-f32")
    other.set_dtype(mx.float16)
    assert run(model, base) == run(other, base)


@pytest.mark.parametrize(("limit", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_wrong_limits(fresh: Any, limit: Any, error: type[Exception]) -> None:
    model = fresh("qwen3-nano-f32")
    for refuses in (model.keep_prefixes, memory.set_kv_bytes):
        with pytest.raises(error, match="limit"):
            refuses(limit)
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.keep_prefixes(1000)


def test_caches_within_a_budget(fresh: Any) -> None:
    """Requests wait for memory, one that cannot fit alone fails, and the next goes on."""
    model = fresh("qwen3-f32")
    texts = prompts(40, 60, 90, 20)
    expected = [run(model, text) for text in texts]
    memory.set_kv_bytes(2 << 20)  # one cache of 256 tokens, and little more
    try:
        assert at_once(partial(run, model, text) for text in texts) == expected
        with pytest.raises(MemoryError, match="cache"):
            run(model, prompts(3000)[0])
        assert run(model, texts[0]) == expected[0]
    finally:
        memory.set_kv_bytes(None)
