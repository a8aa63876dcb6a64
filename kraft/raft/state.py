"""The six roles of a replica, each with the state that it alone holds.

Epoch, vote and known leader belong to the replica (core.py), not to the role: a change of role within an epoch must not
lose them. Source: KIP-595, KIP-996, Kafka's QuorumState.
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
"""A deadline that does not come."""


@dataclass(slots=True)
class Unattached:
    election_deadline_ms: int


@dataclass(slots=True)
class Download:
    """A snapshot that is being fetched; `position` bytes of it are written."""

    snapshot: SnapshotId
    position: int = 0
    is_complete: bool = False
    """All of it is here; the driver is putting it in the place of the log."""


@dataclass(slots=True)
class Follower:
    fetch_deadline_ms: int
    has_fetched: bool = False
    """A fetch of this leader in this epoch has succeeded."""
    lost_since_ms: int | None = None
    """leader_contact: None is OK; else LOST since then: the connection ended and the redial was refused, or the leader
    itself said that it leads no more."""
    campaign_at_ms: int = NEVER
    """When to ask for pre-votes because contact is LOST."""
    download: Download | None = None


@dataclass(slots=True)
class Prospective:
    tally: Tally
    election_deadline_ms: int
    follower: Follower | None
    """To return to if the round is lost while the leader is known."""


@dataclass(slots=True)
class Candidate:
    tally: Tally
    election_deadline_ms: int
    retry_at_ms: int = NEVER
    """Set when the round is lost."""


@dataclass(slots=True)
class Progress:
    """What the leader knows of one replica. `end_offset` is what it has acknowledged as synced, -1 if nothing yet."""

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
    """Log end at the election: the offset of the LeaderChange record."""
    granting: tuple[int, ...]
    check_quorum_deadline_ms: int
    begin_due_ms: int
    high_watermark: int | None = None
    """Unknown until a record of this epoch is committed."""
    progress: dict[tuple[int, UUID | None], Progress] = field(default_factory=dict)
    last_heard: dict[int, Progress] = field(default_factory=dict)
    """Of each node: of its replica that fetched last."""
    heard: set[int] = field(default_factory=set)
    """Voters that fetched since check-quorum was last satisfied."""
    parked: dict[object, ParkedFetch] = field(default_factory=dict)
    has_news: bool = False
    """Something that parked fetches wait for has happened since the pass began."""


@dataclass(slots=True)
class Resigned:
    election_deadline_ms: int
    unacked: set[int] = field(default_factory=set)
    successors: tuple[int, ...] = ()


Role = Unattached | Follower | Prospective | Candidate | Leader | Resigned


@dataclass(slots=True)
class FetchLoop:
    """The one fetch that a replica has under way, and when the next may leave."""

    request_id: int | None = None
    not_before_ms: int = 0
    failures: int = 0
    is_probing: bool = False
    """An observer that cannot reach its leader asks the voters in turn."""


@dataclass(slots=True)
class Hurry:
    """No leader can be reached, and this voter knows it: it does not wait for an election time-out."""

    rounds: int = 0


class Sent(NamedTuple):
    """A request under way, whom it was sent to, and the generation of the log then."""

    node_id: int
    kind: type[QuorumRequest]
    generation: int


def replica_name(key: ReplicaKey) -> tuple[int, UUID | None]:
    return (key.node_id, key.directory_id)
