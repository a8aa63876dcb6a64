"""Pure: the options of a table, a topic source or a sink as values, after `options` has parsed and checked them.

All are frozen and can be pickled: Spark carries them from the driver's planning workers to the executors.
Source: spark-sql-kafka-0-10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kraft.seam import Address

EARLIEST, LATEST = -2, -1
"""Offsets in JSON, as in the connector and in ListOffsets."""
EVERY_PARTITION = -1
"""Key of a topic's map of partitions that stands for all of them (`"*"` in JSON)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files, or PEM text, of a client that speaks TLS; the names are Kafka's `ssl.` settings."""

    keystore_location: str | None = None
    certificate_and_key: str | None = None
    key_password: str | None = None
    truststore_location: str | None = None
    truststore_certificates: str | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How to reach the cluster. Times in ms. `tls` None: plain text."""

    bootstrap: tuple[Address, ...]
    client_id: str = "pykraft-spark"
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    rack: str = ""
    tls: TlsFiles | None = None

    @property
    def bootstrap_servers(self) -> str:
        """As a client takes them: HOST:PORT[,HOST:PORT...]."""
        return ",".join(f"{one.host}:{one.port}" for one in self.bootstrap)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The topics of a source; exactly one of the three is given."""

    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None


PartitionValues = Mapping[str, Mapping[int, int]]
"""topic -> partition (or EVERY_PARTITION) -> offset, or time in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where to begin or end reading. `offsets` and `timestamps` are given for their kinds only; `timestamp_ms` for
    kind `timestamp`, one time for all partitions."""

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
    offsets: PartitionValues = field(default_factory=dict)
    timestamp_ms: int = -1
    timestamps: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a read task fetches. Sizes in bytes, times in ms."""

    bytes_max: int = 8 * 1024 * 1024
    partition_bytes_max: int = 8 * 1024 * 1024
    wait_ms: int = 500
    check_crcs: bool = True
    read_committed: bool = False
    retries: int = 3
    retry_interval_ms: int = 10
    poll_timeout_ms: int = 120_000
    arrow_rows: int = 32_768
    """Rows of an Arrow batch, at most; 8 MiB bound it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic source, batch or stream. Fields that only a stream has are ignored by a batch."""

    connection: ConnectionSettings
    topics: TopicSelection
    starting: Position | None = None
    """None: earliest for a batch, latest for a stream."""
    ending: Position | None = None
    """Batch only. None: latest."""
    fail_on_data_loss: bool = True
    fail_on_missing_timestamp: bool = True
    """startingOffsetsByTimestampStrategy=error: fail where no record is as new as the time asked for."""
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
    """A point of the metadata log: an offset (everything below it is replayed) or a time in ms since 1970."""

    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """A state table. `connection` None: `folder` is given, the data folder of a node or of a whole cluster."""

    table: str
    connection: ConnectionSettings | None
    folder: str | None = None
    columns: tuple[str, ...] | None = None
    as_of: When | None = None
    from_: When | None = None
    """metadata_diff only, as is `to`."""
    to: When | None = None
    starting: Position | None = None
    """metadata_events and offset_commits only: where to begin."""
    offsets_per_trigger_max: int | None = None
    with_docs: bool = False
    with_lag_time: bool = False
    metrics: tuple[str, ...] = ()
    """metrics only: HOST:PORT or URLs of what exports metrics as Prometheus text. Then there is no `connection`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """A sink. `topic` None: each row names its own. Sizes in bytes, times in ms."""

    connection: ConnectionSettings
    topic: str | None = None
    mark_records: bool = False
    transactional_id_prefix: str | None = None
    """Given: exactly once, by transactions."""
    transaction_timeout_ms: int = 60_000
    progress_topic: str = "__kraft_spark_progress"
    compression: str = "none"
    batch_bytes: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
