"""The list of all options: each option's name, the kinds of reads and writes that accept it, its meaning and its
parser.

docs/spark-options.md is generated from the list. Options marked "(pykraft)" exist neither in Spark's connector nor in
Kafka's clients.
Source: spark-sql-kafka-0-10, Kafka's CommonClientConfigs (names that begin with `kafka.`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kraft.client.spark.options import values
from kraft.client.spark.options.patterns import parse_pattern
from kraft.client.spark.options.values import INT32_MAX
from kraft.wire.records.compression import Compression


class Kind(Enum):
    """The kind of read or write to which options are given. The value is used in error messages."""

    BATCH = "a batch read of topics"
    STREAM = "a stream of topics"
    TABLE = "a table"
    SINK = "a sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option. `parse` raises OptionValueError. `default` is shown in the documentation. `ignored_by`: kinds that
    accept it without effect. The value of a secret option is never shown."""

    name: str
    kinds: frozenset[Kind]
    parse: Callable[[str], Any]
    meaning: str
    default: str = ""
    ignored_by: frozenset[Kind] = frozenset()
    is_secret: bool = False


_BATCH, _STREAM = frozenset({Kind.BATCH}), frozenset({Kind.STREAM})
_TABLE, _SINK = frozenset({Kind.TABLE}), frozenset({Kind.SINK})
_TOPICS = _BATCH | _STREAM
_READ = _TOPICS | _TABLE
_ALL = _READ | _SINK


def _option(
    name: str,
    kinds: frozenset[Kind],
    parse: Callable[[str], Any],
    meaning: str,
    default: str = "",
    ignored_by: frozenset[Kind] = frozenset(),
) -> Option:
    return Option(name=name, kinds=kinds, parse=parse, meaning=meaning, default=default, ignored_by=ignored_by)


def _kafka(
    name: str,
    kinds: frozenset[Kind],
    parse: Callable[[str], Any],
    meaning: str,
    default: str = "",
    secret: bool = False,
) -> Option:
    """Define an option that is a setting of Kafka's clients. Kinds of reads and writes for which it has no meaning
    accept it without effect."""
    return Option(
        name=f"kafka.{name}",
        kinds=kinds,
        parse=parse,
        meaning=meaning,
        default=default,
        ignored_by=_ALL - kinds,
        is_secret=secret,
    )


