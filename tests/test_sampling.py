"""Samplers and logits processors: mlx_lm's tokens and random state for the same seed, speculating or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm.sample_utils import LogitsProcessor, Sampler, make_logits_processors, make_sampler
from fixtures.check import prompts
from mlx_lm import sample_utils as upstream
from mlx_lm.generate import generate_step as their_step
from oracle import ours, theirs

Tiny = Callable[[str], Path]

SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temp": {"temp": 1.0},
    "top_p": {"temp": 1.5, "top_p": 0.9},
    "min_p": {"temp": 1.5, "min_p": 0.05, "min_tokens_to_keep": 2},
    "top_k": {"temp": 2.0, "top_k": 5},
    "xtc": {"temp": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.05, "xtc_special_tokens": [3]},
    "all": {
        "temp": 1.5, "top_p": 0.95, "min_p": 0.01, "top_k": 20,
        "xtc_probability": 0.3, "xtc_threshold": 0.1, "xtc_special_tokens": [3],
    },
}  # fmt: skip
PROCESSORS: dict[str, dict[str, Any]] = {
    "none": {},
    "bias": {"logit_bias": {5: 2.0, 9: -3.0}},
    "repetition": {"repetition_penalty": 1.3},
    "presence": {"presence_penalty": 0.5},
    "frequency": {"frequency_penalty": 0.25, "frequency_context_size": 64},
    "all": {
        "logit_bias": {5: 2.0}, "repetition_penalty": 1.2, "repetition_context_size": 40,
        "presence_penalty": 0.4, "frequency_penalty": 0.2,
    },
}  # fmt: skip


def key() -> list[int]:
    return mx.random.state[0].tolist()


def run(step: Any, model: Any, prompt: list[int], seed: int, **options: Any) -> tuple[list[int], list[list[int]]]:
    """Return the tokens, and the random state that the caller sees with each."""
    mx.random.seed(seed)
    tokens, keys = [], []
    for token, _ in step(mx.array(prompt), model, max_tokens=32, **options):
        tokens.append(int(token))
        keys.append(key())
    return tokens, keys


def text_of(folder: Path) -> list[int]:
    return prompts(theirs(folder)[1])["text"]


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_seeded_tokens_are_those_of_mlx_lm(tiny: Tiny, sampler: str, processors: str) -> None:
    folder = tiny("qwen3-nano-f32") if processors != "none" else tiny("qwen3-f32")
    prompt = text_of(folder) if processors == "none" else [3, 5, 9, 5, 7, 3, 5]
    options, changes = SAMPLERS[sampler], PROCESSORS[processors]
    for seed in range(5):
        expected = run(
            their_step,
            theirs(folder)[0],
            prompt,
            seed,
            sampler=upstream.make_sampler(**options),
            logits_processors=upstream.make_logits_processors(**changes),
        )
        for ngram in (False, True):
            found = run(
                axlm.generate_step,
                ours(folder)[0],
                prompt,
                seed,
                sampler=make_sampler(**options),
                logits_processors=make_logits_processors(**changes),
                ngram=ngram,
            )
            assert found[0] == expected[0], (seed, ngram)
            if options:
                assert found[1] == expected[1], (seed, ngram)


def flat(logprobs: mx.array) -> mx.array:
    return mx.random.categorical(logprobs * 0.7)


def no_repeat(tokens: mx.array, logits: mx.array) -> mx.array:
    logits[:, tokens[-1]] = -1e9
    return logits


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": flat},
        {"logits_processors": [no_repeat]},
        {"sampler": flat, "logits_processors": [no_repeat]},
    ],
    ids=["sampler", "processor", "both"],
)
def test_callables_of_the_user_work(tiny: Tiny, options: dict[str, Any]) -> None:
    folder = tiny("llama-f32")
    prompt = text_of(folder)
    expected = run(their_step, theirs(folder)[0], prompt, 4, **options)
    assert run(axlm.generate_step, ours(folder)[0], prompt, 4, **options) == expected


def test_ours_and_the_users_processors_mix(tiny: Tiny) -> None:
    folder = tiny("llama-f32")
    prompt = text_of(folder)
    penalty = {"repetition_penalty": 1.3}
    expected = run(
        their_step,
        theirs(folder)[0],
        prompt,
        4,
        sampler=upstream.make_sampler(temp=1.0),
        logits_processors=[no_repeat, *upstream.make_logits_processors(**penalty)],
    )
    found = run(
        axlm.generate_step,
        ours(folder)[0],
        prompt,
        4,
        sampler=make_sampler(temp=1.0),
        logits_processors=[no_repeat, *make_logits_processors(**penalty)],
    )
    assert found == expected


@pytest.mark.parametrize("ngram", [False, True])
def test_a_caller_may_draw_or_seed_between_tokens(tiny: Tiny, ngram: bool) -> None:
    def meddled(step: Any, model: Any, prompt: list[int], **options: Any) -> tuple[list[int], list[int]]:
        mx.random.seed(1)
        tokens = []
        for index, (token, _) in enumerate(step(mx.array(prompt), model, max_tokens=40, **options)):
            tokens.append(int(token))
            if index % 7 == 3:
                mx.random.uniform()
            if index == 20:
                mx.random.seed(77)
        return tokens, key()

    folder = tiny("qwen3-f32")
    prompt = text_of(folder)
    expected = meddled(their_step, theirs(folder)[0], prompt, sampler=upstream.make_sampler(temp=1.2))
    assert meddled(axlm.generate_step, ours(folder)[0], prompt, sampler=make_sampler(temp=1.2), ngram=ngram) == expected


def test_seeds_differ_agree_and_vary(tiny: Tiny) -> None:
    """Case 17: seeds 1 and 2 differ; 1 and 1 agree; without a seed each run differs."""
    model, _ = ours(tiny("qwen3-f32"))
    hot = make_sampler(temp=3.0)

    def sample() -> list[int]:
        return [token for token, _ in axlm.generate_step([5, 6, 7], model, max_tokens=24, sampler=hot)]

    def seeded(seed: int) -> list[int]:
        mx.random.seed(seed)
        return sample()

    assert seeded(1) == seeded(1) != seeded(2)
    assert sample() != sample()


def test_top_k_keeps_exactly_k(tiny: Tiny) -> None:
    """Case 15: top_k=1 with top_p=0.8 is the argmax; k=3 keeps exactly three."""
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    prompt = text_of(folder)
    greedy = [token for token, _ in axlm.generate_step(prompt, model, max_tokens=24)]
    one = make_sampler(temp=1.0, top_k=1, top_p=0.8)
    assert [token for token, _ in axlm.generate_step(prompt, model, max_tokens=24, sampler=one)] == greedy
    three = make_sampler(temp=50.0, top_k=3)
    seen = set()
    for seed in range(60):
        mx.random.seed(seed)
        ((token, logprobs),) = axlm.generate_step(prompt, model, max_tokens=1, sampler=three)
        seen.add(token)
    assert seen == set(mx.argsort(-logprobs)[:3].tolist())


def test_penalties_see_their_window_only(tiny: Tiny) -> None:
    """Case 16: with a window of 20 a token 25 back is untouched; with 128 it is penalised."""
    model, _ = ours(tiny("qwen3-nano-f32"))
    target = 11
    prompt = [target, *(20 + index % 5 for index in range(25))]

    def logprob(**options: Any) -> float:
        processors = make_logits_processors(**options)
        ((_, logprobs),) = axlm.generate_step(prompt, model, max_tokens=1, logits_processors=processors)
        return logprobs[target].item() - logprobs[60].item()  # beside a token that never occurs

    plain = logprob()
    assert logprob(presence_penalty=5.0) == pytest.approx(plain, abs=1e-4)
    assert logprob(presence_penalty=5.0, presence_context_size=128) == pytest.approx(plain - 5, abs=1e-4)
    assert logprob(repetition_penalty=1.7) == pytest.approx(plain, abs=1e-4)
    assert logprob(repetition_penalty=1.7, repetition_context_size=128) != pytest.approx(plain, abs=1e-4)


def test_a_bias_may_have_string_keys(tiny: Tiny) -> None:
    """Case 18: logit_bias as JSON has it."""
    model, _ = ours(tiny("qwen3-nano-f32"))
    plain = [token for token, _ in axlm.generate_step([1, 2, 3], model, max_tokens=30)]
    bias = json.loads(json.dumps({str(plain[0]): -100}))
    for ngram in (False, True):
        found = axlm.generate_step(
            [1, 2, 3], model, max_tokens=30, logits_processors=make_logits_processors(logit_bias=bias), ngram=ngram
        )
        assert plain[0] not in [token for token, _ in found]


def test_an_infinite_bias_bans_a_token(tiny: Tiny) -> None:
    folder = tiny("qwen3-nano-f32")
    plain = [token for token, _ in axlm.generate_step([1, 2, 3], ours(folder)[0], max_tokens=20)]
    ban = {"logit_bias": {plain[0]: float("-inf")}}
    expected = run(
        their_step, theirs(folder)[0], [1, 2, 3], 0, logits_processors=upstream.make_logits_processors(**ban)
    )
    found = run(axlm.generate_step, ours(folder)[0], [1, 2, 3], 0, logits_processors=make_logits_processors(**ban))
    assert found == expected and plain[0] not in found[0]


def test_a_sampler_that_returns_no_token_is_named(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-nano-f32"))
    for wrong in (lambda _: 1, lambda _: None, lambda _: mx.array([1.5])):
        with pytest.raises(TypeError, match="sampler"):
            next(axlm.generate_step([1], model, sampler=wrong))


def test_called_on_arrays_they_are_mlx_lms() -> None:
    logits = mx.random.normal((1, 50), key=mx.random.key(1))
    for options in SAMPLERS.values():
        mx.random.seed(9)
        expected = upstream.make_sampler(**options)(logits)
        mx.random.seed(9)
        assert mx.array_equal(make_sampler(**options)(logits), expected)
    tokens = mx.array([5, 9, 5, 3])
    for options in PROCESSORS.values():
        expected = found = logits
        for processor in upstream.make_logits_processors(**options):
            expected = processor(tokens, mx.array(expected))
        for processor in make_logits_processors(**options):
            found = processor(tokens, mx.array(found))
        assert mx.array_equal(found, expected)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"temp": 1.0, "top_k": 10_000_000}, "top_k"),
        ({"temp": 1.0, "min_p": 1.5}, "min_p"),
        ({"temp": 1.0, "min_p": 0.1, "min_tokens_to_keep": 0}, "min_tokens_to_keep"),
        ({"temp": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.9}, "xtc_threshold"),
        ({"temp": 1.0, "xtc_probability": 2.0}, "xtc_probability"),
    ],
)
def test_options_out_of_range_are_named(tiny: Tiny, options: dict[str, Any], culprit: str) -> None:
    model, _ = ours(tiny("qwen3-nano-f32"))
    with pytest.raises(ValueError, match=culprit):
        list(axlm.generate_step([1, 2], model, max_tokens=2, sampler=make_sampler(**options)))
    assert len(list(axlm.generate_step([1, 2], model, max_tokens=2))) == 2


@pytest.mark.parametrize(
    ("make", "error", "culprit"),
    [
        (lambda: make_sampler(temp="hot"), TypeError, "temp"),
        (lambda: make_sampler(temp=float("nan")), ValueError, "temp"),
        (lambda: make_logits_processors(frequency_penalty=float("inf")), ValueError, "frequency_penalty"),
        (lambda: make_sampler(top_k=1.5), TypeError, "top_k"),
        (lambda: make_logits_processors(repetition_penalty=-1.0), ValueError, "repetition_penalty"),
        (lambda: make_logits_processors(logit_bias={"five": 1.0}), ValueError, "five"),
        (lambda: make_logits_processors(logit_bias={5: float("nan")}), ValueError, "5"),
        (lambda: make_logits_processors(presence_penalty=1, presence_context_size=-1), ValueError, "presence_context"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], Any], error: type[Exception], culprit: str) -> None:
    with pytest.raises(error, match=culprit):
        make()


def test_a_bias_outside_the_vocabulary_is_named(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-nano-f32"))
    with pytest.raises(ValueError, match="logit_bias"):
        next(axlm.generate_step([1], model, logits_processors=make_logits_processors(logit_bias={10_000_000: 1.0})))


def test_what_is_not_callable_is_a_type_error(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-nano-f32"))
    with pytest.raises(TypeError, match="sampler"):
        next(axlm.generate_step([1], model, sampler=0.7))
    with pytest.raises(TypeError, match="logits_processors"):
        next(axlm.generate_step([1], model, logits_processors=[0.7]))


def test_they_tell_what_they_are() -> None:
    assert make_sampler(temp=0.5) == Sampler(temp=0.5)
    assert [processor.kind for processor in make_logits_processors(**PROCESSORS["all"])] == [
        "logit_bias", "repetition", "presence", "frequency",
    ]  # fmt: skip
    assert all(isinstance(processor, LogitsProcessor) for processor in make_logits_processors(**PROCESSORS["all"]))


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module.make_sampler(temp=1.0),
        lambda module: module.make_sampler(temp=1.0, xtc_probability=0.4),
        lambda module: module.make_sampler(temp=0.0),
        lambda module: lambda logprobs: mx.random.categorical(logprobs),
    ],
    ids=["temp", "xtc", "greedy", "callable"],
)
@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_the_random_state_after_few_tokens_is_that_of_mlx_lm(tiny: Tiny, make: Any, tokens: int) -> None:
    """mlx_lm samples one token ahead, also where none is wanted."""
    folder = tiny("qwen3-nano-f32")
    states = []
    for module, step, model in (
        (axlm.sample_utils, axlm.generate_step, ours(folder)[0]),
        (upstream, their_step, theirs(folder)[0]),
    ):
        mx.random.seed(5)
        assert len(list(step(mx.array([1, 2, 3]), model, max_tokens=tokens, sampler=make(module)))) == tokens
        states.append(mx.random.state[0].tolist())
    assert states[0] == states[1]
