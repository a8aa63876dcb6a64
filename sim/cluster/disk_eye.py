"""The eye on the disks: what the logs of a host hold and would keep, told as observations.

It reads the simulated file system itself, so a node's own bookkeeping cannot fool it. Only what changed since the last
look is parsed: an append costs what was appended, whatever the log's size.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from crc32c import crc32c

from kraft.seam import Buffer, WireError
from kraft.sim.check.observations import (
    BatchWritten,
    LogCut,
    LogDurable,
    Observation,
    SnapshotSeen,
    TopicPartition,
    VoteDurable,
    VoterKeys,
    VotersWritten,
)
from kraft.sim.cluster.fold import snapshot_digest
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.shape import DATA_ROOT
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.host import Host
from kraft.storage.snapshots import SnapshotId
from kraft.wire.control_records import ControlRecordType, decode_controls
from kraft.wire.records import check_crc, iter_headers

METADATA_DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE = "quorum-state"
SEGMENT_SUFFIX = ".log"


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


@dataclass(slots=True)
class _FileView:
    """The whole batches of one segment file; `ends` are the bytes at which they end."""

    inode: Inode
    mark: int = -1
    batches: list[Seen] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

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

    def _parse(self, data: bytearray, start: int) -> None:
        try:
            for position, header in iter_headers(data, start):
                end = position + header.size_bytes
                if not check_crc(data, position, header):
                    return  # torn by a power loss
                digest = crc32c(bytes(data[position:end]))
                epoch = header.partition_leader_epoch
                voters = _voters_of(data, position) if header.is_control else None
                self.batches.append(Seen(header.base_offset, header.next_offset, epoch, digest, end, voters))
                self.ends.append(end)
        except WireError:
            return  # torn by a power loss: not a batch until somebody writes one there


@dataclass(slots=True)
class _LogView:
    """What was told of a log."""

    files: dict[str, _FileView] = field(default_factory=dict)
    told: list[Seen] = field(default_factory=list)
    start: int = 0
    """Where the log began when it was last told to be cut."""
    durable_end: int = 0


class DiskEye:
    """Looks at one host's disk."""

    def __init__(
        self, node: int, host: Host, tell: Callable[[Observation], None], labels: TopicLabels | None = None
    ) -> None:
        self._labels = labels or TopicLabels()
        self._node = node
        self._host = host
        self._tell = tell
        self._logs: dict[TopicPartition | None, _LogView] = {}
        self._state: tuple[Inode, int] | None = None
        self._snapshots: set[Inode] = set()
        self._places: dict[Inode, TopicPartition | None] = {}
        self._directories: dict[TopicPartition | None, Directory] = {}
        host.when_synced = self._look_at_metadata_votes

    def look(self) -> None:
        """Tell what changed."""
        host = self._host
        if host.entries_changed:
            host.entries_changed = False
            host.touched.clear()
            self._look_at_all()
        elif host.touched:
            touched, host.touched = host.touched, {}
            logs = {self._places[inode]: None for inode in touched if inode in self._places}
            for log in logs:
                self._look_at_log(log, self._directories[log])
                if log is None:
                    self._look_at_votes(self._directories[log])

    def _look_at_all(self) -> None:
        """Directories changed: find out again which file belongs to which log."""
        self._places.clear()
        self._directories.clear()
        gone = dict.fromkeys(self._logs)
        for name, entry in self._folders():
            log = self._log_of(name, entry)
            if log is not False:
                gone.pop(log, None)
                self._directories[log] = entry
                self._places.update({file: log for file in entry.entries.values() if isinstance(file, Inode)})
                self._look_at_log(log, entry)
                if log is None:
                    self._look_at_votes(entry)
                    self._look_at_snapshots(entry)
        for log in gone:
            del self._logs[log]
            self._tell(LogCut(self._node, log, 0, 0))

    def _folders(self) -> Iterator[tuple[str, Directory]]:
        """All folders of the node's log directories; a node that has several has them below its own folder."""
        root = self._directory(self._host.root, DATA_ROOT.strip("/"), str(self._node))
        for name, entry in root.entries.items() if root is not None else ():
            if isinstance(entry, Directory):
                yield name, entry
                if name.startswith("dir-"):
                    for inner, folder in entry.entries.items():
                        if isinstance(folder, Directory):
                            yield inner, folder

    def _log_of(self, name: str, directory: Directory) -> TopicPartition | Literal[False] | None:
        """The log that a directory holds: (topic, partition), None for the metadata log, False for no log."""
        if name == METADATA_DIRECTORY:
            return None
        topic, dash, index = name.rpartition("-")
        label = self._labels.of_directory(directory, topic) if dash and index.isdigit() else None
        return False if label is None else (label, int(index))

    def metadata_batches(self, start: int, end: int) -> list[bytes]:
        """The bytes of the metadata log's batches that end in (start, end]."""
        view = self._logs.get(None)
        found: list[bytes] = []
        for name in sorted(view.files) if view is not None else ():
            assert view is not None
            file = view.files[name]
            first = 0
            for batch in file.batches:
                if start < batch.next_offset <= end:
                    found.append(bytes(memoryview(file.inode.data)[first : batch.end]))
                first = batch.end
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
            view = self._logs[log] = _LogView()
        segments = {name: inode for name, inode in directory.entries.items() if _is_segment(name, inode)}
        last = max(segments, default=None)
        changed: dict[str, int] = {}
        replaced = view.files.keys() - segments.keys()
        for name, inode in segments.items():
            assert isinstance(inode, Inode)
            known = view.files.get(name)
            if known is None or known.inode is not inode:
                if known is not None:
                    replaced.add(name)
                known = view.files[name] = _FileView(inode)
            same = known.update()
            if same is not None:
                changed[name] = same
        for name in replaced - segments.keys():
            del view.files[name]
        is_torn = any(name != last and not file.is_whole for name, file in view.files.items())
        if replaced or is_torn or any(name != last and view.files[name].batches for name in changed):
            self._tell_all(log, view)
        elif last in changed:
            assert last is not None
            self._tell_tail(log, view, view.files[last], changed[last])
        self._tell_durable(log, view, directory)

    def _tell_tail(self, log: TopicPartition | None, view: _LogView, file: _FileView, same: int) -> None:
        """Only the last file changed, behind its first `same` batches."""
        lost = len(view.told) - self._count_before(view, file) - same
        if lost > 0:
            del view.told[-lost:]
            self._cut(log, view)
        self._write(log, view, file.batches[same:])

    @staticmethod
    def _count_before(view: _LogView, file: _FileView) -> int:
        return sum(len(other.batches) for other in view.files.values() if other is not file)

    def _tell_all(self, log: TopicPartition | None, view: _LogView) -> None:
        """Files went, or one in the middle changed: compare the whole log, which ends in the first torn file."""
        now: list[Seen] = []
        for name in sorted(view.files):
            now += view.files[name].batches
            if not view.files[name].is_whole:
                break
        start = now[0].base_offset if now else _first_offset(view.files)
        deleted = 0
        while deleted < len(view.told) and view.told[deleted].next_offset <= start:
            deleted += 1
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
            self._tell(BatchWritten(self._node, log, batch.epoch, batch.base_offset, batch.next_offset, batch.digest))
            if batch.voters is not None:
                self._tell(VotersWritten(self._node, batch.base_offset, batch.epoch, batch.voters))
            view.told.append(batch)

    def _tell_durable(self, log: TopicPartition | None, view: _LogView, directory: Directory) -> None:
        end = 0
        for name in sorted(view.files):
            file = view.files[name]
            if directory.durable.get(name) is not file.inode:
                break
            whole = bisect_right(file.ends, file.inode.safe_bytes)
            if whole:
                end = file.batches[whole - 1].next_offset
            if whole < len(file.batches):
                break
        if log is None:
            end = max(end, _snapshot_end(directory))
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


def _voters_of(data: Buffer, position: int) -> VoterKeys | None:
    """The voters that the control batch at this byte names, if it does."""
    for record in decode_controls(data, position):
        if record.type is ControlRecordType.VOTERS:
            return tuple(sorted((voter.voter_id, str(voter.directory_id)) for voter in record.voters))
    return None


def _first_offset(files: dict[str, _FileView]) -> int:
    """Where a log begins: the name of its first segment."""
    return int(min(files).removesuffix(SEGMENT_SUFFIX)) if files else 0


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
