"""Observations: values passed to the checks, each describing one event on one node.

They come from three sources, never from code in which a node could have made the same error. The simulated disk shows
what was written, truncated and made durable. The simulated network shows what was sent. Observers read a node's state
without changing it. `node` is the node's id. `incarnation` rises by one with every start of that node. Offsets are
exclusive ends unless named otherwise. Digests are integers over the bytes that may not change (including base offset
and leader epoch).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

TopicPartition = tuple[str, int]
VoterKeys = tuple[tuple[int, str], ...]
"""Voters ordered by id: (node id, directory id). The directory id is "" where voters are set by configuration."""


class ProducedBy(NamedTuple):
    """The producer of a batch, and the sequence numbers of the batch's first and last record (-1: a coordinator wrote
    the batch for the producer)."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    is_transactional: bool = False


class TransactionMarker(NamedTuple):
    """A control batch that ends a producer's transaction in a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool


class LoggedTransaction(NamedTuple):
    """One record of the transaction log: the new value of a transactional id. `state` is the status byte."""

    transactional_id: str
    state: int
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    next_producer_id: int


class LoggedGroupEntry(NamedTuple):
    """One record of the offsets topic: a key of a group or of an offset, and its new value. A value of None removes the
    key. Both are the values of `kraft.broker.group.records` and `kraft.broker.consumer_group.records`."""

    key: Any
    value: Any


class LoggedShareEntry(NamedTuple):
    """One record of the topic of share states: the share partition, and its new value. A value of None removes the
    state. Both are the values of `kraft.broker.share_coordinator.records`."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """A batch was appended to a log. `log` is None for the metadata log. `producer` is set if an idempotent producer
    wrote it."""

    node: int
    log: TopicPartition | None
    epoch: int
    base_offset: int
    next_offset: int
    digest: int
    producer: ProducedBy | None = None
    marker: TransactionMarker | None = None
    transactions: tuple[LoggedTransaction, ...] = ()
    """The records of a batch of the transaction log, without those that remove an id."""
    group_entries: tuple[LoggedGroupEntry, ...] = ()
    """The records of a batch of the offsets topic that is not part of a transaction."""
    share_entries: tuple[LoggedShareEntry, ...] = ()
    """The records of a batch of the topic of share states."""


@dataclass(frozen=True, slots=True)
class BytesCorrupted:
    """A file of a log changed: its last valid batch is now followed by enough bytes for another batch, but their CRC or
    header is invalid."""

    node: int
    log: TopicPartition | None
    file: str


@dataclass(frozen=True, slots=True)
class LogCut:
    """A log was truncated, at its front or its end, or recovered after a power loss: it now begins at `start_offset`
    and ends at `end_offset`."""

    node: int
    log: TopicPartition | None
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogDurable:
    """All records of a log below `end_offset` would now survive a power loss."""

    node: int
    log: TopicPartition | None
    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteDurable:
    """The quorum state (epoch and vote) that would now survive a power loss."""

    node: int
    directory_id: str
    epoch: int
    voted_id: int


@dataclass(frozen=True, slots=True)
class RoleSeen:
    """A replica's view of the quorum, observed after an event: its role, its leader, its offsets."""

    node: int
    incarnation: int
    epoch: int
    is_leader: bool
    leader_id: int
    is_voter: bool
    high_watermark: int
    log_end_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class VotersSeen:
    """The voter set that a replica uses has changed. `record_offset` is the offset of the VotersRecord (-1: the set is
    configured or a snapshot's), `record_epoch` that record's epoch. `committed` is the replica's high watermark at that
    time. `leads_since`: if the replica leads, the offset at which the records of its epoch begin."""

    node: int
    incarnation: int
    epoch: int
    is_leader: bool
    record_offset: int
    record_epoch: int
    voters: VoterKeys
    committed: int
    log_end_offset: int
    leads_since: int = -1


@dataclass(frozen=True, slots=True)
class VotersWritten:
    """A voter set was written to a node's disk. It is a VotersRecord at `record_offset` of its metadata log, in a batch
    of `record_epoch`, or part of a complete snapshot (both -1)."""

    node: int
    record_offset: int
    record_epoch: int
    voters: VoterKeys


