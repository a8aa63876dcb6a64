"""Pure: definitions of tables about clients' state in a cluster: groups, committed offsets, producers
and transactions."""

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
        Column("protocol_type", "STRING", "consumer, or another name that its clients give"),
        Column("assignor", "STRING", "how partitions are assigned; empty if not decided yet"),
        Column("coordinator", "INT", "broker that coordinates it"),
        Column("members", "INT", "number of its members"),
        Column("epoch", "INT", "epoch of the group (KIP-848)"),
        Column("assignment_epoch", "INT", "epoch of its assignment (KIP-848)"),
        Column("topics", STRING_LIST, "topics with partitions of its members or committed offsets"),
        live("lag", "BIGINT", "number of records that it is behind in all its partitions; NULL if no lag is known"),
        *AS_OF,
    ),
    ((ApiKey.LIST_GROUPS, 0), (ApiKey.DESCRIBE_GROUPS, 0)),
    ("group_id",),
)

GROUP_MEMBERS = Table(
    "group_members",
    "The members of groups, and the partitions assigned to them.",
    (
        GROUP,
        Column("member_id", "STRING", "id of the member"),
        Column("instance_id", "STRING", "static member id (group.instance.id), if it has one (KIP-345)"),
        Column("client_id", "STRING", "client.id of the client"),
        Column("host", "STRING", "where the client runs"),
        Column("rack", "STRING", "rack of the client (KIP-848)"),
        Column("epoch", "INT", "epoch of the member (KIP-848)"),
        Column("assigned", PARTITION_LIST, "the partitions assigned now"),
        Column("target", PARTITION_LIST, "the target assignment (KIP-848)"),
        Column("subscribed", STRING_LIST, "the topics that it subscribes to (KIP-848)"),
        *AS_OF,
    ),
    ((ApiKey.LIST_GROUPS, 0), (ApiKey.DESCRIBE_GROUPS, 0)),
    ("group_id",),
)

GROUP_OFFSETS = Table(
    "group_offsets",
    "The committed offsets of groups for each partition, and the consumer lag. A partition that is assigned to a "
    "member but has no commit is a row with offset NULL.",
    (
        GROUP,
        TOPIC,
        PARTITION,
        Column("offset", "BIGINT", "the next offset to read, as committed; NULL without a commit"),
        Column("leader_epoch", "INT", "epoch of the record before it; NULL if the client gave none"),
        Column("metadata", "STRING", "the client's note on the commit"),
        live("start_offset", "BIGINT", "first offset in the log; this and the next two: NULL without a leader"),
        live("end_offset", "BIGINT", "high watermark"),
        live("lag", "BIGINT", "end offset less committed offset; without a commit NULL, not 0"),
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
    "The history of groups' commits, from topic __consumer_offsets. Compaction removes old ones.",
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
        Column("log_offset", "BIGINT", "offset in that partition"),
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
        Column("age_ms", "BIGINT", "age of the open transaction; NULL if none is open"),
        Column("partitions", PARTITION_LIST, "partitions of the transaction"),
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
