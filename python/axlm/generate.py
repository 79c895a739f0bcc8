"""Text generation: the functions of ``mlx_lm.generate``, run by the Go core.

This module imports nothing heavy, so that ``import axlm`` stays cheap.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from . import _bridge, _fallback
from ._batch import BatchGenerator as BatchGenerator  # with "as" type checkers take it for a name of this module
from ._delegate import delegate, run_as
from ._progress import ProgressCallback
from ._run import DEFAULT_PREFILL_STEP_SIZE, DEFAULT_QUANTIZED_KV_START, start, wrap_tokenizer
from ._speculative import drafted_arguments
from ._speculative import speculative_generate_step as speculative_generate_step
from ._stop import StopSequences as StopSequences
from ._stop import make_stop_sequences as make_stop_sequences
from .batch import BatchResponse as BatchResponse
from .batch import batch_generate as batch_generate
from .generate_utils import BatchCounters as BatchCounters
from .generate_utils import BatchCountersSnapshot as BatchCountersSnapshot
from .generate_utils import BatchStats as BatchStats
from .model import Model

if TYPE_CHECKING:
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerBase

    from ._stats import Stats
    from .ngram import NgramConfig

    Prompt = str | Sequence[int] | mx.array
    Tokenizer = PreTrainedTokenizerBase | TokenizerWrapper

__getattr__, __dir__ = delegate(__name__, "generate")

DEFAULT_MODEL = "smollm2-135m"
"""What the commands load by default: the model of :mod:`axlm.demo`."""

_SAMPLING = {"temp", "temperature", "top_p", "min_p", "top_k", "min_tokens_to_keep", "xtc_probability", "xtc_threshold"}
"""Arguments of other programs' generate, and of mlx_lm's once; here they are a sampler's."""


