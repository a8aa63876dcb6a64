"""A processor of the log that bounds how often one and the same warning or error is written.

It is the last bound, for every line of the process: a peer can provoke lines that no `LogLimit` counts by client
(requests that fail, damaged data). At most LINES_MAX lines with one text are written in a second. How many were left
out is told on the next line with that text, or on the first line of any text and level after that second.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from structlog.typing import EventDict, WrappedLogger

LINES_MAX = 5
WINDOW_S = 1.0
TEXTS_MAX = 1_000
"""Texts whose lines are counted. When there are more, all begin a new second."""
_LIMITED = ("warning", "error")


class _Second:
    """The lines of one text in one second."""

    __slots__ = ("began", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0


class RepeatedLines:
    """The lines of each text in its current second, and those left out since the last that was written."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds: dict[object, _Second] = {}
        self._left_out: dict[object, int] = {}

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        now, text = self._now(), event.get("event")
        if method in _LIMITED and not self._may_write(text, now):
            self._left_out[text] = self._left_out.get(text, 0) + 1
            raise structlog.DropEvent
        if self._left_out:
            self._tell_left_out(event, text, now)
        return event

    def _may_write(self, text: object, now: float) -> bool:
        second = self._seconds.get(text)
        if second is None or now - second.began >= WINDOW_S:
            if len(self._seconds) >= TEXTS_MAX:
                self._seconds.clear()
            second = self._seconds[text] = _Second(now)
        second.lines += 1
        return second.lines <= LINES_MAX

    def _tell_left_out(self, event: EventDict, text: object, now: float) -> None:
        """Add to this line how many were left out: of its own text, else of the first one whose second is over."""
        if text in self._left_out:
            event["left_out"] = self._left_out.pop(text)
            return
        for other in self._left_out:
            second = self._seconds.get(other)
            if second is None or now - second.began >= WINDOW_S:
                event["left_out"], event["left_out_of"] = self._left_out.pop(other), other
                return
