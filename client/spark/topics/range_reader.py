"""Synchronous: read the records of one range of offsets as Arrow batches, in a read task of a batch or a stream.

Small responses are joined before they are decoded, because Spark needs twice the time per row for batches of a thousand
rows as for batches of ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.settings import TopicSettings
from kraft.client.spark.topics.arrow_records import Walked, arrow_batches
from kraft.client.spark.topics.range_fetcher import RangeFetcher
from kraft.client.spark.topics.ranges import OffsetRange

ROWS_MIN = 10_000
BYTES_MIN = 1024 * 1024
"""Minimum amount that is decoded together, if the range has it: this many records (ROWS_MIN) or bytes of batches
(BYTES_MIN)."""
BYTES_MAX = 8 * 1024 * 1024
"""Approximate maximum of record bytes in an Arrow batch."""


def read_range(settings: TopicSettings, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in offset order, with exactly these columns, as nonempty Arrow batches.

    No record is yielded twice, even if brokers fail during the read. Raises WireError, with topic, partition and
    offset, for bytes that cannot be read; DataLost for records that no longer exist, if failOnDataLoss is set;
    KafkaError, ClusterUnreachable or NoProgress if retries until the request timeout did not help."""
    rows_max = settings.fetch.arrow_rows
    waiting: list[Walked] = []
    rows = size = 0
    with SyncCluster(settings.connection) as cluster:
        for walked in RangeFetcher(cluster, settings, wanted).walks():
            waiting.append(walked)
            rows += walked.record_count
            size += walked.byte_count
            if rows >= min(ROWS_MIN, rows_max) or size >= BYTES_MIN:
                yield from arrow_batches(waiting, columns, rows_max=rows_max, bytes_max=BYTES_MAX)
                waiting, rows, size = [], 0, 0
    yield from arrow_batches(waiting, columns, rows_max=rows_max, bytes_max=BYTES_MAX)
