"""A processor of the log that bounds how often one and the same warning or error is written.

A peer can provoke some warnings at will (bad bytes, refused connections). At most LINES_MAX lines with one text are
written in a second; the next line after that says how many were left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from structlog.typing import EventDict, WrappedLogger

LINES_MAX = 5
WINDOW_S = 1.0
TEXTS_MAX = 1_000
_LIMITED = ("warning", "error")


class RepeatedLines:
    """The lines of each text in its current second, and those left out since the last that was written."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._texts: dict[object, list[float]] = {}
        """Text → when its second began, lines in it, lines left out."""

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if method not in _LIMITED:
            return event
        if len(self._texts) >= TEXTS_MAX:
            self._texts.clear()
        now = self._now()
        seen = self._texts.setdefault(event.get("event"), [now, 0, 0])
        if now - seen[0] >= WINDOW_S:
            seen[0], seen[1] = now, 0
        seen[1] += 1
        if seen[1] > LINES_MAX:
            seen[2] += 1
            raise structlog.DropEvent
        if seen[2]:
            event["left_out"] = int(seen[2])
            seen[2] = 0
        return event
