"""Speculation with a draft model: what ``mlx_lm.generate.speculative_generate_step`` does, by the core."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from . import _fallback
from ._request import Draft, integer
from ._run import DEFAULT_QUANTIZED_KV_START, start
from .model import Model

if TYPE_CHECKING:
    import mlx.core as mx

DEFAULT_NUM_DRAFT_TOKENS = 2
DEFAULT_PREFILL_STEP_SIZE = 512

_MOST_DRAFT_TOKENS = 32  # what one pass of the core verifies


def draft_of(draft_model: Any, num_draft_tokens: Any) -> Draft:
    """Read the arguments ``draft_model`` and ``num_draft_tokens``.

    Raises:
        TypeError: it is none of the core's models, or the number is no integer.
        ValueError: the number is negative.
    """
    if not isinstance(draft_model, Model):
        raise TypeError(
            f"draft_model: the core runs the model, but not its draft model, a {type(draft_model).__name__}; "
            "both must come from axlm.load and be of families that the core runs, or both be mlx_lm's"
        )
    return Draft(draft_model, min(integer("num_draft_tokens", num_draft_tokens, 0), _MOST_DRAFT_TOKENS))


def drafted_arguments(draft_model: Any, num_draft_tokens: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Turn the arguments that :func:`axlm.stream_generate` got beside a draft model into those of a run.

    Raises:
        ValueError: there are embeddings among them, or as :func:`draft_of`.
        TypeError: as :func:`draft_of`.
    """
    arguments = {"prefill_step_size": DEFAULT_PREFILL_STEP_SIZE, **arguments}
    for ignored in ("max_kv_size", "prompt_progress_callback"):
        arguments.pop(ignored, None)
    if arguments.pop("input_embeddings", None) is not None:
        raise ValueError("input_embeddings: a draft model knows tokens only, and cannot go on after them")
    count = DEFAULT_NUM_DRAFT_TOKENS if num_draft_tokens is None else num_draft_tokens
    return {**arguments, "draft": draft_of(draft_model, count)}


def speculative_generate_step(
    prompt: Sequence[int] | mx.array,
    model: Model,
    draft_model: Model,
    stream: Any = None,
    *,
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS,
    max_tokens: int = 256,
    sampler: Any = None,
    logits_processors: Any = None,
    prompt_cache: Any = None,
    prefill_step_size: int = DEFAULT_PREFILL_STEP_SIZE,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = DEFAULT_QUANTIZED_KV_START,
    seed: int | None = None,
) -> Generator[tuple[int, mx.array, bool], None, None]:
    """Generate token ids, many of which a second, smaller model proposes.

    The model checks the proposals, all of a step in one pass, and keeps those that it would have chosen itself: the
    tokens are those of :func:`axlm.generate_step`, sampled ones too. Where checking takes longer than it saves, the
    core leaves it off for a while.

    Args:
        prompt: token ids, a list of integers or a one-dimensional integer array.
        model: a model from :func:`axlm.load`.
        draft_model: another one, of the same vocabulary.
        stream: accepted and ignored; the core has a stream of its own.
        num_draft_tokens: how many tokens to propose a step; 32 at most are used, 0 generates without.
        max_tokens: how many tokens to generate; -1 for no limit.
        sampler: as for :func:`axlm.generate_step`. One that Python runs leaves nothing to check: its tokens come one by
            one.
        logits_processors: as for :func:`axlm.generate_step`, and the same goes for those that Python runs.
        prompt_cache: the model's prompt cache and after it the draft model's, in one list.
        prefill_step_size: how many prompt tokens one forward pass takes.
        kv_bits: as for :func:`axlm.generate_step`; for both caches.
        kv_group_size: only with ``kv_bits``.
        quantized_kv_start: only with ``kv_bits``.
        seed: as for :func:`axlm.generate_step`.

    Yields:
        (token id, log probabilities [V] in the model's dtype, whether the draft model proposed it).

    Raises:
        TypeError: one of the models is not the core's and the other is, or as :func:`axlm.generate_step`.
        ValueError: the state of one of the models, or a prompt cache, cannot be trimmed; a closed model; and as
            :func:`axlm.generate_step`.
    """
    options = {
        "max_tokens": max_tokens,
        "sampler": sampler,
        "logits_processors": logits_processors,
        "prompt_cache": prompt_cache,
        "prefill_step_size": prefill_step_size,
        "kv_bits": kv_bits,
        "kv_group_size": kv_group_size,
        "quantized_kv_start": quantized_kv_start,
        "seed": seed,
    }
    if _fallback.serves(model, draft_model):
        options["num_draft_tokens"] = num_draft_tokens
        yield from _fallback.speculative_steps(prompt, model, draft_model, stream, **options)
        return
    with start(prompt, model, draft=draft_of(draft_model, num_draft_tokens), **options) as run:
        for token, drafted, values in run.steps:
            yield token, values, drafted
