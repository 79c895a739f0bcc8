"""Samplers and logits processors with the names of ``mlx_lm.sample_utils``.

What :func:`make_sampler` and :func:`make_logits_processors` return runs inside the Go core, speculation included, and
draws what ``mlx_lm`` would draw from the same ``mx.random`` state. Called on arrays, it is mlx_lm's own function. What
mlx_lm's functions of these names return is recognised, and runs there as well. Any other callable works too; the core
then hands out its logits token by token, without speculation, which is slower and said once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ._delegate import delegate
from ._random_state import kept_on_error

if TYPE_CHECKING:
    import mlx.core as mx

    LogitsProcessorFunction = Callable[[mx.array, mx.array], mx.array]
    SamplerFunction = Callable[[mx.array], mx.array]

# The parts that samplers are made of (apply_top_p, …) are mlx_lm's own functions.
__getattr__, __dir__ = delegate(__name__)


@dataclass(frozen=True)
class Sampler:
    """Chooses tokens from log probabilities; see :func:`make_sampler` for the fields."""

    temp: float = 0.0
    top_p: float = 0.0
    min_p: float = 0.0
    min_tokens_to_keep: int = 1
    top_k: int = 0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_special_tokens: tuple[int, ...] = ()

    @cached_property
    def _function(self) -> SamplerFunction:
        from mlx_lm import sample_utils

        return sample_utils.make_sampler(
            self.temp,
            self.top_p,
            self.min_p,
            self.min_tokens_to_keep,
            self.top_k,
            self.xtc_probability,
            self.xtc_threshold,
            list(self.xtc_special_tokens),
        )

    def __call__(self, logprobs: mx.array) -> mx.array:
        """Sample from log probabilities [B, V], drawing from ``mx.random.state``. Returns token ids [B].

        Raises:
            ValueError: a setting is out of its range.
        """
        if self.draws > 1:  # MLX writes to whatever place a token names
            for token in self.xtc_special_tokens:
                _check_token("xtc_special_tokens", token, logprobs.shape[-1])
        with kept_on_error():
            return self._function(logprobs)

    @property
    def draws(self) -> int:
        """How many keys of ``mx.random.state`` a token takes."""
        return 0 if self.temp == 0 else 1 + (self.xtc_probability > 0)

    def options(self) -> dict[str, Any]:
        """Return the core's options."""
        return {
            "temp": self.temp,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "min_tokens_to_keep": self.min_tokens_to_keep,
            "top_k": self.top_k,
            "xtc_probability": self.xtc_probability,
            "xtc_threshold": self.xtc_threshold,
            "xtc_special_tokens": list(self.xtc_special_tokens),
        }


def make_sampler(
    temp: float = 0.0,
    top_p: float = 0.0,
    min_p: float = 0.0,
    min_tokens_to_keep: int = 1,
    top_k: int = 0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    xtc_special_tokens: Sequence[int] | None = None,
) -> Sampler:
    """Make a sampler. Filters apply in the order top-p, min-p, XTC, top-k; then the temperature and the draw.

    Args:
        temp: the temperature; 0 takes the most probable token and ignores everything else.
        top_p: keep the fewest most probable tokens whose probabilities sum to this share; used within (0, 1).
        min_p: drop tokens less probable than this share of the most probable one; 0 for none.
        min_tokens_to_keep: how many tokens ``min_p`` leaves at least.
        top_k: keep the k most probable tokens; 0 for all.
        xtc_probability: how often XTC applies.
        xtc_threshold: XTC drops all but the least probable of the tokens above this probability, in [0, 0.5].
        xtc_special_tokens: tokens that XTC never drops.

    Returns:
        A callable of log probabilities [B, V] that the core also runs natively.

    Raises:
        TypeError: an argument is not a number.
        ValueError: not here but when it is used, as in mlx_lm: an argument is out of its range.
    """
    return Sampler(
        _number("temp", temp),
        _number("top_p", top_p),
        _number("min_p", min_p),
        _index("min_tokens_to_keep", min_tokens_to_keep),
        _index("top_k", top_k),
        _number("xtc_probability", xtc_probability),
        _number("xtc_threshold", xtc_threshold),
        tuple(_index("xtc_special_tokens", token) for token in xtc_special_tokens or ()),
    )


