"""Observes the disks: reports what the logs of a host contain, and what would survive a power loss.

The observer reads the simulated file system directly, so it does not depend on a node's bookkeeping. It reads only what
changed since the last observation. An append costs only the appended bytes, whatever the log's size; a new or removed
entry costs its directory. The host reports which files and directories changed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Literal

from crc32c import crc32c

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from kraft.broker.group.records import decode_entry as decode_group_entry
from kraft.broker.share_coordinator.records import decode_entry as decode_share_entry
from kraft.broker.txn.records import decode_entry
from kraft.seam import Buffer, WireError
from kraft.sim.check.observations import (
    BatchWritten,
    BytesCorrupted,
    LogCut,
    LogDurable,
    LoggedGroupEntry,
    LoggedShareEntry,
    LoggedTransaction,
    Observation,
    ProducedBy,
    SnapshotSeen,
    TopicPartition,
    TransactionMarker,
    VoteDurable,
    VoterKeys,
    VotersWritten,
)
from kraft.sim.cluster.fold import snapshot_digest
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.shape import DATA_ROOT
from kraft.sim.world.filesystem import SECTOR_BYTES, Directory, Inode
from kraft.sim.world.host import Host
from kraft.storage.markers import read_marker
from kraft.storage.snapshots import SnapshotId
from kraft.wire.records import ATTRIBUTE_TRANSACTIONAL, BatchHeader, check_crc, decode_batch, iter_headers
from kraft.wire.records.control_records import ControlRecordType, decode_controls

METADATA_DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE = "quorum-state"
SEGMENT_SUFFIX = ".log"
OFFSET_BYTES, CRC_BEGINS_BYTES = 8, 12
"""Numbers of bytes at the begin of a batch: those of its offset field, and those that the CRC does not cover."""
LOG_DIR = "dir-"
"""Prefix of the names of a node's log directories if it has several."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch that was observed in a file, ending at byte `end`. A copy of the log may hold the same batch at another
    place, so `end` is not compared."""

    base_offset: int
    next_offset: int
    epoch: int
    digest: int
    end: int = field(compare=False)
    voters: VoterKeys | None = None
    """The voters in the batch, if it is a VotersRecord."""
    producer: ProducedBy | None = field(default=None, compare=False)
    marker: TransactionMarker | None = field(default=None, compare=False)
    transactions: tuple[LoggedTransaction, ...] = field(default=(), compare=False)
    group_entries: tuple[LoggedGroupEntry, ...] = field(default=(), compare=False)
    share_entries: tuple[LoggedShareEntry, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch stored in a file, from byte `start` to byte `end`. The batches before it in the log end at offset
    `end_before`."""

    inode: Inode
    start: int
    end: int
    end_before: int
    next_offset: int


@dataclass(slots=True)
class _FileView:
    """The complete batches of one segment file. `ends` are the byte positions at which they end."""

    inode: Inode
    topic: str = ""
    mark: int = -1
    batches: list[Seen] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    is_broken: bool = False
    """Whether the last complete batch is followed by bytes that are enough for another batch and are no valid batch."""

    @property
    def is_whole(self) -> bool:
        """Whether the file holds only complete batches: no incomplete batch at the end, and no zeros."""
        return (self.ends[-1] if self.ends else 0) == len(self.inode.data)

    def update(self) -> int | None:
        """Parse new bytes. Return the number of leading batches that are unchanged, or None if nothing changed."""
        inode = self.inode
        if inode.mark == self.mark and inode.cut_to is None:
            return None
        if inode.cut_to is not None:
            keep = bisect_right(self.ends, inode.cut_to)
            del self.batches[keep:]
            del self.ends[keep:]
            inode.cut_to = None
        self.mark = inode.mark
        same = len(self.batches)
        self._parse(inode.data, self.ends[-1] if self.ends else 0)
        return same

    def bytes_between(self, start: int, end: float) -> Iterator[bytes]:
        """Yield the bytes of the batches that end in (start, end]."""
        first = 0
        for batch in self.batches:
            if start < batch.next_offset <= end:
                yield bytes(memoryview(self.inode.data)[first : batch.end])
            first = batch.end

    def _parse(self, data: bytearray, start: int) -> None:
        self.is_broken = False
        try:
            for position, header in iter_headers(data, start):
                end = position + header.size_bytes
                if not check_crc(data, position, header) or self._has_lost_offset(data, position):
                    self.is_broken = True
                    return
                digest = crc32c(bytes(data[position:end]))
                epoch = header.partition_leader_epoch
                voters = _voters_of(data, position) if header.is_control else None
                offsets = (header.base_offset, header.next_offset)
                marker = _marker_of(data, position, header)
                values = _transactions_of(data, position, header) if self.topic == TRANSACTION_TOPIC else ()
                entries = _group_entries_of(data, position, header) if self.topic == OFFSETS_TOPIC else ()
                shares = _share_entries_of(data, position, header) if self.topic == SHARE_TOPIC else ()
                self.batches.append(
                    Seen(*offsets, epoch, digest, end, voters, _producer_of(header), marker, values, entries, shares)
                )
                self.ends.append(end)
        except WireError:
            self.is_broken = True

    def _has_lost_offset(self, data: bytearray, position: int) -> bool:
        """Return whether a lost sector zeroed the first bytes of a batch, its offset, which no CRC covers."""
        piece = SECTOR_BYTES - position % SECTOR_BYTES
        expected = (self.batches[-1].next_offset if self.batches else 0).to_bytes(OFFSET_BYTES, "big")
        return piece < CRC_BEGINS_BYTES and any(expected[:piece]) and not any(data[position : position + piece])


