"""The families beyond llama and qwen3 against mlx_lm: windows, shared and recurrent states, experts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
from axlm import NgramConfig
from oracle import PROMPTS, STEPS, check_near, first_difference, generated, ours, prompt_of, reference, theirs

Tiny = Callable[[str], Path]

FAMILIES = ("qwen3_5", "qwen3_5_moe", "gemma4", "gemma4_moe")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_float32_tokens_are_equal(tiny: Tiny, family: str, prompt: str, step: str) -> None:
    folder = tiny(f"{family}-f32")
    ids = prompt_of(folder, prompt)
    found = generated(ours(folder)[0], ids, 256, prefill_step_size=STEPS[step](len(ids)), ngram=False)
    assert first_difference(found, reference(folder, ids, 256).ids) is None


@pytest.mark.parametrize("form", ["bf16", "q4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_other_storage_gives_equal_tokens_up_to_near_ties(tiny: Tiny, family: str, form: str) -> None:
    if family.endswith("_moe") and form == "bf16":
        form = "q4"  # MLX's CPU backend has no bfloat16 expert products; mlx_lm fails as well
    folder = tiny(f"{family}-{form}")
    ids = prompt_of(folder, "text")
    check_near(generated(ours(folder)[0], ids, 48, ngram=False), reference(folder, ids, 48), f"{family}-{form}")


@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_changes_nothing(tiny: Tiny, family: str) -> None:
    """Cases 1 and 4: windows and recurrent states go back when drafts are wrong."""
    folder = tiny(f"{family}-f32")
    model, _ = ours(folder)
    eager = NgramConfig(adaptive=False, max_draft_tokens=6, ema_threshold=0.0, cooldown=0)
    loop = (prompt_of(folder, "text") * 6)[:80]
    for ids in (loop, prompt_of(folder, "long")):
        for ngram in (True, eager):
            assert generated(model, ids, 64, ngram=ngram) == reference(folder, ids, 64).ids


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 2])
def test_logits_are_equal(tiny: Tiny, family: str, rows: int) -> None:
    folder = tiny(f"{family}-f32")
    ids = prompt_of(folder, "long")[:96]
    tokens = mx.array([ids[row:] + ids[:row] for row in range(rows)])
    found, expected = ours(folder)[0](tokens), theirs(folder)[0](tokens)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert mx.max(mx.abs(found - expected)).item() <= 2e-4
