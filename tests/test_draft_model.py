"""Speculation with a draft model: the tokens of plain decoding, whoever drafts, and mlx_lm's functions and marks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm.generate import speculative_generate_step
from axlm.sample_utils import make_logits_processors, make_sampler
from oracle import generated, ours, prompt_of, reference, theirs

Tiny = Callable[[str], Path]

ALWAYS = axlm.NgramConfig(ema_threshold=0.0)
"""Drafts at every step, whether it pays or not."""

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temp": {"temp": 1.0},
    "all": {"temp": 1.5, "top_p": 0.95, "min_p": 0.01, "top_k": 20, "xtc_probability": 0.3},
}


def drafted(model: Any, draft: Any, prompt: list[int], **options: Any) -> list[tuple[int, bool]]:
    """Generate with a draft model, at every step: (token, from a draft)."""

    class Bare:  # a tokenizer of which only the ids are used
        bos_token = None
        eos_token_ids: frozenset[int] = frozenset()

        class detokenizer:
            last_segment = ""
            add_token = staticmethod(lambda token: None)
            finalize = staticmethod(lambda: None)

    options = {"ngram": ALWAYS, "num_draft_tokens": 3, **options}
    return [(r.token, r.from_draft) for r in axlm.stream_generate(model, Bare(), prompt, draft_model=draft, **options)]


@pytest.mark.parametrize(
    "name", ["llama-f32", "qwen3-f32", "gemma4-f32", "gemma4_moe-f32", "llama-yarn-f32", "qwen3-nano-f32"]
)
@pytest.mark.parametrize("depth", [2, 5])
def test_a_model_that_drafts_for_itself_is_always_right(tiny: Tiny, name: str, depth: int) -> None:
    folder = tiny(name)
    model, _ = ours(folder)
    prompt = prompt_of(folder, "text")
    found = drafted(model, model, prompt, max_tokens=60, num_draft_tokens=depth)
    assert [token for token, _ in found] == reference(folder, prompt, 60).ids
    assert [mark for _, mark in found] == [(at + 1) % (depth + 1) != 0 for at in range(60)]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("draft", ["qwen3-nano-f32", "llama-nano-f32"])
def test_sampled_tokens_are_those_of_plain_decoding(tiny: Tiny, draft: str, sampling: str) -> None:
    model, drafting = ours(tiny("qwen3-nano-f32"))[0], ours(tiny(draft))[0]
    processors = make_logits_processors(repetition_penalty=1.1, frequency_penalty=0.1)
    for seed in range(4):
        how = {"sampler": make_sampler(**SAMPLINGS[sampling]), "logits_processors": processors, "max_tokens": 60}
        mx.random.seed(seed)
        plain = generated(model, [3, 5, 9], 60, **{k: v for k, v in how.items() if k != "max_tokens"})
        state = mx.random.state[0].tolist()
        mx.random.seed(seed)
        found = drafted(model, drafting, [3, 5, 9], **how)
        assert [token for token, _ in found] == plain
        assert mx.random.state[0].tolist() == state
        right = sum(mark for _, mark in found)
        assert right == 45 if drafting is model else right < 30


def test_marks_are_those_of_mlx_lm(tiny: Tiny) -> None:
    """As upstream's own test has it: two drafts, one of the model's, two drafts up to the limit."""
    import mlx_lm

    folder = tiny("qwen3-f32")
    model, tokenizer = ours(folder)
    their_model, their_tokenizer = theirs(folder)
    prompt = prompt_of(folder, "chat")
    for limit in (1, 2, 3, 5, 12):
        found = list(axlm.stream_generate(model, tokenizer, prompt, limit, model, num_draft_tokens=2))
        expected = list(mlx_lm.stream_generate(their_model, their_tokenizer, prompt, limit, their_model))
        for one, other in zip(found, expected, strict=True):
            assert (one.token, one.from_draft, one.text) == (other.token, other.from_draft, other.text)
            assert mx.allclose(one.logprobs, other.logprobs, rtol=0, atol=1e-4)
        assert found[-1].finish_reason == "length" and all(response.stats is None for response in found[:-1])


def test_the_step_function_is_that_of_mlx_lm(tiny: Tiny) -> None:
    from mlx_lm.generate import speculative_generate_step as their_step

    folder = tiny("llama-f32")
    model, their_model = ours(folder)[0], theirs(folder)[0]
    prompt = mx.array(prompt_of(folder, "text"))
    expected = list(their_step(prompt, their_model, their_model, num_draft_tokens=3, max_tokens=20))
    found = list(speculative_generate_step(prompt, model, model, num_draft_tokens=3, max_tokens=20))
    assert [(token, mark) for token, _, mark in speculative_generate_step(prompt, their_model, their_model)][:20] == [
        (token, mark) for token, _, mark in their_step(prompt, their_model, their_model, max_tokens=20)
    ]
    for (token, logprobs, mark), (their_token, their_logprobs, their_mark) in zip(found, expected, strict=True):
        assert (token, mark) == (their_token, their_mark)
        assert mx.allclose(logprobs, their_logprobs, rtol=0, atol=1e-4)
    assert len(list(speculative_generate_step(prompt, model, model, num_draft_tokens=0, max_tokens=9))) == 9
    assert list(speculative_generate_step(prompt, model, model, max_tokens=0)) == []


@pytest.mark.parametrize(("name", "other"), [("gemma4-f32", "gemma4_moe-f32"), ("gemma4_moe-f32", "gemma4-f32")])
def test_wrong_drafts_past_a_window(tiny: Tiny, name: str, other: str) -> None:
    """Cases 1 and 9: layers that forget, in the model and in the draft model."""
    folder = tiny(name)
    model, draft = ours(folder)[0], ours(tiny(other))[0]
    for prompt, count in ((prompt_of(folder, "text"), 64), (prompt_of(folder, "long")[:90], 24)):
        found = drafted(model, draft, prompt, max_tokens=count, num_draft_tokens=4)
        assert [token for token, _ in found] == reference(folder, prompt, count).ids
        assert sum(mark for _, mark in found) < count // 2


def test_statistics_tell_drafted_and_accepted(tiny: Tiny) -> None:
    folder = tiny("qwen3-nano-f32")
    model, tokenizer = ours(folder)
    other = ours(tiny("llama-nano-f32"))[0]
    for draft, least, most in ((model, 1.0, 1.0), (other, 0.0, 0.4)):
        before = model.stats()["ngram"]["accepted"]
        *_, last = axlm.stream_generate(
            model, tokenizer, [3, 5, 9], max_tokens=40, draft_model=draft, num_draft_tokens=4, ngram=ALWAYS
        )
        assert last.stats is not None
        speculation = last.stats["speculation"]
        assert speculation["drafted"] > 20
        assert least <= speculation["accepted"] / speculation["drafted"] <= most
        (by,) = speculation["by_proposer"]
        assert by["proposer"] == "draft_model" and by["accepted"] == speculation["accepted"]
        assert model.stats()["ngram"]["accepted"] == before + speculation["accepted"]


def test_a_block_ends_where_it_must(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, tokenizer = ours(folder)
    prompt = prompt_of(folder, "text")
    plain = reference(folder, prompt, 40).ids
    for limit in range(1, 12):
        found = drafted(model, model, prompt, max_tokens=limit, num_draft_tokens=5)
        assert [token for token, _ in found] == plain[:limit]
    usual = tokenizer.eos_token_ids
    try:
        for end in plain[:8]:
            tokenizer.eos_token_ids = {end}
            found = list(axlm.stream_generate(model, tokenizer, prompt, 40, model, num_draft_tokens=5, ngram=ALWAYS))
            assert [response.token for response in found] == plain[: plain.index(end) + 1]
            assert found[-1].finish_reason == "stop"
    finally:
        tokenizer.eos_token_ids = usual
    for stop in range(1, 9):
        stream = speculative_generate_step(prompt, model, model, num_draft_tokens=3)
        assert [next(stream)[0] for _ in range(stop)] == plain[:stop]
        stream.close()
    assert model.stats()["requests"] == 0


def test_text_without_a_limit(tiny: Tiny) -> None:
    model = ours(tiny("qwen3-nano-f32"))[0]
    stream = speculative_generate_step([1, 2], model, model, max_tokens=-1)
    assert [next(stream)[0] for _ in range(300)] == generated(model, [1, 2], 300)
    stream.close()


def test_callables_choose_without_drafts(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model = ours(folder)[0]
    prompt = prompt_of(folder, "text")
    plain = reference(folder, prompt, 12).ids
    found = drafted(model, model, prompt, max_tokens=12, sampler=lambda logprobs: mx.argmax(logprobs, axis=-1))
    assert found == [(token, False) for token in plain]


def test_a_draft_model_of_another_vocabulary(tiny: Tiny) -> None:
    """What one of the two does not know is not drafted; nothing goes wrong."""
    small, large = tiny("qwen3-nano-f32"), tiny("qwen3-f32")
    for folder, other in ((small, large), (large, small)):
        model, draft = ours(folder)[0], ours(other)[0]
        found = drafted(model, draft, [3, 5, 9], max_tokens=30)
        assert [token for token, _ in found] == reference(folder, [3, 5, 9], 30).ids


def test_models_that_cannot_draft_are_named(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, tokenizer = ours(folder)
    recurrent, _ = ours(tiny("qwen3_5-f32"))
    their_model, _ = theirs(folder)

    def refused(error: type[Exception], words: str, model: Any, draft: Any, **options: Any) -> None:
        with pytest.raises(error, match=words):
            list(axlm.stream_generate(model, tokenizer, [1, 2, 3], 4, draft, **options))

    refused(ValueError, "draft model, qwen3_5", model, recurrent)
    refused(ValueError, "the model, qwen3_5", recurrent, model)
    refused(TypeError, "draft_model.*Model", model, their_model)
    refused(TypeError, "draft_model", model, "qwen3")
    refused(TypeError, "draft_model.*the core's", their_model, model)
    with pytest.raises(TypeError, match=r"draft_model.*the core's"):
        next(speculative_generate_step([1, 2, 3], their_model, model))
    refused(ValueError, "num_draft_tokens", model, model, num_draft_tokens=-1)
    refused(TypeError, "num_draft_tokens", model, model, num_draft_tokens=1.5)
    refused(ValueError, "input_embeddings", model, model, input_embeddings=mx.zeros((3, 128)))
    closed, _ = axlm.load(folder)
    closed.close()
    refused(ValueError, "closed", model, closed)
    assert len(generated(model, [1, 2, 3], 4)) == 4


@pytest.mark.alone
def test_drafting_that_does_not_pay_is_left_off(tiny: Tiny) -> None:
    """A draft model as large as the model itself, and mostly wrong, on a CPU: the core finds out."""
    folder = tiny("llama-f32")
    model, tokenizer = ours(folder)
    draft = ours(tiny("llama-default-f32"))[0]
    prompt = prompt_of(folder, "text")
    *_, last = axlm.stream_generate(model, tokenizer, prompt, 300, draft, num_draft_tokens=6)
    assert last.stats is not None
    reasons = last.stats["speculation"]["no_draft"]
    assert reasons["gate_paused"] > 100
    assert math.isclose(sum(reasons.values()) + last.stats["speculation"]["draft_steps"], last.stats["decode_steps"])


# Prompt caches


def caches_of(folder: Path, max_kv_size: int | None = None) -> list[Any]:
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(theirs(folder)[0], max_kv_size)


@pytest.mark.parametrize("name", ["qwen3-f32", "llama-f32", "gemma4-f32"])
def test_both_caches_carry_on(tiny: Tiny, name: str) -> None:
    """One list, the model's caches and then the draft model's, over the turns of a chat."""
    folder = tiny(name)
    model, _ = ours(folder)
    prompt = prompt_of(folder, "text")
    text = list(prompt)
    caches = caches_of(folder) + caches_of(folder)
    half = len(caches) // 2
    for turn, (more, read) in enumerate((([], 9), ([7, 8], 10), ([5], 11), ([4, 5, 6], 20))):
        text += more
        expected = reference(folder, text, 24).ids
        stream = speculative_generate_step(
            prompt if turn == 0 else more, model, model, num_draft_tokens=3, max_tokens=24, prompt_cache=caches
        )
        steps = [next(stream) for _ in range(read)]
        stream.close()
        assert [token for token, _, _ in steps] == expected[:read]
        assert sum(mark for _, _, mark in steps) >= read * 3 // 4 - 1
        text += expected[:read]
        if turn != 2:  # somebody looks, or nobody does
            assert {cache.offset for cache in caches[:half]} == {cache.offset for cache in caches[half:]} == {len(text)}


def test_caches_that_are_read_midway(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    prompt = prompt_of(folder, "text")
    caches = caches_of(folder) + caches_of(folder)
    steps = speculative_generate_step(prompt, model, model, num_draft_tokens=3, max_tokens=24, prompt_cache=caches)
    found = []
    for count, (token, _, mark) in enumerate(steps, 1):
        found.append((token, mark))
        if count % 5 == 0:
            assert caches[0].offset == len(prompt) + count
        if count % 7 == 0:
            assert caches[-1].offset == len(prompt) + count
    assert [token for token, _ in found] == reference(folder, prompt, 24).ids
    assert sum(mark for _, mark in found) > 12
    assert {cache.offset for cache in caches} == {len(prompt) + 24}


def test_quantised_caches_of_both(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    prompt = prompt_of(folder, "text")
    kv = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": len(prompt) + 4}
    expected = generated(model, prompt, 24, **kv)
    caches = caches_of(folder) + caches_of(folder)
    steps = speculative_generate_step(prompt, model, model, max_tokens=24, prompt_cache=caches, **kv)
    assert [token for token, _, _ in steps] == expected
    assert {type(cache).__name__ for cache in caches} == {"QuantizedKVCache"}
    assert {cache.offset for cache in caches} == {len(prompt) + 24}


def test_caches_that_do_not_fit_are_named(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    one = caches_of(folder)

    def run(prompt_cache: Any) -> list[Any]:
        return list(speculative_generate_step([1, 2, 3], model, model, max_tokens=8, prompt_cache=prompt_cache))

    with pytest.raises(ValueError, match="6 layers; want 6 of the model and then 6 of the draft model"):
        run(one)
    with pytest.raises(TypeError, match="prompt_cache"):
        run(7)
    full = caches_of(folder, 8) + caches_of(folder, 8)
    assert len(run(full)) == 8  # as long as there is room
    with pytest.raises(ValueError, match="trimmed"):
        run(full)
    mixed = one + caches_of(folder, 8)  # a draft model's cache may be full
    first = [token for token, _, _ in run(mixed)]
    assert [token for token, _, _ in run(mixed)] == reference(folder, [1, 2, 3, *first, 1, 2, 3], 8).ids


def test_the_command_drafts(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    from axlm import cli

    folder = str(tiny("qwen3-f32"))
    words = ["generate", "--model", folder, "-p", "hello", "-m", "20", "--verbose", "F"]
    assert cli.main(words) == 0
    plain = capsys.readouterr().out
    assert cli.main([*words, "--draft-model", folder, "--num-draft-tokens", "2"]) == 0
    assert capsys.readouterr().out == plain
    assert cli.main([*words, "--draft-model", str(tiny("qwen3-nano-f32"))]) == 2
    assert "--draft-model" in capsys.readouterr().err
