"""SmolLM2-135M-Instruct: the tokens of mlx_lm, and text that makes sense. A sample here, all of it with ``-m real``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import check_near, generated, ours, reference, reference_meanwhile

Smollm2 = Callable[[str], Path]

QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three colours.",
    "Why is the sky blue?",
    "Translate 'good morning' into Spanish.",
    "Write a Python function that adds two numbers.",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
    "Explain gravity to a child.",
    "Rewrite this politely: give me the book.",
)


def chat(tokenizer: Any, question: str) -> list[int]:
    return tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)


def check(folder: Path, question: str, tokens: int, *, meanwhile: bool = False) -> str:
    """Compare one answer with mlx_lm's, which another process may write meanwhile, and return it."""
    model, tokenizer = ours(folder)
    prompt = chat(tokenizer, question)
    expected = reference_meanwhile(folder, prompt, tokens) if meanwhile else None
    found = generated(model, prompt, tokens)
    theirs = reference(folder, prompt, tokens) if expected is None else expected.result()
    check_near(found, theirs, f"{folder.name}, {question!r}")
    end = next((at for at, token in enumerate(found) if token in tokenizer.eos_token_ids), len(found))
    return tokenizer.decode(found[:end])


def test_a_sample_of_the_quantised_model(smollm2: Smollm2) -> None:
    text = check(smollm2("smollm2-135m"), QUESTIONS[0], 16)
    assert "Paris" in text


@pytest.mark.real
@pytest.mark.parametrize("name", ["smollm2-135m", "smollm2-135m-bf16"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_mlx_lm(smollm2: Smollm2, name: str, question: str) -> None:
    text = check(smollm2(name), question, 100, meanwhile=True)
    letters = sum(letter.isalpha() or letter.isspace() for letter in text)
    assert len(text.split()) >= 1 and letters >= 0.5 * len(text), text
