"""The effects that the core requests: one frozen value per step. Its fields are listed in the order in which they must
be done.

1. `quorum_state` is durable (synced and renamed) before anything below is done. While it is being written the driver
steps no further input.
2. `log` actions are carried out, in order, before any input is stepped. They do not have to be synced first.
3. `discard_download`, then `chunk`. When `chunk.is_last`, the next input is SnapshotInstalled or SnapshotRefused.
4. `answers` and `sends` may be sent. They never promise log contents beyond `synced_end_offset`: the core holds back
messages that would.
5. `leadership`, then `high_watermark`, are reported to the state machine.
6. `sync_wanted`: start a sync if none is running; report it with the `generation` of the log in which it started.
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
    """Epoch, leader and vote of a node, which it must never lose. They are written as a whole, in one file."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


class Purpose(Enum):
    """Purpose of a request. Requests of one purpose share a connection per peer, so that a parked fetch never delays a
    vote."""

    FETCH = "fetch"
    ELECTION = "election"


class Destination(NamedTuple):
    """Address to send to. `node_id` is -1 for a bootstrap address."""

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
    """A response to complete with records: fill `response.records` with whole batches from `offset` on, at least one if
    `offset` < `end_offset`."""

    token: int
    response: MetadataFetchResponse
    offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshot:
    """A response to complete from the snapshot's file: fill size and data; POSITION_OUT_OF_RANGE if the file is
    shorter."""

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
    """Action: append the leader's batches unchanged."""

    records: bytes
    batches: tuple[BatchSummary, ...]


class AppendEvents(NamedTuple):
    """Action: append one batch of `payload` at `base_offset`, as the leader of `epoch`."""

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
    """Action: write `data` at `position` of the download of this snapshot; position 0 starts a new download."""

    snapshot: SnapshotId
    position: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Leadership:
    """The known leader of the epoch, as reported to the state machine. `is_local` is never set after this node has
    resigned.

    `epoch_start_offset` is the offset of the LeaderChange record if `is_local`, else -1. The state machine acts as the
    leader only after it has replayed past that offset."""

    leader_id: int | None
    epoch: int
    is_local: bool
    epoch_start_offset: int = -1


class AlertKind(Enum):
    """Conditions that an operator must learn of."""

    CONFLICTING_LEADER = "another leader of the same epoch is claimed"
    EPOCH_TOO_FAR_AHEAD = "epoch of a request is too far ahead"
    EPOCHS_USED_UP = "no election is possible"


class Alert(NamedTuple):
    """A warning to log; alerts of one kind may be as frequent as a peer's messages."""

    kind: AlertKind
    text: str


class Ready(NamedTuple):
    """The effects of one step. A tuple, because one is made at every step: it is frozen as well and costs half the time
    of a dataclass."""

    quorum_state: QuorumState | None = None
    log: tuple[LogAction, ...] = ()
    discard_download: bool = False
    chunk: SnapshotChunk | None = None
    answers: tuple[Answer, ...] = ()
    sends: tuple[Send, ...] = ()
    redial: Destination | None = None
    """Node to connect to for fetches, if there is no connection yet; the driver then steps `Redialled`."""
    leadership: Leadership | None = None
    high_watermark: int | None = None
    sync_wanted: bool = False
    pass_wanted: bool = False
    """Whether the driver must step `PassEnded` at the end of this pass."""
    may_stop: bool = False
    refusal: str | None = None
    """Reason why an AppendRequested or VotersChangeRequested was refused, if it was."""
    alerts: tuple[Alert, ...] = ()
    deadline_ms: int | None = None
    """Time at which the driver must step `Tick`, unless a later Ready names another."""
