"""batch_generate and BatchGenerator: what comes out is what each prompt gives alone, call by call as from mlx_lm."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm
import pytest
from axlm import batch_generate
from axlm.generate import BatchGenerator
from axlm.sample_utils import make_logits_processors, make_sampler
from batches import drain, drain_one, module, prompts, tokens, upstream
from mlx_lm.generate import BatchGenerator as TheirGenerator
from oracle import generated, ours, prompt_of, reference, theirs

Tiny = Callable[[str], Path]

FAMILIES = ("qwen3-f32", "llama-f32", "qwen3_5-f32", "gemma4-f32")

# Results


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_of_unlike_lengths_get_what_they_get_alone(tiny: Tiny, family: str) -> None:
    """Case 30: prompts of lengths 12 and 3 in one batch equal their solo runs."""
    folder = tiny(family)
    model, tokenizer = ours(folder)
    pair = prompts(12, 3)
    found = batch_generate(model, tokenizer, pair, max_tokens=40, stop_tokens=[], return_token_ids=True)
    assert found.token_ids == [generated(model, prompt, 40) for prompt in pair]
    assert found.token_ids == [reference(folder, prompt, 40).ids for prompt in pair]
    assert found.texts == [tokenizer.decode(ids) for ids in found.token_ids]


def test_a_batch_is_that_of_mlx_lm(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    some = [prompt_of(folder, "chat"), *prompts(12, 3, 1, 30, 7)]
    options = {"max_tokens": [9, 14, 30, 3, 1, 12], "return_token_ids": True, "return_logprobs": True}
    sizes = {"prefill_batch_size": 2, "completion_batch_size": 3, "prefill_step_size": 8}
    found = batch_generate(*ours(folder), some, **options, **sizes)
    expected = mlx_lm.batch_generate(*theirs(folder), some, **options, **sizes)
    assert found.texts == expected.texts
    assert found.token_ids == expected.token_ids
    assert [len(ids) for ids in found.token_ids] == options["max_tokens"]
    for one, other in zip(found.logprobs, expected.logprobs, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    for name in ("prompt_tokens", "generation_tokens", "generation_steps"):
        assert getattr(found.stats, name) == getattr(expected.stats, name), name
    assert found.stats.prompt_tps > 0 and found.stats.generation_tps > 0 and found.stats.peak_memory > 0
    assert found.caches is None


def test_what_was_not_asked_for_is_none(tiny: Tiny) -> None:
    model, tokenizer = ours(tiny("qwen3-f32"))
    found = batch_generate(model, tokenizer, prompts(4), max_tokens=3)
    assert found.caches is None and found.token_ids is None and found.logprobs is None
    assert batch_generate(model, tokenizer, []).texts == []


@pytest.mark.parametrize("seed", range(6))
def test_every_call_gives_what_it_gives_in_mlx_lm(tiny: Tiny, seed: int) -> None:
    """The same prompts, in segments, into both generators: progress and tokens call by call."""
    folder = tiny("qwen3-f32")
    draw = random.Random(seed)
    sizes = {
        "prefill_batch_size": draw.randint(1, 3),
        "completion_batch_size": draw.randint(1, 4),
        "prefill_step_size": draw.choice([2, 5, 8, 100]),
        "stop_tokens": [[draw.randrange(1000)] for _ in range(100)],
    }
    segments = [
        [[draw.randrange(20, 1000) for _ in range(draw.choice([0, 1, 2, 3, 9, 20]))] for _ in range(3)]
        + [[draw.randrange(20, 1000) for _ in range(draw.choice([1, 2, 7]))]]
        for _ in range(6)
    ]
    limits = [draw.randint(1, 12) for _ in segments]

    def calls(generator: Any) -> list[Any]:
        """Insert half of the prompts at first, the others later."""
        seen = []
        uids = generator.insert_segments(segments[:3], limits[:3])
        for call in itertools.count():
            if call == 4:
                uids += generator.insert_segments(segments[3:], limits[3:])
            progress, responses = generator.next()
            if not progress and not responses and call > 4:
                assert uids == list(range(6))
                return seen
            seen.append(
                (
                    [(r.uid, r.progress, r.end_of_segment, r.end_of_prompt) for r in progress],
                    [(r.uid, r.token, r.finish_reason, r.all_tokens) for r in responses],
                )
            )
        raise AssertionError

    found = calls(BatchGenerator(ours(folder)[0], **sizes))
    assert found == calls(upstream.BatchGenerator(theirs(folder)[0], **sizes))


@pytest.mark.parametrize("family", FAMILIES)
def test_caches_are_those_of_mlx_lm(tiny: Tiny, family: str) -> None:
    folder = tiny(family)
    some = prompts(12, 3, 33)
    generators = BatchGenerator(ours(folder)[0], max_tokens=5), upstream.BatchGenerator(theirs(folder)[0], max_tokens=5)
    found, expected = [], []
    for results, generator in zip((found, expected), generators, strict=True):
        uids = generator.insert(some)
        responses = drain(generator)
        results += [responses[uid][-1] for uid in uids]
    for prompt, one, other in zip(some, found, expected, strict=True):
        assert one.all_tokens == other.all_tokens and one.all_tokens[: len(prompt)] == prompt
        assert any(hasattr(layer, "offset") for layer in one.prompt_cache)
        for mine, yours in zip(one.prompt_cache, other.prompt_cache, strict=True):
            assert type(mine).__name__ == type(yours).__name__
            if hasattr(mine, "offset"):
                assert mine.offset == yours.offset == len(prompt) + 5


@pytest.mark.parametrize("family", FAMILIES)
def test_caches_are_continued_and_not_changed(tiny: Tiny, family: str) -> None:
    folder = tiny(family)
    model, tokenizer = ours(folder)
    first, second = prompts(12, 3), prompts(5, 40)
    begun = batch_generate(
        model, tokenizer, first, max_tokens=6, stop_tokens=[], return_prompt_caches=True, return_token_ids=True
    )
    assert begun.caches is not None and begun.token_ids is not None
    rounds = [
        batch_generate(
            model, tokenizer, second, begun.caches, max_tokens=8, stop_tokens=[], return_token_ids=True
        ).token_ids
        for _ in range(2)
    ]
    whole = [a + ids + b for a, ids, b in zip(first, begun.token_ids, second, strict=True)]
    assert rounds[0] == rounds[1] == [generated(model, prompt, 8) for prompt in whole]


def test_new_caches_are_bounded(tiny: Tiny) -> None:
    """As in mlx_lm's solo runs: its batches cut a prompt off that is longer than the bound."""
    folder = tiny("qwen3-f32")
    some = prompts(40, 5)
    wanted = {"return_prompt_caches": True, "return_token_ids": True}
    found = batch_generate(*ours(folder), some, max_tokens=20, max_kv_size=16, stop_tokens=[], **wanted)
    for prompt, ids, cache in zip(some, found.token_ids, found.caches, strict=True):
        assert len(ids) == 20
        alone = upstream.generate_step(mx.array(prompt), theirs(folder)[0], max_tokens=len(ids), max_kv_size=16)
        assert [token for token, _ in alone] == ids
        assert all(layer.max_size == 16 and layer.keys.shape[2] <= 16 for layer in cache)


