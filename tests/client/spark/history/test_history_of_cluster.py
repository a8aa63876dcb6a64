"""Tests of tables as of the past of a cluster of processes, over the network and from its files, without Spark. The
tables must equal the output of `kraft metadata`.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.history.points import ClusterLog
from kraft.client.spark.history.rows import plan_events, read_events
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import Position, TableSettings, When
from kraft.client.spark.state import StateError
from kraft.client.spark.tables import TABLES, ColumnSource, table_of
from tests.client.spark.history.history_logs import read_history
from tests.client.spark.state.state_requests import Row, connection, read_table, with_admin
from tests.client.spark.topic_records import create_topic
from tests.stages.started_clusters import KRAFT, LocalCluster, running

pytestmark = pytest.mark.interop

SMALL = (
    "internal.metadata.log.segment.bytes=2048",
    "metadata.log.max.record.bytes.between.snapshots=1000",
    "metadata.max.retention.bytes=3000",
)
PAST = [name for name, table in TABLES.items() if table.has_time_travel]
SECRET = "do-not-show-this"


def kraft_json(bootstrap: str, *arguments: str) -> Any:
    """Return the output of `kraft metadata` with --json."""
    command = [*KRAFT, "metadata", *arguments, "--json", "--bootstrap-server", bootstrap]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@pytest.fixture(scope="module")
def changed_cluster(cluster: LocalCluster) -> LocalCluster:
    """A cluster whose topics were created, deleted and moved, and whose settings were changed."""
    bootstrap = cluster.bootstrap
    create_topic(bootstrap, "orders", partitions=3, replication_factor=2, retention_ms=1234567)
    create_topic(bootstrap, "short", partitions=1, replication_factor=3)

    async def change(admin: Admin) -> None:
        broker = ConfigResource(ResourceType.BROKER, "2")
        key = "listener.name.plaintext.ssl.key.password"
        await admin.configs.alter(broker, [ConfigChange(ConfigOperation.SET, key, SECRET)])
        await admin.topics.delete("short")

    with_admin(bootstrap, change)
    with cluster.killed(3):
        deadline = time.monotonic() + 60
        while any(row["leader"] == 3 for row in read_table(bootstrap, "partitions", "leader")):
            assert time.monotonic() < deadline, "broker 3 leads although it is dead"
    cluster.wait_in_sync("orders", 2)
    create_topic(bootstrap, "short", partitions=2, replication_factor=1)
    return cluster


def offsets_of(cluster: LocalCluster) -> list[int]:
    return [row["offset"] for row in read_table(cluster.bootstrap, "metadata_events", "offset")]


def listed_partitions(tree: Any) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the partitions in the output of `kraft metadata show`."""
    return {
        (name, int(index)): tuple(state[field] for field in ("leader", "leader_epoch", "replicas", "isr"))
        for name, topic in tree["topics"].items()
        for index, state in topic["partitions"].items()
    }


