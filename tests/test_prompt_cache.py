"""Prompt caches against mlx_lm: turns, looks into a cache, bounded and quantised ones, embeddings."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm
import pytest
from axlm import NgramConfig
from mlx_lm.generate import generate_step
from mlx_lm.models import cache as mlx_cache
from oracle import first_difference, generated, ours, prompt_of, reference, theirs

Tiny = Callable[[str], Path]

FAMILIES = ("llama", "qwen3", "qwen3_5", "gemma4")
EAGER = NgramConfig(adaptive=False, max_draft_tokens=6, ema_threshold=0.0, cooldown=0)
NGRAM = pytest.mark.parametrize("ngram", [False, EAGER], ids=["plain", "speculating"])


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    return tiny(f"{request.param}-f32")


def fresh(folder: Path, size: int | None = None) -> list[Any]:
    """An empty cache, as mlx_lm makes it for its own model."""
    return mlx_cache.make_prompt_cache(theirs(folder)[0], size)


def expected(folder: Path, prompt: list[int], tokens: int, **options: Any) -> list[int]:
    model, _ = theirs(folder)
    return [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=tokens, **options)]


def rows_of(cache: Any) -> tuple[mx.array, mx.array]:
    """The keys and values of a cache, dequantised where they are quantised."""
    keys, values = cache.keys_and_values()
    if not isinstance(cache, mlx_cache.QuantizedKVCache):
        return keys, values
    form = {"group_size": cache.group_size, "bits": cache.bits}
    return mx.dequantize(*keys, **form), mx.dequantize(*values, **form)


def check_equal(found: list[Any], wanted: list[Any]) -> None:
    """Demand equal states: what mlx_lm goes on with is the same."""
    for mine, other in zip(found, wanted, strict=True):
        assert isinstance(mine, type(other))
        if isinstance(mine, mlx_cache.ArraysCache):
            pairs = list(zip(mine.cache, other.cache, strict=True))
        else:
            assert mine.offset == other.offset
            if isinstance(mine, mlx_cache.RotatingKVCache):
                rows = [cache._temporal_order(cache.keys)[..., -cache.size() :, :] for cache in (mine, other)]
                pairs = [(rows[0], rows[1])]
            else:
                pairs = list(zip(rows_of(mine), rows_of(other), strict=True))
        for a, b in pairs:
            assert a.shape == b.shape and a.dtype == b.dtype
            assert mx.max(mx.abs(a - b)).item() < 1e-4


@NGRAM
def test_turns_are_those_of_mlx_lm(folder: Path, ngram: Any) -> None:
    model, _ = ours(folder)
    text = prompt_of(folder, "long")
    turns = [text[:70], text[70:71], text[20:95]]
    mine, other = fresh(folder), fresh(folder)
    for turn in turns:
        found = generated(model, turn, 24, prompt_cache=mine, prefill_step_size=32, ngram=ngram)
        assert found == expected(folder, turn, 24, prompt_cache=other, prefill_step_size=32)
    check_equal(mine, other)


@NGRAM
@pytest.mark.parametrize("stop", [1, 2, 7, 30])
def test_case_3_closed_after_any_token(folder: Path, ngram: Any, stop: int) -> None:
    """The cache then holds the prompt and the tokens that were read, as mlx_lm's does."""
    model, _ = ours(folder)
    ids = prompt_of(folder, "text")
    mine, other = fresh(folder), fresh(folder)
    steps = axlm.generate_step(ids, model, max_tokens=30, prompt_cache=mine, ngram=ngram)
    reading = generate_step(mx.array(ids), theirs(folder)[0], max_tokens=30, prompt_cache=other)
    for _ in range(stop):
        assert next(steps)[0] == next(reading)[0]
    steps.close()
    reading.close()
    check_equal(mine, other)


@NGRAM
def test_looking_into_the_cache_changes_nothing(folder: Path, ngram: Any) -> None:
    model, _ = ours(folder)
    ids = prompt_of(folder, "text")
    cache = fresh(folder)
    full = next(layer for layer in cache if isinstance(layer, mlx_cache.KVCache))
    found = []
    for token, _ in axlm.generate_step(ids, model, max_tokens=20, prompt_cache=cache, ngram=ngram):
        found.append(token)
        if len(found) % 3 == 0:
            assert full.offset == len(ids) + len(found)
            assert copy.deepcopy(full).keys.shape == full.keys.shape
    assert found == reference(folder, ids, 20).ids
    assert full.offset == len(ids) + 20


