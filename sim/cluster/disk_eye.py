"""The eye on the disks: what the logs of a host hold and would keep, told as observations.

It reads the simulated file system itself, so a node's own bookkeeping cannot fool it. Only what changed since the last
look is looked at: an append costs what was appended, whatever the log's size; an entry that comes or goes costs its
directory. The host tells which files and which directories changed.
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

from kraft.seam import Buffer, WireError
from kraft.sim.check.observations import (
    BatchWritten,
    BytesBroken,
    LogCut,
    LogDurable,
    Observation,
    ProducedBy,
    SnapshotSeen,
    TopicPartition,
    VoteDurable,
    VoterKeys,
    VotersWritten,
)
from kraft.sim.cluster.fold import snapshot_digest
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.shape import DATA_ROOT
from kraft.sim.world.filesystem import SECTOR_BYTES, Directory, Inode
from kraft.sim.world.host import Host
from kraft.storage.snapshots import SnapshotId
from kraft.wire.records import BatchHeader, check_crc, iter_headers
from kraft.wire.records.control_records import ControlRecordType, decode_controls

METADATA_DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE = "quorum-state"
SEGMENT_SUFFIX = ".log"
OFFSET_BYTES, CRC_BEGINS_BYTES = 8, 12
"""Of a batch: those of its offset, and the first ones, whose change need not change the CRC."""
LOG_DIR = "dir-"
"""How the names of a node's log directories begin if it has several."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch in a file, which ends at byte `end` of it: a copy of the log may hold the same one elsewhere."""

    base_offset: int
    next_offset: int
    epoch: int
    digest: int
    end: int = field(compare=False)
    voters: VoterKeys | None = None
    """If it is a Voters record."""
    producer: ProducedBy | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it stands in a file, from byte `start` to byte `end`. What stands before it in the log ends at offset
    `end_before`."""

    inode: Inode
    start: int
    end: int
    end_before: int
    next_offset: int


@dataclass(slots=True)
class _FileView:
    """The whole batches of one segment file; `ends` are the bytes at which they end."""

    inode: Inode
    mark: int = -1
    batches: list[Seen] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    is_broken: bool = False
    """Behind the last batch stands something as long as one that is none."""

    @property
    def is_whole(self) -> bool:
        """Whether the file holds batches and nothing else: no torn end, no zeros."""
        return (self.ends[-1] if self.ends else 0) == len(self.inode.data)

    def update(self) -> int | None:
        """Parse what is new. Gives how many batches are the same as before, or None if nothing changed."""
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
        """The bytes of the batches that end in (start, end]."""
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
                producer = _producer_of(header)
                self.batches.append(Seen(header.base_offset, header.next_offset, epoch, digest, end, voters, producer))
                self.ends.append(end)
        except WireError:
            self.is_broken = True

    def _has_lost_offset(self, data: bytearray, position: int) -> bool:
        """Whether the end of a lost sector took the first bytes of a batch, its offset, which no CRC covers."""
        piece = SECTOR_BYTES - position % SECTOR_BYTES
        expected = (self.batches[-1].next_offset if self.batches else 0).to_bytes(OFFSET_BYTES, "big")
        return piece < CRC_BEGINS_BYTES and any(expected[:piece]) and not any(data[position : position + piece])


@dataclass(slots=True)
class _LogView:
    """What was told of a log. `has_holes`: offsets may be missing in it (it is compacted), between files too; not where
    a power loss has just taken them, for what stands behind such a hole is no log."""

    has_holes: bool
    files: dict[str, _FileView] = field(default_factory=dict)
    told: list[Seen] = field(default_factory=list)
    deleted: dict[int, Seen] = field(default_factory=dict)
    """By base offset: the batches that were deleted from the front, with their files."""
    start: int = 0
    """Where the log began when it was last told to be cut."""
    durable_end: int = 0
    names: list[str] = field(default_factory=list)
    """Of the files, in the order of the log. This and what follows is as of the last look at all files."""
    is_broken: bool = False
    """It cannot be read up to its last file."""
    count_before: int = 0
    """Batches in all files but the last."""
    front_durable: tuple[bool, int] = (False, 0)
    """Whether all files but the last would be kept whole and can be read, and up to which offset."""
    snapshot_end: int = 0

    def may_have_holes_again(self, log: TopicPartition | None) -> None:
        """If it can be read to its end, whoever recovers it has nothing to cut behind a hole."""
        self.has_holes = self.has_holes or (log is not None and not self.is_broken)

    @property
    def last(self) -> str | None:
        return self.names[-1] if self.names else None

    def readable(self) -> list[_FileView]:
        """The files that are a log, in order: up to the first torn one, or the first that does not join the one before
        it, when a power loss brought back the name of a deleted file and not its bytes."""
        files: list[_FileView] = []
        end = 0
        for name in sorted(self.files):
            file, base = self.files[name], _base_offset(name)
            if files and (not files[-1].is_whole or (base > end and not self.has_holes)):
                break
            files.append(file)
            end = file.batches[-1].next_offset if file.batches else base
        return files


class DiskEye:
    """Looks at one host's disk."""

    def __init__(
        self,
        node: int,
        host: Host,
        tell: Callable[[Observation], None],
        labels: TopicLabels | None = None,
        trimmed: Callable[[list[bytes]], None] = lambda batches: None,
    ) -> None:
        """`trimmed` gets the batches that a node deletes from the front of its metadata log, before the cut is told."""
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
        """All folders by the last look at all of them: their names, and their logs."""
        self._has_riddles = True
        """Two folders of one log, or one that does not say yet whose log it is: any entry may change what they mean."""
        self._directories: dict[TopicPartition | None, Directory] = {}
        host.when_synced = self._look_at_metadata_votes

    def look_after_power_loss(self) -> None:
        """Tell what it took, of a node that is down."""
        for log, view in self._logs.items():
            view.has_holes = log is not None and any(a.next_offset != b.base_offset for a, b in pairwise(view.told))
        self.look()
        for log, view in self._logs.items():
            view.may_have_holes_again(log)

    def look(self) -> None:
        """Tell what changed."""
        host = self._host
        if host.entries_changed or host.changed_directories:
            changed, host.changed_directories = host.changed_directories, {}
            if host.entries_changed or not self._knows_folders_of(changed):
                host.entries_changed = False
                host.touched.clear()
                self._look_at_all()
            else:
                self._look_at_changed(changed)
        elif host.touched:
            touched, host.touched = host.touched, {}
            files: dict[TopicPartition | None, list[str]] = {}
            for inode in touched:
                place = self._places.get(inode)
                if place is not None:
                    files.setdefault(place[0], []).append(place[1])
            for log, names in files.items():
                self._look_at_files(log, names)

    def _knows_folders_of(self, changed: dict[Directory, None]) -> bool:
        """Whether the same folders hold the same logs as before, though these directories changed."""
        if self._has_riddles:
            return False
        seen = self._folders_seen
        inner = [directory for directory in changed if directory in seen and not seen[directory][0].startswith(LOG_DIR)]
        if len(inner) < len(changed) and [(name, folder) for folder, (name, _) in seen.items()] != [*self._folders()]:
            return False
        return all(self._log_of(seen[folder][0], folder) == seen[folder][1] for folder in inner)

    def _look_at_changed(self, changed: dict[Directory, None]) -> None:
        """Some directories changed, and none came or went."""
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
                self._look_at_folder(log, folder)
            elif log in files:
                self._look_at_files(log, files[log])

    def _look_at_all(self) -> None:
        """Directories came or went: find out again which folder holds which log."""
        self._places.clear()
        self._directories.clear()
        self._folders_seen.clear()
        self._has_riddles = False
        gone = dict.fromkeys(self._logs)
        for name, entry in self._folders():
            log = self._log_of(name, entry)
            self._folders_seen[entry] = (name, log)
            if log is False:
                self._has_riddles = self._has_riddles or _names_partition(name)
            else:
                gone.pop(log, None)
                self._has_riddles = self._has_riddles or log in self._directories
                self._directories[log] = entry
                self._look_at_folder(log, entry)
        for log in gone:
            del self._logs[log]
            self._tell(LogCut(self._node, log, 0, 0))

    def _look_at_folder(self, log: TopicPartition | None, folder: Directory) -> None:
        """All files of a log."""
        self._places.update(
            {file: (log, name) for name, file in folder.entries.items() if isinstance(file, Inode)},
        )
        self._look_at_log(log, folder)
        if log is None:
            self._look_at_votes(folder)
            self._look_at_snapshots(folder)

    def _look_at_files(self, log: TopicPartition | None, names: list[str]) -> None:
        """These files of a log changed, and its directory did not."""
        view, directory = self._logs[log], self._directories[log]
        last = view.last
        segments = [name for name in names if name.endswith(SEGMENT_SUFFIX)]
        if view.is_broken or self._has_riddles or any(name != last for name in segments):
            self._look_at_log(log, directory)
        elif segments or log is None:
            if log is None and len(segments) < len(names):
                view.snapshot_end = _snapshot_end(directory)
            file = view.files[last] if segments and last is not None else None
            same = self._update(log, last, file) if file is not None and last is not None else None
            if file is not None and same is not None:
                self._tell_tail(log, view, file, same)
            self._tell_durable(log, view, directory)
        if log is None:
            self._look_at_votes(directory)

    def _folders(self) -> Iterator[tuple[str, Directory]]:
        """All folders of the node's log directories; a node that has several has them below its own folder."""
        root = self._directory(self._host.root, DATA_ROOT.strip("/"), str(self._node))
        for name, entry in root.entries.items() if root is not None else ():
            if isinstance(entry, Directory):
                yield name, entry
                if name.startswith(LOG_DIR):
                    for inner, folder in entry.entries.items():
                        if isinstance(folder, Directory):
                            yield inner, folder

    def _log_of(self, name: str, directory: Directory) -> TopicPartition | Literal[False] | None:
        """The log that a directory holds: (topic, partition), None for the metadata log, False for no log."""
        if name == METADATA_DIRECTORY:
            return None
        if not _names_partition(name):
            return False
        topic, _, index = name.rpartition("-")
        label = self._labels.of_directory(directory, topic)
        return False if label is None else (label, int(index))

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        *folders, name = path.strip("/").split("/")
        directory = self._directory(self._host.root, *folders)
        return directory is not None and name in directory.entries

    def metadata_batches(self, start: int, end: int) -> list[bytes]:
        """The bytes of the metadata log's batches that end in (start, end]."""
        view = self._logs.get(None)
        found: list[bytes] = []
        for name in view.names if view is not None else ():
            assert view is not None
            found += view.files[name].bytes_between(start, end)
        return found

    def stored_batches(self, log: TopicPartition) -> list[StoredBatch]:
        """Those that are on the device, stand in a closed file, or have others behind them: whoever finds one of them
        damaged cannot take it for a torn end."""
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

    def _look_at_log(self, log: TopicPartition | None, directory: Directory) -> None:
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
                known = view.files[name] = _FileView(inode)
            same = self._update(log, name, known)
            if same is not None:
                changed[name] = same
        gone = {name: view.files.pop(name) for name in sorted(replaced - segments.keys())}
        stays = max(before - replaced, default="")  # nothing does where a snapshot takes the log's place
        if log is None:
            for name, file in gone.items():
                file.update()  # what a power loss took with the name is gone from it
                if name < stays:
                    self._trimmed(list(file.bytes_between(0, inf)))
        self._look_at_front(log, view, directory)
        begins_later = not view.told and _first_offset(view.files) > view.start
        is_new_before_last = any(name != last and view.files[name].batches for name in changed)
        if replaced or view.is_broken or begins_later or is_new_before_last:
            self._tell_all(log, view)
        elif last in changed:
            assert last is not None
            self._tell_tail(log, view, view.files[last], changed[last])
        self._tell_durable(log, view, directory)

    def _update(self, log: TopicPartition | None, name: str, file: _FileView) -> int | None:
        """As `_FileView.update`. A power loss tears batches, so what is broken is told of, and judged by who knows
        whether it may be."""
        same = file.update()
        if same is not None and file.is_broken:
            self._tell(BytesBroken(self._node, log, name))
        return same

    @staticmethod
    def _look_at_front(log: TopicPartition | None, view: _LogView, directory: Directory) -> None:
        """What the files before the last one are, for the looks that find them unchanged."""
        view.names = sorted(view.files)
        readable = len(view.readable())
        view.is_broken = readable < len(view.names)
        view.may_have_holes_again(log)
        front = view.names[: readable if view.is_broken else -1]
        view.count_before = sum(len(view.files[name].batches) for name in view.names[:-1])
        is_whole, end = _durable_end(view, directory, front)
        view.front_durable = is_whole and not view.is_broken, end
        view.snapshot_end = _snapshot_end(directory) if log is None else 0

    def _tell_tail(self, log: TopicPartition | None, view: _LogView, file: _FileView, same: int) -> None:
        """Only the last file changed, behind its first `same` batches."""
        lost = len(view.told) - view.count_before - same
        if lost > 0:
            del view.told[-lost:]
            self._cut(log, view)
        self._write(log, view, file.batches[same:])

    def _tell_all(self, log: TopicPartition | None, view: _LogView) -> None:
        """Files went, or one in the middle changed: compare the whole log, as far as it can be read."""
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
            self._tell(BatchWritten(self._node, log, batch.epoch, *offsets, batch.digest, batch.producer))
            if batch.voters is not None:
                self._tell(VotersWritten(self._node, batch.base_offset, batch.epoch, batch.voters))
            view.told.append(batch)

    def _tell_durable(self, log: TopicPartition | None, view: _LogView, directory: Directory) -> None:
        is_whole, end = view.front_durable
        if is_whole:
            _, end = _durable_end(view, directory, view.names[-1:], end)
        end = max(end, view.snapshot_end)
        if end != view.durable_end:
            view.durable_end = end
            self._tell(LogDurable(self._node, log, end))

    def _look_at_snapshots(self, directory: Directory) -> None:
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

    def _look_at_metadata_votes(self) -> None:
        """Each vote counts, also one that is overwritten before the next look."""
        directory = self._directories.get(None)
        if directory is not None:
            self._look_at_votes(directory)

    def _look_at_votes(self, directory: Directory) -> None:
        inode = directory.durable.get(QUORUM_STATE)
        if not isinstance(inode, Inode) or not inode.durable or self._state == (inode, inode.applied):
            return
        self._state = (inode, inode.applied)
        state = json.loads(bytes(inode.durable))
        voted = (int(state["leaderEpoch"]), int(state["votedId"]))
        self._tell(VoteDurable(self._node, str(state.get("votedDirectoryId", "")), *voted))


