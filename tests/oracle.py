"""mlx_lm in the same process, as the judge of what axlm generates."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm
from axlm.model import Model
from fixtures.check import prompts

STEPS: dict[str, Callable[[int], int]] = {
    "whole": lambda length: 2048,
    "1": lambda length: 1,
    "7": lambda length: 7,
    "len-1": lambda length: length - 1,
    "len": lambda length: length,
    "len+1": lambda length: length + 1,
}
"""Prefill step sizes that every family is tested with, from the prompt's length."""

PROMPTS = ("chat", "text", "long")
"""The prompts of fixtures.check; the long one is many windows long."""

PREFILLS = [(prompt, step) for prompt in PROMPTS for step in STEPS if prompt == "text" or not step.startswith("len")]
"""Every prompt in steps of each size. Those round its length give one step, as "whole" does: one prompt has them."""

NEAR_TIE = 0.05
"""Below this lead of the best logit over the next, bf16 and quantised runs may rightly choose differently."""


@dataclass(frozen=True)
class Reference:
    """What mlx_lm generates greedily: ids, and at each the lead of its logit over the next best."""

    ids: list[int]
    margins: list[float]


@functools.lru_cache(maxsize=4)
def theirs(folder: Path) -> tuple[Any, Any]:
    """mlx_lm's (model, tokenizer)."""
    return mlx_lm.load(str(folder))


@functools.lru_cache(maxsize=4)
def ours(folder: Path) -> tuple[Model, Any]:
    """axlm's (model, tokenizer)."""
    return axlm.load(folder)


@functools.lru_cache(maxsize=64)
def _reference(folder: Path, prompt: tuple[int, ...], tokens: int) -> Reference:
    from mlx_lm.generate import generate_step

    model, _ = theirs(folder)
    ids, best = [], []
    for token, logprobs in generate_step(mx.array(prompt), model, max_tokens=tokens):
        ids.append(int(token))
        best.append(mx.topk(logprobs.astype(mx.float32), 2))
    pairs = mx.stack(best)
    return Reference(ids, mx.abs(pairs[:, 0] - pairs[:, 1]).tolist())


def reference(folder: Path, prompt: Sequence[int], tokens: int) -> Reference:
    """Generate with mlx_lm, past end tokens."""
    return _reference(folder, tuple(prompt), tokens)


@functools.cache
def _elsewhere() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Leave when the tests are gone: a worker waits for work for ever, also when they were killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def reference_meanwhile(folder: Path, prompt: Sequence[int], tokens: int) -> Future[Reference]:
    """As reference(), in a process beside this one: MLX's CPU kernels keep one core busy, so the caller has another."""
    return _elsewhere().submit(reference, folder, list(prompt), tokens)


def prompt_of(folder: Path, name: str) -> list[int]:
    """The token ids of one of PROMPTS."""
    return prompts(theirs(folder)[1])[name]


def generated(model: Model, prompt: Sequence[int], tokens: int, **options: Any) -> list[int]:
    """Generate with axlm, past end tokens; plainly unless ``ngram`` says otherwise."""
    options.setdefault("ngram", False)
    return [token for token, _ in axlm.generate_step(list(prompt), model, max_tokens=tokens, **options)]


def check_prefill(folder: Path, prompt: str, step: str) -> list[int]:
    """Demand mlx_lm's tokens after a prefill in steps of one of STEPS, and return them.

    A wrong state that steps leave shows at once. One text is long, past the rows by which buffers grow.
    """
    ids = prompt_of(folder, prompt)
    tokens = 256 if (prompt, step) == ("text", "7") else 96
    found = generated(ours(folder)[0], ids, tokens, prefill_step_size=STEPS[step](len(ids)))
    expected = reference(folder, ids, 256 if prompt == "text" else 96).ids[:tokens]
    assert first_difference(found, expected) is None
    return expected


def first_difference(ids: Sequence[int], expected: Sequence[int]) -> int | None:
    """The index of the first token that differs or is missing."""
    for index in range(max(len(ids), len(expected))):
        if list(ids[index : index + 1]) != list(expected[index : index + 1]):
            return index
    return None


def check_near(ids: Sequence[int], expected: Reference, what: str) -> None:
    """Demand equal ids, or a first difference where mlx_lm's own choice was a near-tie; such a one is printed."""
    at = first_difference(ids, expected.ids)
    if at is None:
        return
    assert at < min(len(ids), len(expected.ids)), f"{what}: {len(ids)} tokens instead of {len(expected.ids)}"
    margin = expected.margins[at]
    print(f"{what}: token {at} is {ids[at]}, mlx_lm has {expected.ids[at]} with a margin of {margin:.4f}")
    assert margin < NEAR_TIE, f"{what}: token {at} is {ids[at]} instead of {expected.ids[at]}, ahead by {margin:.4f}"
