"""Reports as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_report(report: dict[str, Any], describe: Callable[[dict[str, Any]], str], file: str | None) -> None:
    """Print a report, and write it as JSON if asked for.

    Args:
        report: JSON types.
        describe: puts it into lines for people.
        file: None for lines only; "-" for JSON on stdout in their place; a path for lines, and JSON there.
    """
    text = json.dumps(report, indent=1)
    print(text if file == "-" else describe(report))
    if file not in (None, "-"):
        Path(file).write_text(text + "\n", encoding="utf-8")


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Format a figure, or a dash for one that is not known."""
    return "–" if value is None else f"{value:.{digits}f}{unit}"


def columns(rows: list[list[str]]) -> list[str]:
    """Align rows in columns, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]


def describe_suite(report: dict[str, Any]) -> str:
    """Put a report of the suite into lines for people."""
    engines = report["engines"]
    rival = "mlx_lm" in engines
    head = ["tokens/s", *engines, "ratio", "lowest", "accepted", "per pass", "tokens", "cold"]
    rows = [[*head, "/mlx_lm"] if rival else head]
    for cls, entry in report["classes"].items():
        accepted = None if entry["acceptance"] is None else 100 * entry["acceptance"]
        row = [
            cls,
            *(number(entry["speeds"][name]) for name in engines),
            number(entry["ratio"], 2, "×"),
            number(entry["lowest"], 2, "×"),
            number(accepted, 0, " %"),
            number(entry["accepted_per_verify_step"]),
            str(entry["tokens"]),
            number(entry["cold"]["ratio"], 2, "×"),
        ]
        rows.append([*row, number(entry["over_mlx_lm"]["ngram"], 2, "×")] if rival else row)
    blank = [""] * len(engines)
    mean, cold = number(report["geometric_mean"], 2, "×"), number(report["cold"]["geometric_mean"], 2, "×")
    last = ["geometric mean", *blank, mean, "", "", "", str(report["tokens"]), cold]
    rows.append([*last, number(report["over_mlx_lm"]["ngram"], 2, "×")] if rival else last)
    lines = columns(rows)
    if report["worst"]:
        lines.append(f"worst class: {report['worst']['class']}, {report['worst']['ratio']:.2f}×")
    short = [name for entry in report["classes"].values() for name in entry["too_short"]]
    if short:
        lines.append(f"answers too short to be timed: {', '.join(short)}")
    lines.append(describe_cost(report["cost"]))
    return "\n".join([*(line for line in lines if line), *describe_differences(report)])


def describe_cost(cost: dict[str, Any] | None) -> str:
    """Say what passes of each width were found to cost."""
    widths = (cost or {}).get("widths")
    if not widths:
        return ""
    points = ", ".join(f"{point['width']}: {1000 * point['seconds']:.1f}" for point in widths)
    return f"learned cost of a pass, ms by tokens in it: {points}"


def describe_differences(report: dict[str, Any]) -> list[str]:
    """Say whether all engines gave the tokens of plain decoding, and where not."""
    lines = []
    count = len(report["prompts"])
    for engine in report["engines"]:
        found = [difference for difference in report["differences"] if difference["engine"] == engine]
        if engine != report["engines"][0] or found:
            lines.append(f"tokens of {engine}: {count - len(found)} of {count} prompts as plain decoding")
        lines += [f"  {describe_difference(difference['prompt'], difference)}" for difference in found]
    return lines


def describe_difference(where: str, difference: dict[str, Any]) -> str:
    """Say where tokens part, in one line."""
    if difference["margin"] is None:
        verdict = ""
    else:
        tie = "a near tie" if difference["near_tie"] else "NOT A NEAR TIE"
        verdict = f" ({tie}, margin {difference['margin']:.4f})"
    other, plain = ("the end" if token is None else token for token in (difference["other"], difference["plain"]))
    return f"{where}: token {difference['index']} is {other} instead of {plain}{verdict}"
