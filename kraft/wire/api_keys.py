"""API keys, the version ranges that this server accepts, and which versions are flexible.

Invariants: a key without a handler is in no table, as an omitted API is legal and a falsely advertised one is not. Some
handlers only answer that a feature is off, as Kafka's do. Produce is advertised from version 0, because librdkafka
tests versions 0 to 7 before it enables compression, but only versions from 3 are accepted. The ranges are those of
Kafka 4.1, and of 4.3 where it has more. Source: Kafka protocol, KIP-482 (flexible versions).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType


class ApiKey(IntEnum):
    """Every request type of the Kafka protocol."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


NEVER_FLEXIBLE = 1 << 15
"""Value for an API without a flexible version: greater than every int16 version."""

FIRST_FLEXIBLE_VERSION: Mapping[int, int] = MappingProxyType(
    {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.METADATA: 9,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 6,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.JOIN_GROUP: 6,
        ApiKey.HEARTBEAT: 4,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.SYNC_GROUP: 4,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.LIST_GROUPS: 3,
        ApiKey.SASL_HANDSHAKE: NEVER_FLEXIBLE,
        ApiKey.API_VERSIONS: 3,
        ApiKey.CREATE_TOPICS: 5,
        ApiKey.DELETE_TOPICS: 4,
        ApiKey.DELETE_RECORDS: 2,
        ApiKey.INIT_PRODUCER_ID: 2,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.WRITE_TXN_MARKERS: 1,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_ACLS: 2,
        ApiKey.CREATE_ACLS: 2,
        ApiKey.DELETE_ACLS: 2,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.ALTER_CONFIGS: 2,
        ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
        ApiKey.DESCRIBE_LOG_DIRS: 2,
        ApiKey.SASL_AUTHENTICATE: 2,
        ApiKey.CREATE_PARTITIONS: 2,
        ApiKey.CREATE_DELEGATION_TOKEN: 2,
        ApiKey.RENEW_DELEGATION_TOKEN: 2,
        ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.ELECT_LEADERS: 2,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
        ApiKey.OFFSET_DELETE: NEVER_FLEXIBLE,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
        ApiKey.ALTER_CLIENT_QUOTAS: 1,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
        ApiKey.VOTE: 0,
        ApiKey.BEGIN_QUORUM_EPOCH: 1,
        ApiKey.END_QUORUM_EPOCH: 1,
        ApiKey.DESCRIBE_QUORUM: 0,
        ApiKey.ALTER_PARTITION: 2,
        ApiKey.UPDATE_FEATURES: 0,
        ApiKey.ENVELOPE: 0,
        ApiKey.FETCH_SNAPSHOT: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.DESCRIBE_PRODUCERS: 0,
        ApiKey.BROKER_REGISTRATION: 0,
        ApiKey.BROKER_HEARTBEAT: 0,
        ApiKey.UNREGISTER_BROKER: 0,
        ApiKey.DESCRIBE_TRANSACTIONS: 0,
        ApiKey.LIST_TRANSACTIONS: 0,
        ApiKey.ALLOCATE_PRODUCER_IDS: 0,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
        ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
        ApiKey.CONTROLLER_REGISTRATION: 0,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
        ApiKey.PUSH_TELEMETRY: 0,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: 0,
        ApiKey.LIST_CONFIG_RESOURCES: 0,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
        ApiKey.SHARE_GROUP_HEARTBEAT: 1,
        ApiKey.SHARE_GROUP_DESCRIBE: 1,
        ApiKey.SHARE_FETCH: 1,
        ApiKey.SHARE_ACKNOWLEDGE: 1,
        ApiKey.ADD_RAFT_VOTER: 0,
        ApiKey.REMOVE_RAFT_VOTER: 0,
        ApiKey.UPDATE_RAFT_VOTER: 0,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE: 0,
        ApiKey.WRITE_SHARE_GROUP_STATE: 0,
        ApiKey.DELETE_SHARE_GROUP_STATE: 0,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
        ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
        ApiKey.STREAMS_GROUP_DESCRIBE: 0,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
    }
)
"""First flexible version of each API: from this version on, strings and arrays are compact, and structs end in tagged
fields."""


@dataclass(frozen=True, slots=True)
class ApiVersionRange:
    """The versions of one API that are accepted, both ends included. `advertised_min` is the lower end in the
    ApiVersions response; it is below `min` for Produce only."""

    key: int
    min: int
    max: int
    advertised_min: int

    def __contains__(self, version: int) -> bool:
        return self.min <= version <= self.max


def _ranges(*rows: tuple[ApiKey, int, int]) -> Mapping[ApiKey, ApiVersionRange]:
    return MappingProxyType(
        {key: ApiVersionRange(int(key), low, high, 0 if key is ApiKey.PRODUCE else low) for key, low, high in rows}
    )