@NGRAM
def test_case_5_the_cache_is_trimmed_between_tokens(tiny: Tiny, ngram: Any) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    ids = prompt_of(folder, "text")

    def run(steps: Any, cache: list[Any]) -> list[int]:
        found = []
        for token, _ in steps:
            found.append(int(token))
            if len(found) in (4, 11):
                assert mlx_cache.trim_prompt_cache(cache, 5) == 5
        return found

    mine, other = fresh(folder), fresh(folder)
    found = run(axlm.generate_step(ids, model, max_tokens=24, prompt_cache=mine, ngram=ngram), mine)
    wanted = run(generate_step(mx.array(ids), theirs(folder)[0], max_tokens=24, prompt_cache=other), other)
    assert found == wanted
    check_equal(mine, other)


def test_case_9_a_prefix_after_a_long_prompt_equals_cold(tiny: Tiny) -> None:
    folder = tiny("gemma4-f32")
    model, _ = ours(folder)
    text = prompt_of(folder, "long")
    generated(model, text, 8, prompt_cache=fresh(folder))
    prefix = text[: len(text) // 3]
    assert generated(model, prefix, 48, prompt_cache=fresh(folder)) == reference(folder, prefix, 48).ids


def test_case_10_the_same_prompt_twice(folder: Path) -> None:
    model, _ = ours(folder)
    ids = prompt_of(folder, "chat")
    mine, other = fresh(folder), fresh(folder)
    for _ in range(2):
        found = generated(model, ids, 16, prompt_cache=mine)
        assert len(found) == 16
        assert found == expected(folder, ids, 16, prompt_cache=other)


@pytest.mark.parametrize("family", ["gemma4"])
def test_case_11_quantising_a_window_is_refused_at_the_call(tiny: Tiny, family: str) -> None:
    folder = tiny(f"{family}-f32")
    model, _ = ours(folder)
    ids = prompt_of(folder, "text")
    with pytest.raises(NotImplementedError, match="layers 0, 1"):
        generated(model, ids, 4, kv_bits=8)
    assert generated(model, ids, 4) == reference(folder, ids, 4).ids


@NGRAM
@pytest.mark.parametrize(("size", "step"), [(24, 8), (24, 40), (64, 8), (64, 2048), (200, 40)])
def test_case_12_bounded_caches(tiny: Tiny, size: int, step: int, ngram: Any) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    ids = (prompt_of(folder, "text") * 20)[: 3 * 24 + 5]
    found = generated(model, ids, 60, max_kv_size=size, prefill_step_size=step, ngram=ngram)
    assert found == expected(folder, ids, 60, max_kv_size=size, prefill_step_size=step)


def test_bounded_caches_over_turns(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    text = prompt_of(folder, "text") * 4
    mine, other = fresh(folder, 32), fresh(folder, 32)
    for turn in (text[:20], text[20:21], text[21:29], text[3:50]):
        found = generated(model, turn, 9, prompt_cache=mine, ngram=EAGER)
        assert found == expected(folder, turn, 9, prompt_cache=other)
    check_equal(mine, other)


@NGRAM
@pytest.mark.parametrize(("begin", "bits"), [(0, 4), (30, 8)])
@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5"])
def test_quantised_caches(tiny: Tiny, family: str, bits: int, begin: int, ngram: Any) -> None:
    folder = tiny(f"{family}-f32")
    model, _ = ours(folder)
    ids = prompt_of(folder, "text")
    options = {"kv_bits": bits, "kv_group_size": 32, "quantized_kv_start": begin, "prefill_step_size": 16}
    mine, other = fresh(folder), fresh(folder)
    found = generated(model, ids, 40, prompt_cache=mine, ngram=ngram, **options)
    assert found == expected(folder, ids, 40, prompt_cache=other, **options)
    check_equal(mine, other)
    found = generated(model, ids[:9], 12, prompt_cache=mine, ngram=ngram, **options)
    assert found == expected(folder, ids[:9], 12, prompt_cache=other, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_bits": 7}, "kv_bits"),
        ({"kv_bits": 4, "kv_group_size": 48}, "kv_group_size"),
        ({"kv_bits": 4, "kv_group_size": 128}, "head size"),
        ({"max_kv_size": 4}, "max_kv_size"),
    ],
)
def test_bad_cache_options(tiny: Tiny, options: dict[str, Any], message: str) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    with pytest.raises(ValueError, match=message):
        generated(model, [1, 2, 3], 4, **options)
    assert len(generated(model, [1, 2, 3], 4)) == 4


def test_caches_that_do_not_fit(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    other = fresh(tiny("gemma4-f32"))
    good = fresh(tiny("qwen3-f32"))
    for cache, kind in (
        (good[:-1], ValueError),
        ([*good[:-1], good[0]], ValueError),
        (other, ValueError),
        (good[0], TypeError),
        ([*good[:-1], object()], TypeError),
        ([*good[:-1], mlx_cache.ConcatenateKVCache()], TypeError),
    ):
        with pytest.raises(kind, match="prompt_cache"):
            generated(model, [1, 2, 3], 4, prompt_cache=cache)
    assert len(generated(model, [1, 2, 3], 4, prompt_cache=good)) == 4


@NGRAM
def test_two_readers_of_one_cache(folder: Path, ngram: Any) -> None:
    """The second request goes on from where the first one stands; the first ends without harm."""
    model, _ = ours(folder)
    ids = prompt_of(folder, "text")
    cache, other = fresh(folder), fresh(folder)
    first = axlm.generate_step(ids, model, max_tokens=20, prompt_cache=cache, ngram=ngram)
    reading = generate_step(mx.array(ids), theirs(folder)[0], max_tokens=20, prompt_cache=other)
    for _ in range(5):
        assert next(first)[0] == next(reading)[0]
    found = generated(model, ids[:6], 10, prompt_cache=cache, ngram=ngram)
    assert found == expected(folder, ids[:6], 10, prompt_cache=other)
    assert next(first)[0] == next(reading)[0]
    first.close()
    assert generated(model, ids, 8) == reference(folder, ids, 8).ids


@pytest.mark.parametrize("rows", [1, 3])
def test_the_model_takes_a_cache(folder: Path, rows: int) -> None:
    model, other = ours(folder)[0], theirs(folder)[0]
    text = prompt_of(folder, "long")[:60]
    tokens = mx.array([text[row:] + text[:row] for row in range(rows)])
    mine, wanted = fresh(folder), fresh(folder)
    for part in (tokens[:, :40], tokens[:, 40:41], tokens[:, 41:42], tokens[:, 42:60]):
        a, b = model(part, cache=mine), other(part, cache=wanted)
        assert a.shape == b.shape
        assert mx.max(mx.abs(a - b)).item() < 2e-4
    check_equal(mine, wanted)


@NGRAM
@pytest.mark.parametrize("with_prompt", [True, False])
def test_input_embeddings(folder: Path, ngram: Any, with_prompt: bool) -> None:
    model, other = ours(folder)[0], theirs(folder)[0]
    ids = prompt_of(folder, "text")[:40]
    inner = other.language_model.model if hasattr(other, "language_model") else other.model
    embeddings = inner.embed_tokens(mx.array(ids)) * 1.1
    if not with_prompt and "gemma4" in folder.name:
        with pytest.raises(ValueError, match="input_embeddings"):
            generated(model, [], 4, input_embeddings=embeddings)
        return
    options = {"input_embeddings": embeddings, "prefill_step_size": 16}
    found = generated(model, ids if with_prompt else [], 24, ngram=ngram, **options)
    given = mx.array(ids) if with_prompt else mx.array([], mx.int32)
    wanted = [int(token) for token, _ in generate_step(given, other, max_tokens=24, **options)]
    assert found == wanted
    part = mx.array(ids)[None] if with_prompt else None
    logits = model(part, input_embeddings=embeddings[None])
    assert first_difference([int(mx.argmax(logits[0, -1]))], wanted[:1]) is None


def test_bad_embeddings(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    for embeddings in (mx.zeros((4, 3)), mx.zeros((2, 128)), mx.zeros((4,)), [1, 2]):
        with pytest.raises(ValueError, match="input_embeddings"):
            generated(model, [1, 2, 3, 4], 2, input_embeddings=embeddings)
    assert len(generated(model, [1, 2, 3, 4], 2)) == 2


@NGRAM
@pytest.mark.parametrize("left", ["closed", "forgotten"])
def test_case_3_a_text_left_at_any_response(folder: Path, ngram: Any, left: str) -> None:
    """Up to the last response before ``max_tokens``, of which the cache lacks nothing either."""
    (model, tokenizer), (other, _) = ours(folder), theirs(folder)
    ids = prompt_of(folder, "chat")
    limit = 6
    for stop in range(1, limit + 1):
        mine, wanted = fresh(folder), fresh(folder)
        texts = []
        for stream, run_model, cache, options in (
            (axlm.stream_generate, model, mine, {"ngram": ngram}),
            (mlx_lm.stream_generate, other, wanted, {}),
        ):
            responses = stream(run_model, tokenizer, ids, max_tokens=limit, prompt_cache=cache, **options)
            texts.append("".join(next(responses).text for _ in range(stop)))
            if left == "closed":
                responses.close()
            del responses
        assert texts[0] == texts[1]
        check_equal(mine, wanted)


@NGRAM
def test_case_3_an_end_token_inside_a_block(folder: Path, ngram: Any) -> None:
    """The cache holds the end token, as mlx_lm's does, and nothing that was drafted behind it."""
    (model, tokenizer), (other, _) = ours(folder), theirs(folder)
    ids = prompt_of(folder, "text")
    end = reference(folder, ids, 24).ids[9]
    ends = copy.deepcopy(tokenizer)
    ends.eos_token_ids = {end}
    mine, wanted = fresh(folder), fresh(folder)
    found = list(axlm.stream_generate(model, ends, ids, max_tokens=24, prompt_cache=mine, ngram=ngram))
    expect = list(mlx_lm.stream_generate(other, ends, ids, max_tokens=24, prompt_cache=wanted))
    assert [response.token for response in found] == [response.token for response in expect]
    assert found[-1].finish_reason == "stop" and found[-1].token == end
    check_equal(mine, wanted)


@NGRAM
def test_case_10_the_same_prompt_again_gives_the_same_text(folder: Path, ngram: Any) -> None:
    """Through a cache that holds the prompt without its last token, as chat programs keep it."""
    model, tokenizer = ours(folder)
    ids = prompt_of(folder, "text")
    cache = fresh(folder)
    list(axlm.generate_step(ids[:-1], model, max_tokens=0, prompt_cache=cache))
    texts = []
    for _ in range(3):
        used = copy.deepcopy(cache)
        texts.append(axlm.generate(model, tokenizer, ids[-1:], max_tokens=20, prompt_cache=used, ngram=ngram))
        if mlx_cache.can_trim_prompt_cache(used):  # back to where it was; no window is passed, and nothing recurrent
            assert mlx_cache.trim_prompt_cache(used, 21) == 21
            cache = used
    assert texts[0] and texts == [texts[0]] * 3
    assert texts[0] == axlm.generate(model, tokenizer, ids, max_tokens=20, ngram=False)


@NGRAM
@pytest.mark.parametrize("keep", [0, 4])
def test_case_12_a_prompt_of_three_windows_has_finite_logits(tiny: Tiny, keep: int, ngram: Any) -> None:
    folder = tiny("qwen3-f32")
    (model, _), (other, _) = ours(folder), theirs(folder)
    size = 24
    ids = (prompt_of(folder, "text") * 20)[: 3 * size]

    def rotating() -> list[Any]:
        return [mlx_cache.RotatingKVCache(max_size=size, keep=keep) for _ in other.layers]

    mine, wanted = rotating(), rotating()
    found = list(axlm.generate_step(ids, model, max_tokens=40, prompt_cache=mine, prefill_step_size=8, ngram=ngram))
    assert all(mx.all(mx.isfinite(values)).item() for _, values in found)
    assert [token for token, _ in found] == expected(folder, ids, 40, prompt_cache=wanted, prefill_step_size=8)
    assert all(cache.size() == size for cache in mine)
    check_equal(mine, wanted)


@pytest.mark.parametrize("kept", [False, True], ids=["a cache each", "one cache"])
def test_case_14_memory_stays_flat(folder: Path, kept: bool) -> None:
    """Over short requests with prompt caches: finished, left early, or refused. Of each kind four, after the first."""
    model, _ = ours(folder)
    ids = prompt_of(folder, "chat")[:12]
    cache = fresh(folder)
    if kept:
        generated(model, ids, 4, prompt_cache=cache)
    measured = []
    for turn in range(70):
        used = copy.deepcopy(cache) if kept else fresh(folder)
        steps = axlm.generate_step(ids, model, max_tokens=6, prompt_cache=used, ngram=EAGER if turn % 2 else False)
        for _ in range(turn % 7):
            next(steps, None)
        steps.close()
        model(mx.array([ids[:1]]), cache=used)
        with pytest.raises(ValueError, match="prompt_cache"):
            generated(model, ids, 1, prompt_cache=used[:-1])
        del steps, used
        if turn in (13, 69):
            gc.collect()
            measured.append(mx.get_active_memory())
    assert abs(measured[1] - measured[0]) < 1 << 15