@dataclass(slots=True)
class _LogView:
    """State of a log as it was reported. `has_holes`: offsets may be missing in it, also between files, because it is
    compacted. It is False after a power loss, because batches after missing offsets are then not part of the log."""

    has_holes: bool
    files: dict[str, _FileView] = field(default_factory=dict)
    told: list[Seen] = field(default_factory=list)
    deleted: dict[int, Seen] = field(default_factory=dict)
    """Base offset → batch that was deleted from the front of the log together with its file."""
    start: int = 0
    """Log start at the last reported truncation or deletion."""
    durable_end: int = 0
    names: list[str] = field(default_factory=list)
    """File names in the order of the log. This and the following attributes are as of the last observation of all
    files."""
    is_broken: bool = False
    """Whether the log cannot be read up to its last file."""
    count_before: int = 0
    """Number of batches in all files but the last."""
    front_durable: tuple[bool, int] = (False, 0)
    """Whether all files but the last are readable and would survive a power loss, and the end offset of the log that
    would survive."""
    snapshot_end: int = 0

    def may_have_holes_again(self, log: TopicPartition | None) -> None:
        """Allow missing offsets again if the log can be read to its end: recovery then truncates nothing after them."""
        self.has_holes = self.has_holes or (log is not None and not self.is_broken)

    @property
    def last(self) -> str | None:
        return self.names[-1] if self.names else None

    def readable(self) -> list[_FileView]:
        """Return the files that form the log, in order. They end with the first incomplete file. They also end before a
        file that does not continue its predecessor, because a power loss restored the name of a deleted file without
        its bytes."""
        files: list[_FileView] = []
        end = 0
        for name in sorted(self.files):
            file, base = self.files[name], _base_offset(name)
            if files and (not files[-1].is_whole or (base > end and not self.has_holes)):
                break
            files.append(file)
            end = file.batches[-1].next_offset if file.batches else base
        return files


