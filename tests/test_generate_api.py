"""generate, stream_generate and generate_step on a fake core: arguments, results, and what happens at the borders."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from axlm import GenerationResponse, NgramConfig, _progress, generate, generate_step, stream_generate
from axlm.generate import wired_limit
from axlm.model import Model
from fake_native import SCRIPT, FakeNative, Tokenizer, core_error, fake_core, fake_model

native = pytest.fixture(fake_core)
model = pytest.fixture(fake_model)

PROMPT = [2, 3, 4]


def responses(model: Model, *ends: int, **options: Any) -> list[GenerationResponse]:
    return list(stream_generate(model, Tokenizer(*ends), PROMPT, **options))


def options_sent(native: FakeNative) -> dict[str, Any]:
    return list(native.requests.values())[-1].options


# Results


def test_steps_are_tokens_and_logprobs(model: Model, native: FakeNative) -> None:
    steps = list(generate_step(PROMPT, model, max_tokens=7))
    assert [token for token, _ in steps] == [5, 6, 7, 8, 9, 5, 6]
    assert all(type(token) is int for token, _ in steps)
    assert all(logprobs[0] == "array" for _, logprobs in steps)
    assert options_sent(native)["end_tokens"] == []
    assert not native.open


def test_a_stream_ends_with_length(model: Model) -> None:
    stream = responses(model, max_tokens=3)
    assert [response.token for response in stream] == [5, 6, 7]
    assert [response.text for response in stream] == ["<5>", "", "<6><7>"]
    assert [response.finish_reason for response in stream] == [None, None, "length"]
    assert [response.generation_tokens for response in stream] == [1, 2, 3]
    assert all(response.prompt_tokens == 3 and response.prompt_tps > 0 for response in stream)
    assert all(response.generation_tps > 0 and response.peak_memory == 2.5 for response in stream)
    assert all(response.logprobs is not None for response in stream)


def test_text_held_back_comes_with_the_last_response(model: Model) -> None:
    assert responses(model, max_tokens=2)[-1].text == "<6>"


def test_a_stream_stops_at_an_end_token(model: Model, native: FakeNative) -> None:
    stream = responses(model, 8, 50, max_tokens=10)
    assert [response.token for response in stream] == [5, 6, 7, 8]
    assert "".join(response.text for response in stream) == "<5><6><7>"
    assert stream[-1].finish_reason == "stop"
    assert stream[-1].generation_tokens == 4
    assert options_sent(native)["end_tokens"] == [8, 50]


def test_an_end_token_at_the_limit_is_a_stop(model: Model) -> None:
    assert responses(model, 7, max_tokens=3)[-1].finish_reason == "stop"


def test_only_the_last_response_has_stats(model: Model) -> None:
    stream = responses(model, max_tokens=3)
    assert [response.stats for response in stream] == [None, None, {"generated_tokens": 3}]


def test_drafted_tokens_are_marked(model: Model, native: FakeNative) -> None:
    native.drafted = frozenset({1, 2})
    stream = responses(model, max_tokens=4)
    assert [response.from_draft for response in stream] == [False, True, True, False]
    assert [response.token for response in stream] == [5, 6, 7, 8]


def test_generate_returns_the_text_and_wants_no_logprobs(model: Model, native: FakeNative) -> None:
    assert generate(model, Tokenizer(9), PROMPT) == "<5><6><7><8>"
    sent = options_sent(native)
    assert (sent["logprobs"], sent["max_tokens"], sent["prefill_step_size"]) == (False, 256, 2048)


def test_verbose_prints_what_mlx_lm_prints(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    text = generate(model, Tokenizer(9), PROMPT, verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["==========", text, "=========="]
    assert lines[3].startswith("Prompt: 3 tokens, ") and lines[3].endswith(" tokens-per-sec")
    assert lines[4].startswith("Generation: 5 tokens, ") and lines[4].endswith(" tokens-per-sec")
    assert lines[5:] == ["Peak memory: 2.500 GB"]


def test_verbose_without_text_says_so(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(model, Tokenizer(5), PROMPT, verbose=True) == ""
    assert capsys.readouterr().out.splitlines() == ["=" * 10, "", "=" * 10, "No text generated for this prompt"]


def test_a_bare_transformers_tokenizer_is_wrapped(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlx_lm import tokenizer_utils

    bare = object()
    monkeypatch.setattr(tokenizer_utils, "TokenizerWrapper", lambda given: Tokenizer(6) if given is bare else None)
    assert generate(model, bare, PROMPT) == "<5>"


def test_wired_limit_warns_of_models_near_the_limit(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for working_set, warned in ((0, False), (100_000_000, True), (200_000_000, False)):
        monkeypatch.setattr("axlm._bridge.device", lambda size=working_set: {"working_set": size})
        with wired_limit(model, [None]):
            pass
        assert bool(capsys.readouterr().err) is warned


# max_tokens


def test_zero_tokens_only_process_the_prompt(model: Model, native: FakeNative) -> None:
    heard: list[tuple[int, int]] = []
    assert list(generate_step(PROMPT, model, max_tokens=0, prompt_progress_callback=lambda *at: heard.append(at))) == []
    assert heard == [(0, 3), (2, 3), (3, 3)]
    assert len(native.requests) == 1 and not native.open


@pytest.mark.parametrize("function", [generate, stream_generate])
def test_zero_tokens_of_text_are_an_error(model: Model, native: FakeNative, function: Any) -> None:
    with pytest.raises(ValueError, match="max_tokens must not be 0"):
        list(function(model, Tokenizer(), PROMPT, max_tokens=0))
    assert not native.requests


def test_minus_one_has_no_limit(model: Model) -> None:
    stream = stream_generate(model, Tokenizer(), PROMPT, max_tokens=-1)
    assert [next(stream).token for _ in range(300)] == list(SCRIPT) * 60
    stream.close()


@pytest.mark.parametrize(("value", "error"), [(-2, ValueError), (2.0, TypeError), ("5", TypeError), (None, TypeError)])
def test_other_limits_are_errors(model: Model, native: FakeNative, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_tokens"):
        responses(model, max_tokens=value)
    with pytest.raises(error, match="max_tokens"):
        next(generate_step(PROMPT, model, max_tokens=value))
    assert not native.requests


# Prompts


@pytest.mark.parametrize(
    ("text", "ids"), [("abc", [1, 2, 3, 4]), ("^abc", [1, 2, 3, 4])], ids=["gets BOS", "has BOS already"]
)
def test_a_text_gets_bos_once(model: Model, native: FakeNative, text: str, ids: list[int]) -> None:
    generate(model, Tokenizer(), text, max_tokens=1)
    assert native.requests[max(native.requests)].ids == ids


def test_a_text_gets_special_tokens_where_there_is_no_bos(model: Model, native: FakeNative) -> None:
    tokenizer = Tokenizer()
    tokenizer.bos_token = None
    generate(model, tokenizer, "^abc", max_tokens=1)
    assert native.requests[max(native.requests)].ids == [1, 1, 2, 3, 4]


def test_ids_come_in_every_form(model: Model, native: FakeNative) -> None:
    mx = pytest.importorskip("mlx.core")
    forms = [PROMPT, tuple(PROMPT), np.array(PROMPT), np.array(PROMPT, np.uint8), list(np.array(PROMPT))]
    forms += [mx.array(PROMPT), mx.array(PROMPT, mx.uint32), mx.array([0, *PROMPT])[1:]]
    for form in forms:
        list(generate_step(form, model, max_tokens=1))
        generate(model, Tokenizer(), form, max_tokens=1)
    assert [request.ids for request in native.requests.values()] == [PROMPT] * 2 * len(forms)


@pytest.mark.parametrize(
    ("prompt", "error", "text"),
    [
        ([], ValueError, "empty"),
        (np.array([], np.int32), ValueError, "empty"),
        ([1.0, 2.0], TypeError, "float"),
        (np.array([1.5]), TypeError, "float"),
        ([1, "2"], TypeError, "str"),
        ([1, True], TypeError, "bool"),
        (b"abc", TypeError, "bytes"),
        ([[1, 2]], TypeError, "list"),
        (np.array([[1, 2]]), ValueError, "dimension"),
        ([1, -1], ValueError, "-1"),
        ([2**31], ValueError, "2147483648"),
        ([1, 100], ValueError, "100"),
    ],
)
def test_bad_prompts(model: Model, native: FakeNative, prompt: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        next(generate_step(prompt, model))
    with pytest.raises(error, match=text):
        generate(model, Tokenizer(), prompt)
    assert not native.requests
    assert generate(model, Tokenizer(), PROMPT, max_tokens=1) == "<5>"


def test_a_text_is_no_prompt_for_generate_step(model: Model) -> None:
    with pytest.raises(TypeError, match="str"):
        next(generate_step("abc", model))


def test_a_foreign_model_is_refused() -> None:
    with pytest.raises(TypeError, match=r"axlm\.load"):
        generate(object(), Tokenizer(), PROMPT)
    with pytest.raises(TypeError, match=r"axlm\.load"):
        next(generate_step(PROMPT, object()))


# Arguments


@pytest.mark.parametrize("name", ["prompt_cache", "max_kv_size", "kv_bits", "input_embeddings"])
def test_wrong_cache_arguments_are_named(model: Model, native: FakeNative, name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        next(generate_step(PROMPT, model, **{name: [4]}))
    with pytest.raises((TypeError, ValueError), match=name):
        generate(model, Tokenizer(), PROMPT, **{name: [4]})
    assert not native.requests


def test_a_draft_model_reaches_the_core(native: FakeNative, model: Model) -> None:
    generate(model, Tokenizer(), PROMPT, draft_model=model, max_kv_size=8, prompt_progress_callback=print)
    options = options_sent(native)
    assert (options["draft_model"], options["num_draft_tokens"]) == (model.handle, 2)
    assert options["prefill_step_size"] == 512
    generate(model, Tokenizer(), PROMPT, draft_model=model, num_draft_tokens=5, prefill_step_size=7)
    options = options_sent(native)
    assert (options["num_draft_tokens"], options["prefill_step_size"]) == (5, 7)
    for wrong, error in ((-1, ValueError), (2.5, TypeError), ("2", TypeError)):
        with pytest.raises(error, match="num_draft_tokens"):
            generate(model, Tokenizer(), PROMPT, draft_model=model, num_draft_tokens=wrong)
    with pytest.raises(TypeError, match="draft_model"):
        generate(model, Tokenizer(), PROMPT, draft_model=object())
    with pytest.raises(ValueError, match="input_embeddings"):
        generate(model, Tokenizer(), PROMPT, draft_model=model, input_embeddings=[[1.0]])


def test_defaults_are_accepted(model: Model, native: FakeNative) -> None:
    neutral = {
        "stream": object(), "draft_model": None, "num_draft_tokens": 3, "sampler": None, "logits_processors": [],
        "max_kv_size": None, "prompt_cache": None, "kv_bits": None, "kv_group_size": 32, "quantized_kv_start": 0,
        "input_embeddings": None, "prompt_progress_callback": None, "ngram": False, "prefill_step_size": 7,
    }  # fmt: skip
    assert generate(model, Tokenizer(), PROMPT, max_tokens=1, **neutral) == "<5>"
    assert options_sent(native)["prefill_step_size"] == 7
    assert options_sent(native)["ngram"] is False


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, True),
        ({"ngram": True}, True),
        ({"ngram": None}, False),
        ({"ngram": {"max_draft_tokens": 4}}, {"max_draft_tokens": 4}),
        ({"ngram": NgramConfig(adaptive=False)}, asdict(NgramConfig(adaptive=False))),
    ],
)
def test_speculation_is_on_unless_switched_off(
    model: Model, native: FakeNative, given: dict[str, Any], sent: dict[str, Any] | bool
) -> None:
    generate(model, Tokenizer(), PROMPT, max_tokens=1, **given)
    assert options_sent(native)["ngram"] == sent


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"ngram": 3}, TypeError),
        ({"ngram": {"depth": 3}}, ValueError),
        ({"sampler": 4}, TypeError),
        ({"logits_processors": [4]}, TypeError),
    ],
)
def test_wrong_settings_are_named(
    model: Model, native: FakeNative, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=next(iter(given))):
        generate(model, Tokenizer(), PROMPT, **given)
    assert not native.requests


@pytest.mark.parametrize(("step", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_bad_prefill_steps(model: Model, step: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="prefill_step_size"):
        next(generate_step(PROMPT, model, prefill_step_size=step))


@pytest.mark.parametrize("function", [generate, stream_generate])
def test_unknown_arguments_are_type_errors(model: Model, function: Any) -> None:
    with pytest.raises(TypeError, match="surprise"):
        list(function(model, Tokenizer(), PROMPT, surprise=1))


def test_responses_have_the_fields_of_mlx_lm() -> None:
    from mlx_lm.generate import GenerationResponse as Theirs

    expected = list(Theirs.__dataclass_fields__)
    assert list(GenerationResponse.__dataclass_fields__) == [*expected, "stats"]


def test_generators_do_nothing_before_the_first_next(model: Model, native: FakeNative) -> None:
    for generator in (generate_step(PROMPT, model), stream_generate(model, Tokenizer(), PROMPT)):
        assert inspect.isgenerator(generator)
        generator.close()
    assert not native.requests


# Ends


@pytest.mark.parametrize("count", [1, 2, 9])
def test_closing_a_generator_closes_the_request(model: Model, native: FakeNative, count: int) -> None:
    for generator in (
        generate_step(PROMPT, model, max_tokens=10),
        stream_generate(model, Tokenizer(), PROMPT, max_tokens=10),
    ):
        for _ in range(count):
            next(generator)
        assert len(native.open) == 1
        generator.close()
        assert not native.open


def test_a_forgotten_generator_closes_the_request(model: Model, native: FakeNative) -> None:
    next(stream_generate(model, Tokenizer(), PROMPT))
    gc.collect()
    assert not native.open


def test_an_error_of_the_core_ends_the_request(model: Model, native: FakeNative) -> None:
    native.fail_at = 2
    stream = stream_generate(model, Tokenizer(), PROMPT)
    assert [next(stream).token, next(stream).token] == [5, 6]
    with pytest.raises(MemoryError, match=r"^out of memory in token$"):
        next(stream)
    assert not native.open
    native.fail_at = None
    assert generate(model, Tokenizer(), PROMPT, max_tokens=1) == "<5>"


def test_an_error_at_the_start_leaves_nothing_open(model: Model, native: FakeNative) -> None:
    native.start = lambda *_: (_ for _ in ()).throw(core_error("ValueError", "no"))
    with pytest.raises(ValueError, match=r"^no$"):
        generate(model, Tokenizer(), PROMPT)
    assert not native.open


def test_an_interrupt_ends_the_request(model: Model, native: FakeNative) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    native.on_next = interrupt
    with pytest.raises(KeyboardInterrupt):
        generate(model, Tokenizer(), PROMPT)
    assert not native.open


def test_a_closed_model_is_a_value_error(model: Model) -> None:
    stream = stream_generate(model, Tokenizer(), PROMPT)
    next(stream)
    stream.close()
    model.close()
    with pytest.raises(ValueError, match="closed"):
        generate(model, Tokenizer(), PROMPT)


def test_a_core_that_gives_no_token_is_reported(model: Model, native: FakeNative) -> None:
    native.next = lambda *_: -2
    with pytest.raises(RuntimeError, match="first token"):
        generate(model, Tokenizer(), PROMPT)


def test_threads_generate_side_by_side(model: Model, native: FakeNative) -> None:
    native.waits, native.pause = 3, 0.001
    texts: dict[int, str] = {}

    def work(number: int) -> None:
        texts[number] = generate(model, Tokenizer(9), [number + 1] * 5)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == dict.fromkeys(range(8), "<5><6><7><8>")
    assert not native.open


# Progress


@pytest.mark.parametrize(
    ("length", "step", "expected"),
    [
        (1, 4, [0, 1]),
        (2, 4, [0, 1, 2]),
        (10, 4, [0, 4, 8, 9, 10]),
        (9, 4, [0, 4, 8, 9]),
        (10, 1, [*range(11)]),
        (10, 2048, [0, 9, 10]),
    ],
)
@pytest.mark.parametrize("waits", [0, 1, 5])
def test_the_callback_hears_every_border(
    model: Model, native: FakeNative, length: int, step: int, expected: list[int], waits: int
) -> None:
    native.waits = waits
    heard: list[tuple[int, int]] = []
    generator = generate_step(
        [2] * length, model, prefill_step_size=step, prompt_progress_callback=lambda *at: heard.append(at)
    )
    next(generator)
    assert heard == [(done, length) for done in expected]
    next(generator)
    assert len(heard) == len(expected)


def test_the_callback_hears_of_a_slow_prefill_while_it_runs(model: Model, native: FakeNative) -> None:
    native.waits = 2
    before_first: list[int] = []
    native.on_next = lambda _: before_first.append(len(heard))
    heard: list[int] = []
    next(
        generate_step([2] * 9, model, prefill_step_size=2, prompt_progress_callback=lambda done, _: heard.append(done))
    )
    assert before_first == [1, 3, 5] and heard == [0, 2, 4, 6, 8, 9]


def test_an_error_in_the_callback_comes_out_and_ends_the_request(model: Model, native: FakeNative) -> None:
    def fail(done: int, total: int) -> None:
        if done:
            raise LookupError("mine")

    native.waits = 4
    with pytest.raises(LookupError, match="mine"):
        generate(model, Tokenizer(), PROMPT, prompt_progress_callback=fail)
    assert not native.open


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """tqdm bars made during the test; bars appear at once."""
    import tqdm.auto

    made: list[Any] = []

    class Bar(tqdm.std.tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs, file=open("/dev/null", "w"))  # noqa: SIM115
            self.closed = False
            made.append(self)

        def close(self) -> None:
            self.closed = True
            super().close()

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    monkeypatch.setattr(_progress, "BAR_AFTER_SECONDS", 0)
    return made


def test_a_slow_prefill_shows_a_bar_on_a_terminal(
    model: Model, native: FakeNative, bars: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "interactive", lambda: True)
    native.waits = 3
    generate(model, Tokenizer(), [2] * 9, max_tokens=2)
    assert len(bars) == 1 and bars[0].closed and (bars[0].n, bars[0].total) == (9, 9)


@pytest.mark.parametrize("reason", ["no terminal", "quick", "callback"])
def test_otherwise_there_is_no_bar(
    model: Model, native: FakeNative, bars: list[Any], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    native.waits = 3
    monkeypatch.setattr(_progress, "interactive", lambda: reason != "no terminal")
    if reason == "quick":
        monkeypatch.setattr(_progress, "BAR_AFTER_SECONDS", 60)
    callback = (lambda *_: None) if reason == "callback" else None
    generate(model, Tokenizer(), [2] * 9, max_tokens=2, prompt_progress_callback=callback)
    assert not bars


def test_an_interrupted_prefill_removes_its_bar(
    model: Model, native: FakeNative, bars: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "interactive", lambda: True)
    native.waits = 3

    def interrupt(_: int) -> None:
        if bars:
            raise KeyboardInterrupt

    native.on_next = interrupt
    with pytest.raises(KeyboardInterrupt):
        generate(model, Tokenizer(), [2] * 9)
    assert bars[0].closed


def test_a_notebook_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shell:
        config = MappingProxyType({"IPKernelApp": {}})

    class IPython:
        get_ipython = staticmethod(lambda: Shell)

    assert not _progress.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert _progress.in_notebook() and _progress.interactive()
    IPython.get_ipython = staticmethod(lambda: None)
    assert not _progress.in_notebook()