_WHICH = (
    _option("bootstrap", _ALL, values.addresses, "(pykraft) short for kafka.bootstrap.servers"),
    _option("subscribe", _TOPICS, values.topics, "topics to read, between commas"),
    _option(
        "subscribePattern",
        _TOPICS,
        parse_pattern,
        "regular expression that a topic's name contains (whole name: `^orders$`); internal topics never match",
    ),
    _option("assign", _TOPICS, values.assignment, 'partitions to read, as JSON: {"orders":[0,1]}'),
    _option("topic", _TOPICS, values.topics, "(pykraft) short for subscribe"),
    _option("table", _TABLE, values.text, "(pykraft) the table to read"),
    _option(
        "columns",
        _READ,
        values.names,
        "(pykraft) columns to read, between commas, in this order. Fewer columns are read faster, and Spark does not "
        "pass the columns of a query on to a Python source",
        "all",
    ),
)
_WHERE = (
    _option(
        "startingOffsets",
        _READ,
        values.start,
        'where to begin: earliest, latest (not in a batch), or JSON with an offset for each partition: {"orders":'
        '{"0":23,"1":-2}} or {"orders":{"*":-2}}; -2 is earliest, -1 latest. A stream that continues from its '
        "checkpoint ignores it. Table metadata_events also takes a plain offset",
        "earliest; for a stream of topics latest",
    ),
    _option(
        "endingOffsets",
        _BATCH,
        values.start,
        "where to end: latest or JSON as in startingOffsets, without -2",
        "latest",
    ),
    _option(
        "startingTimestamp",
        _READ,
        values.moment,
        "begin at the first record at or after this time: ms since 1970, ISO 8601, or how long ago (10m, 1h, 2d). It "
        "has precedence over the two options below, and those over startingOffsets",
    ),
    _option("endingTimestamp", _BATCH, values.moment, "end before the first record at or after this time"),
    _option(
        "startingOffsetsByTimestamp",
        _TOPICS,
        values.timestamps,
        'the same for each partition, as JSON in ms since 1970: {"orders":{"0":1700000000000}}',
    ),
    _option("endingOffsetsByTimestamp", _BATCH, values.timestamps, "the same for the end"),
    _option(
        "startingOffsetsByTimestampStrategy",
        _TOPICS,
        values.one_of("error", "latest"),
        "what to do with a partition that has no record at or after the starting time: fail, or begin at its end",
        "error; with `since` latest",
    ),
    _option(
        "since",
        _READ,
        values.since,
        "(pykraft) begin this long ago (10m, 1h, 2d) or at this time; resolved once, when the query is planned",
    ),
)
_LIMITS = (
    _option(
        "failOnDataLoss",
        _TOPICS,
        values.truth,
        "true: fail if records are lost; false: log a warning and continue after them",
        "true",
    ),
    _option("minPartitions", _TOPICS, values.number(1, INT32_MAX), "approximate minimum of Spark partitions"),
    _option("maxRecordsPerPartition", _TOPICS, values.number(1), "maximum offsets in a Spark partition"),
    _option(
        "maxOffsetsPerTrigger",
        _STREAM | _TABLE,
        values.number(1),
        "maximum offsets in a micro-batch, shared by the partitions in proportion to the lag of each",
        "no limit",
        _BATCH,
    ),
    _option(
        "minOffsetsPerTrigger",
        _STREAM,
        values.number(1),
        "a micro-batch waits for this many offsets, at most maxTriggerDelay; without effect under AvailableNow",
        "",
        _BATCH,
    ),
    _option("maxTriggerDelay", _STREAM, values.duration(1), "see minOffsetsPerTrigger", "15m", _BATCH),
    _option(
        "maxBytesPerTrigger",
        _STREAM,
        values.size,
        "(pykraft) approximate maximum of bytes in a micro-batch, by the mean size of recent records",
        "no limit",
    ),
    _option(
        "pollInterval",
        _STREAM,
        values.duration(1),
        "(pykraft) an idle stream sends at most one request in this time, for any number of brokers",
        "100ms",
    ),
    _option(
        "pushTimestampEnd",
        _BATCH,
        values.truth,
        "(pykraft) a filter on timestamp also limits where reading ends. Correct only if times never decrease within a "
        "partition. Topics with message.timestamp.type=LogAppendTime do not need this option",
        "false",
    ),
    _option("arrowRows", _TOPICS, values.number(1, 1 << 20), "(pykraft) maximum rows in an Arrow batch", "32768"),
    _option(
        "fetchOffset.numRetries", _TOPICS, values.number(0, 1000), "number of retries of a request for offsets", "3"
    ),
    _option(
        "fetchOffset.retryIntervalMs", _TOPICS, values.number(0, INT32_MAX), "pause between these retries, in ms", "10"
    ),
    _option(
        "kafkaConsumer.pollTimeoutMs",
        _TOPICS,
        values.number(1, INT32_MAX),
        "a task fails if a record that it must read does not arrive within this time, in ms",
        "120000",
    ),
)
_GROUPS = (
    _option("groupIdPrefix", _TOPICS, values.text, "accepted without effect: no group is joined"),
    _option(
        "commitGroup",
        _STREAM,
        values.text,
        "(pykraft) commit the end of each micro-batch to this consumer group, so that tools show the lag. No "
        "consumer may be in the group. Commits are one batch behind, and the last batch of AvailableNow is committed "
        "by the next run. A kraft.client.spark.GroupCommitter(spark) in the program commits each batch at once",
    ),
)
_TABLES = (
    _option(
        "folder", _TABLE, values.text, "(pykraft) data folder of a node or a cluster to read instead of asking brokers"
    ),
    _option("asOfOffset", _TABLE, values.number(0), "(pykraft) the table as it was at this offset of the metadata log"),
    _option("asOfTimestamp", _TABLE, values.moment, "(pykraft) the table as it was at this time"),
    _option("fromOffset", _TABLE, values.number(0), "(pykraft) metadata_diff: changes from this offset on"),
    _option("fromTimestamp", _TABLE, values.moment, "(pykraft) metadata_diff: changes from this time on"),
    _option("toOffset", _TABLE, values.number(0), "(pykraft) metadata_diff: changes before this offset", "now"),
    _option("toTimestamp", _TABLE, values.moment, "(pykraft) metadata_diff: changes before this time", "now"),
    _option("withDocs", _TABLE, values.truth, "(pykraft) table configs: fill the column documentation", "false"),
    _option(
        "withLagTime",
        _TABLE,
        values.truth,
        "(pykraft) table group_offsets: fill the column lag_time_ms, with one fetch per partition",
        "false",
    ),
    _option(
        "metrics",
        _TABLE,
        values.names,
        "(pykraft) table metrics: exporters of Prometheus metrics, between commas: HOST:PORT (path /metrics) or URLs. "
        "This table needs no kafka.bootstrap.servers",
    ),
)
_WRITING = (
    _option("topic", _SINK, values.topic, "write all rows to this topic; it has precedence over a column topic"),
    _option(
        "includeHeaders",
        _TOPICS | _SINK,
        values.truth,
        "read: add the column headers as the last one. A sink writes a column headers if there is one, as the "
        "connector does",
        "false",
    ),
    _option(
        "markRecords",
        _SINK,
        values.truth,
        "(pykraft) add a header spark with queryId/batchId/partition/index to each record, to find duplicates",
        "false",
    ),
    _option(
        "transactionalIdPrefix",
        _SINK,
        values.text,
        "(pykraft) exactly once: each task writes in its own transaction, with the transactional id "
        "<prefix>.<queryId>.<partition>. Never change it while the query's checkpoint is in use",
    ),
    _option(
        "progressTopic",
        _SINK,
        values.topic,
        "(pykraft) compacted topic in which these tasks record their progress",
        "__kraft_spark_progress",
    ),
)
_SETTINGS = (
    _kafka("bootstrap.servers", _ALL, values.addresses, "brokers to connect to first: HOST:PORT,... Required"),
    _kafka("client.id", _ALL, values.text, "name of this client in the brokers' logs", "pykraft-spark"),
    _kafka("request.timeout.ms", _ALL, values.number(1, INT32_MAX), "how long to wait for a response, in ms", "30000"),
    _kafka(
        "metadata.max.age.ms",
        _ALL,
        values.number(1),
        "request topics and leaders again after this time, in ms",
        "300000",
    ),
    _kafka(
        "client.rack",
        _TOPICS,
        str.strip,
        "rack of this client, to read from the nearest replica if the brokers choose by rack",
    ),
    _kafka(
        "isolation.level",
        _TOPICS,
        values.one_of("read_uncommitted", "read_committed"),
        "read_committed leaves out records of aborted transactions, and ends at the last stable offset",
        "read_uncommitted",
    ),
    _kafka("fetch.max.bytes", _TOPICS, values.number(1, INT32_MAX), "maximum bytes of a Fetch response", "8388608"),
    _kafka("max.partition.fetch.bytes", _TOPICS, values.number(1, INT32_MAX), "the same for each partition", "8388608"),
    _kafka(
        "fetch.max.wait.ms",
        _TOPICS,
        values.number(0, INT32_MAX),
        "how long a broker may wait for records, in ms",
        "500",
    ),
    _kafka("check.crcs", _TOPICS, values.truth, "check the CRC of each record batch", "true"),
    _kafka(
        "compression.type",
        _SINK,
        values.one_of(*(codec.name.lower() for codec in Compression)),
        "compression of written records",
        "none",
    ),
    _kafka("batch.size", _SINK, values.number(1, INT32_MAX), "maximum bytes of a record batch", "1048576"),
    _kafka("buffer.memory", _SINK, values.number(1), "maximum bytes of unsent records in a task", "33554432"),
    _kafka(
        "delivery.timeout.ms",
        _SINK,
        values.number(1, INT32_MAX),
        "a record must be written within this time, in ms",
        "120000",
    ),
    _kafka(
        "transaction.timeout.ms",
        _SINK,
        values.number(1, INT32_MAX),
        "the broker aborts a transaction after this time, in ms",
        "60000",
    ),
)
_SECURITY = (
    _kafka("security.protocol", _ALL, values.text, "PLAINTEXT or SSL", "PLAINTEXT"),
    _kafka(
        "ssl.truststore.location", _ALL, values.text, "PEM file of the authorities to trust, on every node of Spark"
    ),
    _kafka("ssl.truststore.certificates", _ALL, values.text, "the same as PEM text"),
    _kafka("ssl.truststore.type", _ALL, values.text, "PEM", "PEM"),
    _kafka("ssl.truststore.password", _ALL, values.text, "rejected: PEM files have no store password", secret=True),
    _kafka("ssl.keystore.location", _ALL, values.text, "PEM file of certificate and key, on every node of Spark"),
    _kafka("ssl.keystore.certificate.chain", _ALL, values.text, "the certificate as PEM text"),
    _kafka("ssl.keystore.key", _ALL, values.text, "the key as PEM text", secret=True),
    _kafka("ssl.keystore.type", _ALL, values.text, "PEM", "PEM"),
    _kafka("ssl.keystore.password", _ALL, values.text, "rejected: PEM files have no store password", secret=True),
    _kafka("ssl.key.password", _ALL, values.text, "password of the key", secret=True),
    _kafka(
        "ssl.endpoint.identification.algorithm",
        _ALL,
        str.strip,
        "https: the broker's certificate must name its host; empty: the name is not checked",
        "https",
    ),
)

CHAPTERS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("Which topics or table", _WHICH),
    ("Where to begin and end", _WHERE),
    ("How much at a time", _LIMITS),
    ("Consumer groups", _GROUPS),
    ("Tables", _TABLES),
    ("Headers and sinks", _WRITING),
    ("Settings of Kafka's clients", _SETTINGS),
    ("TLS", _SECURITY),
)
OPTIONS = tuple(option for _, chapter in CHAPTERS for option in chapter)


def options_of(kind: Kind) -> dict[str, Option]:
    """Return the options that have an effect on this kind of read or write, by name in lower case."""
    return {option.name.lower(): option for option in OPTIONS if kind in option.kinds}
