"""The leader-epoch cache: the start offset of each leader epoch in this log.

Entries (epoch, start offset) strictly increase in both (D7). The batches of the log do not show the epoch of a leader
that has appended nothing yet, so the cache has its own file (`leader-epoch-checkpoint`). The log's owner decides when
to save it (`dirty`). Source: KIP-101, KIP-279, Kafka's LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter

from kraft.seam import StorageCorrupt, require

_EPOCH = itemgetter(0)
_START = itemgetter(1)

UNDEFINED = (-1, -1)
"""The result of `end_offset_for` if the epoch is unknown to this log."""


class EpochCache:
    """The entries in memory; `encode` and `decode` convert to and from the checkpoint file's text."""

    __slots__ = ("_entries", "changes", "latest_epoch", "saved_changes")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = list(entries)
        self.latest_epoch = self._entries[-1][0] if self._entries else -1
        self.changes = 0
        self.saved_changes = 0

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """Return all (epoch, start offset), oldest first."""
        return tuple(self._entries)

    def newest(self, count: int) -> tuple[tuple[int, int], ...]:
        """Return the newest `count` (epoch, start offset), oldest first."""
        return tuple(self._entries[-count:])

    @property
    def latest(self) -> tuple[int, int] | None:
        """Return the newest (epoch, start offset), or None for an empty cache."""
        return self._entries[-1] if self._entries else None

    @property
    def dirty(self) -> bool:
        """Whether the file is older than the state in memory."""
        return self.changes != self.saved_changes

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`, and remove contradicting entries. Return True if anything
        changed.

        Nothing changes if the epoch is already the newest and began at or before the offset."""
        require(epoch >= 0 and start_offset >= 0, f"leader epoch {epoch} at offset {start_offset} is not an entry")
        entries = self._entries
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self._changed()
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (floor epoch, its exclusive end) for a requested epoch. Return UNDEFINED if the epoch is newer than
        all entries, or there are no entries.

        For an epoch below all entries, return it with the first entry's start offset."""
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        after = bisect_right(entries, epoch, key=_EPOCH)
        if after == 0:
            return epoch, entries[0][1]
        return entries[after - 1][0], entries[after][1]

    def epoch_for(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, or -1 if it is before all entries."""
        after = bisect_right(self._entries, offset, key=_START)
        return self._entries[after - 1][0] if after else -1

    def floor(self, epoch: int) -> tuple[int, int] | None:
        """Return the newest entry with an epoch up to `epoch`."""
        after = bisect_right(self._entries, epoch, key=_EPOCH)
        return self._entries[after - 1] if after else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop entries that start at or after `end_offset`. Return True if anything changed."""
        entries = self._entries
        before = len(entries)
        while entries and entries[-1][1] >= end_offset:
            entries.pop()
        if len(entries) == before:
            return False
        self._changed()
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove entries below `start_offset`. The epoch in force at `start_offset` then begins there. Return True if
        anything changed."""
        entries = self._entries
        after = bisect_right(entries, start_offset, key=_START)
        if after == 0 or (after == 1 and entries[0][1] == start_offset):
            return False
        entries[: after - 1] = []
        entries[0] = (entries[0][0], start_offset)
        self._changed()
        return True

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self._changed()

    def mark_saved(self, changes: int) -> None:
        """Record that the file holds the cache's state as of `changes`, the value of `self.changes` when the state was
        encoded."""
        self.saved_changes = max(self.saved_changes, changes)

    def encode(self) -> bytes:
        """Return the text of `leader-epoch-checkpoint`: `0`, the number of entries, then `epoch start` lines."""
        lines = ["0", str(len(self._entries)), *(f"{epoch} {start}" for epoch, start in self._entries)]
        return ("\n".join(lines) + "\n").encode()

    @staticmethod
    def decode(data: bytes, path: str) -> EpochCache:
        """Parse the file. StorageCorrupt names `path` and the bad line."""
        lines = data.decode("ascii", "replace").split("\n")
        if lines[:1] != ["0"] or len(lines) < 2 or not lines[1].isdigit():
            raise StorageCorrupt(f"{path}: line 1 or 2 is not a leader-epoch checkpoint's (version 0, then a count)")
        count = int(lines[1])
        entries: list[tuple[int, int]] = []
        for number, line in enumerate(lines[2 : 2 + count], start=3):
            words = line.split(" ")
            if len(words) != 2 or not all(word.isdigit() for word in words):
                raise StorageCorrupt(f"{path}: line {number} is {line!r}, expected an epoch and a start offset")
            entry = (int(words[0]), int(words[1]))
            if entries and (entry[0] <= entries[-1][0] or entry[1] <= entries[-1][1]):
                raise StorageCorrupt(f"{path}: line {number} is {entry} after {entries[-1]}, expected both to rise")
            entries.append(entry)
        if lines[2 + count :] != [""]:
            raise StorageCorrupt(f"{path}: {len(lines) - 3} lines of entries, expected {count} as line 2 says")
        return EpochCache(entries)

    def _changed(self) -> None:
        self.latest_epoch = self._entries[-1][0] if self._entries else -1
        self.changes += 1
