"""Settings of n-gram speculation: how the core drafts tokens and when it verifies them.

In float32 speculation changes no token. In other dtypes a pass over several tokens rounds differently from a pass over
one, and may choose the other of two tokens that are as good as tied.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class NgramConfig:
    """How speculation drafts. The defaults are what ``ngram=True`` uses.

    ``NgramConfig(adaptive=False, max_draft_tokens=4)`` is the plain scheme: bigram and trigram tables, up to four
    drafts a step, and a gate on the moving average of accepted/drafted.
    """

    max_draft_tokens: int = 0
    """The most tokens drafted a step, 0 to 32. 0 leaves the choice to the cost model (4 without ``adaptive``)."""
    min_support: int = 1
    """How often a continuation must have been seen before it is drafted."""
    ema_decay: float = 0.1
    """τ in e ← (1−τ)·e + τ·share, the moving average of how well drafting pays."""
    ema_threshold: float = 0.5
    """Drafting pauses while the average is below this; 0 never pauses."""
    pause_steps: int = 4
    """Plain steps in a pause before one draft probes again."""
    adaptive: bool = True
    """Choose the depth by measured cost, and match long suffixes besides the tables."""
    min_gain: float = 0.02
    """How much faster than plain decoding a depth must promise to be."""
    min_confidence: float = 0.02
    """A draft ends where the product of its tokens' confidences falls below this."""
    cooldown: int = 0
    """Plain steps after a partial acceptance; with recurrent state 0 stands for 4."""
    max_bytes: int = 16 << 20
    """Bound of one request's tables and history, in bytes."""
    shared_bytes: int = 32 << 20
    """Bound of what is kept of prompts and texts of the model's finished requests to draft from, in bytes; 0: nothing.

    It changes no text, but how fast one comes can show that another request had the same words. Say 0 where requests
    are of users who must not learn of each other.
    """


def ngram_options(ngram: Any) -> dict[str, Any] | bool:
    """Turn an ``ngram`` argument (True, False, None, an :class:`NgramConfig` or its fields as a dict) into the core's.

    Raises:
        TypeError: it is something else.
        ValueError: a dict has keys that :class:`NgramConfig` does not have.
    """
    if ngram is None or isinstance(ngram, bool):
        return bool(ngram)
    if isinstance(ngram, NgramConfig):
        return _checked(asdict(ngram))
    if isinstance(ngram, dict):
        known = {field.name for field in fields(NgramConfig)}
        if unknown := sorted(set(ngram) - known):
            raise ValueError(f"ngram: {unknown[0]!r} is not a setting; there are {', '.join(sorted(known))}")
        return _checked(dict(ngram))
    raise TypeError(f"ngram must be True, False or an NgramConfig, not {type(ngram).__name__}")


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Check the settings' types, and that the numbers are such as the core can read; it checks their ranges."""
    defaults = asdict(NgramConfig())
    for name, value in settings.items():
        kind = type(defaults[name])
        right = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not right or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"ngram: {name} must be a {kind.__name__}, not {value!r}")
        if not isinstance(value, bool) and not abs(value) < 2**53:  # NaN too
            raise ValueError(f"ngram: {name} is out of range: {value!r}")
    return settings
