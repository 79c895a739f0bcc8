"""Progress bars and the prefill's progress callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

BAR_AFTER_SECONDS = 0.5
"""A job that takes less shows no bar."""

ProgressCallback = Callable[[int, int], None]


def in_notebook() -> bool:
    """Tell whether this code runs in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config


def interactive() -> bool:
    """Tell whether a progress bar would be seen: a terminal on stderr, or a notebook."""
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


class Bar:
    """A tqdm bar that appears once its job has taken a while, and only where somebody sees it.

    Args:
        description: the text before the bar.
        unit: the unit of ``done`` and ``total``; ``"B"`` is shown as kB, MB, GB.
    """

    def __init__(self, description: str, unit: str) -> None:
        self._description = description
        self._unit = unit
        self._since = time.monotonic()
        self._bar: Any = None
        self._off = not interactive()

    def update(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` units are finished."""
        if self._off or (self._bar is None and time.monotonic() - self._since < BAR_AFTER_SECONDS):
            return
        if self._bar is None:
            from tqdm.auto import tqdm

            # Updates come ten times a second at most: show every one.
            self._bar = tqdm(
                total=total,
                initial=done,
                desc=self._description,
                unit=self._unit,
                unit_scale=self._unit == "B",
                mininterval=0,
                miniters=1,
                leave=False,
            )
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Remove the bar. A closed bar stays away."""
        self._off = True
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class PrefillWatch:
    """Reports a prefill's progress: to the callback if there is one, otherwise on a bar.

    The callback hears what it would hear from ``mlx_lm``, whatever the pace at which the core is asked: ``(0, total)``,
    then every border of a chunk, the last of them ``total - 1``, and ``(total, total)`` with the first token.

    Args:
        total: prompt tokens.
        step: ``prefill_step_size``.
        callback: called with (tokens done, tokens in all), or None.
    """

    def __init__(self, total: int, step: int, callback: ProgressCallback | None) -> None:
        self._total = total
        self._step = step
        self._callback = callback
        self._reported = -1
        self._bar = Bar("Prompt", "tok") if callback is None else None

    def update(self, done: int) -> None:
        """Take note that ``done`` prompt tokens are processed."""
        if self._callback is None:
            if self._bar is not None:
                self._bar.update(done, self._total)
            return
        while (border := self._next_border()) is not None and border <= done:
            self._reported = border
            self._callback(border, self._total)

    def _next_border(self) -> int | None:
        if self._reported < 0:
            return 0
        if self._reported >= self._total:
            return None
        if self._reported == self._total - 1:
            return self._total
        return min(self._reported + self._step, self._total - 1)

    def finish(self) -> None:
        """Take note that the whole prompt is processed."""
        self.update(self._total)
        self.close()

    def close(self) -> None:
        """Remove the bar, if there is one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
