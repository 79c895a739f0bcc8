"""One prompt of a batch, on its way through the core."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._choice import choice, tell
from ._run import start
from .ngram import ngram_options

if TYPE_CHECKING:
    import mlx.core as mx

    from ._choice import Step
    from ._request import Request
    from .model import Model


@dataclass(frozen=True)
class Settings:
    """What the sequences of one generator have in common."""

    model: Model
    prefill_step_size: int
    max_kv_size: int | None
    ngram: Any
    logprobs: bool


@dataclass
class PromptResponse:
    """How far a prompt is processed.

    Attributes:
        uid: the sequence's number.
        progress: (prompt tokens processed, prompt tokens).
        end_of_segment: whether a segment of the prompt ended there.
        end_of_prompt: whether the prompt did.
    """

    uid: int
    progress: tuple[int, int]
    end_of_segment: bool
    end_of_prompt: bool


@dataclass
class TokenResponse:
    """One generated token.

    Attributes:
        uid: the sequence's number.
        token: its id; an end token too.
        logprobs: log probabilities of all tokens at this position, [V], in the model's dtype.
        finish_reason: None, or with the last token ``"stop"`` or ``"length"``.
        prompt_cache: with the last token, the cache (one object a layer) that holds all of ``all_tokens``.
        all_tokens: with the last token, the prompt and all that was generated.
    """

    uid: int
    token: int
    logprobs: mx.array | None = field(repr=False)
    finish_reason: str | None
    prompt_cache: list[Any] | None = field(repr=False)
    all_tokens: list[int] | None = field(repr=False)


class BatchSequence:
    """A prompt and what is generated after it.

    The prompt comes in segments. Each but the last is processed on its own, so that the cache can be had at its border;
    the last one is the prompt of the request that generates.

    Args:
        uid: its number.
        segments: the prompt's token ids; at least one segment, none of them empty.
        max_tokens: how many tokens to generate.
        cache: what to continue, or None; it is not changed.
        before: the tokens whose state the cache holds.
        sampler: as for :func:`axlm.generate_step`.
        processors: as for :func:`axlm.generate_step`; they see ``before`` as well.
        stops: a :class:`axlm.generate.StopSequences`, or mlx_lm's.
        settings: the generator's.

    Attributes:
        key: the random state to draw from, where the core draws; None for ``mx.random.state``.

    Raises:
        TypeError: the sampler or a processor cannot be called.
    """

    def __init__(
        self,
        uid: int,
        segments: Sequence[Sequence[int]],
        max_tokens: int,
        cache: list[Any] | None,
        before: Sequence[int],
        sampler: Any,
        processors: Sequence[Any],
        stops: Any,
        settings: Settings,
    ) -> None:
        self.uid = uid
        self.done = 0
        self.generated: list[int] = []
        self.cache = cache
        self._settings = settings
        self._before = list(before)
        self._ids = list(itertools.chain(*segments))
        # The last token is left to the first step of decoding.
        borders = [*itertools.accumulate(map(len, segments[:-1])), self.total - 1]
        self._borders = sorted(set(borders) - {0})
        self._request_from = self.total - len(segments[-1])
        self._max_tokens = max_tokens
        self._sampler = sampler
        history = [*self._before, *self._ids[: self._request_from]]
        self._processors = [_after(history, processor) if history else processor for processor in processors]
        self._choice = choice(sampler, self._processors)
        tell(self._choice, ngram_options(settings.ngram) is not False)
        self._stops = stops
        self._matcher = stops.matcher()
        self._started = False
        self.key: int | None = None
        self._request: Request | None = None
        self._steps: Iterator[Step] | None = None
        self._asked = False
        self._ahead: Step | None = None
        self._stack = contextlib.ExitStack()

    @property
    def total(self) -> int:
        """The prompt's length."""
        return len(self._ids)

    @property
    def prefilled(self) -> bool:
        """Whether only the prompt's last token is left to process."""
        return self.done == self.total - 1

    @property
    def draws(self) -> bool:
        """Whether the core draws random numbers for it."""
        return self._choice.draws

    def begin(self) -> None:
        """Get ready to process the prompt."""
        self._started = True
        self.cache = self._new_cache() if self.cache is None else copy.deepcopy(self.cache)

    def _new_cache(self) -> list[Any]:
        from .models.cache import make_prompt_cache

        return make_prompt_cache(self._settings.model, self._settings.max_kv_size)

    def filling(self) -> tuple[Request, int] | None:
        """Return what :meth:`prefill` will wait for, if that is a part of the request's own prompt."""
        if self.done < self._request_from:
            return None
        return self._running(), self._target()[1] - self._request_from

    def _target(self) -> tuple[int, int]:
        """Return where the segment ends, and where the next chunk does."""
        border = next(border for border in self._borders if border > self.done)
        return border, min(border, self.done + self._settings.prefill_step_size)

    def prefill(self) -> bool:
        """Process the next chunk of the prompt, without its last token. Returns whether a segment ended there."""
        border, target = self._target()
        if self.done < self._request_from:
            with start(
                self._ids[self.done : target],
                self._settings.model,
                max_tokens=0,
                prompt_cache=self.cache,
                prefill_step_size=self._settings.prefill_step_size,
                prompt_progress_callback=_silent,
            ) as run:
                next(run.steps, None)
        else:
            self._running().fill_prompt(target - self._request_from)
        self.done = target
        return target == border

    def asking(self) -> Request | None:
        """Return the request, if the core is to work on its next token. Whoever asks it says so by :meth:`asked`."""
        request = self._running()
        return request if self._ahead is None and not self._choice.by_reader else None

    def asked(self) -> None:
        """Note that the request was asked for the next token."""
        self._asked = True

    def step(self) -> tuple[int, mx.array | None, str | None]:
        """Generate a token.

        Returns:
            (token, log probabilities [V] or None, None or why the text ends: ``"stop"`` or ``"length"``). With the end
            the request is closed.
        """
        (token, _, logprobs), self._ahead = self._ahead or self._next(), None
        self.done = self.total
        self.generated.append(token)
        ended = len(self.generated) >= self._max_tokens
        reason = "stop" if self._matcher.advance(token) else "length" if ended else None
        if reason:
            self.close()
        return token, logprobs, reason

    def _next(self) -> Step:
        self._running()
        assert self._steps is not None
        step = next(self._steps, None)
        if step is None:
            raise RuntimeError(f"the core ended prompt {self.uid} before its last token")
        self._asked = False
        return step

    @property
    def tokens(self) -> list[int]:
        """The tokens that are processed, those before the prompt included."""
        return [*self._before, *self._ids[: self.done], *self.generated]

    def extract(self) -> tuple[list[Any], list[int]]:
        """Return (the cache as it is now, the tokens whose state it holds). Before the first chunk it is no copy."""
        if not self._started:
            return self._new_cache() if self.cache is None else self.cache, list(self._before)
        if self._asked:  # the cache may hold that token already
            self._ahead = self._next()
        held = copy.deepcopy(self.cache)  # takes it back from the core
        if self._ahead is not None:
            return held, [*self._before, *self._ids, *self.generated, self._ahead[0]]
        return held, self.tokens

    @property
    def nbytes(self) -> int:
        """The cache's size in bytes."""
        if self._request is not None:
            return int(self._request.stats()["cache_bytes"])
        return sum(layer.nbytes for layer in self.cache or ())

    def close(self) -> None:
        """End the request. What the cache holds by then stays."""
        self._request = self._steps = None
        self._asked = False
        self._stack.close()

    def _running(self) -> Request:
        """Start the request unless it runs."""
        if self._request is not None:
            return self._request
        settings = self._settings
        run = self._stack.enter_context(
            start(
                self._ids[self._request_from :],
                settings.model,
                end_tokens=sorted(getattr(self._stops, "single_tokens", ())),
                logprobs=settings.logprobs,
                max_tokens=self._max_tokens,
                sampler=self._sampler,
                logits_processors=self._processors,
                prompt_cache=self.cache,
                prefill_step_size=settings.prefill_step_size,
                prompt_progress_callback=_silent,
                ngram=settings.ngram,
            )
        )
        self._request, self._steps = run.request, run.steps
        if self.key is not None:
            run.request.reseed(self.key)
            self._steps = self._drawn(run.request)
        return run.request

    def _drawn(self, request: Request) -> Iterator[Step]:
        """Iterate over tokens that the core draws from the sequence's own random state."""
        for token, from_draft in request:
            yield token, from_draft, request.logprobs() if self._settings.logprobs else None


def _silent(done: int, total: int) -> None:
    """A progress callback in place of the bar: a batch reports progress by its responses."""


def _after(history: list[int], processor: Callable[[mx.array, mx.array], mx.array]) -> Callable[..., mx.array]:
    """Let a logits processor see earlier tokens than the request's."""

    def processed(tokens: mx.array, logits: mx.array) -> mx.array:
        import mlx.core as mx

        return processor(mx.concatenate([mx.array(history, tokens.dtype), tokens]), logits)

    return processed


def own_keys(count: int) -> list[int]:
    """Take random states for ``count`` sequences that draw side by side from ``mx.random.state``, which moves on.

    The first one is the state as it was: that sequence draws what it would draw alone.
    """
    import mlx.core as mx

    state = mx.random.state[0]
    split = mx.random.split(state, count + 2)  # not two: a draw splits in two, and these are to be other keys
    keys = [high << 32 | low for high, low in [state.tolist(), *split.tolist()]]
    mx.random.seed(keys[-1])
    return keys[:count]
