"""The messages between brokers and the active controller, and Identify, which a controller asks a broker.

Every answer of a controller that is not active has error NOT_CONTROLLER and names the leader that it knows
(`leader_id`, -1 for none). One that is active answers REQUEST_TIMED_OUT if it is too busy, and is asked again a little
later; and UNKNOWN_SERVER_ERROR if it failed over the request. All requests but RegisterBroker, Identify and Forward
carry the broker epoch: a controller refuses an old one with STALE_BROKER_EPOCH (invariant M7). Offsets are exclusive
ends; -1 stands for "none".
Source: BrokerRegistrationRequest, BrokerHeartbeatRequest, AlterPartitionRequest, AllocateProducerIdsRequest,
EnvelopeRequest, ControllerRegistrationRequest, docs/decisions/05-fast-fencing.md#brokers (Identify).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from kraft.wire.rpc import InternalKey, RpcMessage, since
from kraft.wire.rpc.field_codecs import Int8, Int16, Int32, Int64, Port

EndpointRow = tuple[str, str, Port, str]
"""(listener name, host, port, security protocol)."""

FeatureRow = tuple[str, Int16, Int16]
"""(feature name, lowest level, highest level) that a node supports."""

LogEndRow = tuple[UUID, Int32, Int32, Int32, Int64]
"""(topic id, partition, partition epoch, newest leader epoch that the log knows or -1, log end offset), of a replica
whose partition has neither ISR nor ELR."""

SMALL_BYTES_MAX = 64 * 1024
LogEpochs = tuple[tuple[Int32, Int64], ...]
"""(leader epoch, where it began in the log), oldest first: the newest LOG_EPOCHS_MAX of a log."""

LOG_EPOCHS_MAX = 16
LOG_ENDS_MAX = 500
"""A controller is busy with so many for some milliseconds."""
HEARTBEAT_BYTES_MAX = SMALL_BYTES_MAX + 5_000 * 64
"""Brokers of an earlier release told ten times as many."""
ALTER_PARTITION_BYTES_MAX = 64 * 1024 * 1024
FORWARD_BODY_BYTES_MAX = 100 * 1024 * 1024
"""Of a client's request, or of the answer to it. Kafka's default of socket.request.max.bytes."""
FORWARD_BYTES_MAX = FORWARD_BODY_BYTES_MAX + 1024 * 1024
"""A forwarded request may be as large as a client's frame (socket.request.max.bytes), plus what is put around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequest(RpcMessage):
    """A broker incarnation asks for its broker epoch. `previous_broker_epoch` is what the clean-shutdown file holds;
    -1 after an unclean stop."""

    api_key = InternalKey.REGISTER_BROKER
    bytes_max = SMALL_BYTES_MAX

    cluster_id: str
    broker_id: Int32
    incarnation_id: UUID
    endpoints: tuple[EndpointRow, ...]
    rack: str | None = None
    host_id: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    features: tuple[FeatureRow, ...] = ()
    previous_broker_epoch: Int64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponse(RpcMessage):
    api_key = InternalKey.REGISTER_BROKER
    bytes_max = SMALL_BYTES_MAX

    error_code: Int16 = 0
    error_message: str | None = None
    broker_epoch: Int64 = -1
    leader_id: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest(RpcMessage):
    """Sent to the active controller every `broker.heartbeat.interval.ms`, and once on every new connection to any
    controller, so that each knows which connection is whose. `metadata_offset` is that of the newest image whose roles
    are taken, exclusive. `log_ends` has LOG_ENDS_MAX rows at most, and `log_epochs` what belongs to each of them."""

    api_key = InternalKey.HEARTBEAT
    max_version = 2
    bytes_max = HEARTBEAT_BYTES_MAX

    broker_id: Int32
    broker_epoch: Int64
    metadata_offset: Int64
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[UUID, ...] = ()
    log_ends: tuple[LogEndRow, ...] = field(default=(), metadata=since(1))
    log_epochs: tuple[LogEpochs, ...] = field(default=(), metadata=since(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse(RpcMessage):
    api_key = InternalKey.HEARTBEAT
    max_version = 2
    bytes_max = SMALL_BYTES_MAX

    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    leader_id: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToAlter:
    """The ISR that a leader proposes. `new_isr` holds (broker id, broker epoch or -1 if it is not known)."""

    topic_id: UUID
    partition_id: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    new_isr: tuple[tuple[Int32, Int64], ...]
    leader_recovery_state: Int8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionRequest(RpcMessage):
    api_key = InternalKey.ALTER_PARTITION
    bytes_max = ALTER_PARTITION_BYTES_MAX

    broker_id: Int32
    broker_epoch: Int64
    partitions: tuple[PartitionToAlter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredPartition:
    """What the partition is now, if `error_code` is 0; else the other fields say nothing."""

    topic_id: UUID
    partition_id: Int32
    error_code: Int16 = 0
    leader: Int32 = -1
    leader_epoch: Int32 = -1
    isr: tuple[Int32, ...] = ()
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse(RpcMessage):
    api_key = InternalKey.ALTER_PARTITION
    bytes_max = ALTER_PARTITION_BYTES_MAX

    error_code: Int16 = 0
    partitions: tuple[AlteredPartition, ...] = ()
    leader_id: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsRequest(RpcMessage):
    """In which log directories replicas of this broker are: (topic id, partition, directory id; 2: lost)."""

    api_key = InternalKey.ASSIGN_REPLICAS_TO_DIRS
    bytes_max = ALTER_PARTITION_BYTES_MAX

    broker_id: Int32
    broker_epoch: Int64
    assignments: tuple[tuple[UUID, Int32, UUID], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirsResponse(RpcMessage):
    api_key = InternalKey.ASSIGN_REPLICAS_TO_DIRS
    bytes_max = SMALL_BYTES_MAX

    error_code: Int16 = 0
    leader_id: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsRequest(RpcMessage):
    api_key = InternalKey.ALLOCATE_PRODUCER_IDS
    bytes_max = SMALL_BYTES_MAX

    broker_id: Int32
    broker_epoch: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsResponse(RpcMessage):
    """The block [first_producer_id, first_producer_id + count) is this broker's alone."""

    api_key = InternalKey.ALLOCATE_PRODUCER_IDS
    bytes_max = SMALL_BYTES_MAX

    error_code: Int16 = 0
    first_producer_id: Int64 = -1
    count: Int32 = 0
    leader_id: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifyRequest(RpcMessage):
    """Who listens at this address? Asked of a broker's inter-broker listener; answered before registration too."""

    api_key = InternalKey.IDENTIFY
    bytes_max = SMALL_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifyResponse(RpcMessage):
    """Which cluster, node and process incarnation answers; nothing else is told here."""

    api_key = InternalKey.IDENTIFY
    bytes_max = SMALL_BYTES_MAX

    cluster_id: str
    node_id: Int32
    incarnation_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest(RpcMessage):
    """A client's request for the active controller, with who asked. `body` is in `forwarded_version` of its key: the
    newest that the broker knows, unless the controller has said that it knows only older ones."""

    api_key = InternalKey.FORWARD
    bytes_max = FORWARD_BYTES_MAX

    forwarded_key: Int16
    forwarded_version: Int16
    body: bytes
    principal: str = "User:ANONYMOUS"
    client_address: str = ""
    client_id: str = ""
    timeout_ms: Int32 = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardResponse(RpcMessage):
    """`error_code` is about the forwarding (NOT_CONTROLLER: ask another; UNSUPPORTED_VERSION: this controller is of an
    older release and knows the key up to `newest_version`; REQUEST_TIMED_OUT and UNKNOWN_SERVER_ERROR as above); `body`
    is the answer in the version of the request."""

    api_key = InternalKey.FORWARD
    bytes_max = FORWARD_BYTES_MAX

    error_code: Int16 = 0
    body: bytes = b""
    leader_id: Int32 = -1
    newest_version: Int16 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRequest(RpcMessage):
    """A controller tells the active one its endpoints and the feature levels it supports."""

    api_key = InternalKey.REGISTER_CONTROLLER
    bytes_max = SMALL_BYTES_MAX

    cluster_id: str
    controller_id: Int32
    incarnation_id: UUID
    endpoints: tuple[EndpointRow, ...]
    features: tuple[FeatureRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerResponse(RpcMessage):
    api_key = InternalKey.REGISTER_CONTROLLER
    bytes_max = SMALL_BYTES_MAX

    error_code: Int16 = 0
    error_message: str | None = None
    leader_id: Int32 = -1
