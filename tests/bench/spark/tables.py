"""Figures of our tables alone: tables of large clusters, long histories, pushed-down ranges, imports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession
from pyspark.sql.datasource import LessThan

from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.link import SyncLink, build_request
from kraft.client.spark.options import parse_read
from kraft.client.spark.options.connection import parse_connection
from kraft.client.spark.predicates import Bounds, bounds_of
from kraft.client.spark.settings import TopicSettings, When
from kraft.client.spark.topics.batch_plan import plan_batch
from kraft.client.spark.topics.range_fetcher import RangeFetcher
from kraft.seam import Address
from kraft.wire.api_keys import ApiKey
from tests.bench.spark.cost import cost_of
from tests.bench.spark.history_cost import count_rows, cpu_seconds, write_log
from tests.bench.spark.lines import PARTITIONS, drop
from tests.bench.spark.section import Figure
from tests.stages.started_clusters import LocalCluster, running

TOPICS, PARTITIONS_A_TOPIC = 100, 1_000
EVENTS = 1_000_000
CHANGES_A_BATCH = 20
PARTITION_COLUMNS = "topic,topic_id,partition,leader,leader_epoch,replicas,isr,is_under_replicated"
RANGE_SHARE = 0.01
IMPORTED = "kraft.client.spark.topics.reader, kraft.client.spark.topics.range_reader"


def large_tables(spark: SparkSession, jvm_pid: int, share: float) -> Iterator[Figure]:
    """Read the table `partitions` of a cluster with 100,000 partitions, and find one topic in it. For comparison, also
    measure the request and its response without a table."""
    topics = max(1, int(TOPICS * share))
    with running(combined=1) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for number in range(topics):
            new = NewTopic(f"large-{number:03}", num_partitions=PARTITIONS_A_TOPIC, replication_factor=1)
            for created in admin.create_topics([new]).values():
                created.result(60)
        bare_s = min(_seconds(lambda: _ask_metadata(cluster)) for _ in range(3))
        reader = spark.read.format("kraft").option("bootstrap", cluster.bootstrap).option("table", "partitions")
        frame = reader.option("columns", PARTITION_COLUMNS).load()
        rows = topics * PARTITIONS_A_TOPIC
        assert frame.count() == rows
        costs = [cost_of(jvm_pid, lambda: drop(frame)) for _ in range(3)]
        yield Figure(
            f"`partitions` of {rows:,}, over the bare answer with its decode ({bare_s:.2f} s)",
            min(cost.wall_s for cost in costs) / bare_s,
            "× the time",
            3,
        )


def history(share: float) -> Iterator[Figure]:
    """Read the image in the middle of a long metadata log, from a folder and in this process."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        middle = When(offset=write_log(folder, int(EVENTS * share), CHANGES_A_BATCH) // 2)
        first_s, _ = cpu_seconds(lambda: count_rows(folder, "topics", ("topic", "created"), middle))
        again_s, _ = cpu_seconds(lambda: count_rows(folder, "topics", ("topic", "created"), middle))
    yield Figure(f"the middle of a metadata log of {int(EVENTS * share):,} events", first_s, "CPU s", 15)
    yield Figure("the same image again", 100 * again_s / first_s, "% of it", 10)


def topic_range(cluster: LocalCluster, topic: str, rows: int) -> Figure:
    """Return how many bytes a scan of 1 % of the offsets takes from the broker, as a share of a full scan's bytes."""
    settings = parse_read({"bootstrap": cluster.bootstrap, "subscribe": topic}, is_stream=False, now_ms=0)
    assert isinstance(settings, TopicSettings)
    below = LessThan(("offset",), int(RANGE_SHARE * rows / PARTITIONS))
    bounds, _ = bounds_of([below], {"offset"})
    part, whole = _fetched_bytes(settings, bounds), _fetched_bytes(settings, Bounds())
    return Figure("a pushed range of 1 % of the offsets, of the bytes of a full scan", 100 * part / whole, "%", 5)


def _fetched_bytes(settings: TopicSettings, bounds: Bounds) -> int:
    with SyncCluster(settings.connection) as asked:
        ranges = plan_batch(asked, settings, bounds)
        return sum(len(walked.records) for wanted in ranges for walked in RangeFetcher(asked, settings, wanted).walks())


def imports() -> Figure:
    """Return the CPU seconds of the imports with which a worker reads a topic. Imports that Spark needs for any Python
    source are not included."""
    code = (
        "import pyspark.sql.datasource, pyarrow, time; before = time.process_time(); "
        f"import {IMPORTED}; print(time.process_time() - before)"
    )
    runs = [float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(3)]
    return Figure("imports of a worker that reads a topic", min(runs), "CPU s", 0.5)


def _ask_metadata(cluster: LocalCluster) -> None:
    host, port = cluster.addresses[0]
    settings = parse_connection({"bootstrap": cluster.bootstrap})
    with SyncLink(Address(host, port), settings) as link:
        link.request(
            ApiKey.METADATA,
            build_request(ApiKey.METADATA, topics=None, allow_auto_topic_creation=False),
            timeout_ms=settings.request_timeout_ms,
        )


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
