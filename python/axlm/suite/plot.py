"""The suite's report as a picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def check_available() -> None:
    """Make sure that plots can be drawn, before anything is measured.

    Raises:
        ImportError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError('a plot takes matplotlib, which is not installed: pip install "axlm[plot]"')


def draw(report: dict[str, Any], file: Path) -> None:
    """Draw the ratio of each class, and the learned cost of a pass by its width, into a PNG file.

    Args:
        report: from :func:`axlm.suite.run.make_report`.
        file: where to.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    check_available()
    # No pyplot: it would choose a display, and keep figures alive.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    bars, curve = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_ratios(bars, report)
    _draw_cost(curve, report["cost"])
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


def _draw_cost(axes: Any, cost: dict[str, Any] | None) -> None:
    points = (cost or {}).get("widths") or []
    axes.plot([point["width"] for point in points], [1000 * point["seconds"] for point in points], "o-", markersize=4)
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("tokens in a pass")
    axes.set_ylabel("learned cost, ms")
    axes.grid(alpha=0.3)
    if not points:
        axes.text(0.5, 0.5, "nothing learned", transform=axes.transAxes, ha="center")
