"""Tests of how a batch query is planned: positions, lost records and pushed filters, against scripted brokers whose
offsets the test chooses.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.retries import ClusterUnreachable
from kraft.client.spark.options import OptionError
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import EVERY_PARTITION, ConnectionSettings, Position, TopicSelection, TopicSettings
from kraft.client.spark.topics.batch_plan import CLOCK_SKEW_MS, plan_batch
from kraft.client.spark.topics.data_loss import DataLost
from kraft.client.spark.topics.reader import TopicReader
from kraft.seam import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.client.spark.scripted_brokers import EARLIEST, LATEST, TOPIC, Brokers, scripted_brokers

NOON_MS = 1_764_158_400_000
NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)
SECOND = timedelta(seconds=1)


def settings(brokers: Brokers, **more: Any) -> TopicSettings:
    connection = ConnectionSettings(bootstrap=brokers.bootstrap, request_timeout_ms=more.pop("timeout_ms", 5_000))
    return TopicSettings(connection=connection, **({"topics": TopicSelection(subscribe=(TOPIC,))} | more))


def plan(brokers: Brokers, *filters: Filter, **more: Any) -> list[tuple[int, int]]:
    """Plan a batch query as Spark does, with these filters pushed down, and return (start, end) of each task."""
    reader = TopicReader(settings(brokers, **more), ("offset",))
    if filters:
        reader.pushFilters(list(filters))
    return [(task.value.start, task.value.end) for task in reader.partitions()]


def offsets(value: int, partition: int = 0) -> Position:
    return Position(kind="offsets", offsets={TOPIC: {partition: value}})


def log_of(start: int, end: int, **times: int) -> Brokers:
    """Return scripted brokers whose log begins and ends at these offsets. `times`: `at_MS=offset` gives the result of
    ListOffsets for a time in ms."""
    by_time = {int(name[3:]): offset for name, offset in times.items()}
    return Brokers(offsets={EARLIEST: start, LATEST: end} | by_time)


# positions


def test_batch_plan_by_default_spans_earliest_to_latest_offset() -> None:
    with scripted_brokers(log_of(3, 9)) as brokers:
        assert plan(brokers) == [(3, 9)]


def test_batch_plan_has_no_task_for_an_empty_partition() -> None:
    with scripted_brokers(log_of(9, 9)) as brokers:
        assert plan(brokers) == []


@pytest.mark.parametrize(
    ("value", "expected"), [(5, (5, 9)), (EARLIEST, (3, 9)), (3, (3, 9))], ids=["offset", "earliest", "begin"]
)
def test_batch_plan_starts_at_the_given_offsets(value: int, expected: tuple[int, int]) -> None:
    with scripted_brokers(log_of(3, 9)) as brokers:
        assert plan(brokers, starting=offsets(value)) == [expected]
        assert plan(brokers, starting=offsets(value, partition=-1)) == [expected]


def test_batch_plan_ends_at_the_given_offsets() -> None:
    with scripted_brokers(log_of(3, 9)) as brokers:
        assert plan(brokers, ending=offsets(7)) == [(3, 7)]
        assert plan(brokers, ending=offsets(LATEST)) == [(3, 9)]


def test_batch_plan_error_for_a_partition_missing_in_the_json_shows_json_for_all_partitions() -> None:
    with scripted_brokers(log_of(3, 9)) as brokers, pytest.raises(OptionError, match=r'"TOPIC":\{"\*"'):
        plan(brokers, starting=offsets(5, partition=1))


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_batch_plan_rejects_offsets_for_a_partition_that_does_not_exist(which: str) -> None:
    named = Position(kind="offsets", offsets={TOPIC: {0: 4, 7: 4}})
    with (
        scripted_brokers(log_of(3, 9)) as brokers,
        pytest.raises(OptionError, match=r"partition 7 of topic t, .* 0: le"),
    ):
        plan(brokers, **{which: named})


@pytest.mark.parametrize("kind", ["offsets", "timestamps"])
def test_batch_plan_rejects_offsets_for_a_topic_that_the_pattern_does_not_match(kind: Any) -> None:
    values = {TOPIC: {EVERY_PARTITION: 4}, "other": {EVERY_PARTITION: 4}}
    named = Position(kind=kind, offsets=values) if kind == "offsets" else Position(kind=kind, timestamps=values)
    with (
        scripted_brokers(log_of(3, 9, at_4=4)) as brokers,
        pytest.raises(OptionError, match="topic other, which is not"),
    ):
        plan(brokers, topics=TopicSelection(pattern=TOPIC), starting=named)


def test_batch_plan_rejects_a_start_after_the_end() -> None:
    with scripted_brokers(log_of(3, 9)) as brokers, pytest.raises(OptionError, match=r"offset 8 is after the .* 5"):
        plan(brokers, starting=offsets(8), ending=offsets(5))


def test_batch_plan_with_a_start_time_begins_at_the_first_record_at_or_after_that_time() -> None:
    with scripted_brokers(log_of(3, 9, at_1000=6)) as brokers:
        assert plan(brokers, starting=Position(kind="timestamp", timestamp_ms=1000)) == [(6, 9)]
        per_partition = Position(kind="timestamps", timestamps={TOPIC: {0: 1000}})
        assert plan(brokers, starting=per_partition) == [(6, 9)]


def test_batch_plan_with_a_start_time_after_all_records_fails_or_starts_at_the_end_by_strategy() -> None:
    late = Position(kind="timestamp", timestamp_ms=2000)
    with scripted_brokers(log_of(3, 9)) as brokers:
        with pytest.raises(OptionError, match=r"no record at or after 2000 ms .*Strategy=latest"):
            plan(brokers, starting=late)
        assert plan(brokers, starting=late, fail_on_missing_timestamp=False) == []


def test_batch_plan_with_an_ending_time_after_all_records_ends_at_the_log_end() -> None:
    with scripted_brokers(log_of(3, 9, at_1000=6)) as brokers:
        assert plan(brokers, ending=Position(kind="timestamp", timestamp_ms=2000)) == [(3, 9)]
        assert plan(brokers, ending=Position(kind="timestamp", timestamp_ms=1000)) == [(3, 6)]


def test_batch_plan_splits_ranges_by_min_partitions_and_max_records_options() -> None:
    with scripted_brokers(log_of(0, 100)) as brokers:
        assert plan(brokers, partitions_min=4) == [(0, 25), (25, 50), (50, 75), (75, 100)]
        assert plan(brokers, records_per_partition_max=60) == [(0, 50), (50, 100)]


def test_batch_plan_gives_each_task_the_partition_leader_and_the_topic_id() -> None:
    with scripted_brokers(log_of(0, 1)) as brokers:
        (task,) = TopicReader(settings(brokers), ("offset",)).partitions()
        assert task.value.leader.address == brokers.addresses[0]
        assert task.value.topic_id == brokers.topic_id


# losses


@pytest.mark.parametrize(
    ("starting", "ending", "kept", "text"),
    [
        (1, None, [(3, 9)], "the start has expired .* wanted: offsets 1 to 9; available: offsets 3 to 9, 2 offsets"),
        (1, 2, [], "the start has expired .* 1 offsets"),
        (12, None, [], "the log ends before the offset that was given .* 3 offsets"),
        (5, 12, [(5, 9)], "the log ends before the offset that was given .* 3 offsets"),
        (10, 12, [], "the log ends before the offset that was given .* 2 offsets"),
    ],
)
def test_batch_plan_of_offsets_outside_the_log_fails_or_warns_by_option_fail_on_data_loss(
    starting: int, ending: int | None, kept: list[tuple[int, int]], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"starting": offsets(starting), "ending": None if ending is None else offsets(ending)}
    pattern = text.replace(" .* wanted", r" \(wanted")
    with scripted_brokers(log_of(3, 9)) as brokers:
        with pytest.raises(DataLost, match=pattern):
            plan(brokers, **given)
        with caplog.at_level(logging.WARNING, "kraft.spark"):
            assert plan(brokers, **given, fail_on_data_loss=False) == kept
    assert len(caplog.records) == 1


def test_batch_plan_requests_a_suspiciously_low_log_end_again_before_reporting_a_loss() -> None:
    brokers = log_of(3, 9)
    is_stale = [True]
    given_end = brokers.offsets

    class Rising(dict[int, int]):
        def get(self, target: int, default: Any = None) -> Any:
            if target == LATEST and is_stale and is_stale.pop():
                return 4
            return given_end.get(target, default)

    brokers.offsets = Rising()
    with scripted_brokers(brokers):
        assert plan(brokers, starting=offsets(3), ending=offsets(8)) == [(3, 8)]


def test_batch_plan_error_for_a_missing_topic_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.client.spark.blocking.cluster.MISSING_TOPIC_MS", 50)
    with (
        scripted_brokers(Brokers(topic_error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) as brokers,
        pytest.raises(KafkaError, match="topic t: it does not exist: create it"),
    ):
        plan(brokers)


def test_batch_plan_error_for_a_missing_assigned_partition_names_it_and_the_partition_count() -> None:
    with (
        scripted_brokers(log_of(0, 9)) as brokers,
        pytest.raises(KafkaError, match=r"partition 4 of topic t, which has 1 \(0 to 0\)"),
    ):
        plan(brokers, topics=TopicSelection(assign={TOPIC: (0, 4)}))


def test_batch_plan_error_for_stopped_brokers_names_them_after_the_request_timeout() -> None:
    nowhere = Address("127.0.0.1", 1)
    down = TopicSettings(
        connection=ConnectionSettings(bootstrap=(nowhere,), request_timeout_ms=100),
        topics=TopicSelection(subscribe=(TOPIC,)),
    )
    with (
        SyncCluster(down.connection) as cluster,
        pytest.raises(ClusterUnreachable, match=rf"within 100 ms \(bootstrap {nowhere}\): no connection to {nowhere}"),
    ):
        plan_batch(cluster, down, Bounds())


# pushed filters


def test_batch_plan_filters_on_offset_narrow_the_ranges() -> None:
    with scripted_brokers(log_of(3, 9)) as brokers:
        assert plan(brokers, IsNotNull(("offset",)), GreaterThan(("offset",), 4)) == [(5, 9)]
        assert plan(brokers, LessThan(("offset",), 6), GreaterThanOrEqual(("offset",), 5)) == [(5, 6)]
        assert plan(brokers, EqualTo(("offset",), 7)) == [(7, 8)]
        assert plan(brokers, In(("offset",), (8, 5))) == [(5, 9)]
        assert plan(brokers, GreaterThan(("offset",), 100)) == []


@pytest.mark.parametrize(
    ("one", "is_read"),
    [
        (EqualTo(("topic",), TOPIC), True),
        (EqualTo(("topic",), "other"), False),
        (StringStartsWith(("topic",), "u"), False),
        (EqualTo(("partition",), 0), True),
        (GreaterThan(("partition",), 0), False),
        (In(("partition",), (1, 2)), False),
        (Not(EqualTo(("partition",), 0)), False),
    ],
)
def test_batch_plan_requests_no_offsets_of_partitions_that_filters_exclude(one: Filter, is_read: bool) -> None:
    with scripted_brokers(log_of(3, 9)) as brokers:
        assert plan(brokers, one) == ([(3, 9)] if is_read else [])
        assert (ApiKey.LIST_OFFSETS in {key for _, key in brokers.asked}) is is_read


def test_batch_plan_filter_on_create_time_narrows_only_the_start() -> None:
    brokers = log_of(3, 9)
    brokers.offsets |= {NOON_MS: 6, NOON_MS + 1001: 8, NOON_MS + 1001 + CLOCK_SKEW_MS: 9}
    with scripted_brokers(brokers):
        assert plan(brokers, GreaterThanOrEqual(("timestamp",), NOON)) == [(6, 9)]
        assert plan(brokers, LessThanOrEqual(("timestamp",), NOON + SECOND)) == [(3, 9)]
        assert plan(brokers, GreaterThan(("timestamp",), NOON + 9 * SECOND)) == []


def test_batch_plan_filter_on_time_narrows_the_end_only_for_append_time_or_by_option() -> None:
    brokers = log_of(3, 9)
    brokers.offsets |= {NOON_MS: 6, NOON_MS + 1001: 7, NOON_MS + 1001 + CLOCK_SKEW_MS: 8}
    until = LessThanOrEqual(("timestamp",), NOON + SECOND)
    with scripted_brokers(brokers):
        assert plan(brokers, until, push_timestamp_end=True) == [(3, 7)]
        brokers.append_time = True
        assert plan(brokers, until) == [(3, 8)]


def test_topic_reader_returns_unhandled_filters_to_spark_as_the_same_objects() -> None:
    reader = TopicReader(settings(Brokers()), ("offset",))
    taken = [EqualTo(("topic",), TOPIC), In(("partition",), (0,)), GreaterThan(("offset",), 4)]
    left = [GreaterThan(("timestamp",), NOON), EqualTo(("value",), b"x"), IsNotNull(("key",))]
    assert [id(one) for one in reader.pushFilters([*taken, *left])] == [id(one) for one in left]


@pytest.mark.parametrize(
    "one",
    [
        In(("offset",), (1, 5)),
        Not(EqualTo(("offset",), 5)),
        Not(In(("offset",), (5, 6))),
        IsNull(("offset",)),
        EqualNullSafe(("offset",), None),
    ],
)
def test_topic_reader_returns_offset_filters_that_are_not_ranges_to_spark(one: Filter) -> None:
    reader = TopicReader(settings(Brokers()), ("offset",))
    assert list(reader.pushFilters([one])) == [one]


def test_spark_accepts_the_topic_reader_when_filter_pushdown_is_off() -> None:
    """Run the check that plan_data_source_read makes in a session that does not push filters down."""
    reader = TopicReader(settings(Brokers()), ("offset",))
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
