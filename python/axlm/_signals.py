"""Steps that an interrupt must not cut in half."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_RAISING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)]


class Uninterrupted:
    """A ``with`` block in which Ctrl-C is put off to its end. What is in it must not wait for anything.

    Python runs signal handlers in the main thread, between any two steps of it; in other threads there is nothing to
    put off.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._came: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _RAISING:
            handler = signal.getsignal(number)
            if callable(handler):  # others do not raise
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handlers, self._handlers = self._handlers, {}
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in self._came:
            handlers[number](number, frame)
