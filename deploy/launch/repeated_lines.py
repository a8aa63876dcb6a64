"""A log processor that limits how often the same warning or error is written.

It limits all lines of the process, also those that no `LogLimit` counts by client (failed requests, damaged data): a
peer can provoke them. At most LINES_MAX lines with one text are written in a second. The number of suppressed lines is
added to the next line with that text. After the end of that second, it is added to the first line of any text and
level.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from structlog.typing import EventDict, WrappedLogger

LINES_MAX = 5
WINDOW_S = 1.0
TEXTS_MAX = 1_000
"""Maximum number of texts for which lines are counted. If there would be more, all counts restart."""
_LIMITED = ("warning", "error")


class _Second:
    """The number of log lines with one text in one second; `began` is the time of the first of them."""

    __slots__ = ("began", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0


class RepeatedLines:
    """Log processor that counts, per text, the lines in the current second and the suppressed lines not yet
    reported."""

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
            self._add_suppressed_count(event, text, now)
        return event

    def _may_write(self, text: object, now: float) -> bool:
        second = self._seconds.get(text)
        if second is None or now - second.began >= WINDOW_S:
            if len(self._seconds) >= TEXTS_MAX:
                self._seconds.clear()
            second = self._seconds[text] = _Second(now)
        second.lines += 1
        return second.lines <= LINES_MAX

    def _add_suppressed_count(self, event: EventDict, text: object, now: float) -> None:
        """Add the number of suppressed lines with this line's text to the line. If there are none, add the number of
        the first other text whose second is over."""
        if text in self._left_out:
            event["left_out"] = self._left_out.pop(text)
            return
        for other in self._left_out:
            second = self._seconds.get(other)
            if second is None or now - second.began >= WINDOW_S:
                event["left_out"], event["left_out_of"] = self._left_out.pop(other), other
                return
