"""How a request's tokens are chosen: by the core, or by callables in Python."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._random_state import kept_on_error, state
from ._recognise import recognised
from .sample_utils import Sampler, native_processors

if TYPE_CHECKING:
    import mlx.core as mx

    from ._request import Request

    Step = tuple[int, bool, mx.array | None]

_logger = logging.getLogger("axlm")

_NO_TOKEN = (  # the core's words
    "sampling: no token can be drawn, since the log probabilities have no finite maximum: the model gave NaN or "
    "infinite logits, or logit_bias or another processor bans every token or adds infinity to one"
)


@dataclass(frozen=True)
class Choice:
    """A sampler and logits processors, as the core's options or, where it cannot run them, as callables."""

    options: dict[str, Any] = field(default_factory=dict)
    draws: int = 0
    """How many keys of ``mx.random.state`` a token takes."""
    sampler: Callable[[mx.array], mx.array] | None = None
    processors: tuple[Callable[[mx.array, mx.array], mx.array], ...] = ()

    @property
    def by_reader(self) -> bool:
        """Whether Python chooses."""
        return self.sampler is not None or bool(self.processors)


def choice(sampler: Any, logits_processors: Sequence[Any] | None) -> Choice:
    """Read the arguments ``sampler`` and ``logits_processors``.

    Raises:
        TypeError: one of them cannot be called.
    """
    processors = tuple(logits_processors or ())
    for name, function in (("sampler", sampler), *(("logits_processors", p) for p in processors)):
        if function is not None and not callable(function):
            raise TypeError(f"{name}: {function!r} cannot be called")
    sampler, processors = recognised(sampler), tuple(map(recognised, processors))
    native = native_processors(processors)
    if native is None or not (sampler is None or isinstance(sampler, Sampler)):
        return Choice({"reader_chooses": True}, sampler=sampler or Sampler(), processors=processors)
    options = {"processors": native} if native else {}
    if sampler is not None:
        options["sampler"] = sampler.options()
    return Choice(options, draws=sampler.draws if sampler is not None else 0)


def tell(chosen: Choice, speculating: bool) -> None:
    """Say, once a process, that a request which was to speculate will not."""
    if chosen.by_reader and speculating:
        _say_that_python_chooses()


@functools.cache
def _say_that_python_chooses() -> None:
    _logger.warning(
        "axlm: a sampler or logits processor chooses the tokens in Python, one by one, so that nothing is drafted; "
        "what axlm.sample_utils or mlx_lm.sample_utils makes runs in the core (said once)"
    )


def steps(request: Request, chosen: Choice, prompt: Sequence[int], max_tokens: int, logprobs: bool) -> Iterator[Step]:
    """Iterate over a request's tokens.

    Args:
        request: the request, started with the choice's options.
        chosen: how tokens are chosen.
        prompt: the prompt's token ids, for processors that Python runs.
        max_tokens: where a request ends whose tokens Python chooses; -1 for no limit.
        logprobs: whether to fetch log probabilities.

    Yields:
        (token, came from a draft, log probabilities [V] or None).
    """
    if chosen.by_reader:
        yield from _by_reader(request, chosen, prompt, max_tokens)
        return
    for token, from_draft in _with_random_state(request, chosen.draws) if chosen.draws else request:
        yield token, from_draft, request.logprobs() if logprobs else None


def _with_random_state(request: Request, draws: int) -> Iterator[tuple[int, bool]]:
    """Draw from ``mx.random.state``, and leave it at each token where mlx_lm would: one token ahead."""
    import mlx.core as mx

    request.reseed(state())
    token = None
    for token, from_draft in request:
        key = request.key_after()
        mx.random.seed(key)
        yield token, from_draft
        if (now := state()) != key:
            request.reseed(now)
    if token is None:
        for _ in range(draws):
            mx.random.uniform()  # of a first token that nobody wants


def _by_reader(request: Request, chosen: Choice, prompt: Sequence[int], max_tokens: int) -> Iterator[Step]:
    """Choose each token in Python, one ahead of the token that is yielded, as mlx_lm does."""
    import mlx.core as mx

    tokens = mx.array(list(prompt), mx.int32)
    sampler = chosen.sampler or Sampler()

    def pick() -> tuple[int, mx.array]:
        next(request)
        logits = request.logprobs()[None]
        with kept_on_error():
            for processor in chosen.processors if tokens.size else ():  # none is asked about embeddings alone
                logits = processor(tokens, logits)
            logprobs = logits - mx.logsumexp(logits, keepdims=True)
            chosen_token = sampler(logprobs)
            return _checked(sampler, logprobs, chosen_token), logprobs.squeeze(0)

    token, values = pick()
    count = 0
    while count != max_tokens:
        request.choose(token)
        tokens = mx.concatenate([tokens, mx.array([token], tokens.dtype)])
        ahead = pick()
        count += 1
        yield token, False, values
        token, values = ahead


def _checked(sampler: Callable[[mx.array], mx.array], logprobs: mx.array, chosen: Any) -> int:
    """Return the token that a sampler chose from log probabilities [1, V].

    Raises:
        TypeError: it chose something else than one token.
        ValueError: the token is none of the vocabulary's, or was drawn by a sampler of ours from a row without a finite
            maximum.
    """
    import mlx.core as mx

    if not isinstance(chosen, mx.array) or chosen.size != 1 or not mx.issubdtype(chosen.dtype, mx.integer):
        raise TypeError(f"sampler: it must return one token id as an array of integers, not {chosen!r}")
    if isinstance(sampler, Sampler) and sampler.temp != 0:
        finite = mx.isfinite(mx.max(logprobs))
        mx.eval(finite, chosen)
        if not finite.item():
            raise ValueError(_NO_TOKEN)
    token, vocab = int(chosen.item()), logprobs.shape[-1]
    if not 0 <= token < vocab:
        raise ValueError(f"sampler: it returned {token}, which is no token of the vocabulary (0 … {vocab - 1})")
    return token