@dataclass
class GenerationResponse:
    """One piece of the output of :func:`stream_generate`.

    Attributes:
        text: the next part of the text; may be empty.
        token: the id of the token that was generated last.
        logprobs: log probabilities of all tokens at this position, [V], in the model's dtype.
        from_draft: whether the token was drafted and accepted.
        prompt_tokens: tokens in the prompt.
        prompt_tps: prompt tokens per second, up to the first token.
        generation_tokens: tokens generated so far.
        generation_tps: generated tokens per second, since the first token.
        peak_memory: the most memory in use so far, in GB (10^9 bytes).
        finish_reason: None, or on the last response ``"stop"`` (an end token) or ``"length"`` (``max_tokens``).
        stats: the core's counters of this request on the last response (a dictionary with ``plot()``), otherwise None.
    """

    text: str
    token: int
    logprobs: mx.array = field(repr=False)
    from_draft: bool
    prompt_tokens: int
    prompt_tps: float
    generation_tokens: int
    generation_tps: float
    peak_memory: float
    finish_reason: str | None = None
    stats: Stats | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Show all but the log probabilities, speeds to one place and memory to a megabyte."""
        digits = {"prompt_tps": 1, "generation_tps": 1, "peak_memory": 3}
        words = []
        for name in (part.name for part in fields(self) if part.repr):
            value = getattr(self, name)
            words.append(f"{name}={value:.{digits[name]}f}" if name in digits else f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(words)})"


@contextlib.contextmanager
def wired_limit(model: Model | nn.Module, streams: Sequence[mx.Stream] | None = None) -> Generator[None, None, None]:
    """Warn on stderr if the model needs more than 90 % of the memory that the device recommends (Metal reports it).

    The core itself keeps MLX's wired limit at the recommended size, from its start to the end of the process: nothing
    is left to set or to restore here.

    Args:
        model: the model that will generate.
        streams: accepted for ``mlx_lm``'s sake; the core synchronises its own stream.
    """
    if _fallback.serves(model):
        from mlx_lm.generate import wired_limit as theirs

        with theirs(model, streams):
            yield
        return
    recommended = int(_bridge.device().get("working_set", 0))
    if recommended and model.nbytes > 0.9 * recommended:
        print(
            f"axlm: the model takes {model.nbytes >> 20} MB of the {recommended >> 20} MB that this device recommends "
            "at most; generation may be slow",
            file=sys.stderr,
        )
    yield


def generate_step(
    prompt: Sequence[int] | mx.array,
    model: Model | nn.Module,
    stream: Any = None,
    *,
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
    ngram: NgramConfig | dict[str, Any] | bool = True,
    seed: int | None = None,
) -> Generator[tuple[int, mx.array], None, None]:
    """Generate token ids, without a tokenizer and without end tokens.

    Args:
        prompt: token ids: a list of integers or a one-dimensional integer array.
        model: a model from :func:`axlm.load`.
        stream: accepted and ignored; the core has a stream of its own.
        max_tokens: how many tokens to generate; -1 for no limit, 0 to process the prompt only.
        prefill_step_size: how many prompt tokens one forward pass takes; fewer need less memory.
        prompt_progress_callback: called with (prompt tokens processed, prompt tokens): first (0, N), then after each
            chunk, finally (N, N).
        prompt_cache: mlx_lm's cache objects, one a layer (``axlm.models.cache.make_prompt_cache``). The prompt goes on
            from what they hold; afterwards, and whenever one is read, they hold it and the tokens generated so far.
        max_kv_size: the most rows of the KV cache. The first 4 stay, of the others the last; where layers have
            windows of their own it is ignored, as in mlx_lm.
        kv_bits: quantise keys and values to this many bits: 2, 3, 4, 5, 6 or 8. None leaves them as they are.
        kv_group_size: values that share a scale: 32, 64 or 128.
        quantized_kv_start: tokens in the cache from which on it is quantised.
        input_embeddings: embeddings [N, D] in place of the prompt's tokens, of which there are then N or none.
        ngram: n-gram speculation: True, an :class:`axlm.NgramConfig`, or False for plain decoding. It drafts tokens
            that the model then verifies, many in one pass. The tokens are those of plain
            decoding: exactly in float32, up to near ties in other dtypes.
        sampler: what chooses a token from log probabilities [1, V]: one from :func:`axlm.sample_utils.make_sampler`
            or mlx_lm's runs in the core, any other callable in Python, without speculation. None takes the most
            probable token.
        logits_processors: callables of (tokens [L], logits [1, V]) that change the logits before the choice, the same
            way: those from :func:`axlm.sample_utils.make_logits_processors` or mlx_lm's run in the core.
        seed: a whole number below 2**64: draw with a random state of the request's own, as after
            ``mx.random.seed(seed)``. The caller's ``mx.random.state`` stays as it is, and other requests do not count.
            None draws from ``mx.random.state``, of which each thread has its own; all start equal, so that threads
            without a seed draw the same.

    Yields:
        (token id, log probabilities [V] in the model's dtype).

    Raises:
        NotImplementedError: ``kv_bits`` with layers that have a window.
        TypeError: the ids or the seed are not integers, the model is not one of ours, or the core has no form for a
            cache object.
        ValueError: an empty prompt, an id outside the vocabulary, ``max_tokens`` below -1, a seed out of range, a
            closed model, a cache that does not fit the model, or logits from which no token can be drawn.
    """
    options = {
        "max_tokens": max_tokens,
        "sampler": sampler,
        "logits_processors": logits_processors,
        "max_kv_size": max_kv_size,
        "prompt_cache": prompt_cache,
        "prefill_step_size": prefill_step_size,
        "kv_bits": kv_bits,
        "kv_group_size": kv_group_size,
        "quantized_kv_start": quantized_kv_start,
        "prompt_progress_callback": prompt_progress_callback,
        "input_embeddings": input_embeddings,
        "seed": seed,
    }
    if _fallback.serves(model):
        yield from _fallback.steps(prompt, model, stream, ngram, **options)
        return
    with start(prompt, model, ngram=ngram, **options) as run:
        for token, _, values in run.steps:
            yield token, values


def stream_generate(
    model: Model | nn.Module,
    tokenizer: Tokenizer,
    prompt: Prompt,
    max_tokens: int = 256,
    draft_model: Any = None,
    stream: Any = None,
    **kwargs: Any,
) -> Generator[GenerationResponse, None, None]:
    """Generate text piece by piece.

    Args:
        model: a model from :func:`axlm.load`.
        tokenizer: its tokenizer; a bare transformers tokenizer is wrapped.
        prompt: text or token ids. Text gets the tokenizer's special tokens unless it starts with the BOS token.
        max_tokens: how many tokens to generate; -1 for no limit.
        draft_model: another model from :func:`axlm.load`, smaller and of the same vocabulary, that proposes tokens in
            place of n-grams; see :func:`speculative_generate_step`.
        stream: accepted and ignored; the core has a stream of its own.
        kwargs: the other arguments of :func:`generate_step`; with a draft model ``num_draft_tokens``, and those of
            :func:`speculative_generate_step` (``max_kv_size`` and ``prompt_progress_callback`` are ignored).

    Yields:
        A response per token. The last one has a ``finish_reason`` and the text that was held back; an end token is
        counted but adds no text.

    Raises:
        ValueError: ``max_tokens`` is 0, or what :func:`generate_step` raises it for.
        NotImplementedError, TypeError: as :func:`generate_step`.
    """
    _check_names("stream_generate", kwargs)
    yield from _responses(model, tokenizer, prompt, max_tokens, draft_model, stream, **kwargs)


def _check_names(function: str, arguments: Iterable[str], own: Iterable[str] = ()) -> None:
    """Refuse an argument that neither the function nor those behind it have, in the name of what the user called."""
    known = {*inspect.signature(generate_step).parameters, "num_draft_tokens", *own}
    for name in arguments:
        if name not in known:
            hint = " (samplers are made by axlm.sample_utils.make_sampler)" if name in _SAMPLING else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def _responses(
    model: Model | nn.Module,
    tokenizer: Tokenizer,
    prompt: Prompt,
    max_tokens: int = 256,
    draft_model: Any = None,
    stream: Any = None,
    *,
    logprobs: bool = True,
    num_draft_tokens: int | None = None,
    **kwargs: Any,
) -> Generator[GenerationResponse, None, None]:
    """Do the work of :func:`stream_generate`; without ``logprobs`` the responses carry none."""
    if max_tokens == 0:
        raise ValueError("max_tokens must not be 0 (-1 means no limit)")
    if _fallback.serves(model, draft_model):
        options = {"max_tokens": max_tokens, "draft_model": draft_model, **kwargs}
        if num_draft_tokens is not None:
            options["num_draft_tokens"] = num_draft_tokens
        yield from _fallback.responses(GenerationResponse, model, tokenizer, prompt, stream, **options)
        return
    if draft_model is not None:
        kwargs = drafted_arguments(draft_model, num_draft_tokens, kwargs)
    tokenizer = wrap_tokenizer(tokenizer)
    if isinstance(prompt, str):
        bos = tokenizer.bos_token
        prompt = tokenizer.encode(prompt, add_special_tokens=bos is None or not prompt.startswith(bos))
    detokenizer = tokenizer.detokenizer
    clock = time.perf_counter
    started = clock()
    options = {"end_tokens": tokenizer.eos_token_ids, "logprobs": logprobs, "max_tokens": max_tokens}
    with wired_limit(model), start(prompt, model, **options, **kwargs) as (request, tokens):
        count = 0
        prompt_tps = 0.0

        def response(token: int, from_draft: bool, values: Any, reason: str | None = None) -> GenerationResponse:
            return GenerationResponse(
                text=detokenizer.last_segment,
                token=token,
                logprobs=values,
                from_draft=from_draft,
                prompt_tokens=request.prompt_tokens,
                prompt_tps=prompt_tps,
                generation_tokens=count,
                generation_tps=count / max(clock() - started, 1e-9),
                peak_memory=_bridge.peak_memory() / 1e9,
                finish_reason=reason,
                stats=request.stats() if reason else None,
            )

        for token, from_draft, values in tokens:
            count += 1
            if count == 1:
                now = clock()
                prompt_tps = request.prompt_tokens / max(now - started, 1e-9)
                started = now
            if token in tokenizer.eos_token_ids:
                break
            detokenizer.add_token(token)
            if count == max_tokens:
                break
            yield response(token, from_draft, values)
        if count == 0:
            raise RuntimeError("the core ended the request before its first token")
        detokenizer.finalize()
        yield response(token, from_draft, values, "stop" if token in tokenizer.eos_token_ids else "length")


def generate(
    model: Model | nn.Module, tokenizer: Tokenizer, prompt: Prompt, verbose: bool = False, **kwargs: Any
) -> str:
    """Generate a whole text.

    Args:
        model: a model from :func:`axlm.load`.
        tokenizer: its tokenizer.
        prompt: text or token ids.
        verbose: print the text as it comes, then the speeds and the peak memory.
        kwargs: the other arguments of :func:`stream_generate` and :func:`generate_step`.

    Returns:
        The text.

    Raises:
        NotImplementedError, TypeError, ValueError: as :func:`stream_generate`.
    """
    _check_names("generate", kwargs, own=("draft_model",))
    pieces = []
    last = None
    if verbose:
        print("=" * 10)
    for last in _responses(model, tokenizer, prompt, logprobs=False, **kwargs):
        pieces.append(last.text)
        if verbose:
            print(last.text, end="", flush=True)
    text = "".join(pieces)
    if verbose:
        print()
        print("=" * 10)
        if not text or last is None:
            print("No text generated for this prompt")
        else:
            print(f"Prompt: {last.prompt_tokens} tokens, {last.prompt_tps:.3f} tokens-per-sec")
            print(f"Generation: {last.generation_tokens} tokens, {last.generation_tps:.3f} tokens-per-sec")
            print(f"Peak memory: {last.peak_memory:.3f} GB")
    return text


if __name__ == "__main__":
    run_as("generate")
