"""RepeatedReads: count how often the readers of one partition fetch the same bytes again. Nothing here suspends."""

from __future__ import annotations

REPEATS_MAX = 3
"""Number of repeated fetches of the same bytes after which the bytes are checked. A single repetition may only mean
that the reader has two requests in flight."""
READERS_MAX = 64
"""Maximum number of readers that are remembered per partition."""
SKIPPED_OFFSETS_MAX = 64
"""Maximum number of offsets per partition that are remembered as not to be checked for a while."""


class RepeatedReads:
    """For each reader of one partition: the offset at which its last fetch got bytes, and how many times it fetched the
    same bytes again.

    A consumer that fetches ahead before it parses may alternate between a damaged batch and the end of the log; a
    follower never does. When there are too many readers, the consumer that has been inactive the longest is dropped."""

    __slots__ = ("_given", "_left_alone")

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, int]] = {}
        self._left_alone: dict[int, float] = {}

    def is_suspicious(self, reader: int, offset: int) -> bool:
        """Record that a reader (a follower's id, or a negative number for a consumer) gets bytes from `offset` on.
        Return whether the reader has now fetched the same bytes too often."""
        last, times = self._given.pop(reader, (-1, 0))
        is_back = offset <= last
        times = times + 1 if is_back else times if reader < 0 else 0
        if len(self._given) >= READERS_MAX:
            self._forget_one()
        self._given[reader] = (offset, times)
        return is_back and times % REPEATS_MAX == 0

    def _forget_one(self) -> None:
        consumer = next((reader for reader in self._given if reader < 0), None)
        if consumer is not None:
            del self._given[consumer]

    def skip_until(self, offset: int, until_ms: float) -> None:
        """Skip checks of the bytes from `offset` on until `until_ms`, because they are known and logged as damaged."""
        self._left_alone.pop(offset, None)
        if len(self._left_alone) >= SKIPPED_OFFSETS_MAX:
            del self._left_alone[next(iter(self._left_alone))]
        self._left_alone[offset] = until_ms

    def is_skipped(self, offset: int, now_ms: float) -> bool:
        until_ms = self._left_alone.get(offset)
        return until_ms is not None and now_ms < until_ms
