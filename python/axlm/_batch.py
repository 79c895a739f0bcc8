"""``BatchGenerator``: texts after many prompts, side by side.

Each prompt is a request of its own in the core, with a cache of its own. They share passes, and still a prompt's tokens
are those of its solo run, whatever runs beside it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import _fallback
from ._batch_sequence import BatchSequence, PromptResponse, Settings, TokenResponse, own_keys
from ._choice import choice
from ._request import Request, integer, prompt_ids
from ._run import DEFAULT_PREFILL_STEP_SIZE
from ._stop import StopSequences
from .generate_utils import BatchCounters, BatchCountersSnapshot, BatchStats
from .ngram import ngram_options

if TYPE_CHECKING:
    from .ngram import NgramConfig

DEFAULT_MAX_TOKENS = 128


class BatchGenerator:
    """Generates after many prompts side by side; more can be added while it runs. One thread at a time may use it.

    Args:
        model: a model from :func:`axlm.load`. A model of mlx_lm's own gives mlx_lm's generator.
        max_tokens: how many tokens to generate after a prompt that is inserted without a number of its own.
        stop_tokens: sequences of token ids, or single ids, that end a text.
        sampler: as for :func:`axlm.generate_step`, for prompts without one of their own. A sampler from
            :func:`axlm.sample_utils.make_sampler` draws for each prompt from a random state of its own, which comes
            from ``mx.random.state`` at the insertion; for the first of them it is that state itself.
        logits_processors: likewise.
        completion_batch_size: how many texts are written at the same time.
        prefill_batch_size: how many prompts are processed at the same time.
        prefill_step_size: how many tokens of a prompt are processed between two rounds of tokens.
        max_kv_size: bounds new caches, as for :func:`axlm.generate_step`.
        stream: accepted for ``mlx_lm``'s sake; the core has a stream of its own.
        ngram: n-gram speculation, as for :func:`axlm.generate_step`.

    Raises:
        TypeError: the model is no model, an argument has the wrong type.
        ValueError: a number is out of its range.
    """

    _keeps_logprobs = True

    def __new__(cls, model: Any, **options: Any) -> Any:
        """Make mlx_lm's generator for a model of mlx_lm's."""
        if not _fallback.serves(model):
            return super().__new__(cls)
        from mlx_lm.generate import BatchGenerator as Theirs

        ngram_options(options.pop("ngram", True))
        return Theirs(model, **options)

    def __init__(
        self,
        model: Any,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        stop_tokens: Iterable[Any] | None = None,
        sampler: Any = None,
        logits_processors: Sequence[Any] | None = None,
        completion_batch_size: int = 32,
        prefill_batch_size: int = 8,
        prefill_step_size: int = DEFAULT_PREFILL_STEP_SIZE,
        max_kv_size: int | None = None,
        stream: Any = None,
        ngram: NgramConfig | dict[str, Any] | bool = True,
    ) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.sampler = sampler
        self.logits_processors = list(logits_processors or [])
        self.prefill_step_size = integer("prefill_step_size", prefill_step_size, 1)
        self.prefill_batch_size = integer("prefill_batch_size", prefill_batch_size, 1)
        self.completion_batch_size = max(
            integer("completion_batch_size", completion_batch_size, 1), self.prefill_batch_size
        )
        self.max_kv_size = max_kv_size
        self._stream = stream
        ngram_options(ngram)  # a wrong one is told here
        choice(sampler, self.logits_processors)
        self._settings = Settings(model, self.prefill_step_size, max_kv_size, ngram, self._keeps_logprobs)
        self._stops = StopSequences(stop_tokens)
        self._uid_count = 0
        # The names that mlx_lm has for where a sequence stands.
        self._unprocessed_sequences: deque[BatchSequence] = deque()
        self._prompt_batch: list[BatchSequence] = []
        self._generation_batch: list[BatchSequence] = []
        # What a call to next has ready; it outlives the call if that fails.
        self._prompts: list[PromptResponse] = []
        self._tokens: list[TokenResponse] = []
        self._counters = BatchCounters()

    @property
    def stream(self) -> Any:
        """The stream that was given."""
        return self._stream

    def insert(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: Sequence[int] | None = None,
        caches: Sequence[list[Any] | None] | None = None,
        all_tokens: Sequence[Sequence[int]] | None = None,
        samplers: Sequence[Any] | None = None,
        logits_processors: Sequence[Sequence[Any] | None] | None = None,
        stop_sequences: Sequence[StopSequences] | None = None,
    ) -> list[int]:
        """Add prompts. Either all of them are added, or none after an error.

        Args:
            prompts: the token ids of each.
            max_tokens: how many tokens to generate after each.
            caches: what each continues, a list of cache objects or None; they are not changed.
            all_tokens: the tokens whose state each cache holds; logits processors see them, and they are part of what
                comes back with the caches.
            samplers: for each, None for the generator's.
            logits_processors: lists of them for each; None for none.
            stop_sequences: for each, in place of the generator's stop tokens.

        Returns:
            The numbers (uid) by which responses name the sequences, in the prompts' order.

        Raises:
            TypeError: ids that are not integers, a sampler or processor that cannot be called.
            ValueError: an empty prompt, an id outside the vocabulary, ``max_tokens`` below 1, lists of unequal lengths.
        """
        return self.insert_segments(
            [[prompt] for prompt in prompts],
            max_tokens,
            caches,
            all_tokens,
            samplers,
            logits_processors,
            stop_sequences,
        )

    def insert_segments(
        self,
        segments: Sequence[Sequence[Sequence[int]]],
        max_tokens: Sequence[int] | None = None,
        caches: Sequence[list[Any] | None] | None = None,
        all_tokens: Sequence[Sequence[int]] | None = None,
        samplers: Sequence[Any] | None = None,
        logits_processors: Sequence[Sequence[Any] | None] | None = None,
        stop_sequences: Sequence[StopSequences] | None = None,
    ) -> list[int]:
        """Add prompts that come in segments: processing pauses at each border, where :meth:`extract_cache` can be used.

        Args:
            segments: the segments of each prompt; empty ones are left out.
            max_tokens, caches, all_tokens, samplers, logits_processors, stop_sequences: as for :meth:`insert`.

        Returns, raises:
            As :meth:`insert`.
        """
        count = len(segments)
        given = {
            "max_tokens": max_tokens or [self.max_tokens] * count,
            "caches": caches or [None] * count,
            "all_tokens": all_tokens or [()] * count,
            "samplers": samplers or [None] * count,
            "logits_processors": logits_processors or [self.logits_processors] * count,
            "stop_sequences": stop_sequences or [self._stops] * count,
        }
        for name, values in given.items():
            if len(values) != count:
                raise ValueError(f"{name}: {len(values)} entries for {count} prompts")
        rows = list(zip(segments, *given.values(), strict=True))
        added = [self._sequence(self._uid_count + number, *row) for number, row in enumerate(rows)]
        drawing = [sequence for sequence in added if sequence.draws]
        for sequence, key in zip(drawing, own_keys(len(drawing)) if drawing else (), strict=True):
            sequence.key = key
        self._unprocessed_sequences.extend(added)
        self._uid_count += count
        return [sequence.uid for sequence in added]

    def _sequence(
        self,
        uid: int,
        segments: Sequence[Sequence[int]],
        max_tokens: int,
        cache: list[Any] | None,
        before: Sequence[int],
        sampler: Any,
        processors: Sequence[Any] | None,
        stops: StopSequences,
    ) -> BatchSequence:
        parts = [part for part in segments if len(part)]
        if not parts:
            raise ValueError(f"prompt {uid} is empty: give at least one token")
        ids = [prompt_ids(part) for part in parts]
        if (worst := max(map(max, ids))) >= self.model.vocab_size:
            raise ValueError(
                f"prompt {uid}: token id {worst} is outside the vocabulary of {self.model.vocab_size} tokens"
            )
        return BatchSequence(
            uid,
            ids,
            integer("max_tokens", max_tokens, 1),
            cache,
            before,
            self.sampler if sampler is None else sampler,
            processors or (),
            stops,
            self._settings,
        )

    def next(self) -> tuple[list[PromptResponse], list[TokenResponse]]:
        """Generate the next token of each text, and process the next chunk of each prompt.

        Returns:
            (progress of the prompts, tokens). Both are empty once nothing is left to do.

        Raises:
            Exception: what a sampler or a processor raised, or a sequence failed with. That sequence is gone; the
                others go on with the next call, which also returns what this one had ready.
        """
        started = time.perf_counter()
        if self._generation_batch:
            try:
                self._decode()
            finally:
                self._counters.decode_time += time.perf_counter() - started
        if len(self._generation_batch) < self.completion_batch_size:
            started = time.perf_counter()
            try:
                self._prefill()
            finally:
                self._counters.prompt_time += time.perf_counter() - started
        ready = self._prompts, self._tokens
        self._prompts, self._tokens = [], []
        return ready

    def next_generated(self) -> list[TokenResponse]:
        """Return the next tokens, without the progress of prompts. The list is empty once nothing is left to do.

        Raises:
            Exception: as :meth:`next`.
        """
        while True:
            prompts, tokens = self.next()
            if tokens or not prompts:
                return tokens

    def _decode(self) -> None:
        self._ask()
        self._counters.generation_steps += 1
        for sequence in list(self._generation_batch):
            with self._dropped_if_it_fails(sequence):
                token, logprobs, reason = sequence.step()
            self._counters.generation_tokens += 1
            cache, tokens = (sequence.cache, sequence.tokens) if reason else (None, None)
            self._tokens.append(TokenResponse(sequence.uid, token, logprobs, reason, cache, tokens))
            if reason:
                self._generation_batch.remove(sequence)

    def _ask(self) -> None:
        """Let the core work on all texts at once."""
        asking = {}
        for sequence in list(self._generation_batch):
            with self._dropped_if_it_fails(sequence):
                if request := sequence.asking():
                    asking[sequence] = request
        Request.ask(asking.values())
        for sequence in asking:
            sequence.asked()

    def _prefill(self) -> None:
        room = min(
            self.prefill_batch_size - len(self._prompt_batch),
            self.completion_batch_size - len(self._generation_batch),
            len(self._unprocessed_sequences),
        )
        for _ in range(room):
            sequence = self._unprocessed_sequences.popleft()
            self._prompt_batch.append(sequence)
            with self._dropped_if_it_fails(sequence):
                sequence.begin()
        for sequence in [sequence for sequence in self._prompt_batch if sequence.prefilled]:
            self._prompt_batch.remove(sequence)
            self._generation_batch.append(sequence)
            self._prompts.append(PromptResponse(sequence.uid, (sequence.total, sequence.total), True, True))
        filling = []
        for sequence in list(self._prompt_batch):
            with self._dropped_if_it_fails(sequence):
                if part := sequence.filling():
                    filling.append(part)
        Request.fill(filling)
        for sequence in list(self._prompt_batch):
            before = sequence.done
            with self._dropped_if_it_fails(sequence):
                ended = sequence.prefill()
            self._counters.prompt_tokens += sequence.done - before
            self._prompts.append(PromptResponse(sequence.uid, (sequence.done, sequence.total), ended, False))

    @contextlib.contextmanager
    def _dropped_if_it_fails(self, sequence: BatchSequence) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.remove([sequence.uid])
            sequence.close()
            raise

    @property
    def _currently_processing(self) -> list[tuple[int, int]]:
        """(Tokens processed, tokens) of each prompt that is being processed."""
        return [(sequence.done, sequence.total) for sequence in self._prompt_batch]

    def _find_uids(self, uids: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Find where sequences stand: (0 waiting, 1 in the prompt or 2 generating, place among those) by number."""
        wanted = set(uids)
        stages = (self._unprocessed_sequences, self._prompt_batch, self._generation_batch)
        return {
            sequence.uid: (stage, place)
            for stage, sequences in enumerate(stages)
            for place, sequence in enumerate(sequences)
            if sequence.uid in wanted
        }

    def _sequences(self) -> list[BatchSequence]:
        return [*self._unprocessed_sequences, *self._prompt_batch, *self._generation_batch]

    def extract_cache(self, uids: Iterable[int]) -> dict[int, tuple[list[Any], list[int]]]:
        """Return copies of the caches of sequences that are not finished.

        Args:
            uids: the sequences' numbers; one that is unknown or finished is left out.

        Returns:
            (the cache, the tokens whose state it holds) by number.
        """
        wanted = set(uids)
        return {sequence.uid: sequence.extract() for sequence in self._sequences() if sequence.uid in wanted}

    def remove(self, uids: Iterable[int], return_prompt_caches: bool = False) -> dict[int, tuple[list[Any], list[int]]]:
        """End sequences early.

        Args:
            uids: the sequences' numbers; one that is unknown or finished is ignored.
            return_prompt_caches: whether their caches are wanted.

        Returns:
            What :meth:`extract_cache` gives, or nothing.
        """
        gone = set(uids)
        caches = self.extract_cache(gone) if return_prompt_caches else {}
        for sequence in self._sequences():
            if sequence.uid in gone:
                sequence.close()
        self._unprocessed_sequences = deque(one for one in self._unprocessed_sequences if one.uid not in gone)
        self._prompt_batch = [one for one in self._prompt_batch if one.uid not in gone]
        self._generation_batch = [one for one in self._generation_batch if one.uid not in gone]
        return caches

    @property
    def prompt_cache_nbytes(self) -> int:
        """The size of the sequences' caches in bytes."""
        return sum(sequence.nbytes for sequence in self._sequences())

    @contextlib.contextmanager
    def stats(self) -> Iterator[BatchStats]:
        """Count what the generator does while the block runs. The counts are there when it ends; blocks may nest."""
        stats = BatchStats()
        start = BatchCountersSnapshot(**asdict(self._counters))
        try:
            yield stats
        finally:
            stats += BatchCountersSnapshot.between(start, BatchCountersSnapshot(**asdict(self._counters)))

    def close(self) -> None:
        """End all sequences. Closing twice is harmless."""
        self.remove([sequence.uid for sequence in self._sequences()])

    def __del__(self) -> None:
        if hasattr(self, "_counters"):  # __init__ came to its end
            self.close()
