"""The six roles of a replica, each with the state that only this role needs.

Epoch, vote and known leader belong to the replica (core.py), not to the role: a change of role within an epoch must not
lose them.
Source: KIP-595, KIP-996, Kafka's QuorumState.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from kraft.raft.identity import ReplicaKey
from kraft.raft.log_view import SnapshotId
from kraft.raft.votes import Tally
from kraft.wire.rpc.quorum_messages import MetadataFetchRequest, QuorumRequest

NEVER = 1 << 62
"""A deadline that never comes."""


@dataclass(slots=True)
class Unattached:
    election_deadline_ms: int


@dataclass(slots=True)
class Download:
    """A snapshot download in progress; `position` bytes are written."""

    snapshot: SnapshotId
    position: int = 0
    is_complete: bool = False
    """Whether all bytes have arrived; the driver is then replacing the log with the snapshot."""


@dataclass(slots=True)
class Follower:
    fetch_deadline_ms: int
    has_fetched: bool = False
    """Whether a fetch from this leader in this epoch has succeeded."""
    lost_since_ms: int | None = None
    """State of leader_contact: None means OK, a time means LOST since then. Contact is lost when the connection ended
    and the redial was refused, or when the leader itself reported that it no longer leads."""
    campaign_at_ms: int = NEVER
    """Time at which a pre-vote round starts because contact is LOST."""
    download: Download | None = None


@dataclass(slots=True)
class Prospective:
    tally: Tally
    election_deadline_ms: int
    follower: Follower | None
    """The follower role to return to if the round is lost while the leader is known."""


@dataclass(slots=True)
class Candidate:
    tally: Tally
    election_deadline_ms: int
    retry_at_ms: int = NEVER
    """Time of the next attempt, set once this round is lost."""


@dataclass(slots=True)
class Progress:
    """The leader's record of one replica. `end_offset` is the offset that the replica has acknowledged as synced, -1 if
    none yet."""

    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1


@dataclass(slots=True)
class ParkedFetch:
    token: int
    request: MetadataFetchRequest
    deadline_ms: int


@dataclass(slots=True)
class Leader:
    epoch_start_offset: int
    """Log end at the election, which is the offset of the LeaderChange record."""
    granting: tuple[int, ...]
    check_quorum_deadline_ms: int
    begin_due_ms: int
    high_watermark: int | None = None
    """The high watermark; None until a record of this epoch is committed."""
    progress: dict[tuple[int, UUID | None], Progress] = field(default_factory=dict)
    latest_progress: dict[int, Progress] = field(default_factory=dict)
    """Node id → progress of that node's replica that fetched last."""
    voters_with_fetch: set[int] = field(default_factory=set)
    """Voters that have fetched since check-quorum was last satisfied."""
    parked: dict[object, ParkedFetch] = field(default_factory=dict)
    has_news: bool = False
    """Whether anything that parked fetches wait for has happened since the pass began."""


@dataclass(slots=True)
class Resigned:
    election_deadline_ms: int
    unacked: set[int] = field(default_factory=set)
    successors: tuple[int, ...] = ()


Role = Unattached | Follower | Prospective | Candidate | Leader | Resigned


@dataclass(slots=True)
class FetchLoop:
    """The one fetch that a replica has in flight, and when the next may be sent."""

    request_id: int | None = None
    not_before_ms: int = 0
    failures: int = 0
    is_probing: bool = False
    """Whether an observer that cannot reach its leader fetches from the voters in turn."""


@dataclass(slots=True)
class FastCampaign:
    """State of a voter that knows that no leader can be reached: it campaigns without waiting for an election
    timeout."""

    rounds: int = 0


class InFlightRequest(NamedTuple):
    """A request in flight: its receiver, its kind, and the generation of the log when it was sent."""

    node_id: int
    kind: type[QuorumRequest]
    generation: int


def replica_name(key: ReplicaKey) -> tuple[int, UUID | None]:
    return (key.node_id, key.directory_id)
