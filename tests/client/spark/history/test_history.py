"""Tests of tables as of the past, read from a folder without Spark."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kraft.client.metadata_log.errors import BeginsInSnapshot, NotInLog
from kraft.client.metadata_log.folder import load_folder
from kraft.client.spark.history.points import PointCache, point_at
from kraft.client.spark.predicates import Bounds, bounds_of
from kraft.client.spark.settings import When
from kraft.client.spark.state import StateError
from kraft.client.spark.state.cells import id_text
from kraft.client.spark.tables import TABLES
from kraft.image import MetadataImage, dump, encode_event, events
from kraft.wire.records import Record, encode_batch
from tests.client.spark.history.history_logs import (
    BATCHES,
    DIRECTORY,
    END,
    NOON_MS,
    ORDERS,
    PAYMENTS,
    SECRET,
    STARTS,
    CountingLog,
    read_history,
    write_history,
)
from tests.client.spark.state.state_requests import EqualTo
from tests.stages.metadata_logs import batch

PAST = [name for name, table in TABLES.items() if table.has_time_travel]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return write_history(tmp_path)


def log_of(node: Path) -> Path:
    return node / "data" / "__cluster_metadata-0"


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(seconds=seconds)


def equal(**wanted: object) -> Bounds:
    return bounds_of([EqualTo(name, value) for name, value in wanted.items()], (), inexact=tuple(wanted))[0]


# rows


def test_table_brokers_as_of_the_past_has_registrations_and_replica_counts(node: Path) -> None:
    rows = {row["broker_id"]: row for row in read_history(node, "brokers", as_of=When(offset=13))}
    assert {one: row["is_fenced"] for one, row in rows.items()} == {1: False, 2: False, 3: True}
    first = rows[1]
    assert (first["host"], first["port"], first["rack"], first["epoch"]) == ("host-1", 9092, "rack-1", 1)
    assert (first["leaders"], first["replicas"], first["preferred_leaders"]) == (1, 2, 1)
    assert (rows[3]["leaders"], rows[3]["replicas"], rows[3]["preferred_leaders"]) == (0, 2, 1)
    assert first["endpoints"] == [("PLAINTEXT", "host-1", 9092, "PLAINTEXT"), ("TLS", "public", 9093, "SSL")]
    assert first["log_dir_ids"] == [id_text(DIRECTORY)]
    assert first["size_bytes"] is None
    assert (first["as_of_offset"], first["as_of"]) == (13, at(4))


def test_table_topics_as_of_the_past_has_creation_times_and_partition_counts(node: Path) -> None:
    rows = {row["topic"]: row for row in read_history(node, "topics", as_of=When(offset=13))}
    orders, payments = rows["orders"], rows["payments"]
    assert (orders["created_offset"], orders["created"]) == (6, at(2))
    assert (payments["created_offset"], payments["created"]) == (11, at(4))
    assert orders["topic_id"] == id_text(ORDERS)
    assert (orders["partitions"], orders["replication_factor"], orders["under_replicated"]) == (2, 2, 1)
    assert (orders["min_insync_replicas"], orders["under_min_isr"], orders["leaderless"]) == (2, 1, 0)
    assert (payments["min_insync_replicas"], payments["under_min_isr"], payments["leaderless"]) == (1, 1, 1)
    assert (orders["cleanup_policy"], orders["retention_ms"]) == ("delete", 604_800_000)
    (later,) = read_history(node, "topics", "topic", "retention_ms")
    assert later == {"topic": "orders", "retention_ms": 5000}


def test_table_partitions_as_of_an_offset_has_the_state_at_that_offset(node: Path) -> None:
    rows = {(row["topic"], row["partition"]): row for row in read_history(node, "partitions", as_of=When(offset=13))}
    assert list(rows) == [("orders", 0), ("orders", 1), ("payments", 0)]
    first, second, third = rows.values()
    assert (first["leader"], first["isr"], first["is_preferred_led"], first["is_under_min_isr"]) == (
        1,
        [1, 2],
        True,
        False,
    )
    assert (second["offline_replicas"], second["is_under_replicated"]) == ([3], True)
    assert (third["leader"], third["is_offline"], third["preferred_leader"]) == (None, True, 3)
    assert (first["recovery_state"], first["directories"]) == ("RECOVERED", [id_text(DIRECTORY)] * 2)
    assert (first["end_offset"], first["adding"]) == (None, None)
    changed = read_history(node, "partitions", "leader", "leader_epoch", "partition_epoch", bounds=equal(partition=0))
    assert changed[0] == {"leader": 2, "leader_epoch": 1, "partition_epoch": 1}


def test_table_replicas_as_of_the_past_has_a_row_per_replica(node: Path) -> None:
    columns = ("topic", "partition", "broker_id", "position", "is_leader", "is_in_sync", "is_offline", "directory_id")
    rows = [tuple(row.values()) for row in read_history(node, "replicas", *columns, as_of=When(offset=13))]
    place = id_text(DIRECTORY)
    assert rows == [
        ("orders", 0, 1, 0, True, True, False, place),
        ("orders", 0, 2, 1, False, True, False, place),
        ("orders", 1, 2, 0, True, True, False, place),
        ("orders", 1, 3, 1, False, False, True, place),
        ("payments", 0, 3, 0, False, False, True, place),
        ("payments", 0, 1, 1, False, False, False, place),
    ]


def test_tables_partitions_and_replicas_as_of_the_past_show_a_reassignment(tmp_path: Path) -> None:
    change = events.PartitionChange(ORDERS, 0, replicas=(1, 2, 3), adding=(3,), removing=(1,))
    node = write_history(tmp_path, [*BATCHES, [change]])
    (row,) = read_history(node, "partitions", "adding", "removing", bounds=equal(topic="orders", partition=0))
    assert row == {"adding": [3], "removing": [1]}
    rows = read_history(node, "replicas", "broker_id", "is_adding", "is_removing", bounds=equal(partition=0))
    assert [tuple(one.values()) for one in rows] == [(1, False, True), (2, False, False), (3, True, False)]


def test_tables_as_of_the_past_configs_and_features_have_the_set_values_and_levels(node: Path) -> None:
    rows = read_history(node, "configs", "resource_type", "resource", "name", "value", "source", "is_sensitive", "type")
    assert [tuple(row.values()) for row in rows] == [
        ("TOPIC", "orders", "min.insync.replicas", "2", "TOPIC", False, "INT"),
        ("BROKER", "", "log.retention.ms", "5000", "DYNAMIC_DEFAULT_BROKER", False, "LONG"),
        ("BROKER", "1", "ssl.key.password", None, "DYNAMIC_BROKER", True, "PASSWORD"),
    ]
    (row,) = read_history(node, "configs", "synonyms", "documentation", bounds=equal(resource="orders"))
    assert row == {"synonyms": [("min.insync.replicas", "2", "TOPIC")], "documentation": None}
    (row,) = read_history(node, "configs", "documentation", bounds=equal(resource="orders"), with_docs=True)
    assert "acks" in row["documentation"]
    (row,) = read_history(node, "features")
    assert (row["feature"], row["level"], row["min_level"], row["max_level"]) == ("metadata.version", 21, 1, 21)
    assert read_history(node, "features", as_of=When(offset=1)) == []


@pytest.mark.parametrize("table", PAST)
def test_tables_as_of_the_past_have_exactly_the_requested_columns_in_the_requested_order(
    node: Path, table: str
) -> None:
    everything = read_history(node, table)
    names = list(TABLES[table].column_names)[::-2]
    assert read_history(node, table, *names) == [{name: row[name] for name in names} for row in everything]
    assert everything


def test_tables_as_of_the_past_contain_no_secret(node: Path) -> None:
    for table in (*PAST, "metadata_events"):
        assert SECRET not in repr(read_history(node, table, with_docs=True))
    assert SECRET not in repr(read_history(node, "metadata_diff", from_=When(offset=0)))
    assert SECRET.encode() in (log_of(node) / f"{STARTS[3]:020}.log").read_bytes()


# points


def test_metadata_point_at_each_offset_and_time_equals_the_state_written_by_then(node: Path) -> None:
    history = load_folder(log_of(node))
    for offset in range(END + 1):
        expected = history.image_at(offset)
        point = point_at(CountingLog(node), When(offset=offset), PointCache())
        assert point.image == expected
    for seconds in (0, 0.5, 1, 3.5, 7, 7.5):
        time_ms = int(NOON_MS + 1000 * seconds)
        point = point_at(CountingLog(node), When(timestamp_ms=time_ms), PointCache())
        assert point.image == history.image_at(history.offset_at(time_ms))


def test_cached_metadata_point_is_reused_and_a_later_point_reads_only_the_batches_after_it(node: Path) -> None:
    log, points = CountingLog(node), PointCache()

    def batches_for(when: When | None) -> int:
        before = log.batches_read
        assert point_at(log, when, points).image == point_at(CountingLog(node), when, PointCache()).image
        return log.batches_read - before

    assert batches_for(When(offset=11)) == 5
    assert batches_for(When(offset=11)) == 1
    assert batches_for(When(offset=13)) == 2
    assert batches_for(When(offset=11)) == 1
    assert batches_for(When(timestamp_ms=NOON_MS + 5500)) == 3
    assert batches_for(None) == 3
    assert batches_for(When(offset=5)) == 3
    assert batches_for(When(offset=4)) == 3


def test_cached_metadata_point_is_dropped_when_the_log_was_truncated_and_rewritten(node: Path) -> None:
    points = PointCache()
    last = log_of(node) / f"{STARTS[3]:020}.log"
    assert point_at(CountingLog(node), None, points).image.offset == END
    cut = last.read_bytes()[: -len(batch(BATCHES[-1], STARTS[-1]))]
    for name in ("this", "that"):  # two leaders each wrote a different event with the same epoch and size
        last.write_bytes(cut + batch([events.Topic(name, PAYMENTS)], STARTS[-1], epoch=9))
        assert name in point_at(CountingLog(node), None, points).image.topics.names


def test_cached_metadata_points_of_two_logs_are_separate(tmp_path: Path) -> None:
    points = PointCache()
    first, second = write_history(tmp_path / "a"), write_history(tmp_path / "b", [[events.Topic("other", ORDERS)]])
    assert "orders" in point_at(CountingLog(first), None, points).image.topics.names
    assert list(point_at(CountingLog(second), None, points).image.topics.names) == ["other"]


def test_cached_metadata_points_are_limited_in_number(node: Path) -> None:
    log, points = CountingLog(node), PointCache(points_max=2)
    for offset in (5, 7, 9):
        point_at(log, When(offset=offset), points)
    before = log.batches_read
    point_at(log, When(offset=5), points)
    assert log.batches_read - before == 3


def without_begin(node: Path, *, snapshot: bool) -> None:
    """Remove the first segment of the log. With `snapshot`, the removed events remain available in a snapshot."""
    base = load_folder(log_of(node)).image_at(STARTS[3])
    (log_of(node) / f"{0:020}.log").unlink()
    if snapshot:
        applied: MetadataImage = base
        name = f"{STARTS[3]:020}-{base.epoch:010}.checkpoint"
        (log_of(node) / name).write_bytes(batch(list(dump(applied)), 0))


def test_metadata_points_after_the_oldest_snapshot_are_available(node: Path) -> None:
    expected = {offset: load_folder(log_of(node)).image_at(offset) for offset in (10, 12, 16)}
    without_begin(node, snapshot=True)
    for offset, image in expected.items():
        assert point_at(CountingLog(node), When(offset=offset), PointCache()).image == image
    rows = {row["topic"]: row for row in read_history(node, "topics", "topic", "created_offset", as_of=When(offset=13))}
    assert {topic: row["created_offset"] for topic, row in rows.items()} == {"orders": None, "payments": 11}


def test_query_of_a_metadata_point_before_the_oldest_snapshot_is_an_error_that_names_the_snapshot(node: Path) -> None:
    without_begin(node, snapshot=True)
    with pytest.raises(NotInLog, match=r"no offset 9 any more: the oldest point in .* is the snapshot at offset 10"):
        point_at(CountingLog(node), When(offset=9), PointCache())
    with pytest.raises(NotInLog, match=r"time 2023-11-14T22:13:22\.000Z is before .*offset 10, written at .*:23\.000Z"):
        point_at(CountingLog(node), When(timestamp_ms=NOON_MS + 2000), PointCache())
    with pytest.raises(StateError, match="table topics cannot be read: there is no offset 9 any more"):
        read_history(node, "topics", as_of=When(offset=9))


def test_metadata_log_without_its_beginning_and_without_a_snapshot_has_events_but_no_points(node: Path) -> None:
    without_begin(node, snapshot=False)
    for when in (None, When(offset=12), When(timestamp_ms=NOON_MS + 5000)):
        with pytest.raises(BeginsInSnapshot, match="begins at offset 10, and its snapshots are gone"):
            point_at(CountingLog(node), when, PointCache())
    rows = read_history(node, "metadata_events", "offset", "topic")
    assert [tuple(row.values()) for row in rows] == [
        (10, None),
        (11, "payments"),
        (12, "payments"),
        (13, None),
        (14, "payments"),
        (15, None),
    ]


def test_query_of_a_metadata_point_outside_the_log_is_an_error_that_names_the_log_start_or_end(node: Path) -> None:
    with pytest.raises(NotInLog, match="no offset 17 yet: the metadata log ends at offset 16"):
        point_at(CountingLog(node), When(offset=17), PointCache())
    with pytest.raises(NotInLog, match=r"time 2023-11-14T22:13:19\.999Z is before the first event .*offset 1, written"):
        point_at(CountingLog(node), When(timestamp_ms=NOON_MS - 1), PointCache())
    with pytest.raises(StateError, match="there is no /nowhere"):
        read_history(Path("/nowhere"), "topics")
    shutil.rmtree(log_of(node))
    with pytest.raises(StateError, match="there is no __cluster_metadata-0 in"):
        read_history(node, "topics")


def test_query_of_a_metadata_point_after_an_unknown_event_type_is_an_error(node: Path) -> None:
    later = encode_batch([Record(0, NOON_MS, None, b"\x92\x63\x00")], base_offset=END, leader_epoch=9)
    (log_of(node) / f"{END:020}.log").write_bytes(later)
    assert read_history(node, "topics", "topic", as_of=When(offset=END)) == [{"topic": "orders"}]
    with pytest.raises(StateError, match="at offset 16: the metadata log holds an event of type 99"):
        read_history(node, "topics")
    assert encode_event(BATCHES[0][0])[1] != 99


# differences


def test_metadata_diff_has_a_row_per_added_or_removed_object_and_per_changed_field(node: Path) -> None:
    columns = ("change", "kind", "key", "field", "before", "after")
    rows = [tuple(row.values()) for row in read_history(node, "metadata_diff", *columns, from_=When(offset=11))]
    assert rows == [
        ("changed", "partition", "orders-0", "leader", "1", "2"),
        ("changed", "partition", "orders-0", "leader_epoch", "0", "1"),
        ("changed", "partition", "orders-0", "partition_epoch", "0", "1"),
        ("changed", "partition", "orders-0", "isr", "[1, 2]", "[2]"),
        ("added", "config", "broker/(all)", "log.retention.ms", None, "5000"),
    ]
    (row,) = read_history(node, "metadata_diff", from_=When(offset=14), to=When(offset=15))[:1]
    assert (row["change"], row["kind"], row["key"], row["topic"], row["after"]) == (
        "removed",
        "topic",
        "payments",
        "payments",
        None,
    )
    assert json.loads(row["before"]) == {"id": id_text(PAYMENTS)}
    assert (row["as_of_offset"], row["as_of"]) == (15, at(6))


def test_metadata_diff_from_the_start_has_topics_partitions_brokers_configs_and_features(node: Path) -> None:
    rows = read_history(node, "metadata_diff", from_=When(offset=1), to=When(offset=11))
    assert {row["change"] for row in rows} == {"added"}
    assert [(row["kind"], row["key"]) for row in rows] == [
        ("topic", "orders"),
        ("partition", "orders-0"),
        ("partition", "orders-1"),
        ("broker", "1"),
        ("broker", "2"),
        ("broker", "3"),
        ("config", "topic/orders"),
        ("config", "broker/1"),
        ("feature", "metadata.version"),
    ]
    by_key = {row["key"]: row for row in rows}
    assert (by_key["orders-1"]["topic"], by_key["orders-1"]["partition"]) == ("orders", 1)
    assert json.loads(by_key["orders-1"]["after"])["isr"] == [2]
    assert (by_key["broker/1"]["broker_id"], by_key["broker/1"]["after"]) == (1, "[hidden]")
    assert (by_key["topic/orders"]["topic"], by_key["metadata.version"]["after"]) == ("orders", "21")


def test_metadata_diff_of_equal_points_is_empty_and_with_a_later_first_point_is_an_error(node: Path) -> None:
    assert read_history(node, "metadata_diff", from_=When(offset=9), to=When(offset=9)) == []
    with pytest.raises(StateError, match="from offset 9 to the earlier offset 3; swap the two"):
        read_history(node, "metadata_diff", from_=When(offset=9), to=When(offset=3))
    with pytest.raises(StateError, match="fromOffset"):
        read_history(node, "metadata_diff")
