"""The core's view of its own log, without records: bounds, the epoch index, snapshots and the voter history.

Invariant: `start_offset` <= `end_offset`. Everything below `synced_end_offset` is on the device. `generation` rises
with each truncation: a sync that started before a truncation proves nothing about what was written after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kraft.raft.identity import VoterSet
from kraft.raft.voter_history import VoterHistory
from kraft.seam import InvariantError, require


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """A snapshot of the state up to `end_offset` (exclusive); its last record is of `epoch`."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One record batch as the core sees it. `voters` is set if the batch is a Voters control record. `content` is
    opaque to the core and is returned with the batch."""

    base_offset: int
    next_offset: int
    epoch: int
    voters: VoterSet | None = None
    content: object = None


class LogView:
    __slots__ = (
        "_epochs",
        "_starts",
        "end_offset",
        "generation",
        "snapshots",
        "start_offset",
        "synced_end_offset",
        "voters",
    )

    def __init__(self, voters: VoterSet) -> None:
        """Create an empty log at offset 0 with this base voter set."""
        self.start_offset = 0
        self.end_offset = 0
        self.synced_end_offset = 0
        self.generation = 0
        self.snapshots: list[SnapshotId] = []
        self.voters = VoterHistory(voters)
        self._epochs: list[int] = [0]
        self._starts: list[int] = [0]

    @staticmethod
    def recovered(
        base_voters: VoterSet,
        *,
        start_offset: int,
        end_offset: int,
        epochs: Sequence[tuple[int, int]],
        snapshots: Iterable[SnapshotId],
        voters_records: Iterable[tuple[int, VoterSet]] = (),
    ) -> LogView:
        """Return the view of a log that was found on disk and is synced. `epochs` are (epoch, start offset),
        ascending."""
        view = LogView(base_voters)
        view.start_offset = start_offset
        view.snapshots = sorted(snapshots)
        if start_offset > 0:
            covering = [snapshot for snapshot in view.snapshots if snapshot.end_offset == start_offset]
            require(covering, f"the log starts at {start_offset} but no snapshot ends there")
            view._epochs = [covering[0].epoch]
            view._starts = [start_offset]
        view.end_offset = view.synced_end_offset = end_offset
        for epoch, start in epochs:
            if epoch > view._epochs[-1]:
                view._epochs.append(epoch)
                view._starts.append(max(start, start_offset))
        for offset, voters in voters_records:
            view.voters.append(offset, voters)
        return view

    # reading

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot if the log is empty, or 0."""
        return self._epochs[-1]

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Pairs (epoch, start offset), ascending; the first pair covers everything before the log."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[0] if self.snapshots else None

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above `epoch`, and where its records end; (-1, -1) if that is before the log's
        start."""
        position = bisect_right(self._epochs, epoch)
        if position == 0:
            return (-1, -1)
        end = self._starts[position] if position < len(self._starts) else self.end_offset
        return (self._epochs[position - 1], end)

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the record at `offset - 1`."""
        position = bisect_right(self._starts, offset - 1) if offset > self._starts[0] else 1
        return self._epochs[position - 1]

    def is_up_to_date(self, last_epoch: int, end_offset: int) -> bool:
        """Return whether a log with this last epoch and end offset is at least as up to date as this one: epoch first,
        then offset."""
        return (last_epoch, end_offset) >= (self.last_epoch, self.end_offset)

    # changing

    def append(self, batch: BatchSummary) -> None:
        epoch, last_epoch = batch.epoch, self._epochs[-1]
        if batch.base_offset != self.end_offset:
            raise InvariantError(f"append at {batch.base_offset}, log ends at {self.end_offset}")
        if epoch < last_epoch:
            raise InvariantError(f"append of epoch {epoch} after epoch {last_epoch}")
        if epoch > last_epoch:
            self._epochs.append(epoch)
            self._starts.append(batch.base_offset)
        if batch.voters is not None:
            self.voters.append(batch.base_offset, batch.voters)
        self.end_offset = batch.next_offset

    def truncate(self, end_offset: int) -> None:
        """Remove everything at or after `end_offset`."""
        require(self.start_offset <= end_offset, f"truncation to {end_offset} is below the log start")
        self.end_offset = min(self.end_offset, end_offset)
        self.synced_end_offset = min(self.synced_end_offset, end_offset)
        self.generation += 1
        while len(self._starts) > 1 and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.voters.truncate(end_offset)

    def mark_synced(self, end_offset: int, generation: int) -> None:
        if generation == self.generation:
            self.synced_end_offset = max(self.synced_end_offset, min(end_offset, self.end_offset))

    def install(self, snapshot: SnapshotId, voters: VoterSet) -> None:
        """Replace the log by this snapshot: the log is empty and starts where the snapshot ends."""
        self.start_offset = self.end_offset = self.synced_end_offset = snapshot.end_offset
        self.generation += 1
        self.snapshots = [snapshot]
        self._epochs = [snapshot.epoch]
        self._starts = [snapshot.end_offset]
        self.voters.reset(voters)

    def add_snapshot(self, snapshot: SnapshotId) -> None:
        """Add a snapshot that this node wrote. One that ends below the log start is ignored: its file was removed when
        a newer snapshot was installed in the meantime."""
        if snapshot not in self.snapshots and snapshot.end_offset >= self.start_offset:
            self.snapshots = sorted([*self.snapshots, snapshot])

    def trim(self, start_offset: int) -> None:
        """Move the log start to `start_offset`, where a snapshot ends; older snapshots are removed."""
        require(
            any(snapshot.end_offset == start_offset for snapshot in self.snapshots),
            f"no snapshot ends at the new log start {start_offset}",
        )
        while len(self._starts) > 1 and self._starts[1] < start_offset:
            self._starts.pop(0)
            self._epochs.pop(0)
        self.start_offset = start_offset
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.end_offset >= start_offset]
        self.voters.trim(start_offset)
