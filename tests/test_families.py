"""The families beyond llama and qwen3 against mlx_lm: windows, shared and recurrent states, experts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import axlm
import mlx.core as mx
import pytest
from axlm import NgramConfig
from axlm.sample_utils import make_logits_processors
from fixtures.tiny_models import WITH_EXPERTS
from oracle import (
    PREFILLS,
    check_near,
    check_prefill,
    first_difference,
    generated,
    ours,
    prompt_of,
    reference,
    theirs,
)

Tiny = Callable[[str], Path]

WIDE = ("qwen3_5", "qwen3_5_moe", "gemma4", "gemma4_moe")
SMALL = ("qwen2", "qwen3_moe", "gemma3", "llama-sliding", "gemma4_text", "gemma4-all")
"""Half as wide, and with windows of 16 tokens where they have any, not 32."""
FAMILIES = (*WIDE, *SMALL)
VARIANTS = ("qwen2-untied", "qwen3_moe-sparse", "gemma3_text", "gemma4-bare", "gemma4-untied")

DEPTH = 6
EAGER = NgramConfig(adaptive=False, max_draft_tokens=DEPTH, ema_threshold=0.0, cooldown=1)
"""Drafts whenever anything matches, right or wrong."""


@pytest.mark.parametrize(("prompt", "step"), PREFILLS)
@pytest.mark.parametrize("family", FAMILIES)
def test_float32_tokens_are_equal(tiny: Tiny, family: str, prompt: str, step: str) -> None:
    """Case 13, on every kind of layer: a prompt many windows long, in steps of any size."""
    expected = check_prefill(tiny(f"{family}-f32"), prompt, step)
    assert len(set(expected[:64])) >= 25  # a loop would prove little


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_the_families_give_equal_tokens(tiny: Tiny, variant: str) -> None:
    folder = tiny(f"{variant}-f32")
    model, _ = ours(folder)
    for name in ("text", "long"):
        ids = prompt_of(folder, name)
        found = generated(model, ids, 64, prefill_step_size=50)
        assert first_difference(found, reference(folder, ids, 64).ids) is None, name


@pytest.mark.parametrize(
    ("family", "form"),
    [(family, form) for family in FAMILIES for form in ("bf16", "q4") if form == "q4" or family not in WITH_EXPERTS]
    + [("gemma3", "f16")],
)
def test_other_storage_gives_equal_tokens_up_to_near_ties(tiny: Tiny, family: str, form: str) -> None:
    """Experts only as q4: MLX's CPU backend has no bfloat16 products of them; mlx_lm fails as well."""
    folder = tiny(f"{family}-{form}")
    ids = prompt_of(folder, "text")
    check_near(generated(ours(folder)[0], ids, 48), reference(folder, ids, 48), f"{family}-{form}")


@pytest.mark.parametrize(
    "name", [*(f"{family}-recipe46" for family in FAMILIES), *(f"{family}-experts4" for family in WITH_EXPERTS)]
)
def test_layers_with_bits_and_modes_of_their_own(tiny: Tiny, name: str) -> None:
    """Case 25: what mlx_lm's mixed recipes write, and mxfp4 experts in a model of 8 bits affine."""
    folder = tiny(name)
    ids = prompt_of(folder, "text")
    check_near(generated(ours(folder)[0], ids, 64), reference(folder, ids, 64), name)


@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_changes_nothing(tiny: Tiny, family: str) -> None:
    folder = tiny(f"{family}-f32")
    model, _ = ours(folder)
    loop = (prompt_of(folder, "text") * 6)[:80]
    for ids in (loop, prompt_of(folder, "long")):
        for ngram in (True, EAGER):
            assert generated(model, ids, 64, ngram=ngram) == reference(folder, ids, 64).ids


@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_rejected_at_every_depth_change_nothing(tiny: Tiny, family: str) -> None:
    """Cases 1 and 4: windows and recurrent states go back to wherever a draft went wrong.

    A text of two or three tokens repeats itself often and never quite, so some drafts are rejected at each place.
    """
    folder = tiny(f"{family}-f32")
    model, tokenizer = ours(folder)
    ids = prompt_of(folder, "text")
    rejected: Counter[int] = Counter()
    whole = 0
    for letters, penalty in ((2, 2.0), (3, 0.0), (3, 2.0)):
        how = {
            "logits_processors": make_logits_processors(
                logit_bias={40 + letter: 1e3 for letter in range(letters)},
                frequency_penalty=penalty,
                frequency_context_size=12,
            )
        }
        steps = list(axlm.stream_generate(model, tokenizer, ids, max_tokens=150, ngram=EAGER, **how))
        assert [step.token for step in steps] == generated(model, ids, 150, **how)
        counts = steps[-1].stats["speculation"]
        for place in counts["by_position"]:
            rejected[place["position"]] += place["judged"] - place["accepted"]
        whole += sum(depth["whole"] for depth in counts["by_depth"])
    assert whole > 0
    assert all(rejected[place] > 0 for place in range(1, DEPTH + 1)), rejected


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_draft_is_verified_too(tiny: Tiny, family: str) -> None:
    """Case 2: a prompt that is a short loop, and drafts of one token."""
    folder = tiny(f"{family}-f32")
    model, _ = ours(folder)
    single = NgramConfig(adaptive=False, max_draft_tokens=1, ema_threshold=0.0, cooldown=1)
    for ids in ([1, 1, 1], [7] * 5):
        assert generated(model, ids, 40, ngram=single) == reference(folder, ids, 40).ids


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 2])
def test_logits_are_equal(tiny: Tiny, family: str, rows: int) -> None:
    folder = tiny(f"{family}-f32")
    ids = prompt_of(folder, "long")[:96]
    tokens = mx.array([ids[row:] + ids[:row] for row in range(rows)])
    found, expected = ours(folder)[0](tokens), theirs(folder)[0](tokens)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert mx.max(mx.abs(found - expected)).item() <= 2e-4
