"""What axlm benchmark reports: one dictionary of JSON types, and the lines that people read."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict, dataclass
from typing import Any

KEYS = ("prompt_tps", "generation_tps", "peak_memory")
"""What is reported: tokens per second, tokens per second, GB (10^9 bytes)."""


@dataclass
class Trial:
    """One measured generation.

    Attributes:
        prompt_tps: prompt tokens per second.
        generation_tps: generated tokens per second.
        peak_memory: GB; the engine's weights plus the most that the run added to them.
        total_time: seconds.
    """

    prompt_tps: float
    generation_tps: float
    peak_memory: float
    total_time: float


@dataclass
class Difference:
    """Where the engines' tokens part.

    Attributes:
        index: of the first token that differs.
        axlm: axlm's token there.
        mlx_lm: mlx_lm's token there.
        margin: by how much mlx_lm's log probability of its own token exceeds that of the next best one. A margin near
            zero is a tie that rounding decides; from there on the texts differ rightly.
    """

    index: int
    axlm: int
    mlx_lm: int
    margin: float


def make_report(
    args: argparse.Namespace,
    model: str,
    stats: dict[str, Any] | None,
    trials: dict[str, list[Trial]],
    load_peaks: dict[str, int],
    difference: Difference | None,
) -> dict[str, Any]:
    """Gather everything measured in one dictionary of JSON types.

    Returns:
        The settings; ``environment``; ``stats``, the core's counters of the last run; ``engines``: by name ``median``,
        ``mean`` and ``trials`` of :class:`Trial`'s fields, and ``load_peak_memory`` in GB. With two engines also
        ``ratios`` of the medians and, for one prompt, ``tokens_equal`` and ``first_difference`` (:class:`Difference`'s
        fields or None).
    """
    from .doctor import environment

    report: dict[str, Any] = {
        "model": model,
        "prompt_tokens": args.prompt_tokens,
        "generation_tokens": args.generation_tokens,
        "batch_size": args.batch_size,
        "prefill_step_size": args.prefill_step_size,
        "num_trials": args.num_trials,
        "ngram": args.ngram,
        "stats": stats,
        "environment": environment(),
        "engines": {},
    }
    for name, measured in trials.items():
        values = {key: [getattr(trial, key) for trial in measured] for key in KEYS}
        report["engines"][name] = {
            "median": {key: statistics.median(values[key]) for key in KEYS},
            "mean": {key: statistics.fmean(values[key]) for key in KEYS},
            "load_peak_memory": load_peaks[name] / 1e9,
            "trials": [asdict(trial) for trial in measured],
        }
    if len(trials) == 2:
        first, second = (report["engines"][name]["median"] for name in trials)
        report["ratios"] = {key: first[key] / second[key] if second[key] else None for key in KEYS}
        if args.batch_size == 1:
            report["tokens_equal"] = difference is None
            report["first_difference"] = asdict(difference) if difference else None
    return report


def describe(report: dict[str, Any]) -> str:
    """Put a report into lines for people."""
    engines = report["engines"]
    lines = []
    if speculation := (report["stats"] or {}).get("speculation"):
        text = "Speculation: {accepted} of {drafted} drafts accepted, in {draft_steps} of {steps} steps"
        lines.append(text.format_map(speculation))
    if "ratios" not in report:
        mean = engines["axlm"]["mean"]
        return "\n".join([*lines, "Averages: " + ", ".join(f"{key}={mean[key]:.3f}" for key in KEYS)])
    lines.append(f"{'medians':10}" + "".join(f"{key:>16}" for key in KEYS))
    for name, engine in engines.items():
        lines.append(f"{name:10}" + "".join(f"{engine['median'][key]:16.3f}" for key in KEYS))
    lines.append(f"{'ratio':10}" + "".join(f"{report['ratios'][key] or float('nan'):16.3f}" for key in KEYS))
    if "tokens_equal" not in report:
        return "\n".join(lines)
    difference = report["first_difference"]
    if difference is None:
        lines.append(f"Tokens: all {report['generation_tokens']} equal")
    else:
        whose = f"axlm {difference['axlm']}, mlx_lm {difference['mlx_lm']}"
        margin = f"{difference['margin']:.4f}"
        lines.append(f"Tokens: first difference at {difference['index']} ({whose}), where mlx_lm's margin is {margin}")
    return "\n".join(lines)
