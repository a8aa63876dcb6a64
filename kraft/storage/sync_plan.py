"""SyncPlan: the writes that must be on the device before a log's synced end may move.

The owner takes a plan on the loop, runs it off the loop (`run`, one plan at a time per log), and passes it back
(`Log.mark_synced`). Appends meanwhile wait for the next plan: that is group commit. The order is: rolled segments with
their indexes and producer snapshots, the active file, the small files, the directory's entries. Only then may the
recovery point move (B21, B23). A failed sync is never retried (B22): `run` raises DiskError and the log directory goes
offline.
Source: docs/storage.md#group-commit, docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.seam import Disk, File
from kraft.storage.handles import Handle
from kraft.storage.segment import Segment


class RolledSegment:
    """A closed segment that is not on the device yet, and the producer snapshot taken at its end (None if recovery
    found the segment closed)."""

    __slots__ = ("segment", "snapshot")

    def __init__(self, segment: Segment, snapshot: File | None) -> None:
        self.segment = segment
        self.snapshot = snapshot

    def sync(self) -> None:
        """Sync the segment's files and its producer snapshot. *Blocking.*"""
        for handle in self.segment.handles:
            sync_handle(handle)
        if self.snapshot is not None:
            self.snapshot.sync_blocking()

    def settle(self) -> None:
        """Record that the segment is on the device, so that its files may be closed."""
        self.segment.pin(pinned=False)
        if self.snapshot is not None:
            self.snapshot.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyncPlan:
    """State at the moment when the plan was taken: all bytes below `end_offset` are on the device once `run` returns.

    `writes` are small files to replace. The counters identify the changes of the log that the plan covers."""

    disk: Disk
    directory: str
    end_offset: int
    truncations: int
    active: Handle | None
    rolled: tuple[RolledSegment, ...]
    directory_changed: bool
    directory_changes: int
    writes: tuple[tuple[str, bytes], ...]
    epoch_changes: int

    @property
    def only_file(self) -> File | None:
        """The one file to sync, if that is all there is to do; else None. Then `await disk.sync(plan.only_file)` has
        the effect of `run`, and may be merged with other syncs."""
        if self.rolled or self.directory_changed or self.writes or self.active is None:
            return None
        return self.active.file

    def run(self) -> None:
        """Put everything on the device. *Blocking.* After a DiskError nothing counts as synced."""
        for rolled in self.rolled:
            rolled.sync()
        if self.active is not None:
            sync_handle(self.active)
        for path, data in self.writes:
            self.disk.write_file_atomic(path, data)  # in this directory, which it syncs
        if self.directory_changed and not self.writes:
            self.disk.sync_directory(self.directory)


def sync_handle(handle: Handle) -> None:
    """Sync a file, through a separate descriptor if it is not open. *Blocking.*"""
    file = handle.file
    if file is not None and not file.closed:
        file.sync_blocking()
    elif handle.exists:
        file = handle.disk.open(handle.path)
        file.sync_blocking()
        file.close()
