"""Metadata snapshots: files with the state of the metadata log up to an offset, which replace the log below it.

`<20-digit end offset>-<10-digit epoch>.checkpoint`: a header control batch, further control batches (kraft version,
voters), data batches, a footer control batch. Offsets inside start at 0 and are not log offsets. The batches' epoch is
the snapshot's. A file that is being written or received ends in `.part`. It gets its final name by a rename after a
sync, and only if it has a footer; without a footer it is not a snapshot. All of it is *blocking*. Source: KIP-630,
Kafka's Snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kraft.seam import Disk, File, StorageCorrupt, WireError
from kraft.storage.recovery import SegmentScan
from kraft.wire.records import BatchHeader, decode_values, encode_values
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, decode_controls, encode_control

CHECKPOINT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"
DELETED_SUFFIX = ".deleted"
BATCH_OUTPUT_BYTES_MAX = 64 * 1024 * 1024


class SnapshotNotFound(Exception):
    """There is no complete snapshot of this id."""


class PositionOutOfRange(Exception):
    """A chunk was requested, or provided, at a position that does not fit the file's size."""


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """Identity of a snapshot. `end_offset` is exclusive; `epoch` is that of the record before it."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{CHECKPOINT_SUFFIX}"

    @staticmethod
    def parse(name: str) -> SnapshotId | None:
        """Return the id in a complete snapshot's file name, else None."""
        stem, dot, suffix = name.partition(".")
        offset, dash, epoch = stem.partition("-")
        if dot + suffix != CHECKPOINT_SUFFIX or not dash or len(offset) != 20 or len(epoch) != 10:
            return None
        return SnapshotId(int(offset), int(epoch)) if offset.isdigit() and epoch.isdigit() else None


@dataclass(frozen=True, slots=True)
class SnapshotBatch:
    """One batch of a snapshot: the values of its records, or the control records of a control batch."""

    values: tuple[bytes, ...]
    controls: tuple[ControlRecord, ...]
    append_time_ms: int


class SnapshotStore:
    """The snapshots in a metadata log's folder."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def list(self) -> list[SnapshotId]:
        """Return the complete snapshots, oldest first."""
        parsed = (SnapshotId.parse(name) for name in self._disk.list(self._directory))
        return sorted(found for found in parsed if found is not None)

    def latest(self) -> SnapshotId | None:
        return max(self.list(), default=None)

    def clear_leftovers(self) -> None:
        """Remove unfinished snapshots and those marked as deleted."""
        for name in self._disk.list(self._directory):
            if name.endswith((CHECKPOINT_SUFFIX + PART_SUFFIX, CHECKPOINT_SUFFIX + DELETED_SUFFIX)):
                self._disk.unlink(f"{self._directory}/{name}")

    def path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{snapshot.file_name}"

    def create(self, snapshot: SnapshotId, *, last_contained_log_timestamp: int, now_ms: int) -> SnapshotWriter:
        """Begin to write a snapshot; an unfinished one with the same id is overwritten."""
        part = self._new_part(snapshot)
        return SnapshotWriter(part, snapshot.epoch, last_contained_log_timestamp, now_ms)

    def receive(self, snapshot: SnapshotId) -> SnapshotReceiver:
        """Begin to receive a snapshot from another node, from position 0."""
        return SnapshotReceiver(self._new_part(snapshot), snapshot)

    def _new_part(self, snapshot: SnapshotId) -> _Part:
        return _Part(self._disk, self._directory, self.path(snapshot))

    def open(self, snapshot: SnapshotId) -> SnapshotReader:
        """Open a snapshot for reading. Raises SnapshotNotFound if there is none."""
        return SnapshotReader(self._open_file(snapshot), snapshot)

    def read_chunk(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Return (size of the whole file, bytes from `position`). Raises SnapshotNotFound, PositionOutOfRange."""
        file = self._open_file(snapshot)
        try:
            if not 0 <= position < file.size:
                raise PositionOutOfRange(f"{file.path} has {file.size} bytes, position {position} was asked for")
            return file.size, file.read(position, max_bytes)
        finally:
            file.close()

    def size_bytes(self, snapshot: SnapshotId) -> int:
        file = self._open_file(snapshot)
        size = file.size
        file.close()
        return size

    def mark_deleted(self, snapshot: SnapshotId) -> str:
        """Remove a snapshot from the list; return the path to unlink later. Readers that have it open can continue."""
        path = self.path(snapshot)
        self._disk.rename(path, path + DELETED_SUFFIX)
        return path + DELETED_SUFFIX

    def _open_file(self, snapshot: SnapshotId) -> File:
        path = self.path(snapshot)
        if not self._disk.exists(path):
            raise SnapshotNotFound(f"there is no snapshot {path}")
        return self._disk.open(path)


class _Part:
    """A file with its `.part` name until it is finished."""

    def __init__(self, disk: Disk, directory: str, path: str) -> None:
        self._disk = disk
        self._directory = directory
        self.path = path
        self.file = disk.create(path + PART_SUFFIX)

    def finish(self) -> None:
        """Sync, rename, and sync the directory: from then on it is a snapshot."""
        self.file.sync_blocking()
        self.file.close()
        self._disk.rename(self.path + PART_SUFFIX, self.path)
        self._disk.sync_directory(self._directory)

    def abandon(self) -> None:
        self.file.close()
        self._disk.unlink(self.path + PART_SUFFIX)


