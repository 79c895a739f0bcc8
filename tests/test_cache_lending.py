"""Caches that change hands: random conversations on two caches, one lent to the core, one with mlx_lm."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm import NgramConfig
from axlm.models.cache import can_trim_prompt_cache, load_prompt_cache, save_prompt_cache, trim_prompt_cache
from mlx_lm.generate import generate_step
from oracle import ours, prompt_of, theirs
from test_prompt_cache import check_equal, fresh

Tiny = Callable[[str], Path]

FAMILIES = pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5", "gemma4"])
NGRAM = (False, True, NgramConfig(adaptive=False, max_draft_tokens=5, ema_threshold=0.0, cooldown=0))


class Conversation:
    """Two caches that go through the same: ``mine`` with axlm's model, ``other`` with mlx_lm's."""

    def __init__(self, folder: Path, seed: int, scratch: Path, size: int | None = None) -> None:
        self.random = random.Random(seed)
        self.models = ours(folder)[0], theirs(folder)[0]
        self.text = prompt_of(folder, "long")
        self.mine, self.other = fresh(folder, size), fresh(folder, size)
        self.scratch = scratch
        self.log: list[str] = []

    def step(self) -> None:
        """Do one thing with both caches."""
        act = self.random.choice(
            [self.turn, self.turn, self.part, self.part, self.call, self.swap, self.trim, self.look]
        )
        self.log.append(act.__name__)
        act()

    def _ids(self, most: int = 40) -> list[int]:
        start = self.random.randrange(len(self.text) - most)
        return self.text[start : start + self.random.choice([1, 2, self.random.randint(3, most)])]

    def _start(self, tokens: int) -> tuple[Iterator[Any], Iterator[Any]]:
        ids, step = self._ids(), self.random.choice([3, 16, 2048])
        ngram = self.random.choice(NGRAM)
        self.log[-1] += f" {len(ids)}+{tokens} step {step} ngram {bool(ngram)}"
        options = {"max_tokens": tokens, "prefill_step_size": step}
        mine = axlm.generate_step(ids, self.models[0], prompt_cache=self.mine, ngram=ngram, **options)
        return mine, generate_step(mx.array(ids), self.models[1], prompt_cache=self.other, **options)

    def turn(self) -> None:
        """A whole generation."""
        mine, other = self._start(self.random.randint(1, 14))
        assert [token for token, _ in mine] == [int(token) for token, _ in other], self.log

    def part(self) -> None:
        """One that is looked into, and closed before its end."""
        count = self.random.randint(1, 12)
        mine, other = self._start(count + 3)
        for _ in range(count):
            assert next(mine)[0] == int(next(other)[0]), self.log
            if self.random.random() < 0.25:
                self.random.choice([self.look, self.copied, self.trim])()
        mine.close()
        other.close()

    def call(self) -> None:
        """A forward pass."""
        tokens = mx.array([self._ids(9)])
        a, b = self.models[0](tokens, cache=self.mine), self.models[1](tokens, cache=self.other)
        assert mx.max(mx.abs(a - b)).item() < 5e-4, self.log

    def trim(self) -> None:
        """The last tokens are forgotten, as far as mlx_lm can."""
        count = self.random.randint(1, 6)
        able = can_trim_prompt_cache(self.other)
        self.log[-1] += f" trim {count} {able}"
        assert can_trim_prompt_cache(self.mine) == able, self.log
        assert trim_prompt_cache(self.mine, count) == trim_prompt_cache(self.other, count), self.log

    def look(self) -> None:
        """The states are compared."""
        self.log[-1] += " look"
        self._same(self.mine)

    def copied(self) -> None:
        """Copies are made, and thrown away."""
        self.log[-1] += " copied"
        self._same(copy.deepcopy(self.mine))

    def _same(self, cache: list[Any]) -> None:
        empty = [c.empty() for c in self.other]
        assert [c.empty() for c in cache] == empty, self.log
        if not any(empty):
            check_equal(cache, self.other)

    def swap(self) -> None:
        """Copies take the caches' place, by one way or another."""
        way = self.random.choice([copy.deepcopy, self._pickled, self._saved])
        self.log[-1] += f" {way.__name__}"
        self.mine, self.other = way(self.mine), copy.deepcopy(self.other)

    def _pickled(self, cache: list[Any]) -> list[Any]:
        return pickle.loads(pickle.dumps(cache))

    def _saved(self, cache: list[Any]) -> list[Any]:
        file = self.scratch / self.random.choice(["a.safetensors", "a.safetensors.zst"])
        save_prompt_cache(file, cache)
        return load_prompt_cache(file)