class DiskObserver:
    """Observes one host's disk."""

    def __init__(
        self,
        node: int,
        host: Host,
        tell: Callable[[Observation], None],
        labels: TopicLabels | None = None,
        trimmed: Callable[[list[bytes]], None] = lambda batches: None,
    ) -> None:
        """Create the observer. `trimmed` is called with the batches that a node deletes from the front of its metadata
        log, before that deletion is reported."""
        self._labels = labels or TopicLabels()
        self._node = node
        self._host = host
        self._tell = tell
        self._trimmed = trimmed
        self._logs: dict[TopicPartition | None, _LogView] = {}
        self._state: tuple[Inode, int] | None = None
        self._snapshots: set[Inode] = set()
        self._places: dict[Inode, tuple[TopicPartition | None, str]] = {}
        self._folders_seen: dict[Directory, tuple[str, TopicPartition | Literal[False] | None]] = {}
        """All folders at the last complete observation of the folders → their names and logs."""
        self._is_ambiguous = True
        """Whether two folders belong to one log, or a folder's log is not known yet. Then any new entry may change
        which folder holds which log."""
        self._directories: dict[TopicPartition | None, Directory] = {}
        host.when_synced = self._observe_metadata_votes

    def observe_after_power_loss(self) -> None:
        """Report what a power loss removed from the disk of a node that is down."""
        for log, view in self._logs.items():
            view.has_holes = log is not None and any(a.next_offset != b.base_offset for a, b in pairwise(view.told))
        self.observe()
        for log, view in self._logs.items():
            view.may_have_holes_again(log)

    def observe(self) -> None:
        """Report what changed on the disk since the last observation."""
        host = self._host
        if host.entries_changed or host.changed_directories:
            changed, host.changed_directories = host.changed_directories, {}
            if host.entries_changed or not self._knows_folders_of(changed):
                host.entries_changed = False
                host.touched.clear()
                self._observe_all()
            else:
                self._observe_changed(changed)
        elif host.touched:
            touched, host.touched = host.touched, {}
            files: dict[TopicPartition | None, list[str]] = {}
            for inode in touched:
                place = self._places.get(inode)
                if place is not None:
                    files.setdefault(place[0], []).append(place[1])
            for log, names in files.items():
                self._observe_files(log, names)

    def _knows_folders_of(self, changed: dict[Directory, None]) -> bool:
        """Return whether the same folders hold the same logs as before, though these directories changed."""
        if self._is_ambiguous:
            return False
        seen = self._folders_seen
        inner = [directory for directory in changed if directory in seen and not seen[directory][0].startswith(LOG_DIR)]
        if len(inner) < len(changed) and [(name, folder) for folder, (name, _) in seen.items()] != [*self._folders()]:
            return False
        return all(self._log_of(seen[folder][0], folder) == seen[folder][1] for folder in inner)

    def _observe_changed(self, changed: dict[Directory, None]) -> None:
        """Observe directories whose entries changed, when no directory was added or removed."""
        touched, self._host.touched = self._host.touched, {}
        files: dict[TopicPartition | None, list[str]] = {}
        for inode in touched:
            place = self._places.get(inode)
            if place is not None:
                files.setdefault(place[0], []).append(place[1])
        for folder, (_, log) in self._folders_seen.items():
            if log is False:
                continue
            if folder in changed:
                self._observe_folder(log, folder)
            elif log in files:
                self._observe_files(log, files[log])

    def _observe_all(self) -> None:
        """Determine again which folder holds which log, after directories were added or removed."""
        self._places.clear()
        self._directories.clear()
        self._folders_seen.clear()
        self._is_ambiguous = False
        gone = dict.fromkeys(self._logs)
        for name, entry in self._folders():
            log = self._log_of(name, entry)
            self._folders_seen[entry] = (name, log)
            if log is False:
                self._is_ambiguous = self._is_ambiguous or _names_partition(name)
            else:
                gone.pop(log, None)
                self._is_ambiguous = self._is_ambiguous or log in self._directories
                self._directories[log] = entry
                self._observe_folder(log, entry)
        for log in gone:
            del self._logs[log]
            self._tell(LogCut(self._node, log, 0, 0))

    def _observe_folder(self, log: TopicPartition | None, folder: Directory) -> None:
        """Observe all files of a log."""
        self._places.update(
            {file: (log, name) for name, file in folder.entries.items() if isinstance(file, Inode)},
        )
        self._observe_log(log, folder)
        if log is None:
            self._observe_votes(folder)
            self._observe_snapshots(folder)

    def _observe_files(self, log: TopicPartition | None, names: list[str]) -> None:
        """Observe these changed files of a log; no file was added to or removed from its directory."""
        view, directory = self._logs[log], self._directories[log]
        last = view.last
        segments = [name for name in names if name.endswith(SEGMENT_SUFFIX)]
        if view.is_broken or self._is_ambiguous or any(name != last for name in segments):
            self._observe_log(log, directory)
        elif segments or log is None:
            if log is None and len(segments) < len(names):
                view.snapshot_end = _snapshot_end(directory)
            file = view.files[last] if segments and last is not None else None
            same = self._update(log, last, file) if file is not None and last is not None else None
            if file is not None and same is not None:
                self._report_tail(log, view, file, same)
            self._report_durable(log, view, directory)
        if log is None:
            self._observe_votes(directory)

    def _folders(self) -> Iterator[tuple[str, Directory]]:
        """Yield all folders of the node's log directories. If a node has several, they are below its own folder."""
        root = self._directory(self._host.root, DATA_ROOT.strip("/"), str(self._node))
        for name, entry in root.entries.items() if root is not None else ():
            if isinstance(entry, Directory):
                yield name, entry
                if name.startswith(LOG_DIR):
                    for inner, folder in entry.entries.items():
                        if isinstance(folder, Directory):
                            yield inner, folder

    def _log_of(self, name: str, directory: Directory) -> TopicPartition | Literal[False] | None:
        """Return the log that a directory holds: (topic, partition), None for the metadata log, False for no log."""
        if name == METADATA_DIRECTORY:
            return None
        if not _names_partition(name):
            return False
        topic, _, index = name.rpartition("-")
        label = self._labels.of_directory(directory, topic)
        return False if label is None else (label, int(index))

    def has(self, path: str) -> bool:
        """Return whether the disk has a file or folder at this path."""
        *folders, name = path.strip("/").split("/")
        directory = self._directory(self._host.root, *folders)
        return directory is not None and name in directory.entries

    def metadata_batches(self, start: int, end: int) -> list[bytes]:
        """Return the bytes of the metadata log's batches that end in (start, end]."""
        view = self._logs.get(None)
        found: list[bytes] = []
        for name in view.names if view is not None else ():
            assert view is not None
            found += view.files[name].bytes_between(start, end)
        return found

    def stored_batches(self, log: TopicPartition) -> list[StoredBatch]:
        """Return the batches that are durable, in a closed file, or followed by other batches. If such a batch is
        damaged, it cannot be mistaken for an incomplete batch at the end of the log."""
        view = self._logs.get(log)
        found: list[StoredBatch] = []
        end_before = 0 if view is None else _first_offset(view.files)
        for name in view.names if view is not None else ():
            assert view is not None
            file, start = view.files[name], 0
            for batch in file.batches:
                is_last = name == view.last and batch is file.batches[-1]
                if not is_last or batch.end <= file.inode.safe_bytes:
                    found.append(StoredBatch(file.inode, start, batch.end, end_before, batch.next_offset))
                start, end_before = batch.end, batch.next_offset
        return found

    @staticmethod
    def _directory(root: Directory, *path: str) -> Directory | None:
        for name in path:
            entry = root.entries.get(name)
            if not isinstance(entry, Directory):
                return None
            root = entry
        return root

    def _observe_log(self, log: TopicPartition | None, directory: Directory) -> None:
        view = self._logs.get(log)
        if view is None:
            view = self._logs[log] = _LogView(has_holes=log is not None)
        segments = {name: inode for name, inode in directory.entries.items() if _is_segment(name, inode)}
        last = max(segments, default=None)
        changed: dict[str, int] = {}
        before = set(view.files)
        replaced = before - segments.keys()
        for name, inode in segments.items():
            assert isinstance(inode, Inode)
            known = view.files.get(name)
            if known is None or known.inode is not inode:
                if known is not None:
                    replaced.add(name)
                known = view.files[name] = _FileView(inode, "" if log is None else log[0])
            same = self._update(log, name, known)
            if same is not None:
                changed[name] = same
        gone = {name: view.files.pop(name) for name in sorted(replaced - segments.keys())}
        stays = max(before - replaced, default="")  # none stays where a snapshot replaces the log
        if log is None:
            for name, file in gone.items():
                file.update()  # drop the bytes that a power loss removed together with the name
                if name < stays:
                    self._trimmed(list(file.bytes_between(0, inf)))
        self._observe_front(log, view, directory)
        begins_later = not view.told and _first_offset(view.files) > view.start
        is_new_before_last = any(name != last and view.files[name].batches for name in changed)
        if replaced or view.is_broken or begins_later or is_new_before_last:
            self._report_all(log, view)
        elif last in changed:
            assert last is not None
            self._report_tail(log, view, view.files[last], changed[last])
        self._report_durable(log, view, directory)

    def _update(self, log: TopicPartition | None, name: str, file: _FileView) -> int | None:
        """Parse the new bytes of a file like `_FileView.update`. Broken bytes are only reported; the checks decide
        whether they are allowed, because a power loss may leave incomplete batches."""
        same = file.update()
        if same is not None and file.is_broken:
            self._tell(BytesCorrupted(self._node, log, name))
        return same

    @staticmethod
    def _observe_front(log: TopicPartition | None, view: _LogView, directory: Directory) -> None:
        """Record the state of all files before the last one, so that later observations need not read them if they are
        unchanged."""
        view.names = sorted(view.files)
        readable = len(view.readable())
        view.is_broken = readable < len(view.names)
        view.may_have_holes_again(log)
        front = view.names[: readable if view.is_broken else -1]
        view.count_before = sum(len(view.files[name].batches) for name in view.names[:-1])
        is_whole, end = _durable_end(view, directory, front)
        view.front_durable = is_whole and not view.is_broken, end
        view.snapshot_end = _snapshot_end(directory) if log is None else 0

    def _report_tail(self, log: TopicPartition | None, view: _LogView, file: _FileView, same: int) -> None:
        """Report a change in the last file only. Its first `same` batches are unchanged."""
        lost = len(view.told) - view.count_before - same
        if lost > 0:
            del view.told[-lost:]
            self._cut(log, view)
        self._write(log, view, file.batches[same:])

    def _report_all(self, log: TopicPartition | None, view: _LogView) -> None:
        """Report a removed file or a change in the middle of the log: compare the whole log, as far as it can
        be read."""
        now = [batch for file in view.readable() for batch in file.batches]
        view.told[:0] = _back_in_front(now, view)
        start = now[0].base_offset if now else _first_offset(view.files)
        deleted = 0
        while deleted < len(view.told) and view.told[deleted].next_offset <= start:
            deleted += 1
        view.deleted.update((batch.base_offset, batch) for batch in view.told[:deleted])
        kept = view.told[deleted:]
        same = 0
        while same < min(len(kept), len(now)) and kept[same] == now[same]:
            same += 1
        view.told = kept[:same]
        if deleted or same < len(kept) or (not kept and start > view.start):
            self._cut(log, view)
        self._write(log, view, now[same:])

    def _cut(self, log: TopicPartition | None, view: _LogView) -> None:
        view.start = start = _first_offset(view.files)
        end = view.told[-1].next_offset if view.told else start
        self._tell(LogCut(self._node, log, start, end))
        view.durable_end = min(view.durable_end, end)

    def _write(self, log: TopicPartition | None, view: _LogView, batches: list[Seen]) -> None:
        for batch in batches:
            offsets = (batch.base_offset, batch.next_offset)
            self._tell(
                BatchWritten(
                    self._node,
                    log,
                    batch.epoch,
                    *offsets,
                    digest=batch.digest,
                    producer=batch.producer,
                    marker=batch.marker,
                    transactions=batch.transactions,
                    group_entries=batch.group_entries,
                    share_entries=batch.share_entries,
                )
            )
            if batch.voters is not None:
                self._tell(VotersWritten(self._node, batch.base_offset, batch.epoch, batch.voters))
            view.told.append(batch)

    def _report_durable(self, log: TopicPartition | None, view: _LogView, directory: Directory) -> None:
        is_whole, end = view.front_durable
        if is_whole:
            _, end = _durable_end(view, directory, view.names[-1:], end)
        end = max(end, view.snapshot_end)
        if end != view.durable_end:
            view.durable_end = end
            self._tell(LogDurable(self._node, log, end))

    def _observe_snapshots(self, directory: Directory) -> None:
        for name, inode in directory.entries.items():
            snapshot = SnapshotId.parse(name)
            if snapshot is not None and isinstance(inode, Inode) and inode not in self._snapshots:
                self._snapshots.add(inode)
                data = bytes(inode.data)
                voters = [_voters_of(data, position) for position, header in iter_headers(data) if header.is_control]
                for keys in voters:
                    if keys is not None:
                        self._tell(VotersWritten(self._node, -1, -1, keys))
                image = snapshot_digest(data, snapshot.end_offset, snapshot.epoch)
                self._tell(SnapshotSeen(self._node, snapshot.end_offset, snapshot.epoch, image))

    def _observe_metadata_votes(self) -> None:
        """Report each vote on the disk, also one that is overwritten before the next observation."""
        directory = self._directories.get(None)
        if directory is not None:
            self._observe_votes(directory)

    def _observe_votes(self, directory: Directory) -> None:
        inode = directory.durable.get(QUORUM_STATE)
        if not isinstance(inode, Inode) or not inode.durable or self._state == (inode, inode.applied):
            return
        self._state = (inode, inode.applied)
        state = json.loads(bytes(inode.durable))
        voted = (int(state["leaderEpoch"]), int(state["votedId"]))
        self._tell(VoteDurable(self._node, str(state.get("votedDirectoryId", "")), *voted))


