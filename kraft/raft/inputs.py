"""The inputs of the core, as frozen values. The driver makes one for each event and calls `Raft.step`.

A `token` is the driver's name for an unanswered request; a `request_id` is the core's name for a request that it sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kraft.raft.identity import VoterSet
from kraft.raft.log_view import BatchSummary, SnapshotId
from kraft.wire.rpc.quorum_messages import QuorumRequest, QuorumResponse


class Failure(Enum):
    """Reason why a request ended without a response."""

    REFUSED = "refused"
    """The connection was refused: no process listens at that address."""
    CLOSED = "closed"
    """The connection was established and then closed."""
    TIMED_OUT = "timed out"
    OTHER = "other"


class RequestReceived(NamedTuple):
    token: int
    request: QuorumRequest


class ResponseReceived(NamedTuple):
    """A response arrived. For a fetch with records, `batches` summarises them in order."""

    request_id: int
    response: QuorumResponse
    batches: tuple[BatchSummary, ...] = ()


class RequestFailed(NamedTuple):
    request_id: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The connection for fetches to this node ended while no fetch was in flight."""

    node_id: int


@dataclass(frozen=True, slots=True)
class Redialled:
    """The outcome of a `Ready.redial`; `failure` is None if it connected."""

    node_id: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline of the last Ready has come. A Tick at any other time is allowed."""


@dataclass(frozen=True, slots=True)
class PassEnded:
    """The driver's pass is over: parked fetches can be answered with the data of the whole pass."""


class AppendRequested(NamedTuple):
    """The state machine requests to append one atomic batch. `payload` is opaque to the core and is returned in the
    Ready."""

    payload: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class VotersChangeRequested:
    """Request to append a Voters record. The set differs from the current one by at most one replica key."""

    voters: VoterSet


class LogSynced(NamedTuple):
    """Everything below `end_offset` that was written in this generation of the log is synced to the device."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The downloaded snapshot is durable and has replaced the log. `voters` is the voter set in the snapshot, None if
    it has none."""

    snapshot: SnapshotId
    voters: VoterSet | None


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """The downloaded snapshot is invalid; the driver has deleted its bytes."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """This node has written a snapshot of its committed state."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class LogTrimmed:
    """The driver removed the log below `start_offset`, where a snapshot ends, and all older snapshots."""

    start_offset: int


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """Request to stop leading `epoch`, after a fault of the state machine; no effect if the epoch is over."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """Request to prepare a clean stop: resign if leading. `Ready.may_stop` reports when the resignation is
    acknowledged."""


Input = (
    RequestReceived
    | ResponseReceived
    | RequestFailed
    | ConnectionEnded
    | Redialled
    | Tick
    | PassEnded
    | AppendRequested
    | VotersChangeRequested
    | LogSynced
    | SnapshotInstalled
    | SnapshotRefused
    | SnapshotWritten
    | LogTrimmed
    | ResignRequested
    | ShutdownRequested
)
