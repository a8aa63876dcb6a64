"""Pure: definitions of tables about the cluster itself (nodes, topics, settings) and its metadata log."""

from __future__ import annotations

from kraft.client.spark.tables.values import (
    AS_OF,
    BROKER,
    ENDPOINT_LIST,
    INT_LIST,
    PARTITION,
    STRING_LIST,
    SYNONYM_LIST,
    TOPIC,
    TOPIC_ID,
    Column,
    Table,
    live,
    log,
)
from kraft.wire.api_keys import ApiKey

BROKERS = Table(
    "brokers",
    "The brokers that are registered, whether or not they are up.",
    (
        BROKER,
        Column("host", "STRING", "where clients of this listener reach it"),
        Column("port", "INT", "the port there"),
        Column("rack", "STRING", "its rack"),
        Column("is_fenced", "BOOLEAN", "registered, but serves no client; NULL if the brokers do not report it"),
        Column("leaders", "INT", "partitions that it leads"),
        Column("replicas", "INT", "replicas that it holds"),
        Column("preferred_leaders", "INT", "partitions of which it is the preferred leader"),
        live("size_bytes", "BIGINT", "bytes in its log directories; NULL if it does not respond"),
        log("epoch", "BIGINT", "epoch of its registration"),
        log("incarnation_id", "STRING", "id of its process"),
        log("host_id", "STRING", "id of the machine that it registered from"),
        log("in_controlled_shutdown", "BOOLEAN", "it is moving its leaderships away before it stops"),
        log("endpoints", ENDPOINT_LIST, "all its listeners"),
        log("log_dir_ids", STRING_LIST, "ids of its log directories"),
        log("registered_offset", "BIGINT", "offset of its registration in the metadata log"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_CLUSTER, 0), (ApiKey.METADATA, 1)),
    ("broker_id",),
    has_time_travel=True,
)

CONTROLLERS = Table(
    "controllers",
    "The replicas of the metadata log: voters, which are the controllers, and observers, which are the brokers.",
    (
        Column("node_id", "INT", "id of the node"),
        Column("role", "STRING", "voter or observer"),
        Column("is_leader", "BOOLEAN", "it is the active controller"),
        Column("leader_epoch", "INT", "epoch of the active controller"),
        Column("directory_id", "STRING", "id of the directory with its log; NULL if the cluster does not use them"),
        Column("log_end_offset", "BIGINT", "end of its log"),
        Column("lag", "BIGINT", "the leader's log end offset less its own"),
        Column("last_fetch", "TIMESTAMP", "when it last fetched from the leader"),
        Column("last_caught_up", "TIMESTAMP", "when it was last caught up with the leader"),
        Column("high_watermark", "BIGINT", "the log is committed up to this offset"),
        Column("endpoints", ENDPOINT_LIST, "listeners of a voter; NULL for observers and before DescribeQuorum v2"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_QUORUM, 0),),
)

TOPICS = Table(
    "topics",
    "The topics, with the state of their partitions and their most useful settings.",
    (
        TOPIC,
        TOPIC_ID,
        Column("is_internal", "BOOLEAN", "it is one of Kafka's internal topics"),
        Column("partitions", "INT", "its number of partitions"),
        Column("replication_factor", "INT", "maximum number of replicas of its partitions"),
        Column("under_replicated", "INT", "partitions with fewer in-sync replicas than replicas"),
        Column("under_min_isr", "INT", "partitions with fewer in-sync replicas than min.insync.replicas"),
        Column("leaderless", "INT", "partitions without a leader"),
        Column("min_insync_replicas", "INT", "setting min.insync.replicas"),
        Column("cleanup_policy", "STRING", "setting cleanup.policy"),
        Column("retention_ms", "BIGINT", "setting retention.ms; -1: no limit"),
        Column("retention_bytes", "BIGINT", "setting retention.bytes of each partition; -1: no limit"),
        live("size_bytes", "BIGINT", "bytes of all its replicas on the brokers that respond"),
        live("records", "BIGINT", "end offsets less start offsets: an upper bound; NULL if a leader does not respond"),
        log("created_offset", "BIGINT", "offset of its creation in the metadata log"),
        log("created", "TIMESTAMP", "when it was created"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1),),
    ("topic",),
    has_time_travel=True,
)