class SnapshotWriter:
    """Writes one snapshot: `append` and `append_controls` in order, then `finish` (or `abandon`)."""

    def __init__(self, part: _Part, epoch: int, last_contained_log_timestamp: int, now_ms: int) -> None:
        self._part = part
        self._epoch = epoch
        self._now_ms = now_ms
        self._offset = 0
        self.append_controls(
            ControlRecord(
                type=ControlRecordType.SNAPSHOT_HEADER, last_contained_log_timestamp=last_contained_log_timestamp
            )
        )

    @property
    def size_bytes(self) -> int:
        return self._part.file.size

    def append(self, values: Sequence[bytes]) -> None:
        """Write one data batch with these record values; nothing if there are none."""
        if not values:
            return
        batch = encode_values(values, timestamp_ms=self._now_ms, base_offset=self._offset, leader_epoch=self._epoch)
        self._write(batch, len(values))

    def append_controls(self, *controls: ControlRecord) -> None:
        """Write one control batch."""
        batch = encode_control(*controls, base_offset=self._offset, leader_epoch=self._epoch, timestamp_ms=self._now_ms)
        self._write(batch, len(controls))

    def finish(self) -> None:
        """Write the footer, sync, and rename to the final name."""
        self.append_controls(ControlRecord(type=ControlRecordType.SNAPSHOT_FOOTER))
        self._part.finish()

    def abandon(self) -> None:
        self._part.abandon()

    def _write(self, batch: bytes | bytearray, records: int) -> None:
        self._part.file.append(batch)
        self._offset += records


class SnapshotReceiver:
    """Receives the chunks of another node's snapshot, in order."""

    def __init__(self, part: _Part, snapshot: SnapshotId) -> None:
        self._part = part
        self._snapshot = snapshot

    @property
    def position(self) -> int:
        """The position of the next chunk."""
        return self._part.file.size

    def append(self, position: int, data: bytes | memoryview) -> None:
        """Write a chunk. Raises PositionOutOfRange if it is not the next one."""
        if position != self.position:
            raise PositionOutOfRange(f"a chunk at {position} for {self._part.path}, expected {self.position}")
        self._part.file.append(data)

    def finish(self) -> None:
        """Validate the whole file, then give it its final name. Raises StorageCorrupt if it is not a complete snapshot;
        the caller then abandons it."""
        SnapshotReader(self._part.file, self._snapshot).validate()
        self._part.finish()

    def abandon(self) -> None:
        self._part.abandon()


class SnapshotReader:
    """Reads one snapshot from its start; checks every batch's CRC, and that header and footer are there."""

    def __init__(self, file: File, snapshot: SnapshotId) -> None:
        self._file = file
        self._snapshot = snapshot

    @property
    def size_bytes(self) -> int:
        return self._file.size

    def batches(self) -> Iterator[SnapshotBatch]:
        """Yield all batches between header and footer. Raises StorageCorrupt; if only the footer is missing, at the
        end."""
        scan = SegmentScan(self._file, expected_offset=0, epoch=self._snapshot.epoch, contiguous=True)
        footer = False
        for number, (position, header, view) in enumerate(scan):
            if footer:
                raise self._corrupt(position, "there are batches behind the footer")
            if header.partition_leader_epoch != self._snapshot.epoch:
                raise self._corrupt(position, f"the batch's epoch is {header.partition_leader_epoch}")
            values, controls = self._records(position, header, view)
            if header.is_control:
                kind = controls[0].type if controls else None
                if (number == 0) != (kind is ControlRecordType.SNAPSHOT_HEADER):
                    raise self._corrupt(position, "the header is not the first batch, or not the only one")
                footer = kind is ControlRecordType.SNAPSHOT_FOOTER
                if number and not footer:
                    yield SnapshotBatch((), controls, header.max_timestamp)
                continue
            if number == 0:
                raise self._corrupt(position, "the first batch is not the header")
            yield SnapshotBatch(values, (), header.max_timestamp)
        if scan.damage is not None:
            raise self._corrupt(scan.damage.position, scan.damage.reason)
        if not footer:
            raise self._corrupt(self._file.size, "the footer is missing")

    def _records(
        self, position: int, header: BatchHeader, view: memoryview
    ) -> tuple[tuple[bytes, ...], tuple[ControlRecord, ...]]:
        """Return a batch's values, or its control records. Raises StorageCorrupt if they do not parse, which is
        possible with a matching CRC: the sender of the snapshot may have made it so."""
        try:
            if header.is_control:
                return (), tuple(decode_controls(view))
            return tuple(decode_values(view, output_bytes_max=BATCH_OUTPUT_BYTES_MAX)), ()
        except WireError as error:
            raise self._corrupt(position, str(error)) from error

    def last_contained_log_timestamp(self) -> int:
        """Return the timestamp in the snapshot's header: that of the last record that the snapshot covers. Raises
        StorageCorrupt if there is no header."""
        scan = SegmentScan(self._file, expected_offset=0, epoch=self._snapshot.epoch, contiguous=True)
        for position, header, view in scan:
            controls = self._records(position, header, view)[1] if header.is_control else ()
            if controls and controls[0].type is ControlRecordType.SNAPSHOT_HEADER:
                return controls[0].last_contained_log_timestamp
            break
        raise self._corrupt(0, "the first batch is not the header")

    def validate(self) -> None:
        """Read the whole snapshot. Raises StorageCorrupt if it is not complete."""
        for _ in self.batches():
            pass

    def close(self) -> None:
        self._file.close()

    def _corrupt(self, position: int, why: str) -> StorageCorrupt:
        return StorageCorrupt(
            f"{self._file.path}: byte {position}: {why}. Remove this snapshot if there is another one, "
            "or format the metadata directory again (the node rejoins with a new directory id)."
        )
