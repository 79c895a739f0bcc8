"""Prompts for batches, and running a generator of axlm's or mlx_lm's to its end."""

from __future__ import annotations

import importlib
import random
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

# Not by an import statement: in both packages, ``generate`` is the function too.
module = importlib.import_module("axlm.generate")
upstream = importlib.import_module("mlx_lm.generate")


def prompts(*lengths: int) -> list[list[int]]:
    """Token ids of prompts of these lengths, always the same."""
    draw = random.Random(5)
    return [[draw.randrange(20, 1000) for _ in range(length)] for length in lengths]


def at_once(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Make calls in threads that begin together. Returns what each gives, in order."""
    calls = list(calls)
    start = threading.Barrier(len(calls))
    found: dict[int, T] = {}

    def run(number: int, call: Callable[[], T]) -> None:
        start.wait()
        found[number] = call()

    threads = [threading.Thread(target=run, args=part) for part in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(calls))]


def tokens(responses: list[Any]) -> list[int]:
    return [response.token for response in responses]


def drain(generator: Any) -> dict[int, list[Any]]:
    """Run a generator to its end. Returns the responses of each sequence."""
    found: dict[int, list[Any]] = {}
    while responses := generator.next_generated():
        for response in responses:
            found.setdefault(response.uid, []).append(response)
    return found


def drain_one(generator: Any, prompt: list[int], **options: Any) -> list[Any]:
    """Insert a prompt and run to the end. Returns its responses."""
    (uid,) = generator.insert([prompt], **options)
    return drain(generator)[uid]
