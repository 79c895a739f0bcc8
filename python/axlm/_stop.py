"""Sequences of tokens that end a text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from .sample_utils import _index


class StopSequences:
    """Token sequences of which each ends a text. It does not change; :meth:`matcher` follows one text.

    Args:
        stop_sequences: sequences of token ids; a bare id stands for a sequence of one, an empty one is ignored.

    Raises:
        TypeError: an id is no integer.
    """

    class Matcher:
        """How far one text has come."""

        def __init__(self, single: frozenset[int], longer: tuple[tuple[int, ...], ...]) -> None:
            self._single = single
            self._longer = longer
            self._last: deque[int] = deque(maxlen=max(map(len, longer), default=0))

        def advance(self, token: int) -> bool:
            """Take the text's next token. Returns whether the text now ends with one of the sequences."""
            self._last.append(token)
            if token in self._single or not self._longer:
                return token in self._single
            last = tuple(self._last)
            return any(last[-len(sequence) :] == sequence for sequence in self._longer)

    def __init__(self, stop_sequences: Iterable[Any] | None = None) -> None:
        sequences = {_sequence(entry) for entry in stop_sequences or ()} - {()}
        self.single_tokens = frozenset(sequence[0] for sequence in sequences if len(sequence) == 1)
        """Those of the sequences that are one token long."""
        self._longer = tuple(sorted(sequence for sequence in sequences if len(sequence) > 1))

    def matcher(self) -> StopSequences.Matcher:
        """Return a matcher for a new text."""
        return self.Matcher(self.single_tokens, self._longer)


def _sequence(entry: Any) -> tuple[int, ...]:
    ids = entry if isinstance(entry, Iterable) and not isinstance(entry, (str, bytes)) else (entry,)
    return tuple(_index("stop_sequences", token) for token in ids)


def make_stop_sequences(tokenizer: Any, stop_words: Iterable[str] | None = None) -> StopSequences:
    """Make the stop sequences of a tokenizer's end tokens and of words.

    Args:
        tokenizer: with ``eos_token_ids`` and ``encode``.
        stop_words: texts; one stops where it comes as the tokens that it is encoded to.
    """
    words = [tokenizer.encode(word, add_special_tokens=False) for word in stop_words or ()]
    return StopSequences([*((token,) for token in tokenizer.eos_token_ids), *words])