def _producer_of(header: BatchHeader) -> ProducedBy | None:
    """Return the producer of this batch, if it holds data of an idempotent producer."""
    if header.producer_id < 0 or header.is_control:
        return None
    last_sequence = header.last_sequence if header.base_sequence >= 0 else -1
    is_transactional = bool(header.attributes & ATTRIBUTE_TRANSACTIONAL)
    return ProducedBy(header.producer_id, header.producer_epoch, header.base_sequence, last_sequence, is_transactional)


def _marker_of(data: Buffer, position: int, header: BatchHeader) -> TransactionMarker | None:
    """Return the transaction marker in the batch at this byte, if it is one."""
    found = read_marker(data, position, header)
    if found is None:
        return None
    return TransactionMarker(header.producer_id, header.producer_epoch, found.coordinator_epoch, not found.aborted)


def _transactions_of(data: Buffer, position: int, header: BatchHeader) -> tuple[LoggedTransaction, ...]:
    """Return the values of transactional ids in a batch of the transaction log."""
    if header.is_control:
        return ()
    entries = (decode_entry(record.key, record.value) for record in decode_batch(data, position))
    return tuple(
        LoggedTransaction(
            entry.transactional_id,
            int(entry.value.state),
            entry.value.producer_id,
            entry.value.producer_epoch,
            entry.value.partitions,
            entry.value.next_producer_id,
        )
        for entry in entries
        if entry is not None and entry.value is not None
    )


