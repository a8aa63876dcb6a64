"""The voter set as a history over log positions.

A Voters record takes effect on every node when it is appended, and loses its effect when it is truncated (KIP-853). The
base is the set before the first such record in the log: the configured set, or the set in a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left

from kraft.raft.identity import VoterSet
from kraft.seam import require


class VoterHistory:
    __slots__ = ("_base", "_offsets", "_sets", "latest")

    def __init__(self, base: VoterSet) -> None:
        self._base = base
        self._offsets: list[int] = []
        self._sets: list[VoterSet] = []
        self.latest = base
        """The latest of the voter sets in the history, or the base; callers must not set it. It is an attribute,
        because the core reads it many times at each step."""

    @property
    def latest_offset(self) -> int:
        """Offset of the last Voters record in the log, -1 if the base is in force."""
        return self._offsets[-1] if self._offsets else -1

    def at(self, end_offset: int) -> VoterSet:
        """Return the set in force for a log that ends at `end_offset` (exclusive)."""
        position = bisect_left(self._offsets, end_offset)
        return self._sets[position - 1] if position else self._base

    def append(self, offset: int, voters: VoterSet) -> None:
        require(offset > self.latest_offset, f"voters record at {offset} is not after {self.latest_offset}")
        self._offsets.append(offset)
        self._sets.append(voters)
        self.latest = voters

    def truncate(self, end_offset: int) -> None:
        """Forget records at or after `end_offset`: the set before them is in force again."""
        position = bisect_left(self._offsets, end_offset)
        del self._offsets[position:]
        del self._sets[position:]
        self.latest = self._sets[-1] if self._sets else self._base

    def trim(self, start_offset: int) -> None:
        """Drop records below `start_offset`, because a snapshot covers them. The set in force there becomes the
        base."""
        position = bisect_left(self._offsets, start_offset)
        if position:
            self._base = self._sets[position - 1]
            del self._offsets[:position]
            del self._sets[:position]

    def reset(self, base: VoterSet) -> None:
        """Start over with `base`, the set in the snapshot that has replaced the log."""
        self._base = self.latest = base
        self._offsets.clear()
        self._sets.clear()