def _producer_of(header: BatchHeader) -> ProducedBy | None:
    """Who wrote this batch, if it holds data of an idempotent producer."""
    if header.producer_id < 0 or header.is_control:
        return None
    return ProducedBy(header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence)


def _voters_of(data: Buffer, position: int) -> VoterKeys | None:
    """The voters that the control batch at this byte names, if it does."""
    for record in decode_controls(data, position):
        if record.type is ControlRecordType.VOTERS:
            return tuple(sorted((voter.voter_id, str(voter.directory_id)) for voter in record.voters))
    return None


def _first_offset(files: dict[str, _FileView]) -> int:
    """Where a log begins: the name of its first segment."""
    return _base_offset(min(files)) if files else 0


def _base_offset(segment: str) -> int:
    """Where a segment begins, by its file's name."""
    return int(segment.removesuffix(SEGMENT_SUFFIX))


def _back_in_front(now: list[Seen], view: _LogView) -> list[Seen]:
    """The batches before the first one told: of files that had been deleted, and are here again. A copy in another
    directory may still have them when it takes the log's place, and a power loss brings back names. Empty if one of
    them is not what was deleted there."""
    first = view.told[0].base_offset if view.told else 0
    found = [batch for batch in now if batch.next_offset <= first]
    return found if all(view.deleted.get(batch.base_offset) == batch for batch in found) else []


def _names_partition(folder: str) -> bool:
    """Whether a folder's name is one of a partition: topic-index."""
    _, dash, index = folder.rpartition("-")
    return bool(dash) and index.isdigit()


def _durable_end(view: _LogView, directory: Directory, names: list[str], end: int = 0) -> tuple[bool, int]:
    """Whether these files, which follow on `end`, would be kept whole, and the offset up to which a log would be."""
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
    """How far the snapshots reach that would survive a power loss: they stand for all below."""
    ends = [0]
    for name, inode in directory.durable.items():
        snapshot = SnapshotId.parse(name)
        if snapshot is not None and isinstance(inode, Inode) and not inode.pending:
            ends.append(snapshot.end_offset)
    return max(ends)


def _is_segment(name: str, entry: Inode | Directory) -> bool:
    return name.endswith(SEGMENT_SUFFIX) and isinstance(entry, Inode)
