"""Pure: the tables of the cluster itself: nodes, topics, settings, and its metadata log."""

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
        live("size_bytes", "BIGINT", "bytes in its log directories; NULL if it does not answer"),
        log("epoch", "BIGINT", "epoch of its registration"),
        log("incarnation_id", "STRING", "id of its process"),
        log("host_id", "STRING", "id of the machine that it registered from"),
        log("in_controlled_shutdown", "BOOLEAN", "it is handing over its leaderships to stop"),
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
        Column("last_caught_up", "TIMESTAMP", "when it last had all of the leader's log"),
        Column("high_watermark", "BIGINT", "up to here the log is committed"),
        Column("endpoints", ENDPOINT_LIST, "listeners of a voter; NULL for observers and before DescribeQuorum v2"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_QUORUM, 0),),
)

TOPICS = Table(
    "topics",
    "The topics, with the state of their partitions and the settings that are asked for most.",
    (
        TOPIC,
        TOPIC_ID,
        Column("is_internal", "BOOLEAN", "it is one of Kafka's own"),
        Column("partitions", "INT", "its number of partitions"),
        Column("replication_factor", "INT", "most replicas that a partition of it has"),
        Column("under_replicated", "INT", "partitions with fewer replicas in sync than replicas"),
        Column("under_min_isr", "INT", "partitions with fewer replicas in sync than min.insync.replicas"),
        Column("leaderless", "INT", "partitions without a leader"),
        Column("min_insync_replicas", "INT", "setting min.insync.replicas"),
        Column("cleanup_policy", "STRING", "setting cleanup.policy"),
        Column("retention_ms", "BIGINT", "setting retention.ms; -1: no limit"),
        Column("retention_bytes", "BIGINT", "setting retention.bytes of each partition; -1: no limit"),
        live("size_bytes", "BIGINT", "bytes of all its replicas on the brokers that answer"),
        live("records", "BIGINT", "end offsets less start offsets: an upper bound; NULL if a leader does not answer"),
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
    "The partitions: leader, replicas, and how far their logs go.",
    (
        TOPIC,
        TOPIC_ID,
        PARTITION,
        Column("leader", "INT", "broker that leads it; NULL if none does"),
        Column("leader_epoch", "INT", "epoch of the leader"),
        Column("replicas", INT_LIST, "its replicas; the first is preferred as leader"),
        Column("isr", INT_LIST, "the replicas in sync"),
        Column("offline_replicas", INT_LIST, "replicas whose broker or log directory is down"),
        Column("elr", INT_LIST, "replicas out of sync that may lead all the same (KIP-966)"),
        Column("last_known_elr", INT_LIST, "replicas that once could (KIP-966)"),
        Column("adding", INT_LIST, "replicas that a reassignment adds"),
        Column("removing", INT_LIST, "replicas that a reassignment removes"),
        Column("preferred_leader", "INT", "the first replica"),
        Column("is_preferred_led", "BOOLEAN", "the first replica leads"),
        Column("is_under_replicated", "BOOLEAN", "fewer replicas in sync than replicas"),
        Column("is_under_min_isr", "BOOLEAN", "fewer replicas in sync than min.insync.replicas"),
        Column("is_offline", "BOOLEAN", "it has no leader"),
        live("start_offset", "BIGINT", "first offset in the log; this and the next four: NULL without a leader"),
        live("end_offset", "BIGINT", "high watermark: the offset after the last record that consumers may read"),
        live("stable_offset", "BIGINT", "end offset for readers of committed transactions only"),
        live("records", "BIGINT", "end offset less start offset: an upper bound"),
        live("newest_timestamp", "TIMESTAMP", "newest time of a record; NULL if there is no record"),
        live("size_bytes", "BIGINT", "bytes of the leader's log"),
        log("partition_epoch", "INT", "changes of the partition so far"),
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
        Column("position", "INT", "place in the list of replicas; 0: preferred as leader"),
        Column("is_leader", "BOOLEAN", "it leads"),
        Column("is_in_sync", "BOOLEAN", "it is in the ISR"),
        Column("is_offline", "BOOLEAN", "its broker or its log directory is down"),
        Column("is_eligible", "BOOLEAN", "it is out of sync, but may lead all the same (KIP-966)"),
        Column("is_adding", "BOOLEAN", "a reassignment adds it"),
        Column("is_removing", "BOOLEAN", "a reassignment removes it"),
        live("log_dir", "STRING", "its log directory; this and the next three: NULL if the broker does not answer"),
        live("size_bytes", "BIGINT", "bytes of its log"),
        live("lag", "BIGINT", "records that it is behind the high watermark"),
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
    "The settings of topics, brokers, groups and client metrics. A table of the past holds only those that were set.",
    (
        Column("resource_type", "STRING", "TOPIC, BROKER, GROUP or CLIENT_METRICS"),
        Column("resource", "STRING", "what is configured; empty with BROKER: all brokers"),
        Column("name", "STRING", "name of the setting"),
        Column("value", "STRING", "its value; NULL if it is secret or has none"),
        Column("source", "STRING", "what sets it, such as TOPIC, DYNAMIC_BROKER, STATIC_BROKER, DEFAULT"),
        Column("is_default", "BOOLEAN", "nobody has set it"),
        Column("is_read_only", "BOOLEAN", "a running node does not take another value"),
        Column("is_sensitive", "BOOLEAN", "its value is secret"),
        Column("type", "STRING", "type of the value, such as INT, LIST, PASSWORD"),
        Column("synonyms", SYNONYM_LIST, "all that sets it, the strongest first"),
        Column("documentation", "STRING", "what the setting does; NULL without option withDocs"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_CONFIGS, 1),),
    ("resource_type", "resource"),
    has_time_travel=True,
)

LOG_DIRS = Table(
    "log_dirs",
    "The log directories of the brokers. A broker that does not answer is a row with its error and no path.",
    (
        BROKER,
        Column("path", "STRING", "the directory"),
        Column(
            "error", "STRING", "Kafka's error of the directory, or why the broker does not answer; NULL if all is well"
        ),
        Column("total_bytes", "BIGINT", "size of the volume; NULL before DescribeLogDirs v4"),
        Column("usable_bytes", "BIGINT", "bytes that are free there; NULL before DescribeLogDirs v4"),
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
        Column("level", "INT", "the level that the cluster has agreed on; NULL: off"),
        Column("min_level", "INT", "lowest level that all brokers know"),
        Column("max_level", "INT", "highest level that all brokers know"),
        Column(
            "epoch", "BIGINT", "epoch of the agreed levels: the offset of the metadata log that a broker has got to"
        ),
        *AS_OF,
    ),
    ((ApiKey.API_VERSIONS, 3),),
    has_time_travel=True,
)

APIS = Table(
    "apis",
    "The requests that each broker answers. A broker that does not answer is an error that names it.",
    (
        BROKER,
        Column("api_key", "INT", "number of the API"),
        Column("api", "STRING", "name of the API; NULL if this client does not know the number"),
        Column("min_version", "INT", "lowest version that the broker answers"),
        Column("max_version", "INT", "highest version that the broker answers"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1), (ApiKey.API_VERSIONS, 0)),
    ("broker_id",),
)

QUOTAS = Table(
    "quotas",
    "The quotas of users, clients and addresses.",
    (
        Column("user", "STRING", "user; '<default>': all without a quota of their own; NULL: any"),
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
        Column("principal", "STRING", "who, such as User:alice"),
        Column("host", "STRING", "from where; '*': from anywhere"),
        Column("operation", "STRING", "such as READ, WRITE, ALL"),
        Column("permission", "STRING", "ALLOW or DENY"),
        *AS_OF,
    ),
    ((ApiKey.DESCRIBE_ACLS, 1),),
    ("resource_type", "resource"),
)

SCRAM_USERS = Table(
    "scram_users",
    "The users that log in by SCRAM. Salts and keys are never read.",
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
    "The metadata log, event by event: all that ever changed in the cluster, as far as the log goes back.",
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
        log("isr", INT_LIST, "new replicas in sync"),
        log("replicas", INT_LIST, "new replicas"),
        log("resource_type", "STRING", "type of the resource that is configured"),
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
    "What differs between two points of the metadata log; they are given by options.",
    (
        log("change", "STRING", "added, removed or changed"),
        log("kind", "STRING", "topic, partition, broker, controller, config or feature"),
        log("key", "STRING", "what differs, as one name"),
        log("topic", "STRING", "name of the topic"),
        log("partition", "INT", "index of the partition"),
        log("broker_id", "INT", "id of the broker"),
        log("field", "STRING", "what of it differs"),
        log("before", "STRING", "value at the first point"),
        log("after", "STRING", "value at the second point"),
        *AS_OF,
    ),
    ((ApiKey.FETCH, 4), (ApiKey.LIST_OFFSETS, 1)),
)

METRICS = Table(
    "metrics",
    "What exporters of Prometheus metrics report, at the addresses of option metrics=HOST:PORT,...",
    (
        Column("endpoint", "STRING", "address that was asked"),
        Column("broker_id", "INT", "label broker_id, broker or node_id, if it is a number"),
        Column("name", "STRING", "name of the sample"),
        Column("labels", "MAP<STRING, STRING>", "its labels"),
        Column("value", "DOUBLE", "its value"),
        Column("type", "STRING", "such as counter, gauge, histogram"),
        Column("help", "STRING", "what the exporter says of it"),
        *AS_OF,
    ),
    (),
)
