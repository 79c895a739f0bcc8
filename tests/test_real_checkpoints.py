"""Gemma-3-270M: the tokens of mlx_lm, plain and speculating. All of it with ``-m real``.

The forms are real.checkpoints': the 4-bit one, whose scales and activations are float32, runs all prompts; bfloat16,
which differs in the dtype of everything between the matrices, a sample.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest
from axlm import NgramConfig
from fixtures.check import TEXTS
from oracle import Reference, check_near, generated, ours, reference_meanwhile
from real import checkpoints

pytestmark = pytest.mark.real

TEXT = "gemma-3-270m"  # a base model: it continues

PROMPTS = {
    TEXT: (
        "The three largest cities of France are",
        "Once upon a time, in a village by the sea, there lived",
        "def fibonacci(n):\n    ",
        "To make pancakes, you need",
        "Die Hauptstadt von Deutschland ist",
        "日本の首都は",
        "Q: What is the boiling point of water?\nA:",
        "Dear Sir or Madam,\n\nI am writing to",
        '{"name": "Ann", "age": 31}\n{"name": "Bob", "age": 27}\n{"name": "Cid", "age": 45}\n{"name":',
        TEXTS["long"],  # past the window of 512 tokens
    ),
}
CASES = [(name, index) for name in PROMPTS for index in range(len(PROMPTS[name]))]
LENGTH = {"q4": 100, "bf16": 24}  # tokens of mlx_lm's texts
REPEATING = [(TEXT, 6), (TEXT, 8)]  # those whose text says things twice
EVERY_STEP = NgramConfig(adaptive=False, max_draft_tokens=3, ema_threshold=0.0)

_references: dict[tuple[str, int, str], Future[Reference]] = {}


def check(name: str, index: int, form: str, tokens: int, **options: Any) -> list[int]:
    """Compare the tokens after a prompt with mlx_lm's, of which there is one run, and give axlm's."""
    folder = checkpoints.folder(name, form)
    model, tokenizer = ours(folder)
    prompt = tokenizer.encode(PROMPTS[name][index])
    key = (name, index, form)
    if key not in _references:
        _references[key] = reference_meanwhile(folder, prompt, LENGTH[form])
    began = time.process_time()
    found = generated(model, prompt, tokens, **options)
    seconds = time.process_time() - began
    expected = _references[key].result()
    expected = Reference(expected.ids[:tokens], expected.margins[:tokens])
    what, least = f"{name} {form}, prompt {index}", min(expected.margins)
    print(f"{what}: {len(prompt)} + {tokens} tokens in {seconds:.1f} s of CPU time, least margin {least:.4f}")
    check_near(found, expected, what)
    return found


@pytest.mark.parametrize(("name", "index"), CASES)
def test_tokens_are_those_of_mlx_lm(name: str, index: int) -> None:
    check(name, index, "q4", LENGTH["q4"])


@pytest.mark.parametrize(("name", "index"), REPEATING)
def test_speculating_gives_the_same_tokens(name: str, index: int) -> None:
    model, _ = ours(checkpoints.folder(name, "q4"))
    before = model.stats()["ngram"]
    check(name, index, "q4", 48, ngram=EVERY_STEP)
    after = model.stats()["ngram"]
    drafted, accepted = (after[key] - before[key] for key in ("drafted", "accepted"))
    print(f"{accepted} of {drafted} drafts accepted")
    assert accepted > 0


@pytest.mark.parametrize(("name", "index", "word"), [(TEXT, 0, "Lyon"), (TEXT, 2, "return")])
def test_bfloat16_tokens_are_those_of_mlx_lm_and_make_sense(name: str, index: int, word: str) -> None:
    text = ours(checkpoints.folder(name, "bf16"))[1].decode(check(name, index, "bf16", LENGTH["bf16"]))
    assert word in text
