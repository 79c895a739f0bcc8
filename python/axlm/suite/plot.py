"""The suite's report as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._plot import draw_cost, new_figure


def draw(report: dict[str, Any], file: Path) -> None:
    """Draw the ratio of each class, and the learned cost of a pass by its width, into a PNG file.

    Args:
        report: from :func:`axlm.suite.run.make_report`.
        file: where to.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    figure = new_figure(11, 5)
    bars, curve = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_ratios(bars, report)
    draw_cost(curve, report["cost"])
    figure.suptitle(_title(report), fontsize=10)
    figure.savefig(file, format="png", dpi=150)


def _title(report: dict[str, Any]) -> str:
    words = [Path(report.get("model", "")).name]
    if device := report.get("environment", {}).get("device_name"):
        words.append(str(device))
    if (mean := report["geometric_mean"]) is not None:
        words.append(f"geometric mean {mean:.2f}×")
    return " · ".join(word for word in words if word)


def _draw_ratios(axes: Any, report: dict[str, Any]) -> None:
    names = list(report["classes"])
    places = range(len(names))
    warm = [report["classes"][name]["ratio"] or 0 for name in names]
    cold = [report["classes"][name]["cold"]["ratio"] for name in names]
    drawn = axes.barh(places, warm, color="tab:blue", label="warm")
    axes.bar_label(drawn, [f"{ratio:.2f}" if ratio else "–" for ratio in warm], padding=3, fontsize=8)
    known = [(ratio, place) for place, ratio in zip(places, cold, strict=True) if ratio is not None]
    if known:
        axes.plot(*zip(*known, strict=True), "o", color="tab:orange", label="first pass", markersize=5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("speculating over plain decoding, tokens per second")
    axes.legend(fontsize=8)