PARTITIONS = Table(
    "partitions",
    "The partitions, with their leader, replicas and log offsets.",
    (
        TOPIC,
        TOPIC_ID,
        PARTITION,
        Column("leader", "INT", "broker that leads it; NULL if none does"),
        Column("leader_epoch", "INT", "epoch of the leader"),
        Column("replicas", INT_LIST, "its replicas; the first is the preferred leader"),
        Column("isr", INT_LIST, "the in-sync replicas"),
        Column("offline_replicas", INT_LIST, "replicas on a broker or log directory that is down"),
        Column("elr", INT_LIST, "eligible leader replicas: not in sync, but they may become leader (KIP-966)"),
        Column("last_known_elr", INT_LIST, "the last known eligible leader replicas (KIP-966)"),
        Column("adding", INT_LIST, "replicas that a reassignment adds"),
        Column("removing", INT_LIST, "replicas that a reassignment removes"),
        Column("preferred_leader", "INT", "the first replica"),
        Column("is_preferred_led", "BOOLEAN", "the first replica leads"),
        Column("is_under_replicated", "BOOLEAN", "fewer in-sync replicas than replicas"),
        Column("is_under_min_isr", "BOOLEAN", "fewer in-sync replicas than min.insync.replicas"),
        Column("is_offline", "BOOLEAN", "it has no leader"),
        live("start_offset", "BIGINT", "first offset in the log; this and the next four: NULL without a leader"),
        live("end_offset", "BIGINT", "high watermark: the offset after the last record that consumers may read"),
        live("stable_offset", "BIGINT", "end offset for readers of committed transactions only"),
        live("records", "BIGINT", "end offset less start offset: an upper bound"),
        live("newest_timestamp", "TIMESTAMP", "newest time of a record; NULL if there is no record"),
        live("size_bytes", "BIGINT", "bytes of the leader's log"),
        log("partition_epoch", "INT", "number of changes of the partition so far"),
        log("recovery_state", "STRING", "RECOVERED, or RECOVERING after an unclean election"),
        log("directories", STRING_LIST, "ids of the log directories, in the order of `replicas`"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1),),
    ("topic", "partition"),
    has_time_travel=True,
)

REPLICAS = Table(
    "replicas",
    "A row for each replica of each partition.",
    (
        TOPIC,
        PARTITION,
        Column("broker_id", "INT", "broker that holds the replica"),
        Column("position", "INT", "position in the list of replicas; 0: preferred leader"),
        Column("is_leader", "BOOLEAN", "it is the leader"),
        Column("is_in_sync", "BOOLEAN", "it is in the ISR"),
        Column("is_offline", "BOOLEAN", "its broker or its log directory is down"),
        Column("is_eligible", "BOOLEAN", "it is not in sync, but may become leader (KIP-966)"),
        Column("is_adding", "BOOLEAN", "a reassignment adds it"),
        Column("is_removing", "BOOLEAN", "a reassignment removes it"),
        live("log_dir", "STRING", "its log directory; this and the next three: NULL if the broker does not respond"),
        live("size_bytes", "BIGINT", "bytes of its log"),
        live("lag", "BIGINT", "number of records behind the high watermark"),
        live("is_future", "BOOLEAN", "it is being moved into another log directory of the broker"),
        log("directory_id", "STRING", "id of its log directory"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1),),
    ("topic", "partition", "broker_id"),
    has_time_travel=True,
)

CONFIGS = Table(
    "configs",
    "The settings of topics, brokers, groups and client metrics. A table of the past has only settings that were set.",
    (
        Column("resource_type", "STRING", "TOPIC, BROKER, GROUP or CLIENT_METRICS"),
        Column("resource", "STRING", "name of the configured resource; empty with BROKER: all brokers"),
        Column("name", "STRING", "name of the setting"),
        Column("value", "STRING", "its value; NULL if it is secret or has none"),
        Column("source", "STRING", "origin of the value, such as TOPIC, DYNAMIC_BROKER, STATIC_BROKER, DEFAULT"),
        Column("is_default", "BOOLEAN", "it is not set anywhere"),
        Column("is_read_only", "BOOLEAN", "it cannot be changed while the node runs"),
        Column("is_sensitive", "BOOLEAN", "its value is secret"),
        Column("type", "STRING", "type of the value, such as INT, LIST, PASSWORD"),
        Column("synonyms", SYNONYM_LIST, "all values from which it is chosen, by precedence"),
        Column("documentation", "STRING", "what the setting does; NULL without option withDocs"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_CONFIGS, 1),),
    ("resource_type", "resource"),
    has_time_travel=True,
)

LOG_DIRS = Table(
    "log_dirs",
    "The log directories of the brokers. A broker that does not respond is a row with an error and no path.",
    (
        BROKER,
        Column("path", "STRING", "the directory"),
        Column(
            "error",
            "STRING",
            "Kafka's error of the directory, or why the broker does not respond; NULL without an error",
        ),
        Column("total_bytes", "BIGINT", "size of the volume; NULL before DescribeLogDirs v4"),
        Column("usable_bytes", "BIGINT", "free bytes on the volume; NULL before DescribeLogDirs v4"),
        Column("size_bytes", "BIGINT", "bytes of the logs in it"),
        Column("replicas", "INT", "replicas in it"),
        Column("future_replicas", "INT", "replicas that are being moved into it"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1), (ApiKey.DESCRIBE_LOG_DIRS, 1)),
    ("broker_id",),
)

FEATURES = Table(
    "features",
    "The features of the cluster with their levels, such as metadata.version (KIP-584).",
    (
        Column("feature", "STRING", "name of the feature"),
        Column("level", "INT", "level of the cluster; NULL: off"),
        Column("min_level", "INT", "lowest level that all brokers support"),
        Column("max_level", "INT", "highest level that all brokers support"),
        Column("epoch", "BIGINT", "epoch of the levels: the metadata log offset that the reporting broker has reached"),
        *AS_OF,
    ),
    ((ApiKey.API_VERSIONS, 3),),
    has_time_travel=True,
)

