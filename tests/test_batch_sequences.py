"""BatchGenerator: sequences that come, go, stop and fail, and arguments that are wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from axlm import batch_generate
from axlm.generate import BatchGenerator, StopSequences
from batches import drain, drain_one, module, prompts, tokens, upstream
from oracle import generated, ours, theirs

Tiny = Callable[[str], Path]

# Sequences that come and go


def test_a_sequence_is_removed_at_every_stage(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    some = prompts(12, 12, 12)
    alone = [generated(model, prompt, 6) for prompt in some]
    for calls, stage in ((0, 0), (1, 1), (2, 1), (5, 2), (6, 2)):
        generator = BatchGenerator(model, max_tokens=6, prefill_step_size=4, completion_batch_size=8)
        uids = generator.insert(some)
        before: dict[int, list[Any]] = {}
        for _ in range(calls):
            for response in generator.next()[1]:
                before.setdefault(response.uid, []).append(response)
        assert generator._find_uids(uids)[uids[1]] == (stage, 1)
        caches = generator.remove([uids[1], 99], return_prompt_caches=stage > 0)
        if stage:
            held, ids = caches[uids[1]]
            assert len(ids) == held[0].offset and ids == (some[1] + alone[1])[: len(ids)]
        after = drain(generator)
        assert uids[1] not in after
        for number in (0, 2):
            responses = [*before.get(uids[number], ()), *after[uids[number]]]
            assert tokens(responses) == alone[number]


def test_caches_can_be_had_while_a_sequence_goes_on(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    (prompt,) = prompts(23)
    alone = generated(model, prompt, 12)
    generator = BatchGenerator(model, max_tokens=12, prefill_step_size=4)
    (uid,) = generator.insert_segments([[prompt[:9], prompt[9:]]])
    found: list[int] = []
    lengths = []
    while True:
        progress, responses = generator.next()
        if not progress and not responses:
            break
        found += tokens(responses)
        for held, ids in generator.extract_cache([uid]).values():
            assert held[0].offset == len(ids) and ids == (prompt + alone)[: len(ids)]
            lengths.append(len(ids))
            # What was extracted is a copy: using it does not disturb the sequence.
            assert generated(model, alone[:1], 1, prompt_cache=held)
    assert found == alone
    assert 9 in lengths and lengths == sorted(lengths) and lengths[-1] == 34


def test_caches_can_be_had_where_python_chooses(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    (prompt,) = prompts(9)
    alone = generated(model, prompt, 8)
    generator = BatchGenerator(model, max_tokens=8, prefill_step_size=4, sampler=lambda lp: mx.argmax(lp, axis=-1))
    (uid,) = generator.insert([prompt])
    found: list[int] = []
    while any(call := generator.next()):
        found += tokens(call[1])
        for held, ids in generator.extract_cache([uid]).values():
            assert held[0].offset == len(ids) and ids == (prompt + alone)[: len(ids)]
    assert found == alone


def test_sizes_of_caches_are_told(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    generator = BatchGenerator(model, max_tokens=4)
    assert generator.prompt_cache_nbytes == 0
    generator.insert(prompts(5, 9))
    generator.next_generated()
    assert generator.prompt_cache_nbytes > 10_000
    drain(generator)
    assert generator.prompt_cache_nbytes == 0


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_ends_only_its_own_sequence(tiny: Tiny, error: type[BaseException]) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    some = prompts(4, 6, 8)
    alone = [generated(model, prompt, 6) for prompt in some]
    calls = 0

    def fails(logprobs: mx.array) -> mx.array:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise error
        return mx.argmax(logprobs, axis=-1)

    generator = BatchGenerator(model, max_tokens=6)
    uids = generator.insert(some, samplers=[None, fails, None])
    found: dict[int, list[int]] = {uid: [] for uid in uids}
    errors = 0
    while True:
        try:
            responses = generator.next_generated()
        except error:
            errors += 1
            continue
        if not responses:
            break
        for response in responses:
            found[response.uid].append(response.token)
    assert errors == 1
    assert found[uids[0]] == alone[0] and found[uids[2]] == alone[2]
    assert found[uids[1]] == alone[1][: len(found[uids[1]])] != alone[1]


def test_nothing_runs_on_after_close(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    before = model.stats()["requests"]
    generator = BatchGenerator(model, max_tokens=50)
    generator.insert(prompts(5, 9))
    generator.next_generated()
    generator.next_generated()
    assert model.stats()["requests"] == before + 2
    generator.close()
    generator.close()
    assert generator.next() == ([], []) and model.stats()["requests"] == before
    forgotten = BatchGenerator(model, max_tokens=50)
    forgotten.insert(prompts(5))
    forgotten.next_generated()
    del forgotten
    assert model.stats()["requests"] == before


# Stops


def test_stops_of_all_kinds(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    (prompt,) = prompts(6)
    alone = generated(model, prompt, 20)
    at = next(i for i in range(4, 20) if alone[i] not in alone[:i])
    pair = next(i for i in range(3, 20) if alone[i : i + 2] not in [alone[j : j + 2] for j in range(i)])
    for stops, length in (
        ([[alone[at]]], at + 1),
        ({alone[at]}, at + 1),
        ([alone[pair : pair + 2]], pair + 2),
        ([[1023, 1023], alone[pair : pair + 2], [alone[at]]], min(pair + 2, at + 1)),
    ):
        found = drain_one(BatchGenerator(model, max_tokens=20, stop_tokens=stops), prompt)
        assert tokens(found) == alone[:length], stops
        assert [response.finish_reason for response in found] == [None] * (length - 1) + ["stop"]
        assert found[-1].all_tokens == prompt + alone[:length]
        assert found[-1].prompt_cache[0].offset == len(prompt) + length
    # A sequence's own stops are used in place of the generator's; a stop at the limit is a stop.
    own = [StopSequences([alone[pair : pair + 2]])]
    generator = BatchGenerator(model, max_tokens=20, stop_tokens=[[alone[at]]])
    assert tokens(drain_one(generator, prompt, stop_sequences=own)) == alone[: pair + 2]
    assert drain_one(generator, prompt, max_tokens=[at + 1])[-1].finish_reason == "stop"
    theirs_stops = [upstream.StopSequences([[alone[at]]])]
    assert tokens(drain_one(generator, prompt, stop_sequences=theirs_stops)) == alone[: at + 1]


def test_an_empty_list_is_as_none(tiny: Tiny) -> None:
    """As in mlx_lm: what is given for no prompt leaves the generator's own settings."""
    folder = tiny("qwen3-f32")
    (prompt,) = prompts(6)
    alone = generated(ours(folder)[0], prompt, 8)
    stop = alone.index(alone[5])
    names = ("max_tokens", "caches", "all_tokens", "samplers", "logits_processors", "stop_sequences")
    for package, (model, _) in ((module, ours(folder)), (upstream, theirs(folder))):
        for name in names:
            generator = package.BatchGenerator(model, max_tokens=8, stop_tokens=[[alone[5]]])
            found = drain_one(generator, prompt, **{name: []})
            assert tokens(found) == alone[: stop + 1] and found[-1].finish_reason == "stop", name


