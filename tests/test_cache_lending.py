"""Caches that change hands: random conversations on two caches, one lent to the core, one with mlx_lm."""

from __future__ import annotations

import copy
import pickle
import random
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
