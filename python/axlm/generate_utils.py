"""What a :class:`axlm.generate.BatchGenerator` counts, with the names of ``mlx_lm.generate_utils``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields

from . import _bridge

__all__ = ["BatchCounters", "BatchCountersSnapshot", "BatchStats"]


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _peak_memory() -> float:
    return _bridge.peak_memory() / 1e9


@dataclass(kw_only=True)
class BatchCounters:
    """Totals that only grow.

    Attributes:
        prompt_tokens: prompt tokens processed; the last one of each prompt counts as generation's, as in ``mlx_lm``.
        prompt_time: seconds spent on prompts.
        generation_tokens: tokens generated.
        generation_steps: rounds in which each running prompt got its next token.
        decode_time: seconds spent on those rounds.
    """

    prompt_tokens: int = 0
    prompt_time: float = 0.0
    generation_tokens: int = 0
    generation_steps: int = 0
    decode_time: float = 0.0

    @property
    def prompt_tps(self) -> float:
        """Prompt tokens per second; 0 if no time was spent."""
        return _rate(self.prompt_tokens, self.prompt_time)

    @property
    def decode_tps(self) -> float:
        """Generated tokens per second of decoding; 0 if no time was spent."""
        return _rate(self.generation_tokens, self.decode_time)


@dataclass(kw_only=True)
class BatchCountersSnapshot(BatchCounters):
    """Totals at one moment.

    Attributes:
        measured_at: the moment, in seconds of :func:`time.perf_counter`; now by default.
        peak_memory: the most memory in use until then, in GB (10^9 bytes); as it is now by default.
    """

    measured_at: float = field(default_factory=time.perf_counter)
    peak_memory: float = field(default_factory=_peak_memory)

    @staticmethod
    def between(start: BatchCountersSnapshot, end: BatchCountersSnapshot) -> BatchStats:
        """Return what was counted from one snapshot to the next."""
        counted = {part.name: getattr(end, part.name) - getattr(start, part.name) for part in fields(BatchCounters)}
        return BatchStats(
            **counted,
            wall_time=end.measured_at - start.measured_at,
            peak_memory=max(start.peak_memory, end.peak_memory),
        )


@dataclass(kw_only=True)
class BatchStats(BatchCounters):
    """Counts of an interval.

    Attributes:
        wall_time: its length in seconds.
        peak_memory: the most memory in use until its end, in GB (10^9 bytes).
    """

    wall_time: float = 0.0
    peak_memory: float = 0.0

    @property
    def generation_time(self) -> float:
        """Seconds not spent on prompts."""
        return max(0.0, self.wall_time - self.prompt_time)

    @property
    def generation_tps(self) -> float:
        """Generated tokens per second of :attr:`generation_time`; 0 if there was none."""
        return _rate(self.generation_tokens, self.generation_time)

    @property
    def overhead_time(self) -> float:
        """Seconds spent neither on prompts nor on decoding."""
        return max(0.0, self.wall_time - self.prompt_time - self.decode_time)

    def __iadd__(self, other: BatchStats) -> BatchStats:
        """Add another interval's counts and times; the peak is the higher one."""
        for part in fields(self):
            mine, theirs = getattr(self, part.name), getattr(other, part.name)
            setattr(self, part.name, max(mine, theirs) if part.name == "peak_memory" else mine + theirs)
        return self