def test_batches_leave_no_memory_behind(tiny: Tiny) -> None:
    from axlm import _bridge

    model, tokenizer = ours(tiny("qwen3-f32"))

    def work(count: int) -> int:
        for _ in range(count):
            batch_generate(model, tokenizer, prompts(20, 9, 3), max_tokens=4)
            generator = BatchGenerator(model, max_tokens=50)
            generator.insert(prompts(30, 3))
            generator.next_generated()
            del generator
        model.stats()  # waits until the core has dropped what was closed
        return _bridge.memory()["active"]

    before = work(3)
    assert work(20) <= before + 65_536


def test_verbose_prints_what_mlx_lm_prints(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny("qwen3-f32")
    printed = []
    for package, loaded in ((axlm, ours(folder)), (mlx_lm, theirs(folder))):
        package.batch_generate(*loaded, prompts(5, 9), max_tokens=[3, 5], verbose=True)
        printed.append(re.sub(r"\d+\.\d+", "N", capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert "Finished processing 2/2" in printed[0] and "Generation: 8 tokens, N tokens-per-sec" in printed[0]


def test_a_module_of_mlx_lm_is_served_by_mlx_lm(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, tokenizer = theirs(folder)
    some = prompts(12, 3)
    assert isinstance(BatchGenerator(model, max_tokens=3, ngram=False), upstream.BatchGenerator)
    found = batch_generate(model, tokenizer, some, max_tokens=8, ngram=True, return_token_ids=True)
    assert found.token_ids == batch_generate(*ours(folder), some, max_tokens=8, return_token_ids=True).token_ids


# Choosing


def test_one_sampled_prompt_draws_what_it_draws_in_mlx_lm(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    (prompt,) = prompts(9)
    results = []
    for package, loaded in ((axlm, ours(folder)), (mlx_lm, theirs(folder))):
        mx.random.seed(11)
        sampler = package.sample_utils.make_sampler(temp=1.1, top_p=0.9)
        results.append(
            package.batch_generate(*loaded, [prompt], max_tokens=24, sampler=sampler, return_token_ids=True).token_ids
        )
    assert results[0] == results[1]


def test_sampled_prompts_are_drawn_apart(tiny: Tiny) -> None:
    model, tokenizer = ours(tiny("qwen3-f32"))
    same = prompts(9) * 4
    sampler = make_sampler(temp=1.1)

    def batch(seed: int, **options: Any) -> list[list[int]]:
        mx.random.seed(seed)
        return batch_generate(
            model, tokenizer, same, max_tokens=16, stop_tokens=[], sampler=sampler, return_token_ids=True, **options
        ).token_ids

    first = batch(3)
    assert len({tuple(ids) for ids in first}) == 4  # the same prompt four times, four texts
    assert batch(3) == first and batch(4) != first
    assert batch(3, prefill_batch_size=1, completion_batch_size=1, ngram=False) == first  # whatever runs beside it
    mx.random.seed(3)
    assert generated(model, same[0], 16, sampler=sampler) == first[0]
    mx.random.seed(3)
    batch_generate(model, tokenizer, same, max_tokens=2, sampler=sampler)
    assert (
        batch_generate(  # without a new seed another batch draws anew
            model, tokenizer, same, max_tokens=16, stop_tokens=[], sampler=sampler, return_token_ids=True
        ).token_ids
        != first
    )


def test_each_sequence_may_have_its_own_choice(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    (prompt,) = prompts(6)
    generator = BatchGenerator(model, max_tokens=4, logits_processors=make_logits_processors({7: 1e4}))
    uids = generator.insert(
        [prompt] * 4,
        samplers=[None, None, lambda logprobs: mx.array([11]), None],
        logits_processors=[make_logits_processors({8: 1e4}), None, None, []],
    )
    found = drain(generator)
    plain = generated(model, prompt, 4)
    assert [tokens(found[uid]) for uid in uids] == [[8] * 4, plain, [11] * 4, plain]
    assert tokens(drain_one(generator, prompt)) == [7] * 4


def test_processors_see_the_whole_text(tiny: Tiny) -> None:
    """What the cache holds, and the segments before the last, count as the text that penalties look at."""
    folder = tiny("qwen3-f32")
    draw = random.Random(1)
    segments = [[[draw.randrange(20, 60) for _ in range(9)] for _ in range(2)]]
    before = [draw.randrange(20, 60) for _ in range(12)]
    results = []
    for package, loaded in ((axlm, ours(folder)), (mlx_lm, theirs(folder))):
        model, _ = loaded
        cache = package.models.cache.make_prompt_cache(model)
        generate = module if package is axlm else upstream
        for _ in generate.generate_step(mx.array(before), model, max_tokens=0, prompt_cache=cache):
            pass
        seen: list[list[int]] = []

        def watch(tokens: mx.array, logits: mx.array, seen: list[list[int]] = seen) -> mx.array:
            seen.append(tokens.tolist())
            return logits

        penalties = package.sample_utils.make_logits_processors(
            repetition_penalty=1.8, repetition_context_size=64, frequency_penalty=0.5, frequency_context_size=64
        )
        generator = generate.BatchGenerator(model, max_tokens=12)
        found = []
        for processors in ([*penalties, watch], penalties):
            (uid,) = generator.insert_segments(
                segments, caches=[cache], all_tokens=[list(before)], logits_processors=[processors]
            )
            found.append(tokens(drain(generator)[uid]))
        results.append((found, seen))
    assert results[0] == results[1]
    found, seen = results[0]
    assert found[0] == found[1] and seen[0] == [*before, *segments[0][0], *segments[0][1]]


def test_case_19_stops_of_unequal_length(tiny: Tiny) -> None:
    """Of two sequences of tokens that end a text, the one that is complete first does; words held back in a stream are
    the server's."""
    folder = tiny("qwen3-f32")
    model, tokenizer = ours(folder)
    ids = reference(folder, [1, 2, 3], 24).ids
    long, short = ids[5:9], ids[12:14]
    for stops, end in (([long, short], 8), ([short, long], 8), ([short], 13), ([[*long[:3], 0], short], 13)):
        found = batch_generate(model, tokenizer, [[1, 2, 3]], max_tokens=24, stop_tokens=stops, return_token_ids=True)
        assert found.token_ids == [ids[:end]]
        generator = TheirGenerator(theirs(folder)[0], max_tokens=24, stop_tokens=stops)
        generator.insert([[1, 2, 3]])
        other = []
        while responses := generator.next_generated():
            other += [response.token for response in responses]
        assert other[:-1] == ids[:end]
