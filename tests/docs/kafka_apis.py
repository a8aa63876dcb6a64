"""APIs of Apache Kafka 4.1's listeners, and those added by later 4.x releases: the reference for `docs/protocol.md`.

Versions that a release marks unstable are not included. Source: Kafka protocol (message schemas of 4.0 to 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.wire.api_keys import ApiKey


class KafkaApi(NamedTuple):
    """An API of Apache Kafka: the versions that a broker of Kafka 4.1 serves, the newest version of any 4.x, and what
    was added after 4.1."""

    min: int
    max: int
    newest: int
    added: str = ""


def _api(low: int, high: int, newest: int | None = None, added: str = "") -> KafkaApi:
    return KafkaApi(low, high, high if newest is None else newest, added)


KAFKA_APIS: dict[ApiKey, KafkaApi] = {
    ApiKey.PRODUCE: _api(3, 13),
    ApiKey.FETCH: _api(4, 18),
    ApiKey.LIST_OFFSETS: _api(1, 10, 11, "4.2: offset of the earliest pending upload"),
    ApiKey.METADATA: _api(0, 13),
    ApiKey.OFFSET_COMMIT: _api(2, 9, 10, "4.2: topic ids"),
    ApiKey.OFFSET_FETCH: _api(1, 9, 10, "4.2: topic ids"),
    ApiKey.FIND_COORDINATOR: _api(0, 6),
    ApiKey.JOIN_GROUP: _api(0, 9),
    ApiKey.HEARTBEAT: _api(0, 4),
    ApiKey.LEAVE_GROUP: _api(0, 5),
    ApiKey.SYNC_GROUP: _api(0, 5),
    ApiKey.DESCRIBE_GROUPS: _api(0, 6),
    ApiKey.LIST_GROUPS: _api(0, 5),
    ApiKey.SASL_HANDSHAKE: _api(0, 1),
    ApiKey.API_VERSIONS: _api(0, 4),
    ApiKey.CREATE_TOPICS: _api(2, 7),
    ApiKey.DELETE_TOPICS: _api(1, 6),
    ApiKey.DELETE_RECORDS: _api(0, 2),
    ApiKey.INIT_PRODUCER_ID: _api(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _api(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _api(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: _api(0, 4),
    ApiKey.END_TXN: _api(0, 5),
    ApiKey.WRITE_TXN_MARKERS: _api(1, 1, 2, "4.2: the transaction version"),
    ApiKey.TXN_OFFSET_COMMIT: _api(0, 5),
    ApiKey.DESCRIBE_ACLS: _api(1, 3),
    ApiKey.CREATE_ACLS: _api(1, 3),
    ApiKey.DELETE_ACLS: _api(1, 3),
    ApiKey.DESCRIBE_CONFIGS: _api(1, 4),
    ApiKey.ALTER_CONFIGS: _api(0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _api(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: _api(1, 4, 5, "4.3: whether a directory is cordoned"),
    ApiKey.SASL_AUTHENTICATE: _api(0, 2),
    ApiKey.CREATE_PARTITIONS: _api(0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: _api(1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: _api(1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _api(1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _api(1, 3),
    ApiKey.DELETE_GROUPS: _api(0, 2),
    ApiKey.ELECT_LEADERS: _api(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _api(0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _api(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _api(0, 0),
    ApiKey.OFFSET_DELETE: _api(0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _api(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: _api(0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _api(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _api(0, 0),
    ApiKey.DESCRIBE_QUORUM: _api(0, 2),
    ApiKey.UPDATE_FEATURES: _api(0, 2),
    ApiKey.DESCRIBE_CLUSTER: _api(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: _api(0, 0),
    ApiKey.UNREGISTER_BROKER: _api(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: _api(0, 0),
    ApiKey.LIST_TRANSACTIONS: _api(0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _api(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _api(0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _api(0, 0),
    ApiKey.PUSH_TELEMETRY: _api(0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: _api(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _api(0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: _api(1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: _api(1, 1),
    ApiKey.SHARE_FETCH: _api(1, 1, 2, "4.2: renewal of record locks"),
    ApiKey.SHARE_ACKNOWLEDGE: _api(1, 1, 2, "4.2: renewal of record locks"),
    ApiKey.ADD_RAFT_VOTER: _api(0, 0, 1, "4.2: an answer before it is committed"),
    ApiKey.REMOVE_RAFT_VOTER: _api(0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _api(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: _api(0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: _api(0, 0, 1, "4.2: delivery counts"),
    ApiKey.DELETE_SHARE_GROUP_STATE: _api(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _api(0, 0, 1, "4.2: delivery counts"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _api(0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: _api(0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _api(0, 0, 1, "4.2: lag"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _api(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _api(0, 0),
}