@dataclass(frozen=True, slots=True)
class VoteGranted:
    """`node` sends a granted vote (not a pre-vote). `candidate_epoch_and_offset` is the candidate's (last epoch, end
    offset)."""

    node: int
    directory_id: str
    epoch: int
    candidate: int
    candidate_epoch_and_offset: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Campaigned:
    """`node` sends a request for a vote or a pre-vote. `asked`: the receiver of a pre-vote request."""

    node: int
    directory_id: str
    epoch: int
    asked: int | None = None


@dataclass(frozen=True, slots=True)
class QuorumFetchHandled:
    """`leader` is about to handle a fetch (of records or of a snapshot) in which `voter` names it as the leader of
    `epoch`."""

    leader: int
    voter: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TimeElapsed:
    """Time has passed, whether or not anything happened. `frozen`: nodes whose processes are frozen."""

    frozen: frozenset[int]


@dataclass(frozen=True, slots=True)
class PreVoteAnswered:
    """`node` answered a pre-vote. The two tuples are (epoch, leader id, voted id) of that node before and after."""

    node: int
    before: tuple[int, int, int]
    after: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class EpochClaimed:
    """`node` sends a message that carries `epoch` and names `leader_id` (-1: none) as its leader."""

    node: int
    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class FetchSent:
    """A voter sends a metadata fetch, which acknowledges all records below `fetch_offset`."""

    node: int
    epoch: int
    fetch_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotSeen:
    """A complete snapshot is on a node's disk, written there or fetched. `digest` is that of the image in it."""

    node: int
    end_offset: int
    epoch: int
    digest: str


@dataclass(frozen=True, slots=True)
class ImagePublished:
    """A node published the metadata image of `offset`. `committed_offset` is the node's high watermark at that time."""

    node: int
    incarnation: int
    offset: int
    digest: str
    committed_offset: int


@dataclass(frozen=True, slots=True)
class MetadataFolded:
    """Events were committed up to `offset`, and an independent replay made an image of them. `places` is the number of
    metadata objects (topics, partitions, configs, …) that the events changed and that were compared with a reference
    implementation; `differences` lists the deviations."""

    offset: int
    places: int
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ControllerReplied:
    """A controller sends a response, which depends on all records below `depends_on`."""

    node: int
    depends_on: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A replica's view of its partition, observed after an event. For followers `maximal_isr` is empty."""

    node: int
    incarnation: int
    topic_partition: TopicPartition
    is_leader: bool
    leader_epoch: int
    isr: frozenset[int]
    maximal_isr: frozenset[int]
    min_isr: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    recovery_point: int = 0
    partition_epoch: int = -1
    """Partition epoch of `isr`; -1 for followers."""


@dataclass(frozen=True, slots=True)
class ReplicaThrottled:
    """A throttle on this node currently withholds records of a partition from a replica. `isr` is the ISR that the node
    knows."""

    node: int
    topic_partition: TopicPartition
    replica: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProduceAcknowledged:
    """A client received success for an acks=all batch with offsets [base_offset, next_offset)."""

    topic_partition: TopicPartition
    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class ProduceAnswered:
    """`node` sends success for an acks=all request as the leader."""

    node: int
    topic_partition: TopicPartition
    next_offset: int
    high_watermark: int
    epoch_appended: int
    epoch_now: int
    isr_size: int
    min_isr: int


@dataclass(frozen=True, slots=True)
class EndReported:
    """`node` leads the partition and reports `end_offset` as its end to a client, by ListOffsets (`is_listed`) or
    Fetch. The end is the last stable offset (`is_stable`) or the high watermark. `number` counts these reports.
    `asked_at` is the number of reports that had been sent when the node was about to handle the request."""

    node: int
    topic_partition: TopicPartition
    leader_epoch: int
    end_offset: int
    is_listed: bool
    is_stable: bool
    number: int
    asked_at: int