def _group_entries_of(data: Buffer, position: int, header: BatchHeader) -> tuple[LoggedGroupEntry, ...]:
    """Return the records of groups and offsets in a batch of the offsets topic."""
    if header.is_control or header.is_transactional:
        return ()
    entries = (decode_group_entry(record.key, record.value) for record in decode_batch(data, position))
    return tuple(LoggedGroupEntry(*entry) for entry in entries if entry is not None)


def _share_entries_of(data: Buffer, position: int, header: BatchHeader) -> tuple[LoggedShareEntry, ...]:
    """Return the records in a batch of the topic of share states."""
    if header.is_control:
        return ()
    entries = (decode_share_entry(record.key, record.value) for record in decode_batch(data, position))
    return tuple(LoggedShareEntry(*entry) for entry in entries if entry is not None)


def _voters_of(data: Buffer, position: int) -> VoterKeys | None:
    """Return the voters in the control batch at this byte, if it has a VotersRecord."""
    for record in decode_controls(data, position):
        if record.type is ControlRecordType.VOTERS:
            return tuple(sorted((voter.voter_id, str(voter.directory_id)) for voter in record.voters))
    return None


def _first_offset(files: dict[str, _FileView]) -> int:
    """Return the start offset of a log, which is the name of its first segment."""
    return _base_offset(min(files)) if files else 0


