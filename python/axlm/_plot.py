"""What plots have in common: matplotlib where it is installed, and the learned cost of a pass."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Any

from ._install import command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def check_available() -> None:
    """Make sure that plots can be drawn.

    Raises:
        ImportError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(f"a plot takes matplotlib, which is not installed: {command(extra='plot')}")


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure that notebooks show as a picture.

    Args:
        width: in inches.
        height: in inches.

    Raises:
        ImportError: matplotlib is not installed.
    """
    check_available()
    # No pyplot: it would choose a display, and keep figures alive. So a notebook must be told how to show this one.
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return Picture(figsize=(width, height), layout="constrained")


def draw_cost(axes: Axes, cost: dict[str, Any] | None) -> None:
    """Draw what the core learned of a pass's duration, by the number of tokens in it.

    Args:
        axes: where to.
        cost: the counters ``cost`` of :meth:`axlm.model.Model.stats`, or None.
    """
    points = (cost or {}).get("widths") or []
    axes.plot([point["width"] for point in points], [1000 * point["seconds"] for point in points], "o-", markersize=4)
    axes.set_ylim(bottom=0)
    whole_numbers(axes)
    axes.set_xlabel("tokens in a pass")
    axes.set_ylabel("learned cost, ms")
    axes.grid(alpha=0.3)
    if not points:
        say(axes, "nothing learned")


def whole_numbers(axes: Axes) -> None:
    """Let the x axis have whole numbers only."""
    axes.xaxis.get_major_locator().set_params(integer=True)


def say(axes: Axes, text: str) -> None:
    """Write in the middle of empty axes why they are empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center")
