"""Everything that can happen to the core, as frozen values. The driver makes one of each and calls `Raft.step`.

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
    """How a request ended without an answer."""

    REFUSED = "refused"
    """The dial was refused: nobody listens there."""
    CLOSED = "closed"
    """The connection was up and ended."""
    TIMED_OUT = "timed out"
    OTHER = "other"


class RequestReceived(NamedTuple):
    token: int
    request: QuorumRequest


class ResponseReceived(NamedTuple):
    """An answer; for a fetch with records, `batches` summarises them in order."""

    request_id: int
    response: QuorumResponse
    batches: tuple[BatchSummary, ...] = ()


class RequestFailed(NamedTuple):
    request_id: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The connection for fetches to this node ended while no fetch was under way."""

    node_id: int


@dataclass(frozen=True, slots=True)
class Redialled:
    """The outcome of a `Ready.redial`; None if it connected."""

    node_id: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline of the last Ready has come (or nothing in particular)."""


@dataclass(frozen=True, slots=True)
class PassEnded:
    """The driver's pass is over: answer parked fetches with all that came in."""


class AppendRequested(NamedTuple):
    """The state machine appends one atomic batch. `payload` is opaque to the core and comes back in the Ready."""

    payload: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class VotersChangeRequested:
    """Append a Voters record; it differs from the set in force by at most one replica key."""

    voters: VoterSet


class LogSynced(NamedTuple):
    """Everything below `end_offset` that was written in this generation of the log is on the device."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The downloaded snapshot is durable and has replaced the log. `voters` is the set it holds, None if none."""

    snapshot: SnapshotId
    voters: VoterSet | None


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """The downloaded snapshot is not valid; its bytes are gone."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """This node has written a snapshot of its own committed state."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class LogTrimmed:
    """The driver removed the log below `start_offset`, where a snapshot ends, and all older snapshots."""

    start_offset: int


@dataclass(frozen=True, slots=True)
class ResignRequested:
    """Stop to lead in `epoch` (a fault of the state machine); void if the epoch is over."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """Say goodbye. `Ready.may_stop` tells when all has been said."""


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
