"""The eye on the disks: what the logs of a host hold and would keep, told as observations.

It reads the simulated file system itself, so a node's own bookkeeping cannot fool it. Only what changed since the last
look is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from crc32c import crc32c

from kraft.seam import WireError
from kraft.sim.check.observations import BatchWritten, LogCut, LogDurable, Observation, TopicPartition, VoteDurable
from kraft.sim.cluster.shape import DATA_ROOT
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.host import Host
from kraft.wire.records import check_crc, iter_headers

METADATA_DIRECTORY = "__cluster_metadata-0"
QUORUM_STATE = "quorum-state"


@dataclass(frozen=True, slots=True)
class Seen:
    """A batch in a file, which ends at byte `end` of it."""

    base_offset: int
    next_offset: int
    epoch: int
    digest: int
    end: int


@dataclass(slots=True)
class _FileView:
    inode: Inode
    mark: int = -1
    batches: list[Seen] = field(default_factory=list)

    def update(self) -> bool:
        """Parse what is new. True if anything changed."""
        if self.inode.mark == self.mark and self.inode.cut_to is None:
            return False
        if self.inode.cut_to is not None:
            while self.batches and self.batches[-1].end > self.inode.cut_to:
                self.batches.pop()
            self.inode.cut_to = None
        self.mark = self.inode.mark
        start = self.batches[-1].end if self.batches else 0
        data = self.inode.data
        try:
            for position, header in iter_headers(data, start):
                end = position + header.size_bytes
                if not check_crc(data, position, header):
                    break  # torn by a power loss
                digest = crc32c(bytes(data[position:end]))
                self.batches.append(
                    Seen(header.base_offset, header.next_offset, header.partition_leader_epoch, digest, end)
                )
        except WireError:
            return True  # torn by a power loss: not a batch until somebody writes one there
        return True


@dataclass(slots=True)
class _LogView:
    files: dict[str, _FileView] = field(default_factory=dict)
    batches: list[Seen] = field(default_factory=list)
    durable_end: int = 0


class DiskEye:
    """Looks at one host's disk."""

    def __init__(self, node: int, host: Host, tell: Callable[[Observation], None]) -> None:
        self._node = node
        self._host = host
        self._tell = tell
        self._logs: dict[TopicPartition | None, _LogView] = {}
        self._voted: tuple[int, int] | None = None

    def look(self) -> None:
        """Tell what changed."""
        root = self._directory(self._host.root, DATA_ROOT.strip("/"), str(self._node))
        if root is None:
            return
        for name, entry in root.entries.items():
            if isinstance(entry, Directory):
                log = _log_of(name)
                if log is not False:
                    self._look_at_log(log, entry)
                    if log is None:
                        self._look_at_votes(entry)

    def log_ends(self) -> dict[TopicPartition, int]:
        """The end of every partition's log as it was seen last."""
        return {
            log: view.batches[-1].next_offset for log, view in self._logs.items() if log is not None and view.batches
        }

    @staticmethod
    def _directory(root: Directory, *path: str) -> Directory | None:
        for name in path:
            entry = root.entries.get(name)
            if not isinstance(entry, Directory):
                return None
            root = entry
        return root

    def _look_at_log(self, log: TopicPartition | None, directory: Directory) -> None:
        view = self._logs.setdefault(log, _LogView())
        segments = {
            name: entry
            for name, entry in directory.entries.items()
            if name.endswith(".log") and isinstance(entry, Inode)
        }
        changed = view.files.keys() != segments.keys()
        for name, inode in segments.items():
            known = view.files.get(name)
            if known is None or known.inode is not inode:
                known = view.files[name] = _FileView(inode)
                changed = True
            changed |= known.update()
        for gone in view.files.keys() - segments.keys():
            del view.files[gone]
        if changed:
            self._tell_changes(log, view)
        self._tell_durable(log, view, directory)

    def _tell_changes(self, log: TopicPartition | None, view: _LogView) -> None:
        now = [batch for name in sorted(view.files) for batch in view.files[name].batches]
        before = view.batches
        start = now[0].base_offset if now else 0
        skipped = 0
        while skipped < len(before) and now and before[skipped].next_offset <= start:
            skipped += 1
        kept = before[skipped:]
        same = 0
        while same < len(kept) and same < len(now) and kept[same] == now[same]:
            same += 1
        view.batches = now
        if same < len(kept) or skipped:
            end = now[same - 1].next_offset if same else start
            self._tell(LogCut(self._node, log, start, end))
            view.durable_end = min(view.durable_end, end)
        for batch in now[same:]:
            self._tell(BatchWritten(self._node, log, batch.epoch, batch.base_offset, batch.next_offset, batch.digest))

    def _tell_durable(self, log: TopicPartition | None, view: _LogView, directory: Directory) -> None:
        end = 0
        for name in sorted(view.files):
            file = view.files[name]
            if directory.durable.get(name) is not file.inode:
                break
            whole = True
            durable_bytes = len(file.inode.durable)
            for batch in file.batches if durable_bytes < len(file.inode.data) else file.batches[-1:]:
                if batch.end > durable_bytes:
                    whole = False
                    break
                end = batch.next_offset
            if not whole:
                break
        if end != view.durable_end:
            view.durable_end = end
            self._tell(LogDurable(self._node, log, end))

    def _look_at_votes(self, directory: Directory) -> None:
        inode = directory.durable.get(QUORUM_STATE)
        if not isinstance(inode, Inode) or not inode.durable:
            return
        state = json.loads(bytes(inode.durable))
        voted = (int(state["leaderEpoch"]), int(state["votedId"]))
        if voted != self._voted:
            self._voted = voted
            self._tell(VoteDurable(self._node, str(state.get("votedDirectoryId", "")), *voted))


def _log_of(name: str) -> TopicPartition | Literal[False] | None:
    """The log that a directory holds: (topic, partition), None for the metadata log, False for no log."""
    if name == METADATA_DIRECTORY:
        return None
    topic, dash, index = name.rpartition("-")
    return (topic, int(index)) if dash and index.isdigit() else False
