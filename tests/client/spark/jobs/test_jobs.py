"""Tests of the registry of pipelines, and of the pipelines' transformations on hand-made rows."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kraft.client.spark.jobs.registry import JOBS, REQUIRED, Job
from kraft.client.spark.jobs.report_page import BAD, ReportFinding, Section, render_page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
BROKERS = "broker_id INT, host STRING, rack STRING, is_fenced BOOLEAN"
REPLICAS = (
    "topic STRING, partition INT, broker_id INT, position INT, is_leader BOOLEAN, is_in_sync BOOLEAN, size_bytes BIGINT"
)
EVENTS = (
    "offset BIGINT, timestamp TIMESTAMP, type STRING, topic STRING, topic_id STRING, partition INT, broker_id INT, "
    "leader INT, leader_epoch INT, isr ARRAY<INT>, resource_type STRING, resource STRING, config STRING, value STRING, "
    "fields STRING"
)
RECORDS = "topic STRING, partition INT, offset BIGINT, key BINARY, timestamp TIMESTAMP"
ON_SPARK = (pytest.mark.interop, pytest.mark.timeout(600))


def on_spark(test: Any) -> Any:
    for mark in ON_SPARK:
        test = mark(test)
    return test


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_registered_pipeline_options_equal_the_keyword_arguments_of_run(job: Job) -> None:
    spark, cluster, *own = inspect.signature(job.load()).parameters.values()
    assert (spark.name, cluster.name) == ("spark", "cluster")
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in own)
    empty = inspect.Parameter.empty
    assert {one.name: REQUIRED if one.default is empty else one.default for one in own} == {
        option.name: option.default for option in job.options
    }


def test_report_page_escapes_its_content_and_shows_the_number_of_omitted_rows() -> None:
    section = Section("Topics", columns=("topic", "is_bad"), rows=[("<b>", True), ("x", None)], rows_total=9)
    page = render_page("<Title>", ["one & two"], [ReportFinding(BAD, "broken", "mend it")], [section, Section("Empty")])
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "The first 2 of 9 rows." in page
    assert "&lt;Title&gt;" in page
    assert "Empty" not in page


@on_spark
def test_cluster_health_with_a_dead_broker_names_it_and_its_partitions(spark: SparkSession) -> None:
    from kraft.client.spark.jobs.cluster_health import broker_load, findings

    brokers = spark.createDataFrame([(1, "a", None, False), (2, "b", None, False), (3, "c", None, True)], BROKERS)
    replicas = spark.createDataFrame(
        [
            ("t", number, broker, position, position == 0, broker != 3, 10)
            for number, order in enumerate([(1, 2, 3), (1, 3, 2), (1, 2, 9), (2, 1, 3)])
            for position, broker in enumerate(order)
        ],
        REPLICAS,
    )
    load = {row.broker_id: row for row in broker_load(brokers, replicas).collect()}
    assert {key: (row.leaders, row.replicas, row.out_of_sync, row.size_bytes) for key, row in load.items()} == {
        1: (3, 4, 0, 40),
        2: (1, 4, 0, 40),
        3: (0, 3, 3, 30),
        9: (0, 1, 0, 10),
    }
    assert (load[1].leader_skew, load[2].leader_skew, load[1].replica_skew) == (1.5, 0.5, 1.0)
    reported = [(one.tone, one.text) for one in findings([*load.values()], [], [], [])]
    assert reported == [
        ("bad", "Broker 3 is fenced."),
        ("bad", "Broker 9 holds 1 replicas and is not registered."),
    ]


def events(spark: SparkSession) -> DataFrame:
    """Return metadata events in which a partition is created, loses its leader, gets another leader, and its
    ISR grows."""
    about = ("t", "id", 0)

    def event(offset: int, type: str, **values: Any) -> tuple[Any, ...]:
        names = [name.split()[0] for name in EVENTS.split(", ")]
        usual = {"offset": offset, "timestamp": NOON + timedelta(seconds=offset), "type": type, "fields": "{}"}
        return tuple({**usual, **values}.get(name) for name in names)

    place = dict(zip(("topic", "topic_id", "partition"), about, strict=True))
    return spark.createDataFrame(
        [
            event(0, "RegisterBroker", broker_id=1),
            event(1, "Topic", topic="t", topic_id="id"),
            event(2, "Partition", **place, leader=1, leader_epoch=0, isr=[1, 2], fields='{"leader": 1}'),
            event(3, "NoOp"),
            event(4, "PartitionChange", **place, fields='{"leader": -1}'),
            event(5, "PartitionChange", **place, leader=2, isr=[2], fields='{"leader": 2}'),
            event(6, "PartitionChange", **place, isr=[2, 1], fields='{"leader": -2}'),
            event(7, "BrokerRegistrationChange", broker_id=1, fields='{"fenced": true}'),
            event(8, "Config", resource_type="topic", resource="t", config="retention.ms", value="5"),
            event(9, "RemoveTopic", topic="t", topic_id="id"),
            event(10, "FeatureLevel", fields='{"name": "metadata.version", "level": 29}'),
            event(11, "RegisterController", fields='{"controller_id": 101}'),
            event(12, "Config", resource_type="BROKER", resource="", config="x", value=None),
        ],
        EVENTS,
    )


@on_spark
def test_incident_timeline_describes_each_metadata_event_in_words(spark: SparkSession) -> None:
    from kraft.client.spark.jobs.timeline_moments import event_moments

    rows = event_moments(events(spark)).orderBy("offset").collect()
    assert [(row.offset, row.kind, row.what) for row in rows] == [
        (0, "RegisterBroker", "broker 1 registers"),
        (1, "Topic", "topic t is created"),
        (2, "Partition", "t-0 is led by broker 1, ISR 1,2"),
        (4, "election", "t-0 has no leader (was 1)"),
        (5, "election", "t-0 is led by broker 2, ISR 2"),
        (6, "ISR change", "ISR of t-0 is 2,1"),
        (7, "BrokerRegistrationChange", "broker 1 is fenced"),
        (8, "Config", "topic t retention.ms = 5"),
        (9, "RemoveTopic", "topic t is deleted"),
        (10, "FeatureLevel", "feature metadata.version = 29"),
        (11, "RegisterController", "controller 101 registers"),
        (12, "Config", "BROKER x = (removed or secret)"),
    ]


@on_spark
def test_chaos_run_start_is_computed_from_elections_recorded_by_run_and_cluster_clocks(spark: SparkSession) -> None:
    from kraft.client.spark.jobs.chaos_files import INFO, SAMPLES
    from kraft.client.spark.jobs.timeline_moments import started_at

    def sample(time_ms: float, leader: int, epoch: int) -> tuple[Any, ...]:
        return (time_ms, 101, 1, [1, 2], [1, 2], [("t", 0, leader, epoch, [2], [1, 2])])

    # Offset 2 is written at 12:00:02 and seen 150 ms later; offset 5 is seen after 40 ms.
    samples = spark.createDataFrame(
        [sample(1150.0, 1, 0), sample(1250.0, 1, 0), sample(4040.0, 2, 2), sample(4140.0, 2, 2)], SAMPLES
    )
    info = spark.createDataFrame([("s", "pykraft", "kraft", 1, NOON, 1.0, 1.0, 1.0, [])], INFO)
    assert started_at(events(spark), samples, info) == NOON + timedelta(milliseconds=960)
    assert started_at(None, samples, info) == NOON
    assert started_at(events(spark).where("offset < 2"), samples, info) == NOON


@on_spark
def test_paced_replay_steps_never_decrease_within_a_partition(spark: SparkSession) -> None:
    from kraft.client.spark.jobs.replay import shifted, with_due_step

    times = {0: [0, 9, 4, 21], 1: [2, 12, 40]}
    records = spark.createDataFrame(
        [("t", part, at, b"", NOON + timedelta(seconds=s)) for part, own in times.items() for at, s in enumerate(own)],
        RECORDS,
    )
    steps = with_due_step(records, speed=2.0, step=5.0).orderBy("partition", "offset").collect()
    assert [(row.partition, row.due_step) for row in steps] == [(0, 0), (0, 0), (0, 0), (0, 2), (1, 0), (1, 1), (1, 4)]
    moved = shifted(records, "now", 1_000.0).agg({"timestamp": "min"}).collect()[0][0]
    assert moved.astimezone(UTC).timestamp() == 1_000.0
    assert shifted(records, "1 day", 0.0).agg({"timestamp": "max"}).collect()[0][0].day == 22
    assert shifted(records, None, 0.0) is records


def test_paced_replay_step_waits_for_its_time_and_runs_at_once_if_that_time_has_passed() -> None:
    from kraft.client.spark.jobs.replay import due_in_time

    now_s, pauses = [100.0], list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now_s[0] += seconds

    for number in due_in_time([0, 1, 5, 6], 2.0, lambda: now_s[0], pause):
        now_s[0] += 7.0 if number == 5 else 0.5
    assert pauses == [0.0, 1.5, 7.5, 0.0]


@on_spark
def test_windowed_aggregation_counts_and_sums_records_by_key(spark: SparkSession) -> None:
    from kraft.client.spark.jobs.windowed_aggregation import aggregate, as_records

    rows = [("t", 0, at, b"k", NOON + timedelta(seconds=at * 20)) for at in range(4)]
    records = spark.createDataFrame(rows, RECORDS)
    found = aggregate(records, window="1 minute", total="offset").orderBy("window_start").collect()
    assert [(row.window_start.minute, row.key, row["count"], row.total) for row in found] == [
        (0, "k", 3, 3),
        (1, "k", 1, 3),
    ]
    sliding = aggregate(records, window="1 minute", slide="30 seconds")
    assert sliding.count() == 4
    assert sliding.where("total IS NOT NULL").count() == 0
    [first, *_] = as_records(sliding).orderBy("value").collect()
    assert (first.key, '"count":2' in first.value) == ("k", True)


@on_spark
def test_incident_timeline_of_a_chaos_run_without_kept_data_uses_the_observers_samples(
    spark: SparkSession, tmp_path: Path
) -> None:
    from kraft.client.spark.jobs import incident_timeline
    from tests.chaos.judge.histories import KILLED, fault_of, samples_of, steady_history
    from tests.client.spark.chaos_runs import write_run

    folder = write_run(tmp_path, "run", steady_history(), faults=[fault_of()], samples=samples_of(*KILLED))
    found = incident_timeline.run(spark, {}, chaos_run=str(folder.path), out="")
    reported = [(row.source, row.what) for row in found.moments.collect()]
    assert reported[3:] == [
        ("fault", "kill of node 2"),
        ("observer", "running nodes: 1,3,101,102,103"),
        ("observer", "chaos-0 is led by broker 1, ISR 1,3"),
        ("fault", "over: kill of node 2"),
        ("observer", "running nodes: 1,2,3,101,102,103"),
        ("observer", "chaos-0 is led by broker 1, ISR 1,2,3"),
    ]
    seconds = found.seconds.collect()
    assert sum(row.acknowledged for row in seconds) == 999
    assert [row.happened for row in seconds if "kill of node 2" in row.happened] == [
        [what for _, what in reported[3:6]]
    ]