APIS = Table(
    "apis",
    "The requests that each broker supports. A broker that does not respond causes an error that names it.",
    (
        BROKER,
        Column("api_key", "INT", "number of the API"),
        Column("api", "STRING", "name of the API; NULL if this client does not know the number"),
        Column("min_version", "INT", "lowest version that the broker supports"),
        Column("max_version", "INT", "highest version that the broker supports"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1), (ApiKey.API_VERSIONS, 0)),
    ("broker_id",),
)

QUOTAS = Table(
    "quotas",
    "The quotas of users, clients and addresses.",
    (
        Column("user", "STRING", "user; '<default>': all users without their own quota; NULL: any"),
        Column("client_id", "STRING", "client.id; '<default>' and NULL as above"),
        Column("ip", "STRING", "address; '<default>' and NULL as above"),
        Column("quota", "STRING", "what is limited, such as producer_byte_rate"),
        Column("value", "DOUBLE", "the limit"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_CLIENT_QUOTAS, 0),),
)

ACLS = Table(
    "acls",
    "The access control lists.",
    (
        Column("resource_type", "STRING", "such as TOPIC, GROUP, CLUSTER"),
        Column("resource", "STRING", "name or prefix of the resource; '*': all"),
        Column("pattern_type", "STRING", "LITERAL or PREFIXED"),
        Column("principal", "STRING", "principal, such as User:alice"),
        Column("host", "STRING", "address of the client; '*': any"),
        Column("operation", "STRING", "such as READ, WRITE, ALL"),
        Column("permission", "STRING", "ALLOW or DENY"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_ACLS, 1),),
    ("resource_type", "resource"),
)

SCRAM_USERS = Table(
    "scram_users",
    "The users that authenticate with SCRAM. Salts and keys are never read.",
    (
        Column("user", "STRING", "name of the user"),
        Column("mechanism", "STRING", "SCRAM-SHA-256 or SCRAM-SHA-512"),
        Column("iterations", "INT", "iterations of the hash"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0),),
    ("user",),
)

METADATA_EVENTS = Table(
    "metadata_events",
    "The events of the metadata log: every change of the cluster since the beginning of the log.",
    (
        log("offset", "BIGINT", "offset of the event in the metadata log"),
        log("epoch", "INT", "epoch of the active controller that wrote it"),
        log("timestamp", "TIMESTAMP", "when it was written"),
        log("type", "STRING", "type of the event"),
        log("type_number", "INT", "its number in the log"),
        log("topic", "STRING", "name of the topic that it is about"),
        log("topic_id", "STRING", "id of that topic"),
        log("partition", "INT", "index of the partition that it is about"),
        log("broker_id", "INT", "id of the broker that it is about"),
        log("leader", "INT", "new leader of the partition; NULL if it has none or the leader stays"),
        log("leader_epoch", "INT", "new leader epoch"),
        log("isr", INT_LIST, "new in-sync replicas"),
        log("replicas", INT_LIST, "new replicas"),
        log("resource_type", "STRING", "type of the configured resource"),
        log("resource", "STRING", "name of that resource"),
        log("config", "STRING", "name of the setting"),
        log("value", "STRING", "its new value; NULL if it is secret or was removed"),
        log("fields", "STRING", "all fields as JSON; secrets are hidden"),
        *AS_OF,
    ),
    ((ApiKey.FETCH, 4), (ApiKey.LIST_OFFSETS, 1)),
    ("offset",),
    is_streamable=True,
)

METADATA_DIFF = Table(
    "metadata_diff",
    "The differences between two points of the metadata log, which options give.",
    (
        log("change", "STRING", "added, removed or changed"),
        log("kind", "STRING", "topic, partition, broker, controller, config or feature"),
        log("key", "STRING", "name of the changed object"),
        log("topic", "STRING", "name of the topic"),
        log("partition", "INT", "index of the partition"),
        log("broker_id", "INT", "id of the broker"),
        log("field", "STRING", "field that differs"),
        log("before", "STRING", "value at the first point"),
        log("after", "STRING", "value at the second point"),
        *AS_OF,
    ),
    ((ApiKey.FETCH, 4), (ApiKey.LIST_OFFSETS, 1)),
)

METRICS = Table(
    "metrics",
    "The samples of Prometheus exporters at the addresses of option metrics=HOST:PORT,...",
    (
        Column("endpoint", "STRING", "address of the exporter"),
        Column("broker_id", "INT", "label broker_id, broker or node_id, if it is a number"),
        Column("name", "STRING", "name of the sample"),
        Column("labels", "MAP<STRING, STRING>", "its labels"),
        Column("value", "DOUBLE", "its value"),
        Column("type", "STRING", "such as counter, gauge, histogram"),
        Column("help", "STRING", "help text of the exporter"),
        *AS_OF,
    ),
    (),
)
