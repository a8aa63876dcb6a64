"""A partition's log on one broker: what a crash leaves, and what the cores ask of it.

Invariants: batches follow each other without holes; the epoch cache is production's and is kept as production keeps it.
A batch's `chain` is a hash over everything up to and including it, so that one comparison tells two histories apart.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from kraft.storage.epochs import EpochCache


class Batch(NamedTuple):
    """Records [base_offset, next_offset), written by the leader of `epoch`."""

    base_offset: int
    next_offset: int
    epoch: int
    chain: int


_NEXT_OFFSET = attrgetter("next_offset")


class ReplicaLog:
    """`batches[:synced]` survives power loss; all of `batches` survives the death of the process. It is the `LocalLog`
    that `kraft.broker.replica.follower` looks at."""

    __slots__ = ("batches", "checkpoint", "epochs", "high_watermark", "log_end_offset", "log_start_offset", "synced")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.synced = 0
        """How many batches are on the device."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.epochs = EpochCache()
        self.high_watermark = 0
        self.checkpoint = 0
        """The high watermark that a restart begins with."""

    @property
    def synced_end_offset(self) -> int:
        return self.batches[self.synced - 1].next_offset if self.synced else self.log_start_offset

    @property
    def chain(self) -> int:
        """That of the whole log; 0 if it is empty."""
        return self.batches[-1].chain if self.batches else 0

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def append(self, batch: Batch) -> None:
        """Write one batch at the end; it is not synced."""
        if batch.epoch > self.epochs.latest_epoch:
            self.epochs.assign(batch.epoch, batch.base_offset)
        self.batches.append(batch)
        self.log_end_offset = batch.next_offset

    def read(self, offset: int, batches_max: int) -> tuple[Batch, ...]:
        """The batches from `offset` on, so many at most."""
        first = self.position(offset)
        return tuple(self.batches[first : first + batches_max])

    def truncate_to(self, offset: int) -> None:
        """The log ends at `offset`; below its start, it begins anew there."""
        if offset < self.log_start_offset:
            self.truncate_fully(offset)
            return
        keep = self.position(offset)
        del self.batches[keep:]
        self.synced = min(self.synced, keep)
        self.log_end_offset = self.batches[-1].next_offset if self.batches else self.log_start_offset
        self.epochs.truncate_from_end(self.log_end_offset)

    def truncate_fully(self, offset: int) -> None:
        """Begin anew at `offset`, empty."""
        self.batches.clear()
        self.synced = 0
        self.log_start_offset = self.log_end_offset = offset
        self.epochs.clear()

    def advance_start(self, offset: int) -> None:
        """Delete what lies below `offset`, where a batch ends."""
        gone = self.position(offset)
        del self.batches[:gone]
        self.synced = max(0, self.synced - gone)
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def lose_unsynced(self, keep: int) -> list[Batch]:
        """The power fails: `keep` batches are left, those that were synced among them. Gives what is gone."""
        lost = self.batches[keep:]
        del self.batches[keep:]
        self.log_end_offset = self.batches[-1].next_offset if self.batches else self.log_start_offset
        return lost

    def reopen(self) -> None:
        """The process starts: what is there is synced by the recovery, and marks and epochs are those of the files."""
        self.synced = len(self.batches)
        self.epochs = EpochCache(self.scanned_epochs())
        self.high_watermark = max(self.log_start_offset, min(self.checkpoint, self.log_end_offset))

    # what a check asks

    def scanned_epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) as the batches say."""
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
        if batches and offset >= batches[-1].base_offset:  # whoever follows closely asks for the last one
            return len(batches) - 1
        return bisect_right(self.batches, offset, key=_NEXT_OFFSET)

    def chain_at(self, offset: int) -> int | None:
        """Chain of what ends at `offset`; None if no batch of ours ends there."""
        if offset == self.log_end_offset:
            return self.batches[-1].chain if self.batches else None
        index = self.position(offset - 1)
        if index < len(self.batches) and self.batches[index].next_offset == offset:
            return self.batches[index].chain
        return None
