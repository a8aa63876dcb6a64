"""What the world tells the checks: values, each one thing that happened on one node.

They come from three places, never from code that a node could have got wrong in the same way: the simulated disk (what
was written, cut and made durable), the simulated wire (what was sent), and read-only looks at a node's state.
`node` is the node's id; `incarnation` rises by one with every start of that node. Offsets are exclusive ends unless
named otherwise. Digests are integers over the bytes that may not change (base offset and leader epoch included).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

TopicPartition = tuple[str, int]
VoterKeys = tuple[tuple[int, str], ...]
"""Voters in order of their ids: (node id, directory id, "" where voters are set by configuration)."""


class ProducedBy(NamedTuple):
    """The idempotent producer of a batch, and the sequences of its first and last record."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """A batch appeared at the end of a log. `log` is None for the metadata log. `producer`: if it holds data of an
    idempotent producer."""

    node: int
    log: TopicPartition | None
    epoch: int
    base_offset: int
    next_offset: int
    digest: int
    producer: ProducedBy | None = None


@dataclass(frozen=True, slots=True)
class BytesBroken:
    """A file of a log has changed, and behind its last batch there now stands something as long as a batch that is
    none: its CRC is wrong, or its header."""

    node: int
    log: TopicPartition | None
    file: str


@dataclass(frozen=True, slots=True)
class LogCut:
    """A log now ends at `end_offset` (truncation, or a start after power loss), and begins at `start_offset`."""

    node: int
    log: TopicPartition | None
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogDurable:
    """Everything of a log below `end_offset` would survive a power loss."""

    node: int
    log: TopicPartition | None
    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteDurable:
    """The quorum state that would survive a power loss."""

    node: int
    directory_id: str
    epoch: int
    voted_id: int


@dataclass(frozen=True, slots=True)
class RoleSeen:
    """A replica's view of the quorum after an event."""

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
    """The voter set that a replica goes by changed: `record_offset` is where its Voters record stands (-1: it is the
    configured one, or a snapshot's), `record_epoch` that record's epoch. `committed`: the replica's high watermark
    then; `leads_since`: if it leads, where its epoch's records begin."""

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
    """A voter set appeared on a node's disk: as the Voters record at `record_offset` of its metadata log, in a batch of
    `record_epoch`, or in a complete snapshot (both -1)."""

    node: int
    record_offset: int
    record_epoch: int
    voters: VoterKeys


@dataclass(frozen=True, slots=True)
class VoteGranted:
    """A granted real vote left `node`; `candidate_epoch_and_offset` is the candidate's (last epoch, end offset)."""

    node: int
    directory_id: str
    epoch: int
    candidate: int
    candidate_epoch_and_offset: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Campaigned:
    """A request for a vote, or for a pre-vote, leaves `node`. `asked`: whom, if it is for a pre-vote."""

    node: int
    directory_id: str
    epoch: int
    asked: int | None = None


@dataclass(frozen=True, slots=True)
class QuorumFetchHandled:
    """A fetch of `voter`, of records or of a snapshot, that takes `leader` for the leader of `epoch`, is about to be
    handled by it."""

    leader: int
    voter: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is a while later, whatever has happened. `frozen`: nodes whose processes stand still."""

    frozen: frozenset[int]


@dataclass(frozen=True, slots=True)
class PreVoteAnswered:
    """A pre-vote was answered by `node`; the two tuples are (epoch, leader id, voted id) before and after."""

    node: int
    before: tuple[int, int, int]
    after: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class EpochClaimed:
    """A message left `node` that carries `epoch`, and names `leader_id` (-1: none) as its leader."""

    node: int
    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class FetchSent:
    """A voter's metadata fetch left: it acknowledges everything below `fetch_offset`."""

    node: int
    epoch: int
    fetch_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotSeen:
    """A complete snapshot stands on a node's disk, made there or fetched; `digest` is that of the image in it."""

    node: int
    end_offset: int
    epoch: int
    digest: str


@dataclass(frozen=True, slots=True)
class ImagePublished:
    """A node published the metadata image of `offset`; `committed_offset` is its high watermark then."""

    node: int
    incarnation: int
    offset: int
    digest: str
    committed_offset: int


