"""From the arguments of mlx_lm's functions to a request that runs in the core."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ._choice import choice, steps, tell
from ._crossing import pack_ids
from ._progress import ProgressCallback
from ._random_state import checked_seed, seeded
from ._request import Draft, Request, integer, prompt_ids
from ._tracing import refuse_traced
from .model import Model
from .ngram import ngram_options

if TYPE_CHECKING:
    import mlx.core as mx

DEFAULT_PREFILL_STEP_SIZE = 2048
DEFAULT_QUANTIZED_KV_START = 5000


def wrap_tokenizer(tokenizer: Any) -> Any:
    """Give a bare transformers tokenizer the detokenizer and end tokens of mlx_lm's wrapper."""
    if hasattr(tokenizer, "detokenizer"):
        return tokenizer
    from mlx_lm.tokenizer_utils import TokenizerWrapper

    return TokenizerWrapper(tokenizer)


def _embeddings(given: Any) -> mx.array | None:
    """Check the argument ``input_embeddings``."""
    if given is None:
        return None
    import mlx.core as mx

    if not isinstance(given, mx.array) or given.ndim != 2 or not mx.issubdtype(given.dtype, mx.floating):
        raise ValueError("input_embeddings must be an array [N, D] of floating-point numbers")
    return given


def _parted(model: Model, draft: Draft, prompt_cache: Any) -> tuple[Any, Draft]:
    """Part a prompt cache into the model's and the draft model's, which follow each other in one list.

    Raises:
        ValueError: the list has another length.
        TypeError: it is no list.
    """
    if prompt_cache is None:
        own = draft.model.make_cache() if "make_cache" in vars(draft.model) else None
        return None, replace(draft, caches=own)
    if not isinstance(prompt_cache, (list, tuple)):
        raise TypeError(f"prompt_cache: want a list of cache objects, not {type(prompt_cache).__name__}")
    first, second = model.num_caches, draft.model.num_caches
    if len(prompt_cache) != first + second:
        raise ValueError(
            f"prompt_cache: it has {len(prompt_cache)} layers; "
            f"want {first} of the model and then {second} of the draft model"
        )
    return prompt_cache[:first], replace(draft, caches=prompt_cache[first:])


class Run(NamedTuple):
    """A request that runs, and its tokens: (token, came from a draft, log probabilities or None)."""

    request: Request
    steps: Iterator[tuple[int, bool, mx.array | None]]


@contextlib.contextmanager
def start(
    prompt: Sequence[int] | mx.array,
    model: Model,
    *,
    end_tokens: Sequence[int] = (),
    logprobs: bool = True,
    max_tokens: int = 256,
    sampler: Any = None,
    logits_processors: Any = None,
    max_kv_size: int | None = None,
    prompt_cache: Any = None,
    prefill_step_size: int = DEFAULT_PREFILL_STEP_SIZE,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = DEFAULT_QUANTIZED_KV_START,
    prompt_progress_callback: ProgressCallback | None = None,
    input_embeddings: Any = None,
    ngram: Any = True,
    seed: int | None = None,
    draft: Draft | None = None,
) -> Iterator[Run]:
    """Check the arguments of :func:`generate_step` and run a request for as long as the context lasts."""
    embeddings = _embeddings(input_embeddings)
    refuse_traced(prompt_cache, embeddings)
    ids = pack_ids(prompt) if embeddings is not None else prompt_ids(prompt)
    kv: dict[str, Any] = {}
    if kv_bits is not None:
        kv["kv_bits"] = integer("kv_bits", kv_bits, 1)
        kv["kv_group_size"] = integer("kv_group_size", kv_group_size, 1)
        kv["quantized_kv_start"] = integer("quantized_kv_start", quantized_kv_start, 0)
    if draft is not None:
        prompt_cache, draft = _parted(model, draft, prompt_cache)
    if prompt_cache is None:
        if "make_cache" in vars(model):  # a user's own
            prompt_cache = model.make_cache()
        elif max_kv_size is not None and not hasattr(model, "make_cache"):
            kv["max_kv_size"] = integer("max_kv_size", max_kv_size, 5)  # 4 rows are kept
    limit = integer("max_tokens", max_tokens, -1)
    chosen = choice(sampler, logits_processors)
    seed = checked_seed(seed)
    options = ngram_options(ngram)
    tell(chosen, draft is not None or options is not False)
    with Request(
        model,
        ids,
        max_tokens=-1 if chosen.by_reader else limit,
        prefill_step_size=integer("prefill_step_size", prefill_step_size, 1),
        end_tokens=() if chosen.by_reader else end_tokens,
        logprobs=logprobs,
        ngram=options,
        choice=chosen.options,
        draft=draft,
        callback=prompt_progress_callback,
        caches=prompt_cache,
        kv=kv,
        embeddings=embeddings,
    ) as request:
        yield Run(request, seeded(steps(request, chosen, ids, limit, logprobs), seed))
