"""Engines behind one interface, and what one generation of theirs took."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..ngram import ngram_options

NEAR_TIE = {"float32": 0.001, "float16": 0.05, "bfloat16": 0.25}
"""By the logits' dtype: a lead of the best token over the next below which rounding decides.

Passes of one and of several tokens round differently. In bfloat16 logits between 16 and 32 are multiples of 0.125.
"""


@dataclass
class Run:
    """One generation.

    Attributes:
        tokens: the ids generated; an end token is one of them.
        prompt_seconds: from the request to its first token.
        decode_seconds: from the first token to the last.
        speculation: the core's counters of speculation in this run, None for plain decoding.
    """

    tokens: list[int]
    prompt_seconds: float
    decode_seconds: float
    speculation: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def decode_tps(self) -> float | None:
        """Tokens per second after the first token; None for a run of one token."""
        if len(self.tokens) < 2 or self.decode_seconds <= 0:
            return None
        return (len(self.tokens) - 1) / self.decode_seconds


class Engine(Protocol):
    """What generates: axlm decoding plainly, axlm speculating, mlx_lm."""

    name: str

    def run(self, prompt: Sequence[int], tokens: int) -> Run:
        """Generate up to ``tokens`` tokens greedily, to the end token as users do, and time it."""
        ...

    def margin(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[float, str] | None:
        """Generate ``tokens`` again and measure the last choice.

        Returns:
            (by how much the best log probability exceeded the next one's, the dtype's name), or None if other tokens
            came this time.
        """
        ...


class TextEngine:
    """A ``stream_generate`` with its model.

    Args:
        name: shown in reports.
        stream: axlm's or mlx_lm's ``stream_generate``.
        model: its model.
        tokenizer: its tokenizer.
        options: further arguments of every call.
    """

    def __init__(self, name: str, stream: Any, model: Any, tokenizer: Any, **options: Any) -> None:
        self.name = name
        self.model = model
        self.tokenizer = tokenizer
        self._stream = stream
        self._options = options

    def _responses(self, prompt: Sequence[int], tokens: int) -> Iterable[Any]:
        return self._stream(self.model, self.tokenizer, list(prompt), max_tokens=tokens, **self._options)

    def run(self, prompt: Sequence[int], tokens: int) -> Run:
        """See :class:`Engine`."""
        clock = time.perf_counter
        ids = []
        response = None
        started = first = clock()
        for response in self._responses(prompt, tokens):
            if not ids:
                first = clock()
            ids.append(response.token)
        ended = clock()
        stats = getattr(response, "stats", None) or {}
        return Run(ids, first - started, ended - first, stats.get("speculation"))

    def margin(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[float, str] | None:
        """See :class:`Engine`."""
        ids = []
        response = None
        for response in self._responses(prompt, len(tokens)):
            ids.append(response.token)
        return lead(response.logprobs) if response is not None and ids == list(tokens) else None


def lead(logprobs: Any) -> tuple[float, str]:
    """Return by how much the best of log probabilities [V] exceeds the next one, and their dtype's name."""
    import mlx.core as mx

    second, best = mx.sort(logprobs.astype(mx.float32))[-2:].tolist()
    return best - second, str(logprobs.dtype).rpartition(".")[2]


@dataclass
class Difference:
    """Where a run's tokens part from those of plain decoding.

    Attributes:
        engine: whose run.
        index: of the first token that differs.
        plain: plain decoding's token there, None if it had ended.
        other: the run's token there, None if it had ended.
        margin: by how much plain decoding's token led over the next best; None if plain decoding did not generate the
            same tokens again.
        near_tie: whether the margin is small enough for rounding to decide. From there on the texts rightly differ.
    """

    engine: str
    index: int
    plain: int | None
    other: int | None
    margin: float | None
    near_tie: bool


def first_difference(expected: Sequence[int], tokens: Sequence[int]) -> tuple[int, int | None, int | None] | None:
    """Find where tokens part: (index, expected token, other token), None for a token that is missing."""
    for index in range(max(len(expected), len(tokens))):
        ours = expected[index] if index < len(expected) else None
        other = tokens[index] if index < len(tokens) else None
        if ours != other:
            return index, ours, other
    return None


def compare(plain: Engine, prompt: Sequence[int], expected: Sequence[int], run: Run, name: str) -> Difference | None:
    """Compare a run's tokens with plain decoding's; a difference is measured with one more plain generation."""
    found = first_difference(expected, run.tokens)
    if found is None:
        return None
    index, ours, other = found
    measured = None if ours is None else plain.margin(prompt, expected[: index + 1])
    near = measured is not None and other is not None and measured[0] <= NEAR_TIE.get(measured[1], 0.0)
    return Difference(name, index, ours, other, measured[0] if measured else None, near)


def speculating(ngram: dict[str, Any] | bool = True) -> dict[str, Any]:
    """Return settings of speculation with which drafts come from a request's own text alone.

    By default they come from what other requests of the model wrote as well. Measuring a prompt twice would then
    measure how fast its known answer is copied.

    Args:
        ngram: True, or fields of :class:`axlm.NgramConfig`.

    Raises:
        ValueError: a field that there is not.
    """
    options = {**(ngram if isinstance(ngram, dict) else {}), "shared_bytes": 0}
    ngram_options(options)  # checks the names
    return options


def text_engines(
    model: str, *, compare_mlx_lm: bool, trust_remote_code: bool, prefill_step_size: int, ngram: dict[str, Any]
) -> list[TextEngine]:
    """Load a model for the suite: axlm plain, axlm speculating, and mlx_lm if asked for."""
    from ..generate import stream_generate
    from ..utils import load

    trust: dict[str, Any] = {
        "tokenizer_config": {"trust_remote_code": trust_remote_code},
        "trust_remote_code": trust_remote_code,
    }
    ours, tokenizer = load(model, **trust)
    engines = [
        TextEngine(name, stream_generate, ours, tokenizer, prefill_step_size=prefill_step_size, ngram=setting)
        for name, setting in (("plain", False), ("ngram", ngram))
    ]
    if compare_mlx_lm:
        import mlx_lm

        theirs, tokenizer = mlx_lm.load(str(ours.path), **trust)
        engines.append(
            TextEngine("mlx_lm", mlx_lm.stream_generate, theirs, tokenizer, prefill_step_size=prefill_step_size)
        )
    return engines


def encode(tokenizer: Any, messages: Sequence[dict[str, str]]) -> list[int]:
    """Turn messages into prompt ids, by the chat template if there is one, without a phase of thinking."""
    if not getattr(tokenizer, "has_chat_template", False):
        text = "\n\n".join(message["content"] for message in messages)
        return list(tokenizer.encode(text + "\n\n"))
    text = tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    return list(tokenizer.encode(text, add_special_tokens=False))
