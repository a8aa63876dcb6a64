"""Values of the admin client: topics, configurations, groups, brokers, quorum and log directories.

Numbers are the same as in Kafka. Where Kafka has -1 for "none" or "unknown", the field is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from kraft.client.core.records import TopicPartition
from kraft.seam import Address


class ResourceType(IntEnum):
    """Kafka's ConfigResource type: the kind of resource that has the configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Source of a setting's value, from the one with the highest precedence to the lowest."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """Type of a setting's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOperation(IntEnum):
    """Operation of an incremental change; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(IntEnum):
    """Kind of leader election. PREFERRED elects the first replica. UNCLEAN elects any live replica, and may lose
    records."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 stands for the brokers' default. `assignment` has the replicas of each partition, the
    preferred leader first; if it is given, the two numbers stay -1."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The name, number of partitions and replication factor of a created topic."""

    name: str
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as reported by a broker. `elr`: eligible leader replicas, which are not in sync but may lead
    (KIP-966). `last_known_elr`: replicas that were eligible before. Both are empty if they were not requested or the
    broker does not report them."""

    topic: str
    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress: the present replicas of the partition, the replicas being added, and the replicas
    being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas of the partition when the reassignment is complete."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions in order."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource that has a configuration. A broker with an empty name stands for the defaults of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else f"all {kind}s"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the sources of a setting's value. `value` is None if it is secret or not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting. `value` is None if the broker hides it (`is_sensitive`) or if it is not set. `synonyms` has all
    sources of the value, the one with the highest precedence first, if they were requested."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One incremental change; DELETE needs no value."""

    operation: ConfigOperation
    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker. `is_fenced` is true if it is registered but does not serve clients."""

    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id and brokers. `controller_id` is the id of a broker that forwards requests to the active
    controller."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer of the metadata quorum. Times are in ms since 1970, and None if the leader does not know
    them."""

    node_id: int
    directory_id: UUID | None
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener of a node."""

    name: str
    address: Address


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum as reported by its leader. `endpoints` has the listeners of each voter, and is empty if the
    cluster does not report them."""

    leader: int | None
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[Endpoint, ...]] = field(default_factory=dict)

    @property
    def log_end_offset(self) -> int:
        """The leader's log end offset; 0 if there is no leader."""
        return next((voter.log_end_offset for voter in self.voters if voter.node_id == self.leader), 0)


class FeatureChange(IntEnum):
    """Kind of a feature change: whether the level may be raised or lowered. A SAFE_DOWNGRADE loses no metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: its finalized level (None: off), and the levels that the broker supports. `epoch` is the epoch of the
    finalized levels; None if there are none."""

    name: str
    level: int | None
    min_level: int
    max_level: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """One replica in a log directory. `lag` is the number of records between its end and the partition's high
    watermark."""

    topic: str
    partition: int
    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of one broker. If the directory is offline, `error` is Kafka's name of the error."""

    broker: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[LogDirReplica, ...]

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that wrote to a partition recently. `transaction_start` is the first offset of its open
    transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start: int | None


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and its assigned partitions. In a classic group, `epoch` is None. `target` is the assignment after the
    current rebalance; only consumer groups have it. `subscribed` is None if the member's protocol does not report
    it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    rack: str | None = None
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    subscribed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members. `assignor` is the name of the selected assignor; empty if none is selected. The epochs
    are None in a classic group."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The progress of a share group in one partition. `offset` is the first offset that is not complete; None if the
    group has not begun to read. `lag` is the number of records from there on that are not complete; None if it is not
    known."""

    offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The result of ListOffsets for one partition. All fields are -1 if no record is at or after the requested time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