@dataclass(frozen=True, slots=True)
class MetadataFolded:
    """Events were committed up to `offset`, and an image was made of them: of `places` that they touch it says what a
    reference says, but for `differences`."""

    offset: int
    places: int
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ControllerReplied:
    """A controller's answer left; it depends on every record below `depends_on`."""

    node: int
    depends_on: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A replica's view of its partition after an event. For followers `maximal_isr` is empty."""

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


@dataclass(frozen=True, slots=True)
class ReplicaHeldBack:
    """A throttle on this node keeps records of a partition from a replica for now; `isr` as the node knows it."""

    node: int
    topic_partition: TopicPartition
    replica: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProduceAcknowledged:
    """A client got success for an acks=all batch: its records stand at [base_offset, next_offset)."""

    topic_partition: TopicPartition
    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class ProduceAnswered:
    """A leader's success for acks=all left `node`."""

    node: int
    topic_partition: TopicPartition
    next_offset: int
    high_watermark: int
    epoch_appended: int
    epoch_now: int
    isr_size: int
    min_isr: int


@dataclass(frozen=True, slots=True)
class EndTold:
    """An answer to a client leaves `node`, which leads the partition: it ends at `end_offset`, by ListOffsets
    (`is_listed`) or Fetch, for who reads what is stable (`is_stable`), or up to the high watermark. `number` counts
    these; `asked_at` is the number of the last one when the request was about to be handled."""

    node: int
    topic_partition: TopicPartition
    leader_epoch: int
    end_offset: int
    is_listed: bool
    is_stable: bool
    number: int
    asked_at: int


@dataclass(frozen=True, slots=True)
class ProducerIdGiven:
    """A producer id leaves `node` for a client."""

    node: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ProposedMember:
    """Who is to be in sync: the broker epoch that the leader names (-1: it does not know), and what the controller's
    metadata say of that broker (-1: it is not registered)."""

    broker: int
    asked_epoch: int
    broker_epoch: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class IsrAccepted:
    """A controller has taken the in-sync set that a leader proposed. (leader, leader epoch, partition epoch): `asked`
    by the proposal, `current` in the metadata that it was decided on, which may not be committed yet."""

    controller: int
    topic_partition: TopicPartition
    asked: tuple[int, int, int]
    current: tuple[int, int, int]
    members: tuple[ProposedMember, ...]


@dataclass(frozen=True, slots=True)
class PartitionRecorded:
    """A partition's state as the committed metadata log now says it."""

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
    """Members of the ISR that are fenced or shutting down as of this record."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds, which are given up when it is cancelled."""
    removing: tuple[int, ...] = ()
    """Replicas that go when it is done."""
    unable: tuple[int, ...] = ()
    """Replicas that cannot be in sync as of this record: their broker is fenced or shutting down, or their log
    directory is offline."""


@dataclass(frozen=True, slots=True)
class TopicRecorded:
    """That a topic was created with this id is committed."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class ProducerIdsRecorded:
    """That all producer ids below this one have been handed out is committed."""

    next_producer_id: int


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The deletion of this topic is committed: its logs may go."""

    topic: str


@dataclass(frozen=True, slots=True)
class ProbeAnswered:
    """An Identify probe of a broker ended at its controller. `outcome`: SAME, OTHER, REFUSED, CLOSED or SILENT."""

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
    """A fence of a broker was committed; `decided_epoch` and `decided_connection` are what the decision named (None
    for a session time-out), `current_*` what was current at that offset. `session_age_ms`: since the last heartbeat."""

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
    """A registration of a new incarnation was committed. Until then nothing is known of a restart. `incarnation`: as
    `Restarted`'s; an earlier one than the broker's last was appended before that crash, and committed after it."""

    broker: int
    broker_epoch: int
    incarnation: int = 1


@dataclass(frozen=True, slots=True)
class BrokerInactive:
    """That this broker is fenced, shutting down or gone was committed."""

    broker: int


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    """That this broker, registered with this epoch, is fenced no more was committed."""

    broker: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """A node started again. `clean`: its last stop was a clean one. `wiped`: with a new directory id. `is_marked`: each
    of its log directories says that it was closed in order."""

    node: int
    incarnation: int
    clean: bool
    wiped: bool
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node is about to end: what its disk loses from here on is no act of its own."""

    node: int


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """A fault that K6 allows: the process is gone while its host answers."""

    node: int
    roles: frozenset[str]
    was_active_controller: bool
    majority_up: bool
    at_ms: int


Observation = Any
"""Any of the above; the ledger dispatches by type."""
