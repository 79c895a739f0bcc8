"""``batch_generate``: a text after each of many prompts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._batch import DEFAULT_MAX_TOKENS, BatchGenerator
from ._run import wrap_tokenizer
from .generate_utils import BatchStats

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerBase


@dataclass
class BatchResponse:
    """What :func:`batch_generate` returns.

    Attributes:
        texts: the generated text of each prompt.
        stats: counts, times and speeds.
        caches: the cache of each prompt, or None.
        token_ids: the generated token ids of each, an end token left out, or None.
        logprobs: the log probability of each of these tokens, or None.
    """

    texts: list[str]
    stats: BatchStats
    caches: list[list[Any]] | None = field(repr=False)
    token_ids: list[list[int]] | None = None
    logprobs: list[list[float]] | None = None


def batch_generate(
    model: Any,
    tokenizer: PreTrainedTokenizerBase | TokenizerWrapper,
    prompts: Sequence[Sequence[int]],
    prompt_caches: Sequence[list[Any] | None] | None = None,
    max_tokens: int | Sequence[int] = DEFAULT_MAX_TOKENS,
    verbose: bool = False,
    return_prompt_caches: bool = False,
    return_token_ids: bool = False,
    return_logprobs: bool = False,
    **kwargs: Any,
) -> BatchResponse:
    """Generate a text after each of many prompts.

    Args:
        model: a model from :func:`axlm.load`, or one of mlx_lm's.
        tokenizer: its tokenizer.
        prompts: token ids of each prompt.
        prompt_caches: what each prompt continues, a list of cache objects or None; they are not changed.
        max_tokens: how many tokens to generate at most, one number or one for each prompt.
        verbose: print progress, then the speeds and the peak memory.
        return_prompt_caches: also return the caches, each with the prompt and all that was generated.
        return_token_ids: also return the token ids.
        return_logprobs: also return the tokens' log probabilities.
        kwargs: the other arguments of :class:`BatchGenerator`.

    Returns:
        The texts in the prompts' order, and what else was asked for.

    Raises:
        TypeError, ValueError: as :class:`BatchGenerator` and its ``insert``.
    """
    known = inspect.signature(BatchGenerator.__init__).parameters
    if unknown := [name for name in kwargs if name not in known]:
        raise TypeError(f"batch_generate() got an unexpected keyword argument {unknown[0]!r}")
    tokenizer = wrap_tokenizer(tokenizer)
    limits = list(max_tokens) if isinstance(max_tokens, Sequence) else [max_tokens] * len(prompts)
    kwargs.setdefault("stop_tokens", [[token] for token in tokenizer.eos_token_ids])
    generator = (BatchGenerator if return_logprobs else _WithoutLogprobs)(model, **kwargs)
    try:
        uids = generator.insert(prompts, limits, caches=prompt_caches)
        tokens: dict[int, list[int]] = {uid: [] for uid in uids}
        logprobs: dict[int, list[float]] = {uid: [] for uid in uids}
        caches: dict[int, list[Any]] = {}
        counter = _Counter(len(uids), verbose)
        with generator.stats() as stats:
            while responses := generator.next_generated():
                for response in responses:
                    if response.finish_reason is not None:
                        counter.add()
                        if return_prompt_caches:
                            caches[response.uid] = response.prompt_cache
                    if response.finish_reason != "stop":
                        tokens[response.uid].append(response.token)
                        if return_logprobs:
                            logprobs[response.uid].append(response.logprobs[response.token].item())
    finally:
        generator.close()
    if verbose:
        counter.close(stats)
    return BatchResponse(
        [tokenizer.decode(tokens[uid]) for uid in uids],
        stats,
        [caches[uid] for uid in uids] if return_prompt_caches else None,
        [tokens[uid] for uid in uids] if return_token_ids else None,
        [logprobs[uid] for uid in uids] if return_logprobs else None,
    )


class _WithoutLogprobs(BatchGenerator):
    """Responses have no log probabilities, which saves keeping them."""

    _keeps_logprobs = False


class _Counter:
    """Prints how many of the prompts are done, in mlx_lm's form."""

    def __init__(self, total: int, verbose: bool) -> None:
        self._done, self._total, self._verbose = 0, total, verbose
        self._print(" ...", end="\r")

    def add(self) -> None:
        self._done += 1
        self._print(" ...", end="\r")

    def close(self, stats: BatchStats) -> None:
        self._print("")
        for name, count, speed in (
            ("Prompt", stats.prompt_tokens, stats.prompt_tps),
            ("Generation", stats.generation_tokens, stats.generation_tps),
        ):
            print(f"[batch_generate] {name}: {count} tokens, {speed:.3f} tokens-per-sec")
        print(f"[batch_generate] Peak memory: {stats.peak_memory:.3f} GB")

    def _print(self, tail: str, end: str = "\n") -> None:
        if self._verbose:
            print(f"[batch_generate] Finished processing {self._done}/{self._total}{tail}", end=end, flush=True)
