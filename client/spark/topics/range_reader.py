"""Synchronous: the records of one range of offsets as Arrow batches; what a read task of a batch or a stream runs.

Small answers are joined before they are decoded, because Spark takes a batch of a thousand rows at twice the cost per
row of one of ten thousand.
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
"""So many records, or bytes of batches, are decoded together, if the range has them."""
BYTES_MAX = 8 * 1024 * 1024
"""An Arrow batch holds about so many bytes of records at most."""


def read_range(settings: TopicSettings, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a range in offset order, with exactly these columns; none of the batches is empty.

    No record comes twice, whatever happens to brokers meanwhile. WireError, with topic, partition and offset, for bytes
    that cannot be read; DataLost for records that are not there any more, if failOnDataLoss is set; KafkaError,
    ClusterUnreachable or NoProgress when retries for the request time-out did not help."""
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
