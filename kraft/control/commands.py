"""The commands that the active controller decides, as frozen values.

Those of brokers mirror the internal messages. Plans (fencing, leaving at shutdown, electing for leaderless
partitions) carry a `cursor`: where the next slice begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from kraft.control.decision import ANONYMOUS, Requester
from kraft.control.replies import AlteredPartitionReply
from kraft.control.topics.drafts import TopicDraft
from kraft.image import Endpoint, FeatureRange


class Cursor(NamedTuple):
    """The next partition that a plan looks at, in the order of topic names."""

    topic: str
    partition: int


START = Cursor("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerCommand:
    """A broker incarnation registers. `dead_broker_epoch` is the epoch of the old incarnation if a probe found that one
    gone; `replaced_epoch`, behind the first slice, of the one that this registration has begun to replace."""

    cluster_id: str
    broker_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    host_id: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    previous_broker_epoch: int = -1
    dead_broker_epoch: int | None = None
    replaced_epoch: int | None = None
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat:
    """A broker is alive, and says what state it wants to be in."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[UUID, ...] = ()
    log_ends: tuple[tuple[UUID, int], ...] = ()
    """Topic id and partition of those whose log's end it told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseDirectories:
    """These log directories of a broker went offline; its heartbeat is decided when that is dealt with."""

    heartbeat: BrokerHeartbeat
    directories: tuple[UUID, ...]
    cursor: Cursor = START


class FenceCause(Enum):
    """Why a broker is fenced. Only an expired session may lead to an unclean election."""

    SESSION_EXPIRED = "session expired"
    PROCESS_DIED = "process died"
    REQUESTED = "the broker asked for it"


class FenceTarget(NamedTuple):
    """Whom to fence; void unless broker epoch and connection number are still current when the plan begins."""

    broker_id: int
    broker_epoch: int
    connection_number: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokers:
    """Take these brokers out of every ISR, elect, then fence them. `cursor` is None until the first slice;
    `led_is_done`: the partitions that they led have been dealt with, and the others are next."""

    targets: tuple[FenceTarget, ...]
    cause: FenceCause
    cursor: Cursor | None = None
    led_is_done: bool = False
    reply: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutDownBroker:
    """Take a broker that shuts down out of every ISR, slice by slice, then record its controlled shutdown."""

    broker_id: int
    broker_epoch: int
    cursor: Cursor
    reply: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerCommand:
    """Delete a registration; `done` and `not_registered` are the two answers."""

    broker_id: int
    done: Any
    not_registered: Any
    cursor: Cursor = START


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaderless:
    """Elect leaders where there are none. `broker_id` limits it to partitions with a replica on that broker;
    `recoverable` to these, by topic id and number, of which brokers have told how far their logs reach."""

    broker_id: int | None = None
    recoverable: tuple[tuple[UUID, int], ...] = ()
    cursor: Cursor = START
    reply: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceLeaders:
    """Give leadership back to preferred replicas, one slice."""

    cursor: Cursor = START


class ProposedMember(NamedTuple):
    """A member of a proposed ISR; epoch -1 if the leader does not know it."""

    broker_id: int
    broker_epoch: int


class PartitionProposal(NamedTuple):
    """The ISR that a leader proposes for one partition."""

    topic_id: UUID
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[ProposedMember, ...]
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """A leader proposes new ISRs. `answered` are the answers of earlier slices."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionProposal, ...]
    answered: tuple[AlteredPartitionReply, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirs:
    """A broker tells the log directories of replicas: (topic id, partition, directory id)."""

    broker_id: int
    broker_epoch: int
    assignments: tuple[tuple[UUID, int, UUID], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """A broker wants a block of producer ids."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerCommand:
    """A controller publishes its endpoints and feature levels."""

    cluster_id: str
    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivateController:
    """This node became the active controller: bootstrap an empty log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequest:
    """A client's request in the newest class of its key."""

    api_key: int
    request: Any
    requester: Requester = ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOfTopics:
    """A CreateTopics that is decided in slices of whole topics: those before `first` are answered in `results`.
    `draft`: what there is already of the one at `first`, if that is decided in steps."""

    asked: AdminRequest
    first: int = 0
    results: tuple[Any, ...] = ()
    draft: TopicDraft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOfGrowth:
    """A CreatePartitions that is decided in slices of whole topics: those before `first` are answered in `results`.
    `draft`: what there is already of the one at `first`, if that is decided in steps."""

    asked: AdminRequest
    first: int = 0
    results: tuple[Any, ...] = ()
    draft: TopicDraft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOfReassignments:
    """An AlterPartitionReassignments that is decided in slices. `wanted`: (topic, partition, replicas) of all of it;
    `doubled`: those that stand twice; `answers` are those of the partitions before."""

    asked: AdminRequest
    wanted: tuple[tuple[str, int, tuple[int, ...] | None], ...]
    doubled: frozenset[tuple[str, int]]
    answers: tuple[Any, ...] = ()