@dataclass(frozen=True)
class LogitsProcessor:
    """Changes logits in the light of the tokens before; made by :func:`make_logits_processors`."""

    kind: str
    """``"logit_bias"``, ``"repetition"``, ``"presence"`` or ``"frequency"``, in the order in which they apply."""
    value: float = 0.0
    context_size: int = 20
    bias: tuple[tuple[int, float], ...] = ()

    @cached_property
    def _function(self) -> LogitsProcessorFunction:
        from mlx_lm import sample_utils

        if self.kind == "logit_bias":
            return sample_utils.make_logits_processors(logit_bias=dict(self.bias))[0]
        return getattr(sample_utils, f"make_{self.kind}_penalty")(self.value, self.context_size)

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Return the logits [1, V] that follow the tokens [L], changed.

        Raises:
            ValueError: ``logit_bias`` names a token that there is not.
        """
        for token, _ in self.bias:  # MLX writes to whatever place a token names
            _check_token("logit_bias", token, logits.shape[-1])
        return self._function(tokens, logits)


_ORDER = ("logit_bias", "repetition", "presence", "frequency")


def make_logits_processors(
    logit_bias: Mapping[int, float] | None = None,
    repetition_penalty: float | None = None,
    repetition_context_size: int | None = 20,
    presence_penalty: float | None = None,
    presence_context_size: int | None = 20,
    frequency_penalty: float | None = None,
    frequency_context_size: int | None = 20,
) -> list[LogitsProcessor]:
    """Make logits processors, in the order in which they apply: bias, repetition, presence, frequency.

    Args:
        logit_bias: what to add to a token's logit, by token id (strings of digits, as JSON has them, too).
        repetition_penalty: divide positive and multiply negative logits of tokens among the last ones by this.
        repetition_context_size: how many of the last tokens count, the prompt's included; 0 for all.
        presence_penalty: subtract this once from the logit of a token among the last ones.
        presence_context_size: as above.
        frequency_penalty: subtract this for each occurrence among the last tokens.
        frequency_context_size: as above.

    Returns:
        Callables of (tokens [L], logits [1, V]); those that would do nothing are left out.

    Raises:
        ValueError: a negative repetition penalty, or a bias that is not a number by a token id.
        TypeError: an argument is not a number.
    """
    processors = []
    if logit_bias:
        processors.append(LogitsProcessor("logit_bias", bias=tuple(_bias(logit_bias))))
    for kind, penalty, size in (
        ("repetition", repetition_penalty, repetition_context_size),
        ("presence", presence_penalty, presence_context_size),
        ("frequency", frequency_penalty, frequency_context_size),
    ):
        if not penalty:
            continue
        value = _number(f"{kind}_penalty", penalty)
        if kind == "repetition" and value < 0:
            raise ValueError(f"repetition_penalty must not be negative, got {value}")
        context = 0 if size is None else _index(f"{kind}_context_size", size)
        if context < 0:
            raise ValueError(f"{kind}_context_size must not be negative, got {context}")
        processors.append(LogitsProcessor(kind, value, context))
    return processors


def native_processors(processors: Sequence[Any]) -> dict[str, Any] | None:
    """Return the core's options for processors of ours in their usual order, None for any others."""
    options: dict[str, Any] = {}
    last = -1
    for processor in processors:
        if not isinstance(processor, LogitsProcessor) or (place := _ORDER.index(processor.kind)) <= last:
            return None
        last = place
        if processor.kind == "logit_bias":
            # JSON has no infinities; the core reads them as words.
            options["logit_bias"] = {
                str(token): value if math.isfinite(value) else str(value) for token, value in processor.bias
            }
        else:
            options[processor.kind] = {"value": processor.value, "context": processor.context_size}
    return options


def _check_token(name: str, token: int, vocab: int) -> None:
    if not 0 <= token < vocab:
        raise ValueError(f"{name}: {token} is not a token id of a vocabulary of {vocab}")


def _bias(logit_bias: Mapping[Any, float]) -> list[tuple[int, float]]:
    pairs = []
    for key, value in logit_bias.items():
        try:
            token = int(key) if isinstance(key, str) else operator.index(key)
        except (TypeError, ValueError):
            raise ValueError(f"logit_bias: {key!r} is not a token id") from None
        bias = _number(f"logit_bias[{key!r}]", value, finite=False)
        if math.isnan(bias):
            raise ValueError(f"logit_bias[{key!r}] is not a number")
        pairs.append((token, bias))
    return pairs


def _number(name: str, value: Any, finite: bool = True) -> float:
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    number = float(value)
    if finite and not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, not {number}")
    return number


def _index(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
