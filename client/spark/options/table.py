"""The one table of options: what each is called, what it is for, what it means, and how its text is parsed.

docs/spark-options.md is made from it. Options marked "(pykraft)" are in neither source.
Source: spark-sql-kafka-0-10, Kafka's CommonClientConfigs (names that begin with
`kafka.`).
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
    """What options are given to. The value is used in errors."""

    BATCH = "a batch read of topics"
    STREAM = "a stream of topics"
    TABLE = "a table"
    SINK = "a sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option. `parse` raises values.Refused. `default` is shown in the documentation. `passes_over`: kinds that
    accept it without effect. The value of a secret is never shown."""

    name: str
    kinds: frozenset[Kind]
    parse: Callable[[str], Any]
    meaning: str
    default: str = ""
    passes_over: frozenset[Kind] = frozenset()
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
    passes_over: frozenset[Kind] = frozenset(),
) -> Option:
    return Option(name=name, kinds=kinds, parse=parse, meaning=meaning, default=default, passes_over=passes_over)


def _kafka(
    name: str,
    kinds: frozenset[Kind],
    parse: Callable[[str], Any],
    meaning: str,
    default: str = "",
    secret: bool = False,
) -> Option:
    """A setting of Kafka's clients: kinds for which it means nothing accept it without effect."""
    return Option(
        name=f"kafka.{name}",
        kinds=kinds,
        parse=parse,
        meaning=meaning,
        default=default,
        passes_over=_ALL - kinds,
        is_secret=secret,
    )


