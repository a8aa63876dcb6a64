"""Messages between brokers and the active controller, and Identify, which a controller sends to a broker.

A controller that is not active answers with NOT_CONTROLLER and the leader that it knows (`leader_id`, -1 for none). The
active one answers REQUEST_TIMED_OUT if it is too busy, and the sender retries a little later. It answers
UNKNOWN_SERVER_ERROR if handling the request failed. All requests but RegisterBroker, Identify and Forward carry the
broker epoch: a controller rejects an old one with STALE_BROKER_EPOCH (invariant M7). Offsets are exclusive ends; -1
means "none".
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
"""(topic id, partition, partition epoch, newest leader epoch in the log or -1, log end offset) of a replica whose
partition has neither ISR nor ELR."""

SMALL_BYTES_MAX = 64 * 1024
LogEpochs = tuple[tuple[Int32, Int64], ...]
"""(leader epoch, its start offset in the log), oldest first: the newest LOG_EPOCHS_MAX of a log."""

LOG_EPOCHS_MAX = 16
LOG_ENDS_MAX = 500
"""Maximum rows in `log_ends` of a heartbeat; a controller needs some milliseconds for this many."""
HEARTBEAT_BYTES_MAX = SMALL_BYTES_MAX + 5_000 * 64
"""Maximum size of an encoded heartbeat. It permits ten times LOG_ENDS_MAX rows, which brokers of an earlier release
sent."""
ALTER_PARTITION_BYTES_MAX = 64 * 1024 * 1024
FORWARD_BODY_BYTES_MAX = 100 * 1024 * 1024
"""Limit of a client's forwarded request, and of its response. Kafka's default of socket.request.max.bytes."""
FORWARD_BYTES_MAX = FORWARD_BODY_BYTES_MAX + 1024 * 1024
"""Limit of an encoded ForwardRequest or ForwardResponse: a client's frame (socket.request.max.bytes), plus the fields
around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequest(RpcMessage):
    """A broker incarnation's request for a broker epoch. `previous_broker_epoch` is the one in the clean-shutdown file;
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
    """A broker's heartbeat. It is sent to the active controller every `broker.heartbeat.interval.ms`. It is also sent
    once on every new connection to any controller, so that each knows which broker a connection belongs to.

    `metadata_offset` is the exclusive end of the newest image whose roles are applied. `log_ends` has at most
    LOG_ENDS_MAX rows, and `log_epochs` has the epochs of each row."""

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
    """The ISR that a leader proposes. `new_isr` holds (broker id, broker epoch or -1 if unknown)."""

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
    """The partition's state if `error_code` is 0; otherwise the other fields have no meaning."""

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
    """Log directories of this broker's replicas, as (topic id, partition, directory id). Directory id 2 means that the
    replica is lost."""

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
    """The block [first_producer_id, first_producer_id + count) of producer ids, reserved for this broker."""

    api_key = InternalKey.ALLOCATE_PRODUCER_IDS
    bytes_max = SMALL_BYTES_MAX

    error_code: Int16 = 0
    first_producer_id: Int64 = -1
    count: Int32 = 0
    leader_id: Int32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifyRequest(RpcMessage):
    """Query for the identity of the node at this address. Sent to a broker's inter-broker listener; answered before
    registration too."""

    api_key = InternalKey.IDENTIFY
    bytes_max = SMALL_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifyResponse(RpcMessage):
    """Cluster, node and process incarnation of the answering node."""

    api_key = InternalKey.IDENTIFY
    bytes_max = SMALL_BYTES_MAX

    cluster_id: str
    node_id: Int32
    incarnation_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest(RpcMessage):
    """A client's request for the active controller, with the client's identity.

    `body` is in `forwarded_version` of its API. This is the newest version of the broker, unless the controller has
    answered that it supports only older ones."""

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
    """Response to a forwarded request.

    `error_code` is about the forwarding itself. NOT_CONTROLLER: send it to another controller. UNSUPPORTED_VERSION:
    this controller is of an older release and supports the API up to `newest_version`. REQUEST_TIMED_OUT and
    UNKNOWN_SERVER_ERROR are described above. `body` is the response in the version of the request."""

    api_key = InternalKey.FORWARD
    bytes_max = FORWARD_BYTES_MAX

    error_code: Int16 = 0
    body: bytes = b""
    leader_id: Int32 = -1
    newest_version: Int16 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRequest(RpcMessage):
    """A controller's endpoints and supported feature levels, sent to the active controller."""

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