def test_tables_as_of_offsets_and_times_equal_the_output_of_kraft_metadata(changed_cluster: LocalCluster) -> None:
    offsets = offsets_of(changed_cluster)
    times = read_table(changed_cluster.bootstrap, "metadata_events", "timestamp")
    middle = times[len(times) // 2]["timestamp"]
    points = [(When(offset=at), str(at)) for at in (offsets[1], offsets[len(offsets) // 2], offsets[-1])]
    points.append((When(timestamp_ms=round(middle.timestamp() * 1000)), middle.isoformat()))
    for when, named in points:
        reported = kraft_json(changed_cluster.bootstrap, "show", "--at", named)
        rows = read_table(changed_cluster.bootstrap, "partitions", as_of=when)
        columns = ("leader", "leader_epoch", "replicas", "isr")
        found = {(row["topic"], row["partition"]): tuple(row[name] for name in columns) for row in rows}
        assert found == listed_partitions(reported)
        assert all(row["as_of_offset"] == reported["cluster"]["offset"] for row in rows)
        brokers = read_table(changed_cluster.bootstrap, "brokers", "broker_id", "is_fenced", "epoch", as_of=when)
        assert [(str(row["broker_id"]), row["is_fenced"], row["epoch"]) for row in brokers] == [
            (broker_id, broker["state"] == "fenced", broker["epoch"])
            for broker_id, broker in reported["brokers"].items()
        ]
        features = read_table(changed_cluster.bootstrap, "features", "feature", "level", as_of=when)
        assert {row["feature"]: row["level"] for row in features if row["level"]} == reported["features"]
        settings = read_table(
            changed_cluster.bootstrap, "configs", "resource_type", "resource", "name", "value", as_of=when
        )
        assert {(row["resource_type"].lower(), row["resource"] or "(all)", row["name"]) for row in settings} == {
            (kind, resource, name)
            for kind, resources in reported["configs"].items()
            for resource, values in resources.items()
            for name in values
        }


@pytest.mark.parametrize("table", PAST)
def test_table_as_of_the_past_is_equal_over_the_network_and_from_a_folder(
    changed_cluster: LocalCluster, table: str
) -> None:
    offsets = offsets_of(changed_cluster)
    columns = table_of(table).column_names
    for offset in (offsets[3], offsets[-1]):
        over_network = read_table(changed_cluster.bootstrap, table, *columns, as_of=When(offset=offset))
        assert over_network == read_history(changed_cluster.folder, table, as_of=When(offset=offset))
    assert over_network
    assert SECRET not in repr(over_network)


def test_metadata_events_and_diff_equal_the_output_of_kraft_metadata(changed_cluster: LocalCluster) -> None:
    command = [*KRAFT, "metadata", "events", "--json", "--bootstrap-server", changed_cluster.bootstrap]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    reported = [json.loads(line) for line in printed.splitlines()]
    rows = read_table(changed_cluster.bootstrap, "metadata_events", *table_of("metadata_events").column_names)
    for row, event in zip(rows, reported, strict=False):  # the log may have grown in between
        assert (row["offset"], row["epoch"], row["type"]) == (event["offset"], event["epoch"], event["type"])
        assert json.loads(row["fields"]).items() <= event.items()
    assert len(rows) >= len(reported) > 20
    assert SECRET not in printed + repr(rows)
    ids = {row["topic_id"]: row["topic"] for row in rows if row["type"] == "Topic"}
    about = [row for row in rows if row["type"] in ("Partition", "PartitionChange", "RemoveTopic")]
    assert all(row["topic"] == ids[row["topic_id"]] for row in about)
    assert list(ids.values()).count("short") == 2
    diff = kraft_json(changed_cluster.bootstrap, "diff", "1", str(reported[-1]["offset"]))
    between = {"from_": When(offset=1), "to": When(offset=reported[-1]["offset"])}
    found = read_table(changed_cluster.bootstrap, "metadata_diff", "kind", "key", "change", "after", **between)
    top = {path.split("/")[1] for path in (one["path"] for one in diff["changes"]) if path.startswith("topics/")}
    assert {row["key"] for row in found if row["kind"] == "topic"} == top == {"orders", "short"}
    assert SECRET not in repr(found)


def test_present_tables_of_pykraft_have_values_in_the_metadata_log_columns(changed_cluster: LocalCluster) -> None:
    end = {"as_of": When(offset=offsets_of(changed_cluster)[-1] + 1)}
    keys = {"brokers": 1, "topics": 1, "partitions": 3, "replicas": 3}
    for table, count in keys.items():
        log = [column.name for column in table_of(table).columns if column.source is ColumnSource.LOG]
        columns = (*table_of(table).column_names[:count], *log)
        present = read_table(changed_cluster.bootstrap, table, *columns, "as_of_offset")
        past = {tuple(row.values()) for row in _hashable(read_table(changed_cluster.bootstrap, table, *columns, **end))}
        assert {tuple(row[name] for name in columns) for row in _hashable(present)} == past
        assert all(row["as_of_offset"] is not None for row in present)
    (created,) = read_table(changed_cluster.bootstrap, "topics", "created_offset", "created", where={"topic": "orders"})
    rows = read_table(changed_cluster.bootstrap, "metadata_events", "offset", "type", "topic", "timestamp")
    (event,) = [row for row in rows if (row["type"], row["topic"]) == ("Topic", "orders")]
    assert created == {"created_offset": event["offset"], "created": event["timestamp"]}


def _hashable(rows: list[Row]) -> list[Row]:
    return [{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()} for row in rows]


def test_metadata_log_read_continues_at_another_broker_when_its_broker_is_killed(changed_cluster: LocalCluster) -> None:
    before = offsets_of(changed_cluster)
    with SyncCluster(connection(changed_cluster.bootstrap)) as cluster:
        log = ClusterLog(cluster)
        bounds = log.bounds()
        with changed_cluster.killed(1):  # all brokers report the lowest live broker as the leader of the metadata log
            batches = list(log.batches(bounds.start, bounds.end))
    assert [one.header.base_offset for one in batches] == sorted({one.header.base_offset for one in batches})
    assert batches[-1].header.next_offset >= before[-1]
    changed_cluster.wait_in_sync("orders", 2)


def test_query_of_a_metadata_point_that_is_unavailable_over_the_network_is_an_error(
    changed_cluster: LocalCluster,
) -> None:
    with pytest.raises(StateError, match=r"no offset 99999999 yet: the metadata log ends at offset \d+"):
        read_table(changed_cluster.bootstrap, "topics", as_of=When(offset=99999999))
    with pytest.raises(StateError, match=r"before the first event that is there: offset .* begins at offset 0"):
        read_table(changed_cluster.bootstrap, "topics", as_of=When(timestamp_ms=1000))
    with pytest.raises(StateError, match="no broker answered"):
        read_table("127.0.0.1:1", "topics", as_of=When(offset=1), timeout_ms=500)


@pytest.fixture(scope="module")
def cluster_without_log_start() -> Iterator[LocalCluster]:
    """A cluster whose metadata log lacks its beginning, which is only in snapshots."""
    with running(settings=SMALL) as cluster:
        for number in range(40):
            create_topic(cluster.bootstrap, f"topic-{number}", partitions=1, replication_factor=1)
            if begin_of(cluster) > 0:
                break
        assert begin_of(cluster) > 0, "the log still has its begin"
        number = 0
        while not events_of(cluster):  # a snapshot may contain all events
            create_topic(cluster.bootstrap, f"later-{number}", partitions=1, replication_factor=1)
            number += 1
        yield cluster


def events_of(cluster: LocalCluster) -> list[dict[str, Any]]:
    return read_table(cluster.bootstrap, "metadata_events", "offset", "type", "topic")


def begin_of(cluster: LocalCluster) -> int:
    with SyncCluster(connection(cluster.bootstrap)) as connected:
        return ClusterLog(connected).bounds().start


def test_metadata_log_without_its_beginning_serves_events_over_network_and_points_from_a_folder(
    cluster_without_log_start: LocalCluster,
) -> None:
    begin = begin_of(cluster_without_log_start)
    with pytest.raises(StateError, match=r"begins at offset \d+, and what was before is in a snapshot.*folder=DIR"):
        read_table(cluster_without_log_start.bootstrap, "topics", as_of=When(offset=begin + 1))
    (row, *_) = read_table(cluster_without_log_start.bootstrap, "topics", "topic", "created_offset")
    assert row["created_offset"] is None
    rows = events_of(cluster_without_log_start)
    assert rows[0]["offset"] >= begin
    assert all(row["topic"] is not None for row in rows if row["type"] in ("Topic", "Partition", "PartitionChange"))
    wanted = TableSettings(
        table="metadata_events",
        connection=connection(cluster_without_log_start.bootstrap),
        starting=Position(kind="offsets", offsets={"__cluster_metadata": {0: 0}}),
    )
    with pytest.raises(Exception, match=r"events from offset 0 on are no longer in the log: the first is at \d+"):
        plan_events(wanted, ("offset",), Bounds())
    present = {row["topic"] for row in read_table(cluster_without_log_start.bootstrap, "topics", "topic")}
    node = cluster_without_log_start.folder / "1"
    assert {row["topic"] for row in read_history(node, "topics", "topic")} == present
    with pytest.raises(StateError, match=r"no offset 1 any more: the oldest point in .* is the snapshot at offset"):
        read_history(node, "topics", as_of=When(offset=1))


def test_metadata_events_of_a_cluster_in_several_tasks_equal_those_of_one_task(changed_cluster: LocalCluster) -> None:
    wanted = TableSettings(table="metadata_events", connection=connection(changed_cluster.bootstrap))
    columns = ("offset", "type", "topic", "fields")
    ranges = plan_events(wanted, columns, Bounds(), events_max=7)
    rows = [row for one in ranges for row in read_events(wanted, columns, one)]
    expected = read_table(changed_cluster.bootstrap, "metadata_events", *columns)
    assert [dict(zip(columns, row, strict=True)) for row in rows] == expected[: len(rows)]
    assert len(ranges) > 3


def test_past_tables_of_apache_kafka_are_errors_and_its_metadata_log_columns_are_null(
    apache_kafka: str, topic: str
) -> None:
    create_topic(apache_kafka, topic, partitions=1, replication_factor=1)
    columns = ("topic", "partition", "leader", "partition_epoch", "directories", "as_of_offset")
    (row,) = read_table(apache_kafka, "partitions", *columns, where={"topic": topic})
    assert tuple(row.values()) == (topic, 0, 1, None, None, None)
    for table in ("partitions", "metadata_events"):
        with pytest.raises(
            StateError, match=r"does not allow this client to read __cluster_metadata \(\w+\).*folder=DIR"
        ):
            read_table(apache_kafka, table, "topic", **({"as_of": When(offset=5)} if table == "partitions" else {}))


def test_table_as_of_the_past_from_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="there is no"):
        read_history(tmp_path / "nothing", "topics")