@dataclass(frozen=True, slots=True)
class ProducerIdSent:
    """`node` sends a producer id to a client. `transactional_id` is "" for a producer without transactions. `caller`
    names the connection's client and its incarnation. `is_next`: the identity for the next transaction, in the response
    to the end of one."""

    node: int
    producer_id: int
    producer_epoch: int
    transactional_id: str = ""
    caller: str = ""
    is_next: bool = False


@dataclass(frozen=True, slots=True)
class ProposedIsrMember:
    """A member of a proposed ISR: the broker epoch that the leader names for it (-1: unknown to the leader), and the
    state of that broker in the controller's metadata (-1: not registered)."""

    broker: int
    asked_epoch: int
    broker_epoch: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class IsrAccepted:
    """A controller accepted the ISR that a leader proposed. `asked` is (leader, leader epoch, partition epoch) of the
    proposal. `current` are the same values in the metadata that the decision was based on, which may not be committed
    yet."""

    controller: int
    topic_partition: TopicPartition
    asked: tuple[int, int, int]
    current: tuple[int, int, int]
    members: tuple[ProposedIsrMember, ...]


@dataclass(frozen=True, slots=True)
class PartitionRecorded:
    """A partition's state in the committed metadata log, after a change."""

    topic_partition: TopicPartition
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    unclean: bool
    min_isr: int
    at_ms: int
    replicas: tuple[int, ...] = ()
    inactive: tuple[int, ...] = ()
    """Members of the ISR that are fenced or in controlled shutdown as of this record."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds, and that are dropped if it is cancelled."""
    removing: tuple[int, ...] = ()
    """Replicas that are removed when the reassignment is complete."""
    unable: tuple[int, ...] = ()
    """Replicas that cannot be in sync as of this record: their broker is fenced or in controlled shutdown, or their log
    directory is offline."""


@dataclass(frozen=True, slots=True)
class TopicRecorded:
    """The creation of a topic with this id is committed."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class ProducerIdsRecorded:
    """A record is committed that allocates all producer ids below this one."""

    next_producer_id: int


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The deletion of this topic is committed: brokers may remove its logs."""

    topic: str


@dataclass(frozen=True, slots=True)
class ProbeEnded:
    """A controller's Identify probe of a broker has ended. `outcome`: SAME, OTHER, REFUSED, CLOSED or SILENT."""

    controller: int
    broker: int
    broker_epoch: int
    outcome: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class HeartbeatHandled:
    """The active controller handled a heartbeat of this broker epoch."""

    controller: int
    broker: int
    broker_epoch: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """A broker's fencing was committed. `decided_epoch` and `decided_connection` are those that the decision named
    (None for a session timeout), `current_*` those that were valid at that offset. `session_age_ms`: time since the
    last heartbeat."""

    controller: int
    broker: int
    decided_epoch: int | None
    current_epoch: int
    decided_connection: int | None
    current_connection: int | None
    session_age_ms: int
    session_timeout_ms: int
    superseded: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A registration of a new incarnation was committed; until then the metadata does not show the restart.
    `incarnation`: as in `Restarted`. If it is not the broker's last incarnation, the registration was appended before
    that incarnation crashed and committed afterwards."""

    broker: int
    broker_epoch: int
    incarnation: int = 1


@dataclass(frozen=True, slots=True)
class BrokerInactive:
    """A record is committed by which this broker is fenced, in controlled shutdown or unregistered."""

    broker: int


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    """A record is committed by which this broker, registered with this epoch, is unfenced."""

    broker: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """A node started again. `clean`: it stopped cleanly before. `wiped`: it has a new directory id. `is_marked`: each
    of its log directories has the clean shutdown file."""

    node: int
    incarnation: int
    clean: bool
    wiped: bool
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node is about to go down. Bytes that its disk loses after this were not removed by the node."""

    node: int


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """A process died by a fault that must be detected fast (K6): the process is gone while its host answers."""

    node: int
    roles: frozenset[str]
    was_active_controller: bool
    majority_up: bool
    at_ms: int


Observation = Any
"""Any observation; checks dispatch by type."""
