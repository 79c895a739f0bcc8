"""One running request of the core, from a prompt to its tokens."""

from __future__ import annotations

import contextlib
import operator
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _bridge, _loan
from ._crossing import pack_ids
from ._loan import Loan, lend
from ._progress import PrefillWatch, ProgressCallback
from ._signals import Uninterrupted
from ._stats import Stats

if TYPE_CHECKING:
    import mlx.core as mx
    from typing_extensions import Self

    from .model import Model

_PENDING, _FINISHED = -1, -2


def prompt_ids(prompt: Any) -> array[int]:
    """Bring a prompt's token ids to the form that the core takes.

    Args:
        prompt: a sequence of integers, or a one-dimensional integer array (``mx.array``, numpy).

    Returns:
        The ids as a C array of int32.

    Raises:
        TypeError: ids that are not integers.
        ValueError: more than one dimension, no token, or an id that no vocabulary has.
    """
    ids = pack_ids(prompt)
    if not ids:
        raise ValueError("the prompt is empty: give at least one token")
    return ids


def integer(name: str, value: Any, least: int) -> int:
    """Check an integer argument.

    Raises:
        TypeError: ``value`` is not an integer.
        ValueError: ``value`` is under ``least``.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    if number >= 2**53:
        raise ValueError(f"{name} is out of range: {number}")
    return number


@dataclass(frozen=True)
class Draft:
    """A draft model of a request: how many tokens it proposes a step, and its cache objects, if it continues some."""

    model: Model
    tokens: int
    caches: Sequence[Any] | None = None


class _Borrowed:
    """Cache objects that a request uses."""

    def __init__(self, model: Model, caches: Sequence[Any], resume: Callable[[int, int], None]) -> None:
        self.model = model
        self.caches = caches
        self.resume = resume
        """Gives a request, by its handle, what is lent again."""
        self.loan: Loan = lend(model, caches)


class Request(Iterator[tuple[int, bool]]):
    """Iterates over (token, came from a draft). Use it in a ``with`` block: leaving it ends the request in the core.

    Args:
        model: the model that generates.
        ids: the prompt, from :func:`prompt_ids`.
        max_tokens: the number of tokens after which it ends; -1 for no limit, 0 to process the prompt only.
        prefill_step_size: prompt tokens per forward pass.
        end_tokens: tokens after which it ends.
        logprobs: whether :meth:`logprobs` will be asked for.
        ngram: the core's n-gram options, True for its defaults, or False for plain decoding.
        choice: the core's options that say how tokens are chosen; greedily without any.
        draft: a draft model, and how it drafts.
        callback: called with (prompt tokens processed, prompt tokens).
        caches: mlx_lm's cache objects, which the request continues and leaves behind, or None.
        kv: the core's options of the KV cache.
        embeddings: embeddings [N, dim] in place of the prompt's tokens, of which there are then N or none.
    """

    def __init__(
        self,
        model: Model,
        ids: array[int],
        *,
        max_tokens: int,
        prefill_step_size: int,
        end_tokens: Iterable[int] = (),
        logprobs: bool = True,
        ngram: dict[str, Any] | bool = False,
        choice: dict[str, Any] | None = None,
        draft: Draft | None = None,
        callback: ProgressCallback | None = None,
        caches: Sequence[Any] | None = None,
        kv: dict[str, Any] | None = None,
        embeddings: mx.array | None = None,
    ) -> None:
        self.prompt_tokens = len(ids) if embeddings is None else len(embeddings)
        self._watch: PrefillWatch | None = PrefillWatch(self.prompt_tokens, prefill_step_size, callback)
        self._watch.update(0)
        self._quantising = bool(kv and kv.get("kv_bits"))
        self._borrowed: list[_Borrowed] = []
        options = {
            "max_tokens": max_tokens,
            "prefill_step_size": prefill_step_size,
            "end_tokens": sorted(int(token) for token in end_tokens),
            "logprobs": logprobs,
            "ngram": ngram,
            **(choice or {}),
            **(kv or {}),
        }
        self._owner = os.getpid()
        if draft is not None:
            options |= {"draft_model": draft.model.handle, "num_draft_tokens": draft.tokens}
        with _loan.moving:  # nobody takes a state back before the request has it
            for option, owner, objects, resume in (
                ("cache", model, caches, _bridge.resume),
                ("draft_cache", draft and draft.model, draft and draft.caches, _bridge.resume_draft),
            ):
                if owner is not None and objects is not None:
                    self._borrowed.append(_Borrowed(owner, objects, resume))
                    options[option] = self._borrowed[-1].loan.handle
            if embeddings is not None:
                options["embeddings"] = _bridge.array_in(embeddings)
            with Uninterrupted():  # a request that nobody knows of would keep its caches
                self._handle: int | None = _bridge.start(model.handle, ids.tobytes(), options)
                for borrowed in self._borrowed:
                    borrowed.loan.user = self

    def __next__(self) -> tuple[int, bool]:
        handle = self._open_handle()
        self._lend_again(handle)
        while (value := _bridge.next(handle, _bridge.WAIT_MS)) == _PENDING:
            if self._watch is not None:
                self._watch.update(_bridge.progress(handle)[0])
            self._lend_again(handle)
        if self._watch is not None:
            self._watch.finish()
            self._watch = None
        if value == _FINISHED:
            raise StopIteration
        return value & 0xFFFFFFFF, bool(value >> 32)

    def _lend_again(self, handle: int) -> None:
        """Hand the caches to the core again, if somebody looked at one."""
        for borrowed in self._borrowed:
            if not borrowed.loan.held:
                with _loan.moving:
                    loan = lend(borrowed.model, borrowed.caches)
                    with Uninterrupted():
                        borrowed.resume(handle, loan.handle)
                        borrowed.loan, loan.user = loan, self

    def logprobs(self) -> mx.array:
        """Return the log probabilities [V] at the last token, in the model's dtype, in memory shared with the core."""
        return _bridge.logprobs(self._open_handle())

    def choose(self, token: int) -> None:
        """Continue with a token, where Python chooses; :meth:`logprobs` gives the logits then."""
        _bridge.choose(self._open_handle(), token)

    def reseed(self, key: int) -> None:
        """Make ``key`` the state of the random generator."""
        _bridge.reseed(self._open_handle(), key)

    def key_after(self) -> int:
        """Return where mlx_lm has the random generator when it yields the last token."""
        return _bridge.key_after(self._open_handle())

    @staticmethod
    def ask(requests: Iterable[Request]) -> None:
        """Let the core work on the next tokens of some requests, in passes that they share; ``next`` then takes them.

        Do not look at the caches before that, and do not ask where Python chooses.
        """
        handles = []
        for request in requests:
            handles.append(request._open_handle())
            request._lend_again(handles[-1])
        _bridge.ask(handles)

    @staticmethod
    def fill(requests: Iterable[tuple[Request, int]]) -> None:
        """Let the core process prompts, each up to a number of tokens, in passes that they share.

        :meth:`fill_prompt` waits for one.
        """
        handles, counts = [], []
        for request, count in requests:
            handles.append(request._open_handle())
            request._lend_again(handles[-1])
            counts.append(count)
        _bridge.fill(handles, counts)

    def fill_prompt(self, count: int) -> None:
        """Process the prompt up to ``count`` tokens, at most all but the last."""
        handle = self._open_handle()
        self._lend_again(handle)
        while _bridge.fill_prompt(handle, count, _bridge.WAIT_MS) < count:
            self._lend_again(handle)

    def stats(self) -> Stats:
        """Return the core's counters of this request."""
        return Stats(_bridge.request_stats(self._open_handle()))

    def _open_handle(self) -> int:
        if self._handle is None:
            raise ValueError("this request is closed")
        return self._handle

    def close(self) -> None:
        """End the request. Closing twice is harmless."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        handle, self._handle = self._handle, None
        if handle is not None and os.getpid() == self._owner:  # the core does not live on in a forked child
            _bridge.close(handle)
        borrowed, self._borrowed = self._borrowed, []
        for each in borrowed:
            each.loan.user = None
        if self._quantising:  # then the objects' class may have changed: isinstance must not see the old one
            for each in borrowed:
                with contextlib.suppress(Exception):  # whoever looks into the cache next hears of it
                    each.loan.reclaim()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