_WHICH = (
    _option("bootstrap", _ALL, values.addresses, "(pykraft) short for kafka.bootstrap.servers"),
    _option("subscribe", _TOPICS, values.topics, "topics to read, between commas"),
    _option(
        "subscribePattern",
        _TOPICS,
        parse_pattern,
        "regular expression that is found in the name of a topic (whole: `^orders$`); internal topics never count",
    ),
    _option("assign", _TOPICS, values.assignment, 'partitions to read, as JSON: {"orders":[0,1]}'),
    _option("topic", _TOPICS, values.topics, "(pykraft) short for subscribe"),
    _option("table", _TABLE, values.text, "(pykraft) the table to read"),
    _option(
        "columns",
        _READ,
        values.names,
        "(pykraft) columns to read, between commas, in this order; Spark cannot tell a Python source which ones a "
        "query uses, and fewer are read faster",
        "all",
    ),
)
_WHERE = (
    _option(
        "startingOffsets",
        _READ,
        values.start,
        'where to begin: earliest, latest (not in a batch), or JSON with an offset for each partition: {"orders":'
        '{"0":23,"1":-2}} or {"orders":{"*":-2}}; -2 is earliest, -1 latest. A stream that goes on from its checkpoint '
        "does not look at it. Table metadata_events also takes a plain offset",
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
        "begin at the first record that is as new as this: ms since 1970, ISO 8601, or how long ago (10m, 1h, 2d). It "
        "beats the two options below, and those beat startingOffsets",
    ),
    _option("endingTimestamp", _BATCH, values.moment, "end before the first record that is as new as this"),
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
        "what to do with a partition that has no record as new as the time to begin at: fail, or begin at its end",
        "error; with since latest",
    ),
    _option(
        "since",
        _READ,
        values.since,
        "(pykraft) begin so long ago (10m, 1h, 2d) or at this time; resolved once, when the query is planned",
    ),
)
_LIMITS = (
    _option(
        "failOnDataLoss", _TOPICS, values.truth, "fail where records are gone, or warn and go on after them", "true"
    ),
    _option("minPartitions", _TOPICS, values.number(1, INT32_MAX), "at least about so many Spark partitions"),
    _option("maxRecordsPerPartition", _TOPICS, values.number(1), "at most about so many offsets in a Spark partition"),
    _option(
        "maxOffsetsPerTrigger",
        _STREAM | _TABLE,
        values.number(1),
        "at most so many offsets in a micro-batch, shared by the partitions in proportion to what is left in each",
        "no limit",
        _BATCH,
    ),
    _option(
        "minOffsetsPerTrigger",
        _STREAM,
        values.number(1),
        "wait for so many offsets, at most maxTriggerDelay; without effect under AvailableNow",
        "",
        _BATCH,
    ),
    _option("maxTriggerDelay", _STREAM, values.duration(1), "see minOffsetsPerTrigger", "15m", _BATCH),
    _option(
        "maxBytesPerTrigger",
        _STREAM,
        values.size,
        "(pykraft) at most about so many bytes in a micro-batch, by the mean size of the records of the last ones",
        "no limit",
    ),
    _option(
        "pollInterval",
        _STREAM,
        values.duration(1),
        "(pykraft) an idle stream makes at most one request in this time, whatever the number of brokers",
        "100ms",
    ),
    _option(
        "pushTimestampEnd",
        _BATCH,
        values.truth,
        "(pykraft) a filter on timestamp also limits where reading ends. Right only if times never decrease within a "
        "partition; for topics with message.timestamp.type=LogAppendTime it is done anyway",
        "false",
    ),
    _option(
        "arrowRows", _TOPICS, values.number(1, 1 << 20), "(pykraft) at most so many rows in an Arrow batch", "32768"
    ),
    _option("fetchOffset.numRetries", _TOPICS, values.number(0, 1000), "retries of a request for offsets", "3"),
    _option("fetchOffset.retryIntervalMs", _TOPICS, values.number(0, INT32_MAX), "pause between them", "10"),
    _option(
        "kafkaConsumer.pollTimeoutMs",
        _TOPICS,
        values.number(1, INT32_MAX),
        "a task fails after so many ms without a record that it must read",
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
        "consumer may be in the group. It is one batch behind, and the last batch of AvailableNow is committed by the "
        "next run; a kraft.client.spark.GroupCommitter(spark) in the program closes that gap",
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
    _option("withDocs", _TABLE, values.truth, "(pykraft) configs: fill the column documentation", "false"),
    _option(
        "withLagTime",
        _TABLE,
        values.truth,
        "(pykraft) group_offsets: fill the column lag_time_ms, by a fetch for each partition",
        "false",
    ),
    _option(
        "metrics",
        _TABLE,
        values.names,
        "(pykraft) metrics: HOST:PORT, of which /metrics is read, or URLs, between commas, of what exports Prometheus "
        "metrics. This table needs no kafka.bootstrap.servers",
    ),
)
_WRITING = (
    _option("topic", _SINK, values.topic, "write all rows to this topic; it beats a column topic"),
    _option(
        "includeHeaders",
        _TOPICS | _SINK,
        values.truth,
        "read: add a column headers, last. A sink writes a column headers whenever there is one, as the connector does",
        "false",
    ),
    _option(
        "markRecords",
        _SINK,
        values.truth,
        "(pykraft) add a header spark with queryId/batchId/partition/index to each record, by which doubles are found",
        "false",
    ),
    _option(
        "transactionalIdPrefix",
        _SINK,
        values.text,
        "(pykraft) exactly once: each task writes in a transaction of its own, under <prefix>.<queryId>.<partition>. "
        "Never change it while the query's checkpoint lives",
    ),
    _option(
        "progressTopic",
        _SINK,
        values.topic,
        "(pykraft) compacted topic in which such tasks note what they have written",
        "__kraft_spark_progress",
    ),
)
_SETTINGS = (
    _kafka("bootstrap.servers", _ALL, values.addresses, "brokers to ask first: HOST:PORT,... Required"),
    _kafka("client.id", _ALL, values.text, "the name that the brokers log", "pykraft-spark"),
    _kafka("request.timeout.ms", _ALL, values.number(1, INT32_MAX), "how long to wait for an answer", "30000"),
    _kafka("metadata.max.age.ms", _ALL, values.number(1), "ask for topics and leaders again after this time", "300000"),
    _kafka("client.rack", _TOPICS, str.strip, "read from the nearest replica, if the brokers choose by rack"),
    _kafka(
        "isolation.level",
        _TOPICS,
        values.one_of("read_uncommitted", "read_committed"),
        "read_committed leaves out records of transactions that were aborted, and ends at the last stable offset",
        "read_uncommitted",
    ),
    _kafka("fetch.max.bytes", _TOPICS, values.number(1, INT32_MAX), "size of an answer with records", "8388608"),
    _kafka("max.partition.fetch.bytes", _TOPICS, values.number(1, INT32_MAX), "the same per partition", "8388608"),
    _kafka("fetch.max.wait.ms", _TOPICS, values.number(0, INT32_MAX), "how long a broker may wait for records", "500"),
    _kafka("check.crcs", _TOPICS, values.truth, "check the checksum of each batch of records", "true"),
    _kafka(
        "compression.type",
        _SINK,
        values.one_of(*(codec.name.lower() for codec in Compression)),
        "compression of the records that are written",
        "none",
    ),
    _kafka("batch.size", _SINK, values.number(1, INT32_MAX), "bytes of a batch of records", "1048576"),
    _kafka("buffer.memory", _SINK, values.number(1), "bytes that a task may hold unsent", "33554432"),
    _kafka("delivery.timeout.ms", _SINK, values.number(1, INT32_MAX), "a record must be written by then", "120000"),
    _kafka(
        "transaction.timeout.ms", _SINK, values.number(1, INT32_MAX), "the broker aborts it after this time", "60000"
    ),
)
_SECURITY = (
    _kafka("security.protocol", _ALL, values.text, "PLAINTEXT or SSL", "PLAINTEXT"),
    _kafka(
        "ssl.truststore.location", _ALL, values.text, "PEM file of the authorities to trust, on every node of Spark"
    ),
    _kafka("ssl.truststore.certificates", _ALL, values.text, "the same as PEM text"),
    _kafka("ssl.truststore.type", _ALL, values.text, "PEM", "PEM"),
    _kafka("ssl.truststore.password", _ALL, values.text, "refused: PEM has none", secret=True),
    _kafka("ssl.keystore.location", _ALL, values.text, "PEM file of certificate and key, on every node of Spark"),
    _kafka("ssl.keystore.certificate.chain", _ALL, values.text, "the certificate as PEM text"),
    _kafka("ssl.keystore.key", _ALL, values.text, "the key as PEM text", secret=True),
    _kafka("ssl.keystore.type", _ALL, values.text, "PEM", "PEM"),
    _kafka("ssl.keystore.password", _ALL, values.text, "refused: PEM has none", secret=True),
    _kafka("ssl.key.password", _ALL, values.text, "password of the key", secret=True),
    _kafka(
        "ssl.endpoint.identification.algorithm",
        _ALL,
        str.strip,
        "https: the broker's certificate must name its host; empty: it need not",
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
    """By name in lower case: those that have an effect for this kind."""
    return {option.name.lower(): option for option in OPTIONS if kind in option.kinds}
