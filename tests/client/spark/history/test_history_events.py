"""Tests of table `metadata_events` read from a folder, in one task or several, and as a stream, without Spark."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.metadata_log.entries import entries_of
from kraft.client.metadata_log.event_fields import event_fields
from kraft.client.spark.history import planner as planning
from kraft.client.spark.history.events import EventRange, split, topics_in
from kraft.client.spark.history.planner import EventsPlanner
from kraft.client.spark.history.points import FilesLog, LogReader
from kraft.client.spark.history.rows import plan_events, read_events
from kraft.client.spark.predicates import Bounds, bounds_of
from kraft.client.spark.settings import Position, TableSettings
from kraft.client.spark.state import StateError
from kraft.client.spark.state.cells import id_text
from kraft.client.spark.tables import table_of
from kraft.image import encode_event, events
from tests.client.spark.history.history_logs import (
    BATCHES,
    END,
    NOON_MS,
    ORDERS,
    PAYMENTS,
    SECRET,
    CountingLog,
    read_history,
    write_history,
)
from tests.client.spark.state.state_requests import EqualTo
from tests.stages.metadata_logs import batch

ALL = table_of("metadata_events").column_names


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return write_history(tmp_path)


def settings(node: Path, **given: object) -> TableSettings:
    return TableSettings(table="metadata_events", connection=None, folder=str(node), **given)  # type: ignore[arg-type]


def rows_of(
    wanted: TableSettings, ranges: list[EventRange], columns: tuple[str, ...] = ALL
) -> list[tuple[object, ...]]:
    return [row for one in ranges for row in read_events(wanted, columns, pickle.loads(pickle.dumps(one)))]


def test_metadata_events_has_a_row_per_event_with_all_fields(node: Path) -> None:
    rows = read_history(node, "metadata_events")
    events_there = [event for applied in BATCHES for event in applied]
    assert [row["offset"] for row in rows] == list(range(1, END))
    for row, event in zip(rows, events_there, strict=True):
        fields = event_fields(event)
        assert (row["type"], row["type_number"]) == (fields.pop("type"), event.type_number)
        assert json.loads(row["fields"]) == fields
    by_offset = {row["offset"]: row for row in rows}
    registered, created, added, moved = (by_offset[offset] for offset in (3, 6, 8, 13))
    assert (registered["broker_id"], registered["topic"], registered["epoch"]) == (1, None, 1)
    assert (created["topic"], created["topic_id"], created["partition"]) == ("orders", id_text(ORDERS), None)
    assert (added["topic"], added["partition"], added["replicas"], added["isr"]) == ("orders", 1, [2, 3], [2])
    assert (moved["leader"], moved["isr"], moved["replicas"], moved["epoch"]) == (2, [2], None, 2)
    assert moved["timestamp"].timestamp() * 1000 == NOON_MS + 5000
    assert (by_offset[12]["leader"], by_offset[14]["topic"]) == (None, "payments")
    settings_row = by_offset[9]
    assert (settings_row["resource_type"], settings_row["resource"], settings_row["topic"]) == (
        "TOPIC",
        "orders",
        "orders",
    )
    assert (settings_row["config"], settings_row["value"]) == ("min.insync.replicas", "2")


def test_metadata_events_hides_secrets_in_value_and_fields(node: Path) -> None:
    (row,) = [row for row in read_history(node, "metadata_events") if row["config"] == "ssl.key.password"]
    assert (row["value"], row["broker_id"], json.loads(row["fields"])["value"]) == (None, 1, "[hidden]")
    assert SECRET not in repr(row)


def test_metadata_events_begin_at_the_given_start_and_name_topics_created_before_it(node: Path) -> None:
    def offsets(position: Position) -> list[int]:
        rows = read_history(node, "metadata_events", "offset", "topic", starting=position)
        assert all(row["topic"] == "payments" for row in rows if row["offset"] == 14)
        return [row["offset"] for row in rows]

    everything = list(range(1, END))
    assert offsets(Position(kind="earliest")) == everything
    assert offsets(Position(kind="latest")) == []
    assert offsets(Position(kind="offsets", offsets={"__cluster_metadata": {0: 13}})) == [13, 14, 15]
    assert offsets(Position(kind="offsets", offsets={"__cluster_metadata": {0: -2}})) == everything
    assert offsets(Position(kind="timestamp", timestamp_ms=NOON_MS + 5000)) == [13, 14, 15]
    by_partition = {"__cluster_metadata": {0: NOON_MS + 5001}}
    assert offsets(Position(kind="timestamps", timestamps=by_partition)) == [14, 15]
    assert offsets(Position(kind="timestamp", timestamp_ms=NOON_MS + 99_000)) == []
    with pytest.raises(StateError, match="no offset 17 yet: the metadata log ends at offset 16"):
        offsets(Position(kind="offsets", offsets={"__cluster_metadata": {0: END + 1}}))


def test_metadata_events_error_for_a_start_before_the_log_names_the_first_offset(node: Path) -> None:
    (node / "data" / "__cluster_metadata-0" / f"{0:020}.log").unlink()
    with pytest.raises(StateError, match=r"from offset 9 on are no longer in the log: the first is at 10"):
        read_history(node, "metadata_events", starting=Position(kind="offsets", offsets={"__cluster_metadata": {0: 9}}))


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 60))
def test_metadata_events_task_ranges_cover_each_offset_once_and_respect_the_event_limit(
    start: int, size: int, most: int
) -> None:
    ranges = split(start, start + size, most)
    assert [offset for one in ranges for offset in range(*one)] == list(range(start, start + size))
    assert all(1 <= end - begin <= most for begin, end in ranges)


@pytest.mark.parametrize("events_max", [1, 2, 5, 7, 100, None])
@pytest.mark.parametrize("start", [0, 8, 13])
def test_metadata_events_read_in_several_tasks_equal_those_of_one_task(
    node: Path, events_max: int | None, start: int
) -> None:
    wanted = settings(node, starting=Position(kind="offsets", offsets={"__cluster_metadata": {0: start}}))
    expected = [row for row in rows_of(settings(node), plan_events(settings(node), ALL, Bounds())) if row[0] >= start]
    ranges = plan_events(wanted, ALL, Bounds(), events_max=events_max)
    assert len(ranges) == (1 if events_max is None else -(-(END - start) // events_max))
    assert rows_of(wanted, ranges) == expected


def test_metadata_events_range_has_only_the_topic_names_that_its_events_need(node: Path) -> None:
    ranges = plan_events(settings(node), ("offset", "topic"), Bounds(), events_max=1)
    assert [ranges[offset].names for offset in (5, 8, 13, 14)] == [
        {},
        {ORDERS: "orders"},
        {ORDERS: "orders"},
        {PAYMENTS: "payments"},
    ]
    assert all(one.names == {} for one in plan_events(settings(node), ("offset",), Bounds(), events_max=4))


def test_metadata_events_filter_on_offset_narrows_the_task_ranges(node: Path) -> None:
    only, _ = bounds_of([EqualTo("offset", 8)], (), inexact=("offset",))
    assert [(one.start, one.end) for one in plan_events(settings(node), ALL, only)] == [(8, 9)]
    (row,) = read_history(node, "metadata_events", "offset", "topic", bounds=only)
    assert row == {"offset": 8, "topic": "orders"}
    beyond, _ = bounds_of([EqualTo("offset", 99)], (), inexact=("offset",))
    assert plan_events(settings(node), ALL, beyond) == []


def test_topic_ids_of_encoded_events_are_found_with_and_without_decoding() -> None:
    about = [
        events.Topic("a", ORDERS),
        events.Partition(ORDERS, 1, (1,), (1,)),
        events.PartitionChange(PAYMENTS, 300, leader=1),
        events.RemoveTopic(PAYMENTS),
        events.NoOp(),
    ]
    assert topics_in([encode_event(one) for one in about[:2]]) == {ORDERS}
    assert topics_in([encode_event(one) for one in about]) == {ORDERS, PAYMENTS}
    assert topics_in([encode_event(events.NoOp())]) == set()


# the stream


def at(offset: int) -> dict[str, int]:
    return {"offset": offset}


@pytest.fixture
def counted(node: Path, monkeypatch: pytest.MonkeyPatch) -> CountingLog:
    """Make planners open a log that counts their requests, and return this log."""
    log = CountingLog(node)

    @contextmanager
    def open_log(_: TableSettings) -> Iterator[LogReader]:
        yield log

    monkeypatch.setattr(planning, "open_log", open_log)
    return log


def grow(node: Path, *applied: events.Event) -> None:
    end = FilesLog(str(node)).end()
    last = max((node / "data" / "__cluster_metadata-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + batch(list(applied), end, epoch=3, time_ms=NOON_MS + 60_000))


def test_metadata_events_stream_begins_at_the_log_end_unless_options_name_another_start(node: Path) -> None:
    assert EventsPlanner(settings(node), ALL).initial_offset() == at(END)
    earliest = settings(node, starting=Position(kind="earliest"))
    assert EventsPlanner(earliest, ALL).initial_offset() == at(0)
    missing = settings(node, starting=Position(kind="offsets", offsets={"__cluster_metadata": {0: 99}}))
    with pytest.raises(StateError, match="no offset 99 yet"):
        EventsPlanner(missing, ALL).initial_offset()
    with pytest.raises(StateError, match="there is no /nowhere"):
        EventsPlanner(settings(Path("/nowhere")), ALL).initial_offset()


def test_metadata_events_micro_batch_has_at_most_the_limit_of_offsets(node: Path) -> None:
    planner = EventsPlanner(settings(node), ALL)
    ends, offset = [], at(0)
    while (following := planner.next_offset(offset, 6)) != offset:
        offset = following
        ends.append(following["offset"])
    assert ends == [6, 12, 16]
    assert planner.next_offset(at(3), None) == at(END)


def test_metadata_events_available_now_run_ends_where_the_log_ended_when_the_run_began(node: Path) -> None:
    planner = EventsPlanner(settings(node), ALL)
    planner.fix_target()
    grow(node, events.Topic("later", ORDERS))
    assert planner.next_offset(at(0), None) == at(END)
    assert planner.next_offset(at(END), None) == at(END)
    assert EventsPlanner(settings(node), ALL).next_offset(at(END), None) == at(END + 1)


def test_idle_metadata_events_stream_sends_one_request_per_poll_interval(
    counted: CountingLog, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    planner = EventsPlanner(settings(node), ALL)
    assert planner.known_offset() is None
    planner.next_offset(at(END), None)
    asked = counted.ends_asked
    for _ in range(10):
        assert planner.next_offset(at(END), None) == at(END)
        assert planner.known_offset() == at(END)
    assert counted.ends_asked - asked == 10
    assert clock[0] - 1000.0 == pytest.approx(10 * planning.POLL_INTERVAL_SECONDS)
    clock[0] += 50
    planner.next_offset(at(3), None)  # there is something to read, so no request is sent
    assert counted.ends_asked - asked == 10


def test_metadata_events_stream_ignores_a_log_end_that_is_reported_too_low_for_a_moment(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([END - 2, END - 1, END])
    monkeypatch.setattr(FilesLog, "end", lambda log: next(ends))
    assert EventsPlanner(settings(node), ALL).next_offset(at(END), None) == at(END)
    assert next(ends, None) is None


@pytest.mark.parametrize("is_available_now", [False, True])
def test_metadata_events_checkpoint_beyond_the_log_end_is_an_error(
    node: Path, monkeypatch: pytest.MonkeyPatch, is_available_now: bool
) -> None:
    monkeypatch.setattr(planning, "BELIEVED_MS", 50)
    planner = EventsPlanner(settings(node), ALL)
    if is_available_now:
        planner.fix_target()
    with pytest.raises(
        StateError, match=rf"offset {END + 5} of the metadata log, which ends at offset {END}: .*new check"
    ):
        planner.next_offset(at(END + 5), None)


def test_replayed_metadata_events_micro_batch_has_the_same_task_ranges_and_topic_names(
    counted: CountingLog, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "RANGE_EVENTS", 4)
    going_on, again = EventsPlanner(settings(node), ALL), EventsPlanner(settings(node), ALL)
    first = going_on.ranges(at(0), at(9))
    second = going_on.ranges(at(9), at(END))
    read = counted.batches_read
    assert again.ranges(at(9), at(END)) == second
    assert going_on.ranges(at(0), at(9)) == first
    assert counted.batches_read > read
    assert going_on.ranges(at(5), at(5)) == []
    everything = rows_of(settings(node), [*first, *second])
    assert everything == rows_of(settings(node), plan_events(settings(node), ALL, Bounds()))


def test_metadata_events_planner_reads_each_batch_once_and_none_if_no_topic_names_are_requested(
    counted: CountingLog, node: Path
) -> None:
    planner = EventsPlanner(settings(node), ALL)
    for start, end in ((0, 6), (6, 11), (11, END)):
        planner.ranges(at(start), at(end))
    whole = len(list(FilesLog(str(node)).batches(0, END)))
    assert counted.batches_read == whole
    EventsPlanner(settings(node), ("offset", "type")).ranges(at(0), at(END))
    assert counted.batches_read == whole
    assert sum(len(entries_of(one)) for one in FilesLog(str(node)).batches(0, END)) == END - 1


def test_metadata_events_stream_rejects_a_checkpoint_of_another_source(node: Path) -> None:
    with pytest.raises(StateError, match=r'not of table metadata_events: it has .*expected \{"offset": N\}'):
        EventsPlanner(settings(node), ALL).next_offset({"orders": {"0": 5}}, None)
