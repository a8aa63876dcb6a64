"""One node of a world of cores: what survives a crash (`CoreDisk`), what is lost in a crash (`Raft`), and requests in
flight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from kraft.raft.identity import ReplicaKey, VoterSet
from kraft.raft.inputs import Input
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import QuorumState


@dataclass(frozen=True, slots=True)
class CoreEntry(BatchSummary):
    """One batch in a log. `chain` is a hash over everything up to and including it, so it identifies a whole log
    prefix."""

    chain: int = 0


class CoreSnapshot(NamedTuple):
    """A snapshot: the hash of the log before its end, and the voters at its end."""

    chain: int
    voters: VoterSet


class LogStart(NamedTuple):
    """End of the snapshot at which a log starts."""

    offset: int
    epoch: int
    chain: int


EMPTY = LogStart(0, 0, 0)
_NEXT_OFFSET = attrgetter("next_offset")


@dataclass(slots=True)
class CoreDisk:
    """State of a node that survives a crash. `entries[:synced]` survives power loss; all of `entries` survives the
    death of the process."""

    state: QuorumState = field(default_factory=QuorumState)
    entries: list[CoreEntry] = field(default_factory=list)
    synced: int = 0
    base: LogStart = EMPTY
    base_voters: VoterSet | None = None
    snapshots: dict[SnapshotId, CoreSnapshot] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.entries[-1].next_offset if self.entries else self.base.offset

    @property
    def synced_end(self) -> int:
        return self.entries[self.synced - 1].next_offset if self.synced else self.base.offset

    @property
    def chain(self) -> int:
        return self.entries[-1].chain if self.entries else self.base.chain

    def position(self, offset: int) -> int:
        """Index of the first entry that ends after `offset`."""
        return bisect_right(self.entries, offset, key=_NEXT_OFFSET)

    def synced_ending(self) -> tuple[int, int]:
        """Last epoch and end offset of the synced entries."""
        if not self.synced:
            return (self.base.epoch, self.base.offset)
        last = self.entries[self.synced - 1]
        return (last.epoch, last.next_offset)

    def chain_at(self, offset: int) -> int | None:
        """Return the hash of the log prefix that ends at `offset`; None if no entry ends there."""
        if offset == self.base.offset:
            return self.base.chain
        index = self.position(offset - 1)
        if index < len(self.entries) and self.entries[index].next_offset == offset:
            return self.entries[index].chain
        return None

    def epochs(self) -> list[tuple[int, int]]:
        """Return (epoch, offset of its first record) of the entries, ascending."""
        found: list[tuple[int, int]] = []
        for entry in self.entries:
            if not found or entry.epoch > found[-1][0]:
                found.append((entry.epoch, entry.base_offset))
        return found

    def truncate(self, offset: int) -> None:
        index = self.position(offset)
        del self.entries[index:]
        self.synced = min(self.synced, index)

    def trim(self, start: LogStart, voters: VoterSet) -> None:
        """Move the log start to `start`, where a snapshot ends; older snapshots are deleted."""
        index = self.position(start.offset)
        del self.entries[:index]
        self.synced = max(0, self.synced - index)
        self.base, self.base_voters = start, voters
        self.snapshots = {one: held for one, held in self.snapshots.items() if one.end_offset >= start.offset}

    def install(self, snapshot: SnapshotId, held: CoreSnapshot) -> None:
        """Replace the log by a snapshot."""
        self.entries.clear()
        self.synced = 0
        self.base, self.base_voters = LogStart(snapshot.end_offset, snapshot.epoch, held.chain), held.voters
        self.snapshots = {snapshot: held}


class PendingAnswer(NamedTuple):
    """The sender that waits for the answer to a request: the node, the incarnation that sent it, and the sender's
    request id."""

    sender: CoreNode
    life: int
    request_id: int


class CoreNode:
    """A node. `raft` is its core, None while the node is down; `life` counts its starts."""

    __slots__ = (
        "deadline",
        "disk",
        "inbox",
        "is_syncing",
        "is_writing_state",
        "key",
        "life",
        "may_vote",
        "node_id",
        "paused_until",
        "raft",
        "requests",
    )

    def __init__(self, node_id: int, directory: UUID, *, may_vote: bool) -> None:
        self.node_id = node_id
        self.key = ReplicaKey(node_id, directory)
        self.may_vote = may_vote
        self.disk = CoreDisk()
        self.raft: Raft | None = None
        self.life = 0
        self.inbox: deque[Input] = deque()
        """Inputs that arrived while the node was paused or wrote its quorum state."""
        self.requests: dict[int, PendingAnswer] = {}
        """Token → unanswered request."""
        self.paused_until = 0
        self.is_writing_state = False
        self.is_syncing = False
        self.deadline: int | None = None
        """Time when the next Tick input is due."""

    def begin_life(self) -> None:
        """Start an incarnation, with nothing in flight."""
        self.life += 1
        self.inbox.clear()
        self.requests.clear()
        self.paused_until = 0
        self.is_writing_state = self.is_syncing = False
        self.deadline = None