def test_a_text_ends_before_its_end_token(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, tokenizer = ours(folder)
    (prompt,) = prompts(6)
    alone = generated(model, prompt, 20)
    found = batch_generate(
        model, tokenizer, [prompt], max_tokens=20, stop_tokens=[[alone[5]]], return_token_ids=True, return_logprobs=True
    )
    length = alone.index(alone[5])
    assert found.token_ids == [alone[:length]] and len(found.logprobs[0]) == length
    assert found.texts == [tokenizer.decode(alone[:length])]


def test_stop_sequences_find_what_those_of_mlx_lm_find() -> None:
    draw = random.Random(2)
    for _ in range(200):
        sequences = [[draw.randrange(3) for _ in range(draw.randrange(4))] for _ in range(draw.randrange(4))]
        ours_now, theirs_now = StopSequences(sequences).matcher(), upstream.StopSequences(sequences).matcher()
        for _ in range(30):
            token = draw.randrange(3)
            assert ours_now.advance(token) == theirs_now.advance(token), sequences
    with pytest.raises(TypeError, match="stop_sequences"):
        StopSequences(["end"])


# Arguments


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"prompts": [[1], []]}, ValueError, "prompt 1 is empty"),
        ({"prompts": [[1], [1024]]}, ValueError, "prompt 1: token id 1024"),
        ({"prompts": ["hello"]}, TypeError, "integers"),
        ({"prompts": [[1], [2.5]]}, TypeError, "integers"),
        ({"prompts": [[1], [2]], "max_tokens": [3]}, ValueError, "max_tokens: 1 entries for 2 prompts"),
        ({"prompts": [[1], [2]], "max_tokens": [3, 0]}, ValueError, "max_tokens"),
        ({"prompts": [[1]], "max_tokens": ["3"]}, TypeError, "max_tokens"),
        ({"prompts": [[1], [2]], "samplers": [None]}, ValueError, "samplers"),
        ({"prompts": [[1]], "samplers": [3]}, TypeError, "sampler"),
        ({"prompts": [[1]], "logits_processors": [[3]]}, TypeError, "logits_processors"),
        ({"prompts": [[1]], "caches": [None, None]}, ValueError, "caches"),
    ],
)
def test_prompts_are_added_all_or_none(tiny: Tiny, options: dict[str, Any], error: type[Exception], text: str) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    generator = BatchGenerator(model, max_tokens=2)
    with pytest.raises(error, match=text):
        generator.insert(**options)
    assert generator.next() == ([], [])
    assert generator.insert([[5]]) == [0]
    assert tokens(drain(generator)[0]) == generated(model, [5], 2)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"prefill_step_size": 0}, ValueError, "prefill_step_size"),
        ({"completion_batch_size": 1.5}, TypeError, "completion_batch_size"),
        ({"sampler": 3}, TypeError, "sampler"),
        ({"ngram": 3}, TypeError, "ngram"),
        ({"stop_tokens": ["a"]}, TypeError, "stop_sequences"),
    ],
)
def test_wrong_settings_are_named(tiny: Tiny, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        BatchGenerator(ours(tiny("qwen3-f32"))[0], **options)


def test_no_model_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="model"):
        BatchGenerator(None)
