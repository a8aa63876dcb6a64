"""Pure: settings of a table, a topic source or a sink, made from options that `options` has parsed and checked.

All are frozen and can be pickled: Spark sends them from the driver's planning workers to the executors.
Source: spark-sql-kafka-0-10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kraft.seam import Address

EARLIEST, LATEST = -2, -1
"""Offsets that stand for the earliest and the latest one, in JSON as in Spark's connector, and in ListOffsets."""
EVERY_PARTITION = -1
"""Key that stands for every partition of a topic (`"*"` in JSON)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files, or PEM texts, of a TLS client; fields are named like Kafka's `ssl.` settings."""

    keystore_location: str | None = None
    certificate_and_key: str | None = None
    key_password: str | None = None
    truststore_location: str | None = None
    truststore_certificates: str | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Settings for connecting to the cluster; times in ms. If `tls` is None, connections are plaintext."""

    bootstrap: tuple[Address, ...]
    client_id: str = "pykraft-spark"
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    rack: str = ""
    tls: TlsFiles | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the bootstrap servers in the form that clients take: HOST:PORT[,HOST:PORT...]."""
        return ",".join(f"{one.host}:{one.port}" for one in self.bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The topics that a source reads; exactly one of the three fields is given."""

    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None


PartitionValues = Mapping[str, Mapping[int, int]]
"""Type: topic → partition (or EVERY_PARTITION) → offset, or time in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Position at which a read begins or ends. `offsets` and `timestamps` are set only if `kind` has the same name.
    `timestamp_ms` is set for kind `timestamp`: one time for all partitions."""

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
    offsets: PartitionValues = field(default_factory=dict)
    timestamp_ms: int = -1
    timestamps: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Settings with which a read task fetches records; sizes in bytes, times in ms."""

    bytes_max: int = 8 * 1024 * 1024
    partition_bytes_max: int = 8 * 1024 * 1024
    wait_ms: int = 500
    check_crcs: bool = True
    read_committed: bool = False
    retries: int = 3
    retry_interval_ms: int = 10
    poll_timeout_ms: int = 120_000
    arrow_rows: int = 32_768
    """Maximum rows of an Arrow batch, which is also limited to 8 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Settings of a topic source, batch or stream. A batch ignores the fields that only a stream uses."""

    connection: ConnectionSettings
    topics: TopicSelection
    starting: Position | None = None
    """Position at which the read begins. None: earliest for a batch, latest for a stream."""
    ending: Position | None = None
    """Position at which a batch ends; unused by a stream. None: latest."""
    fail_on_data_loss: bool = True
    fail_on_missing_timestamp: bool = True
    """Whether a partition without a record at or after the requested time is an error
    (startingOffsetsByTimestampStrategy=error)."""
    fetch: FetchSettings = FetchSettings()
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    push_timestamp_end: bool = False
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    bytes_per_trigger_max: int | None = None
    trigger_delay_max_ms: int = 15 * 60 * 1000
    poll_interval_ms: int = 100
    commit_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A point of the metadata log: an offset (all events below it have been replayed) or a time in ms since 1970."""

    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """Settings of a state table. If `connection` is None, the table is read from `folder`, the data folder of a node or
    of a whole cluster."""

    table: str
    connection: ConnectionSettings | None
    folder: str | None = None
    columns: tuple[str, ...] | None = None
    as_of: When | None = None
    from_: When | None = None
    """The first of the two points that metadata_diff compares; `to` is the second. Unused by other tables."""
    to: When | None = None
    starting: Position | None = None
    """Position at which the read begins; used only by metadata_events and offset_commits."""
    offsets_per_trigger_max: int | None = None
    with_docs: bool = False
    with_lag_time: bool = False
    metrics: tuple[str, ...] = ()
    """HOST:PORT or URLs of exporters of Prometheus text; used only by table metrics, which has no `connection`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Settings of a sink. `topic` None: each row names its topic. Sizes in bytes, times in ms."""

    connection: ConnectionSettings
    topic: str | None = None
    mark_records: bool = False
    transactional_id_prefix: str | None = None
    """Prefix of transactional ids. If it is given, each row is written exactly once, by transactions."""
    transaction_timeout_ms: int = 60_000
    progress_topic: str = "__kraft_spark_progress"
    compression: str = "none"
    batch_bytes: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
