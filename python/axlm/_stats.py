"""The core's counters: a dictionary that can also be read by people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Stats(dict[str, Any]):
    """Counters of a model or of one request, as a dictionary; ``print(stats)`` sums them up, :meth:`plot` draws them.

    What speculation did stands under ``"ngram"`` for a model and under ``"speculation"`` for a request; a request that
    decoded plainly has none.
    """

    def plot(self) -> Figure:
        """Draw what speculation did: steps by the number of drafts, accepted drafts by place, cost of a pass by width.

        Returns:
            A matplotlib figure: the last expression of a notebook's cell shows it, ``.savefig(file)`` writes it.

        Raises:
            ImportError: matplotlib is not installed.
        """
        from ._plot import draw_cost, new_figure

        speculation = self._speculation
        figure = new_figure(12, 3.6)
        depths, places, cost = figure.subplots(1, 3)
        _draw_depths(depths, speculation)
        _draw_places(places, speculation)
        draw_cost(cost, speculation.get("cost"))
        figure.suptitle(self._headline(), fontsize=10)
        return figure

    @property
    def _speculation(self) -> dict[str, Any]:
        return self.get("ngram") or self.get("speculation") or {}

    def _headline(self) -> str:
        count = self._speculation
        text = f"{self.get('generated_tokens', 0)} tokens in {self.get('decode_steps', 0)} steps"
        if not count.get("drafted"):
            return f"{text}, none drafted"
        share = count["accepted"] / count["drafted"]
        return f"{text}; {count['drafted']} drafted, {count['accepted']} accepted ({share:.0%})"

    def __str__(self) -> str:
        lines = [self._headline()]
        if prompts := self.get("prompt_tokens"):
            lines.append(f"prompts: {prompts} tokens in {self.get('prefill_steps', 0)} steps")
        if size := self.get("cache_bytes"):
            lines.append(f"caches: {size / 1e6:.1f} MB")
        if reasons := self._speculation.get("no_draft"):
            ordered = sorted(reasons.items(), key=lambda pair: -pair[1])
            lines.append(f"steps without drafts: {', '.join(f'{name} {count}' for name, count in ordered)}")
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the summary as a notebook's output."""
        printer.text(str(self))


def _draw_depths(axes: Any, speculation: dict[str, Any]) -> None:
    """Draw the steps by the number of drafts in them, apart those in which all were right."""
    from ._plot import say, whole_numbers

    plain = speculation.get("steps", 0) - speculation.get("draft_steps", 0)
    rows = speculation.get("by_depth") or []
    axes.bar([0], [plain], color="tab:gray", label="nothing drafted")
    axes.bar([row["depth"] for row in rows], [row["steps"] for row in rows], color="tab:orange", label="some wrong")
    axes.bar([row["depth"] for row in rows], [row["whole"] for row in rows], color="tab:blue", label="all accepted")
    axes.set_yscale("symlog", linthresh=10)  # steps without drafts can outnumber the others by far
    axes.set_xlabel("tokens drafted in a step")
    axes.set_ylabel("steps")
    if speculation.get("steps"):
        whole_numbers(axes)
        axes.legend(fontsize=8)
    else:
        say(axes, "no speculation")


def _draw_places(axes: Any, speculation: dict[str, Any]) -> None:
    """Draw, by a draft's place in its step, how many the model judged and accepted."""
    from ._plot import say, whole_numbers

    rows = speculation.get("by_position") or []
    axes.bar([row["position"] for row in rows], [row["judged"] for row in rows], color="tab:orange", label="rejected")
    axes.bar([row["position"] for row in rows], [row["accepted"] for row in rows], color="tab:blue", label="accepted")
    axes.set_xlabel("place in the draft")
    axes.set_ylabel("drafts judged")
    if rows:
        whole_numbers(axes)
        axes.legend(fontsize=8)
    else:
        say(axes, "nothing drafted")
