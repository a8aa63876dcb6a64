"""A partition's log on one broker: what survives a crash, and the methods that the cores need.

Invariants: batches follow each other without gaps; the epoch cache is production's and is updated as production does. A
batch's `chain` is a hash over everything up to and including it, so one comparison distinguishes two histories.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from kraft.storage.epochs import EpochCache


class ReplicaBatch(NamedTuple):
    """Records [base_offset, next_offset), written by the leader of `epoch`."""

    base_offset: int
    next_offset: int
    epoch: int
    chain: int


_NEXT_OFFSET = attrgetter("next_offset")


class ReplicaLog:
    """`batches[:synced]` survives power loss; all of `batches` survives the death of the process. Implements the
    `LocalLog` of `kraft.broker.replica.follower`."""

    __slots__ = ("batches", "checkpoint", "epochs", "high_watermark", "log_end_offset", "log_start_offset", "synced")

    def __init__(self) -> None:
        self.batches: list[ReplicaBatch] = []
        self.synced = 0
        """Number of batches that are durable."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.epochs = EpochCache()
        self.high_watermark = 0
        self.checkpoint = 0
        """High watermark that the log has after a restart."""

    @property
    def synced_end_offset(self) -> int:
        return self.batches[self.synced - 1].next_offset if self.synced else self.log_start_offset

    @property
    def chain(self) -> int:
        """Hash over the whole log; 0 if it is empty."""
        return self.batches[-1].chain if self.batches else 0

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def append(self, batch: ReplicaBatch) -> None:
        """Append one batch; it is not synced."""
        if batch.epoch > self.epochs.latest_epoch:
            self.epochs.assign(batch.epoch, batch.base_offset)
        self.batches.append(batch)
        self.log_end_offset = batch.next_offset

    def read(self, offset: int, batches_max: int) -> tuple[ReplicaBatch, ...]:
        """Return the batches from `offset` on, at most this many."""
        first = self.position(offset)
        return tuple(self.batches[first : first + batches_max])

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset`; if that is below its start, restart it there."""
        if offset < self.log_start_offset:
            self.truncate_fully(offset)
            return
        keep = self.position(offset)
        del self.batches[keep:]
        self.synced = min(self.synced, keep)
        self.log_end_offset = self.batches[-1].next_offset if self.batches else self.log_start_offset
        self.epochs.truncate_from_end(self.log_end_offset)

    def truncate_fully(self, offset: int) -> None:
        """Restart the log at `offset`, empty."""
        self.batches.clear()
        self.synced = 0
        self.log_start_offset = self.log_end_offset = offset
        self.epochs.clear()

    def advance_start(self, offset: int) -> None:
        """Delete the batches below `offset`, where a batch ends."""
        gone = self.position(offset)
        del self.batches[:gone]
        self.synced = max(0, self.synced - gone)
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def lose_unsynced(self, keep: int) -> list[ReplicaBatch]:
        """Lose power: `keep` batches remain, including all synced ones. Return the lost batches."""
        lost = self.batches[keep:]
        del self.batches[keep:]
        self.log_end_offset = self.batches[-1].next_offset if self.batches else self.log_start_offset
        return lost

    def reopen(self) -> None:
        """Open the log at a start of the broker: recovery syncs all batches, and offsets and epochs come from the
        files."""
        self.synced = len(self.batches)
        self.epochs = EpochCache(self.scanned_epochs())
        self.high_watermark = max(self.log_start_offset, min(self.checkpoint, self.log_end_offset))

    # queries of checks

    def scanned_epochs(self) -> list[tuple[int, int]]:
        """Return (epoch, first offset) of each epoch in the batches."""
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            if not found or batch.epoch > found[-1][0]:
                found.append((batch.epoch, batch.base_offset))
        return found

    def position(self, offset: int) -> int:
        """Index of the first batch that ends after `offset`."""
        batches = self.batches
        if offset >= self.log_end_offset:
            return len(batches)
        if batches and offset >= batches[-1].base_offset:  # a follower that keeps up requests the last batch
            return len(batches) - 1
        return bisect_right(self.batches, offset, key=_NEXT_OFFSET)

    def chain_at(self, offset: int) -> int | None:
        """Return the hash of the log prefix that ends at `offset`; None if no batch ends there."""
        if offset == self.log_end_offset:
            return self.batches[-1].chain if self.batches else None
        index = self.position(offset - 1)
        if index < len(self.batches) and self.batches[index].next_offset == offset:
            return self.batches[index].chain
        return None
