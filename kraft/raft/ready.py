"""What the core wants done. One frozen value per step; its fields stand in the order in which they must be done.

1. `quorum_state` is durable (synced and renamed) before anything below is done. While it is being written the driver
   steps no further input.
2. `log` actions are carried out, in order, before any input is stepped. They need no sync to go on.
3. `discard_download`, then `chunk`. When `chunk.is_last`, the next input is SnapshotInstalled or SnapshotRefused.
4. `answers` and `sends` may leave. They promise nothing about the log that is not in `synced_end_offset` already: the
   core holds back what would.
5. `leadership`, then `high_watermark`, are told to the state machine.
6. `sync_wanted`: begin a sync if none is running; report it with the `generation` of the log that it began in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kraft.raft.identity import ReplicaKey, VoterSet
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.seam import Address
from kraft.wire.rpc.quorum_messages import FetchSnapshotResponse, MetadataFetchResponse, QuorumRequest, QuorumResponse


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a node must never forget: written whole, in one file."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class Purpose(Enum):
    """Requests of one purpose share a connection per peer; a parked fetch never stands before a vote."""

    FETCH = "fetch"
    ELECTION = "election"


class Destination(NamedTuple):
    """`node_id` is -1 for a bootstrap address."""

    node_id: int
    address: Address


class Send(NamedTuple):
    request_id: int
    destination: Destination
    purpose: Purpose
    request: QuorumRequest
    timeout_ms: int


class Reply(NamedTuple):
    token: int
    response: QuorumResponse


class ReplyWithRecords(NamedTuple):
    """Fill `response.records` with whole batches from `offset` on, at least one if `offset` < `end_offset`."""

    token: int
    response: MetadataFetchResponse
    offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshot:
    """Fill size and data from the snapshot's file; POSITION_OUT_OF_RANGE if it is not that long."""

    token: int
    response: FetchSnapshotResponse
    snapshot: SnapshotId
    position: int
    max_bytes: int


Answer = Reply | ReplyWithRecords | ReplyWithSnapshot


@dataclass(frozen=True, slots=True)
class Truncate:
    end_offset: int


class AppendFetched(NamedTuple):
    """Append the leader's batches as they are."""

    records: bytes
    batches: tuple[BatchSummary, ...]


class AppendEvents(NamedTuple):
    """Append one batch of `payload` at `base_offset`, as the leader of `epoch`."""

    base_offset: int
    epoch: int
    payload: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    base_offset: int
    epoch: int
    leader_id: int
    voter_ids: tuple[int, ...]
    granting_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendVoters:
    base_offset: int
    epoch: int
    voters: VoterSet


LogAction = Truncate | AppendFetched | AppendEvents | AppendLeaderChange | AppendVoters


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Append `data` at `position` of the download of this snapshot; position 0 begins a new one."""

    snapshot: SnapshotId
    position: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Leadership:
    """What the state machine is told: the known leader of the epoch. `is_local` never holds while resigned.

    `epoch_start_offset` is the offset of the LeaderChange record if `is_local`, else -1; the state machine acts as the
    leader only after it has replayed past it.
    """

    leader_id: int | None
    epoch: int
    is_local: bool
    epoch_start_offset: int = -1


class AlertKind(Enum):
    """What an operator must hear of."""

    CONFLICTING_LEADER = "another leader of the same epoch is claimed"
    EPOCH_TOO_FAR_AHEAD = "epoch of a request is too far ahead"
    EPOCHS_USED_UP = "no election is possible"


class Alert(NamedTuple):
    """Log a warning; those of one kind may come at the rate at which a peer sends messages."""

    kind: AlertKind
    text: str


class Ready(NamedTuple):
    """One is made at every step: a tuple is frozen as well, and made in half the time."""

    quorum_state: QuorumState | None = None
    log: tuple[LogAction, ...] = ()
    discard_download: bool = False
    chunk: SnapshotChunk | None = None
    answers: tuple[Answer, ...] = ()
    sends: tuple[Send, ...] = ()
    redial: Destination | None = None
    """Connect for fetches, if there is no connection, and report `Redialled`."""
    leadership: Leadership | None = None
    high_watermark: int | None = None
    sync_wanted: bool = False
    pass_wanted: bool = False
    """Step PassEnded at the end of this pass."""
    may_stop: bool = False
    refusal: str | None = None
    """Why an AppendRequested or VotersChangeRequested was refused."""
    alerts: tuple[Alert, ...] = ()
    deadline_ms: int | None = None
    """Step Tick at this time, unless a later Ready says otherwise."""
