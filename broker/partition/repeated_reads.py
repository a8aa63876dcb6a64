"""SameAgain: how often the readers of one partition have come back for the same bytes. Nothing here suspends."""

from __future__ import annotations

AGAIN_MAX = 3
"""So many times a reader comes back for what it was given before its bytes are looked at; once may be because it has
two requests under way."""
READERS_MAX = 64
"""Readers of a partition that are remembered."""
LEFT_ALONE_MAX = 64
"""Offsets of a partition that are left alone."""


class SameAgain:
    """Where each reader of one partition was given bytes last, and how often it has come back. A consumer that reads on
    before it opens what it has may alternate between a damaged batch and the end of the log; a follower never does.
    When there are too many readers, the consumer that was given nothing for the longest time is forgotten."""

    __slots__ = ("_given", "_left_alone")

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, int]] = {}
        self._left_alone: dict[int, float] = {}

    def is_suspicious(self, reader: int, offset: int) -> bool:
        """A reader (a follower's id, or something negative) is given bytes from `offset` on. Whether it has come back
        too often by now."""
        last, times = self._given.pop(reader, (-1, 0))
        is_back = offset <= last
        times = times + 1 if is_back else times if reader < 0 else 0
        if len(self._given) >= READERS_MAX:
            self._forget_one()
        self._given[reader] = (offset, times)
        return is_back and times % AGAIN_MAX == 0

    def _forget_one(self) -> None:
        consumer = next((reader for reader in self._given if reader < 0), None)
        if consumer is not None:
            del self._given[consumer]

    def leave_alone(self, offset: int, until_ms: float) -> None:
        """Do not check the bytes from `offset` on before `until_ms`: they are damaged, which was logged."""
        self._left_alone.pop(offset, None)
        if len(self._left_alone) >= LEFT_ALONE_MAX:
            del self._left_alone[next(iter(self._left_alone))]
        self._left_alone[offset] = until_ms

    def is_left_alone(self, offset: int, now_ms: float) -> bool:
        until_ms = self._left_alone.get(offset)
        return until_ms is not None and now_ms < until_ms
