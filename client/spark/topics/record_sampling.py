"""Synchronous: estimate the size of a partition's records by fetching one batch."""

from __future__ import annotations

from dataclasses import replace

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.retries import ClusterUnreachable
from kraft.client.spark.settings import TopicSettings
from kraft.client.spark.topics.data_loss import DataLost
from kraft.client.spark.topics.range_fetcher import NoProgress, RangeFetcher
from kraft.client.spark.topics.ranges import OffsetRange
from kraft.seam import WireError

SAMPLE_BYTES = 64 * 1024
"""Requested bytes of a sample. A batch that is larger is returned whole."""


def sample_batch(cluster: SyncCluster, settings: TopicSettings, wanted: OffsetRange) -> tuple[int, int]:
    """Return (bytes, number of records) of the stored batch at the start of a range. Return (0, 0) if the batch cannot
    be read; the task that reads the range will report the error."""
    fetch = replace(settings.fetch, bytes_max=SAMPLE_BYTES, partition_bytes_max=SAMPLE_BYTES, wait_ms=0)
    looking = replace(settings, fetch=fetch, fail_on_data_loss=True)
    try:
        for walked in RangeFetcher(cluster, looking, wanted).walks():
            if walked.record_count:
                return walked.byte_count, walked.record_count
    except (KafkaError, DataLost, NoProgress, ClusterUnreachable, WireError):
        pass
    return 0, 0