def _base_offset(segment: str) -> int:
    """Return the base offset of a segment, which is the name of its file."""
    return int(segment.removesuffix(SEGMENT_SUFFIX))


def _back_in_front(now: list[Seen], view: _LogView) -> list[Seen]:
    """Return batches that precede the first reported batch, from files that were deleted and exist again. A copy of the
    log in another directory may still have them when it replaces the log, and a power loss restores names of deleted
    files. Empty if one of them differs from the deleted batch."""
    first = view.told[0].base_offset if view.told else 0
    found = [batch for batch in now if batch.next_offset <= first]
    return found if all(view.deleted.get(batch.base_offset) == batch for batch in found) else []


def _names_partition(folder: str) -> bool:
    """Return whether the name of a folder is that of a partition: topic-index."""
    _, dash, index = folder.rpartition("-")
    return bool(dash) and index.isdigit()


def _durable_end(view: _LogView, directory: Directory, names: list[str], end: int = 0) -> tuple[bool, int]:
    """Return whether these files, which continue a log that ends at `end`, would survive a power loss completely, and
    at which offset the log would end then."""
    for name in names:
        file = view.files[name]
        if directory.durable.get(name) is not file.inode:
            return False, end
        whole = bisect_right(file.ends, file.inode.safe_bytes)
        if whole:
            end = file.batches[whole - 1].next_offset
        if whole < len(file.batches):
            return False, end
    return True, end


def _snapshot_end(directory: Directory) -> int:
    """Return the highest end offset of the snapshots that would survive a power loss. A snapshot replaces all records
    below its end offset."""
    ends = [0]
    for name, inode in directory.durable.items():
        snapshot = SnapshotId.parse(name)
        if snapshot is not None and isinstance(inode, Inode) and not inode.pending:
            ends.append(snapshot.end_offset)
    return max(ends)


def _is_segment(name: str, entry: Inode | Directory) -> bool:
    return name.endswith(SEGMENT_SUFFIX) and isinstance(entry, Inode)
