"""Pure: the tables of what clients leave in a cluster: groups, their offsets, producers and transactions."""

from __future__ import annotations

from kraft.client.spark.tables.values import (
    AS_OF,
    GROUP,
    PARTITION,
    PARTITION_LIST,
    STRING_LIST,
    TOPIC,
    Column,
    Table,
    live,
)
from kraft.wire.api_keys import ApiKey

GROUPS = Table(
    "groups",
    "The consumer groups and other groups.",
    (
        GROUP,
        Column("state", "STRING", "such as Stable, Empty, PreparingRebalance"),
        Column("type", "STRING", "Classic, Consumer (KIP-848), Share or Streams"),
        Column("protocol_type", "STRING", "consumer, or what its clients call it"),
        Column("assignor", "STRING", "how partitions are assigned; empty if that is not decided"),
        Column("coordinator", "INT", "broker that coordinates it"),
        Column("members", "INT", "number of its members"),
        Column("epoch", "INT", "epoch of the group (KIP-848)"),
        Column("assignment_epoch", "INT", "epoch of its assignment (KIP-848)"),
        Column("topics", STRING_LIST, "topics that its members have partitions of or offsets are committed for"),
        live("lag", "BIGINT", "records that it is behind in all its partitions; NULL if no lag is known"),
        *AS_OF,
    ),
    ((ApiKey.LIST_GROUPS, 0), (ApiKey.DESCRIBE_GROUPS, 0)),
    ("group_id",),
)

GROUP_MEMBERS = Table(
    "group_members",
    "The members of groups, and the partitions that they have.",
    (
        GROUP,
        Column("member_id", "STRING", "id of the member"),
        Column("instance_id", "STRING", "its own fixed id, if it has one (KIP-345)"),
        Column("client_id", "STRING", "client.id of the client"),
        Column("host", "STRING", "where the client runs"),
        Column("rack", "STRING", "rack of the client (KIP-848)"),
        Column("epoch", "INT", "epoch of the member (KIP-848)"),
        Column("assigned", PARTITION_LIST, "the partitions that it has"),
        Column("target", PARTITION_LIST, "the partitions that it shall have (KIP-848)"),
        Column("subscribed", STRING_LIST, "the topics that it subscribes to (KIP-848)"),
        *AS_OF,
    ),
    ((ApiKey.LIST_GROUPS, 0), (ApiKey.DESCRIBE_GROUPS, 0)),
    ("group_id",),
)

GROUP_OFFSETS = Table(
    "group_offsets",
    "How far groups are: what they have committed for each partition, and what remains (consumer lag). Partitions that "
    "a member has and no commit was made for are rows with offset NULL.",
    (
        GROUP,
        TOPIC,
        PARTITION,
        Column("offset", "BIGINT", "the next offset to read, as committed; NULL without a commit"),
        Column("leader_epoch", "INT", "epoch of the record before it; NULL if the client gave none"),
        Column("metadata", "STRING", "the client's note on the commit"),
        live("start_offset", "BIGINT", "first offset in the log; this and the next two: NULL without a leader"),
        live("end_offset", "BIGINT", "high watermark"),
        live("lag", "BIGINT", "end offset less committed offset; NULL without a commit, never 0"),
        live("lag_time_ms", "BIGINT", "age of the next record; 0 if there is none; NULL without option withLagTime"),
        live("is_expired", "BOOLEAN", "the committed offset is below the first offset in the log"),
        Column("member_id", "STRING", "member that reads the partition now; NULL if none does"),
        Column("client_id", "STRING", "client.id of that member"),
        Column("host", "STRING", "where that member runs"),
        *AS_OF,
    ),
    ((ApiKey.LIST_GROUPS, 0), (ApiKey.DESCRIBE_GROUPS, 0), (ApiKey.OFFSET_FETCH, 2)),
    ("group_id", "topic", "partition"),
)

OFFSET_COMMITS = Table(
    "offset_commits",
    "The commits of groups as they were made, from topic __consumer_offsets. Compaction removes old ones.",
    (
        GROUP,
        TOPIC,
        PARTITION,
        Column("offset", "BIGINT", "the offset that was committed; NULL for a tombstone"),
        Column("leader_epoch", "INT", "epoch of the record before it; NULL if the client gave none"),
        Column("metadata", "STRING", "the client's note on the commit"),
        Column("committed", "TIMESTAMP", "when it was committed; of a tombstone: when it was written"),
        Column("is_tombstone", "BOOLEAN", "the commit was deleted or has expired"),
        Column("log_partition", "INT", "partition of __consumer_offsets"),
        Column("log_offset", "BIGINT", "offset there"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1), (ApiKey.FETCH, 4), (ApiKey.LIST_OFFSETS, 1)),
    is_streamable=True,
)

TRANSACTIONS = Table(
    "transactions",
    "The transactional ids, and their transactions if one is open.",
    (
        Column("transactional_id", "STRING", "the producer's transactional.id"),
        Column("coordinator", "INT", "broker that coordinates it"),
        Column("state", "STRING", "such as Empty, Ongoing, CompleteCommit"),
        Column("producer_id", "BIGINT", "id of the producer"),
        Column("producer_epoch", "INT", "epoch of the producer"),
        Column("timeout_ms", "BIGINT", "the coordinator aborts a transaction that is open for longer"),
        Column("started", "TIMESTAMP", "when the open transaction began; NULL if none is open"),
        Column("age_ms", "BIGINT", "for how long it has been open; NULL if none is open"),
        Column("partitions", PARTITION_LIST, "partitions that take part in it"),
        *AS_OF,
    ),
    ((ApiKey.LIST_TRANSACTIONS, 0), (ApiKey.DESCRIBE_TRANSACTIONS, 0)),
    ("transactional_id", "producer_id"),
)

PRODUCERS = Table(
    "producers",
    "The idempotent and transactional producers that partitions remember. Hanging transactions are found by `open_ms`.",
    (
        TOPIC,
        PARTITION,
        Column("producer_id", "BIGINT", "id of the producer"),
        Column("producer_epoch", "INT", "epoch of the producer"),
        Column("last_sequence", "INT", "sequence number of its last record; NULL if unknown"),
        Column("last_timestamp", "TIMESTAMP", "when it last wrote"),
        Column("coordinator_epoch", "INT", "epoch of its transaction coordinator; NULL if it has none"),
        Column("transaction_start", "BIGINT", "first offset of its open transaction; NULL if none is open"),
        Column("open_ms", "BIGINT", "time since it last wrote, while a transaction is open; NULL if none is"),
        *AS_OF,
    ),
    ((ApiKey.METADATA, 1), (ApiKey.DESCRIBE_PRODUCERS, 0)),
    ("topic", "partition"),
)