BROKER_APIS: Mapping[ApiKey, ApiVersionRange] = _ranges(
    (ApiKey.PRODUCE, 3, 13),
    (ApiKey.FETCH, 4, 18),
    (ApiKey.LIST_OFFSETS, 1, 11),
    (ApiKey.METADATA, 0, 13),
    (ApiKey.OFFSET_COMMIT, 2, 10),
    (ApiKey.OFFSET_FETCH, 1, 10),
    (ApiKey.FIND_COORDINATOR, 0, 6),
    (ApiKey.JOIN_GROUP, 0, 9),
    (ApiKey.HEARTBEAT, 0, 4),
    (ApiKey.LEAVE_GROUP, 0, 5),
    (ApiKey.SYNC_GROUP, 0, 5),
    (ApiKey.DESCRIBE_GROUPS, 0, 6),
    (ApiKey.LIST_GROUPS, 0, 5),
    (ApiKey.SASL_HANDSHAKE, 0, 1),
    (ApiKey.API_VERSIONS, 0, 4),
    (ApiKey.CREATE_TOPICS, 2, 7),
    (ApiKey.DELETE_TOPICS, 1, 6),
    (ApiKey.DELETE_RECORDS, 0, 2),
    (ApiKey.INIT_PRODUCER_ID, 0, 5),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5),
    (ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
    (ApiKey.END_TXN, 0, 5),
    (ApiKey.WRITE_TXN_MARKERS, 1, 2),
    (ApiKey.TXN_OFFSET_COMMIT, 0, 5),
    (ApiKey.DESCRIBE_ACLS, 1, 3),
    (ApiKey.CREATE_ACLS, 1, 3),
    (ApiKey.DELETE_ACLS, 1, 3),
    (ApiKey.DESCRIBE_CONFIGS, 1, 4),
    (ApiKey.ALTER_CONFIGS, 0, 2),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, 1, 5),
    (ApiKey.SASL_AUTHENTICATE, 0, 2),
    (ApiKey.CREATE_PARTITIONS, 0, 3),
    (ApiKey.DELETE_GROUPS, 0, 2),
    (ApiKey.ELECT_LEADERS, 0, 2),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0),
    (ApiKey.OFFSET_DELETE, 0, 0),
    (ApiKey.DESCRIBE_QUORUM, 0, 2),
    (ApiKey.UPDATE_FEATURES, 0, 2),
    (ApiKey.DESCRIBE_CLUSTER, 0, 2),
    (ApiKey.DESCRIBE_PRODUCERS, 0, 0),
    (ApiKey.UNREGISTER_BROKER, 0, 0),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
    (ApiKey.LIST_TRANSACTIONS, 0, 2),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1),
    (ApiKey.LIST_CONFIG_RESOURCES, 0, 1),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
    (ApiKey.ADD_RAFT_VOTER, 0, 0),
    (ApiKey.REMOVE_RAFT_VOTER, 0, 0),
    (ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, 1),
    (ApiKey.SHARE_FETCH, 1, 2),
    (ApiKey.SHARE_ACKNOWLEDGE, 1, 2),
    (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0),
    (ApiKey.READ_SHARE_GROUP_STATE, 0, 0),
    (ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1),
    (ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0),
    (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0),
)
"""The APIs that a broker's listener answers."""

CLIENT_APIS: Mapping[ApiKey, ApiVersionRange] = MappingProxyType(
    {
        **BROKER_APIS,
        **_ranges(
            (ApiKey.OFFSET_COMMIT, 2, 9),
            (ApiKey.OFFSET_FETCH, 1, 9),
            (ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1),
            (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0),
            (ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3),
        ),
    }
)
"""The APIs that pykraft's clients can send: all that its brokers answer, and some that only other brokers answer.
OffsetCommit and OffsetFetch are in the versions without topic ids. Transactions are also in the versions before part 2
of KIP-890, where the client itself adds partitions to them."""

CONTROLLER_APIS: Mapping[ApiKey, ApiVersionRange] = _ranges(
    (ApiKey.API_VERSIONS, 0, 4),
    (ApiKey.DESCRIBE_CONFIGS, 1, 4),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
    (ApiKey.DESCRIBE_QUORUM, 0, 2),
    (ApiKey.UPDATE_FEATURES, 0, 2),
    (ApiKey.DESCRIBE_CLUSTER, 0, 2),
    (ApiKey.UNREGISTER_BROKER, 0, 0),
    (ApiKey.ADD_RAFT_VOTER, 0, 0),
    (ApiKey.REMOVE_RAFT_VOTER, 0, 0),
    (ApiKey.UPDATE_RAFT_VOTER, 0, 0),
)
"""The Kafka APIs that a controller's listener answers, in addition to the internal ones."""


def is_flexible(key: int, version: int) -> bool:
    """Return whether this version of the request and its response is flexible. Return False for the internal keys."""
    return version >= FIRST_FLEXIBLE_VERSION.get(key, NEVER_FLEXIBLE)


def request_header_version(key: int, version: int) -> int:
    """Return the request header version: 2 (with tagged fields) for a flexible version, else 1."""
    return 2 if is_flexible(key, version) else 1


def response_header_version(key: int, version: int) -> int:
    """Return the response header version: 1 (with tagged fields) for a flexible version, else 0. It is always 0 for
    ApiVersions, so that a client that does not know the broker's versions yet can read the response."""
    return 1 if key != ApiKey.API_VERSIONS and is_flexible(key, version) else 0
