"""The commands that the active controller decides, as frozen values.

Commands that brokers send have the fields of the internal messages. Plans (fencing, controlled shutdown, elections for
leaderless partitions) have a `cursor`: where the next slice begins.
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
    """Position of a plan: the first partition of its next slice, in the order of topic names."""

    topic: str
    partition: int


START = Cursor("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerCommand:
    """Command: register a broker incarnation. `dead_broker_epoch` is the epoch of the previous incarnation if a probe
    proved it dead. `replaced_epoch` is set after the first slice: the epoch of the incarnation that this registration
    is replacing."""

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
    """A heartbeat of a broker, with the state that it requests."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[UUID, ...] = ()
    log_ends: tuple[tuple[UUID, int], ...] = ()
    """(topic id, partition) of each partition whose log end this heartbeat reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleOfflineDirectories:
    """Command: handle log directories of a broker that went offline. The broker's heartbeat is decided once the
    partitions in them are handled."""

    heartbeat: BrokerHeartbeat
    directories: tuple[UUID, ...]
    cursor: Cursor = START


class FenceCause(Enum):
    """Reason why a broker is fenced. Only an expired session may lead to an unclean election."""

    SESSION_EXPIRED = "session expired"
    PROCESS_DIED = "process died"
    REQUESTED = "the broker asked for it"


class FenceTarget(NamedTuple):
    """A broker to fence. It is skipped if its broker epoch or connection number is out of date when the plan begins."""

    broker_id: int
    broker_epoch: int
    connection_number: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokers:
    """Command: remove these brokers from every ISR, elect leaders, then fence the brokers. `cursor` is None until the
    first slice. `led_is_done` is set once the partitions that these brokers led are handled; the other partitions are
    next."""

    targets: tuple[FenceTarget, ...]
    cause: FenceCause
    cursor: Cursor | None = None
    led_is_done: bool = False
    reply: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutDownBroker:
    """Command: remove a stopping broker from every ISR, in slices, then record its controlled shutdown."""

    broker_id: int
    broker_epoch: int
    cursor: Cursor
    reply: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerCommand:
    """Command: delete a registration; `done` and `not_registered` are the two possible replies."""

    broker_id: int
    done: Any
    not_registered: Any
    cursor: Cursor = START


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaderless:
    """Command: elect leaders for partitions without one. `broker_id` limits it to partitions with a replica on that
    broker. `recoverable` limits it to these (topic id, partition), for which brokers have reported how far their logs
    reach."""

    broker_id: int | None = None
    recoverable: tuple[tuple[UUID, int], ...] = ()
    cursor: Cursor = START
    reply: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceLeaders:
    """Command: move leadership of one slice of partitions back to their preferred replicas."""

    cursor: Cursor = START


class ProposedMember(NamedTuple):
    """A member of a proposed ISR; the epoch is -1 if the leader does not know the member's broker epoch."""

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
    """A leader's proposal of new ISRs. `answered` are the results of earlier slices."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionProposal, ...]
    answered: tuple[AlteredPartitionReply, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirs:
    """A broker's report of the log directories of its replicas, as (topic id, partition, directory id)."""

    broker_id: int
    broker_epoch: int
    assignments: tuple[tuple[UUID, int, UUID], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """A broker's request for a block of producer ids."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerCommand:
    """Command: record a controller's endpoints and feature levels."""

    cluster_id: str
    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivateController:
    """Command: bootstrap an empty log; sent when this node becomes the active controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequest:
    """A client's request, as the class of the newest version of its API key."""

    api_key: int
    request: Any
    requester: Requester = ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsSlice:
    """Command: decide the remaining slices of a CreateTopics request, each of whole topics. `results` are the answers
    for the topics before `first`. `draft` is the partial result of the topic at `first`, if that topic is decided in
    steps."""

    asked: AdminRequest
    first: int = 0
    results: tuple[Any, ...] = ()
    draft: TopicDraft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsSlice:
    """Command: decide the remaining slices of a CreatePartitions request, each of whole topics. `results` are the
    answers for the topics before `first`. `draft` is the partial result of the topic at `first`, if that topic is
    decided in steps."""

    asked: AdminRequest
    first: int = 0
    results: tuple[Any, ...] = ()
    draft: TopicDraft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsSlice:
    """Command: decide the remaining slices of an AlterPartitionReassignments request. `wanted` is the whole request as
    (topic, partition, replicas). `doubled` are the partitions that the request names twice. `answers` are the results
    of the partitions decided so far."""

    asked: AdminRequest
    wanted: tuple[tuple[str, int, tuple[int, ...] | None], ...]
    doubled: frozenset[tuple[str, int]]
    answers: tuple[Any, ...] = ()