@FAMILIES
@pytest.mark.parametrize("seed", range(6))
def test_random_conversations(tiny: Tiny, tmp_path: Path, family: str, seed: int) -> None:
    conversation = Conversation(tiny(f"{family}-f32"), seed, tmp_path)
    conversation.log.append("empty")
    conversation.look()
    for _ in range(14):
        conversation.step()
    conversation.look()


@pytest.mark.parametrize("seed", range(6))
def test_random_conversations_with_a_bounded_cache(tiny: Tiny, tmp_path: Path, seed: int) -> None:
    conversation = Conversation(tiny("qwen3-f32"), seed, tmp_path, size=48)
    for _ in range(14):
        conversation.step()
    conversation.look()


class Trouble(Exception):
    """What a user's function raises."""


def failing(call: int, result: Callable[..., Any]) -> Callable[..., Any]:
    """A function that fails when it is called for this time, from 1 on."""
    calls = 0

    def function(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Trouble
        return result(*arguments)

    return function


TROUBLES: dict[str, Callable[[int], dict[str, Any]]] = {
    "processor": lambda call: {"logits_processors": [failing(call, lambda tokens, logits: logits)]},
    "sampler": lambda call: {"sampler": failing(call, lambda logprobs: mx.argmax(logprobs, axis=-1))},
}


@FAMILIES
@pytest.mark.parametrize("call", [1, 2, 5])
@pytest.mark.parametrize("where", TROUBLES, ids=list(TROUBLES))
def test_a_failing_function_leaves_what_mlx_lm_leaves(tiny: Tiny, family: str, where: str, call: int) -> None:
    folder = tiny(f"{family}-f32")
    models = ours(folder)[0], theirs(folder)[0]
    ids = prompt_of(folder, "text")
    caches = fresh(folder), fresh(folder)
    said: list[list[int]] = [[], []]
    steps = (
        axlm.generate_step(ids, models[0], prompt_cache=caches[0], **TROUBLES[where](call)),
        generate_step(mx.array(ids), models[1], prompt_cache=caches[1], **TROUBLES[where](call)),
    )
    for reading, heard in zip(steps, said, strict=True):
        with pytest.raises(Trouble):
            for token, _ in reading:
                heard.append(int(token))
    # mlx_lm asks for a token one step before it yields it.
    assert said[0][: len(said[1])] == said[1]
    check_equal(*caches)
    again = (
        axlm.generate_step(ids[:7], models[0], max_tokens=9, prompt_cache=caches[0]),
        generate_step(mx.array(ids[:7]), models[1], max_tokens=9, prompt_cache=caches[1]),
    )
    assert [token for token, _ in again[0]] == [int(token) for token, _ in again[1]]


@FAMILIES
def test_an_exception_thrown_into_the_generator(tiny: Tiny, family: str) -> None:
    folder = tiny(f"{family}-f32")
    ids = prompt_of(folder, "text")
    caches = fresh(folder), fresh(folder)
    for reading in (
        axlm.generate_step(ids, ours(folder)[0], prompt_cache=caches[0], ngram=NGRAM[2]),
        generate_step(mx.array(ids), theirs(folder)[0], prompt_cache=caches[1]),
    ):
        for _ in range(4):
            next(reading)
        with pytest.raises(Trouble):
            reading.throw(Trouble)
    check_equal(*caches)


@FAMILIES
@pytest.mark.parametrize("seed", range(4))
def test_two_generators_on_one_cache(tiny: Tiny, family: str, seed: int) -> None:
    """They take turns in any order; each goes on with what the other left."""
    folder = tiny(f"{family}-f32")
    ids = prompt_of(folder, "text")
    order = random.Random(seed).choices([0, 1], k=16)

    def run(start: Callable[[list[int], list[Any]], Iterator[Any]]) -> tuple[list[int], list[Any]]:
        cache = fresh(folder)
        readers = [start(ids, cache), start(ids[3:9], cache)]
        return [int(next(readers[index])[0]) for index in order], cache

    model, other = ours(folder)[0], theirs(folder)[0]
    wanted, reference = run(lambda part, cache: generate_step(mx.array(part), other, prompt_cache=cache))
    for ngram in NGRAM:
        found, cache = run(lambda part, cache: axlm.generate_step(part, model, prompt_cache=cache, ngram=ngram))  # noqa: B023
        assert found == wanted
        check_equal(cache, reference)


@FAMILIES
def test_the_list_belongs_to_the_script(tiny: Tiny, family: str) -> None:
    """A generator keeps the cache objects that it was given, as mlx_lm's does, whatever becomes of the list."""
    folder = tiny(f"{family}-f32")
    model = ours(folder)[0]
    ids = prompt_of(folder, "text")
    wanted = [int(token) for token, _ in generate_step(mx.array(ids), theirs(folder)[0], max_tokens=12)]

    def copy_first(cache: list[Any]) -> None:
        cache[0] = copy.deepcopy(cache[0])

    changes: list[Callable[[list[Any]], Any]] = [list.clear, list.reverse, copy_first, lambda cache: cache.pop()]
    for change in changes:
        cache = fresh(folder)
        steps = axlm.generate_step(ids, model, max_tokens=12, prompt_cache=cache)
        found = [next(steps)[0], next(steps)[0]]
        change(cache)
        del cache
        gc.collect()
        assert found + [token for token, _ in steps] == wanted


@FAMILIES
def test_a_cache_goes_from_model_to_model(tiny: Tiny, family: str) -> None:
    folder = tiny(f"{family}-f32")
    first, other = ours(folder)[0], theirs(folder)[0]
    second, _ = axlm.load(folder)
    ids = prompt_of(folder, "text")
    mine, reference = fresh(folder), fresh(folder)
    for model in (first, second, first, second):
        steps = generate_step(mx.array(ids), other, max_tokens=6, prompt_cache=reference)
        found = [token for token, _ in axlm.generate_step(ids, model, max_tokens=6, prompt_cache=mine, ngram=True)]
        assert found == [int(token) for token, _ in steps]
    second.close()  # it had the state
    check_equal(mine, reference)


@FAMILIES
def test_another_thread_looks_at_the_cache(tiny: Tiny, family: str) -> None:
    """All the time, and from the start on. The text stays what it is, and what is seen grows with it."""
    folder = tiny(f"{family}-f32")
    model = ours(folder)[0]
    ids = prompt_of(folder, "text")
    wanted = [int(token) for token, _ in generate_step(mx.array(ids), theirs(folder)[0], max_tokens=16)]
    for round_ in range(6):
        cache = fresh(folder)
        layer = next(c for c in cache if type(c).__name__ == "KVCache")
        seen: list[int] = []
        troubles: list[Exception] = []
        over = threading.Event()

        def look(layer: Any, seen: list[int], troubles: list[Exception], over: threading.Event) -> None:
            try:
                while not seen or not over.is_set():
                    seen.append(layer.offset)
                    assert layer.keys is None or layer.keys.shape[2] >= seen[-1]
            except Exception as error:
                troubles.append(error)

        thread = threading.Thread(target=look, args=(layer, seen, troubles, over))
        thread.start()
        steps = axlm.generate_step(ids, model, max_tokens=16, prompt_cache=cache, ngram=NGRAM[round_ % 3])
        found = [token for token, _ in steps]
        over.set()
        thread.join()
        assert not troubles
        assert found == wanted
        assert seen == sorted(seen)
        assert layer.offset == len(ids) + len(found)
