"""SyncPlan: the writes that must reach the device before a log's synced end may move.

The owner takes a plan on the loop, runs it off the loop (`run`, one plan at a time per log), and hands it back
(`Log.mark_synced`). Appends that come meanwhile wait for the next plan: that is group commit. The order inside: rolled
segments with their indexes and producer snapshots, the active file, the small files and the directory's entries. Only
then may the recovery point move (B21, B23). A failed sync is never retried (B22): `run` raises DiskError and the log
directory goes offline.
Source: docs/storage.md#group-commit, docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraft.seam import Disk, File
from kraft.storage.handles import Handle
from kraft.storage.segment import Segment


class RolledSegment:
    """A closed segment that is not on the device yet, and the producer snapshot taken at its end (None if recovery
    found it so)."""

    __slots__ = ("segment", "snapshot")

    def __init__(self, segment: Segment, snapshot: File | None) -> None:
        self.segment = segment
        self.snapshot = snapshot

    def sync(self) -> None:
        """*Blocking.*"""
        for handle in self.segment.handles:
            sync_handle(handle)
        if self.snapshot is not None:
            self.snapshot.sync_blocking()

    def settle(self) -> None:
        """It is on the device: its files need not stay open."""
        self.segment.pin(pinned=False)
        if self.snapshot is not None:
            self.snapshot.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyncPlan:
    """Frozen at the moment it was taken: all bytes below `end_offset` are on the device once `run` returns.

    `writes` are small files to replace. The counters say which changes of the log the plan covers.
    """

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
        """The one file to sync if nothing else is to be done: then `await disk.sync(plan.only_file)` does what `run`
        would, and may be merged with other syncs. Else None."""
        if self.rolled or self.directory_changed or self.writes or self.active is None:
            return None
        return self.active.file

    def run(self) -> None:
        """Put all of it on the device. *Blocking.* DiskError: nothing is counted as synced."""
        for rolled in self.rolled:
            rolled.sync()
        if self.active is not None:
            sync_handle(self.active)
        for path, data in self.writes:
            self.disk.write_file_atomic(path, data)  # in this directory, which it syncs
        if self.directory_changed and not self.writes:
            self.disk.sync_directory(self.directory)


def sync_handle(handle: Handle) -> None:
    """Sync a file, through a descriptor of its own if it is not open. *Blocking.*"""
    file = handle.file
    if file is not None and not file.closed:
        file.sync_blocking()
    elif handle.exists:
        file = handle.disk.open(handle.path)
        file.sync_blocking()
        file.close()
