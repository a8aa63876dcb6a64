"""The metadata quorum as a node sees it: the raft core driven over the seam.

One per process: controllers vote in it, brokers observe it, combined nodes share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from kraft.config import NodeConfig
from kraft.seam import Seam
from kraft.wire.server import Request


class NotLeader(Exception):
    """This node does not lead the quorum; `leader_id` (or None) and `epoch` are what it knows."""

    def __init__(self, leader_id: int | None, epoch: int) -> None:
        super().__init__(f"not the quorum leader; the leader of epoch {epoch} is {leader_id}")
        self.leader_id = leader_id
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One committed batch of the metadata log; `records` are event values, empty for a control batch."""

    base_offset: int
    next_offset: int
    epoch: int
    append_time_ms: int
    size_bytes: int
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica as the leader sees it. Times are wall clock ms, -1 when unknown."""

    replica_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """What DescribeQuorum tells; voters and observers are known to the leader alone (else voters only)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    endpoints: tuple[tuple[int, str, int], ...]
    """(node id, host, port) of each voter."""


class MetadataListener(Protocol):
    """Who replays the log. All are called on the loop and never suspend."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None: ...
    def on_snapshot(self, offset: int, epoch: int, records: Iterable[bytes]) -> None: ...
    def on_leader(self, leader_id: int | None, epoch: int) -> None: ...
    def on_became_leader(self, epoch: int, start_offset: int) -> None: ...
    def on_lost_leadership(self) -> None: ...


class Quorum:
    def __init__(self, config: NodeConfig, seam: Seam, meta: Any) -> None:
        self._config = config
        self._seam = seam
        self._meta = meta

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open, recover, then drive raft until cancelled."""
        raise NotImplementedError

    async def shutdown(self) -> None:
        """Say goodbye (EndQuorumEpoch when leading) and sync the log."""
        raise NotImplementedError

    @property
    def leader_and_epoch(self) -> tuple[int | None, int]:
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        """First offset that is not known to be committed; 0 at start."""
        raise NotImplementedError

    @property
    def log_end_offset(self) -> int:
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        raise NotImplementedError

    def append(self, events: Sequence[bytes]) -> int:
        """Append one atomic batch of event values, as the leader. Returns its end offset (exclusive). NotLeader."""
        raise NotImplementedError

    def add_listener(self, listener: MetadataListener) -> None:
        """Before `run` is best: it then gets the snapshot and all that is committed from there."""
        raise NotImplementedError

    def handle(self, request: Request) -> bool:
        """Serve a quorum RPC; False if the key is not one."""
        raise NotImplementedError

    def describe(self) -> QuorumDescription:
        raise NotImplementedError

    def request_snapshot(self, offset: int, epoch: int, chunks: Iterable[Sequence[bytes]]) -> None:
        """Write a snapshot of committed state as of `offset` (exclusive); records come in chunks."""
        raise NotImplementedError
