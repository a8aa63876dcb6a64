"""Alarms and lists that are computed from a snapshot."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from starlette.exceptions import HTTPException

from kraft.client.admin import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    LogDirReplica,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    Reassignment,
    TopicDescription,
)
from kraft.deploy.console.cluster_view import pause_s
from kraft.deploy.console.faults.strip import strip_of
from kraft.deploy.console.node_metrics import NodeMetrics, parse_samples
from kraft.deploy.console.pages.configs import config_rows
from kraft.deploy.console.pages.overview import broker_rows, quorum_rows
from kraft.deploy.console.pages.reassignments import move_row
from kraft.deploy.console.pages.resets import read_rule
from kraft.deploy.console.pages.topics import choose_partitions, topic_rows
from kraft.deploy.console.paging import cut
from kraft.deploy.console.rendering import ago, clock_time, counted, metric, number, shown_id, size
from kraft.deploy.console.snapshot import ClusterSnapshot, Severity, find_alarms
from kraft.deploy.console.sparkline import sparkline
from kraft.seam import Address
from tests.deploy.console.plain_settings import plain_settings

NOW_MS = 1_000_000


def part(index: int, leader: int | None, isr: tuple[int, ...]) -> PartitionDescription:
    return PartitionDescription("orders", index, leader, 0, (1, 2, 3), isr, ())


def snapshot(*parts: PartitionDescription, brokers: tuple[int, ...] = (1, 2, 3), **more: Any) -> ClusterSnapshot:
    known = tuple(BrokerDescription(one, Address("host", 9092), None, False) for one in brokers)
    voters = (QuorumReplica(101, None, 50, NOW_MS, NOW_MS), QuorumReplica(102, None, 40, NOW_MS, NOW_MS - 60_000))
    given = {
        "cluster": ClusterDescription("id", 1, known),
        "quorum": QuorumDescription(101, 7, 40, voters, ()),
        "topics": {"orders": TopicDescription("orders", None, False, parts)},
        "min_isr": {"orders": 2},
    }
    return ClusterSnapshot(NOW_MS, 1.0, **{**given, **more})


def titles(found: ClusterSnapshot) -> list[str]:
    return [alarm.title for alarm in find_alarms(found)]


QUIET_QUORUM = QuorumDescription(101, 7, 40, (QuorumReplica(101, None, 50, NOW_MS, NOW_MS),), ())


@pytest.mark.parametrize(
    ("replicas", "leader", "isr", "states"),
    [
        ((1, 2, 3), 1, (1, 2, 3), ()),
        ((1, 2, 3), None, (1, 2, 3), ("offline",)),
        ((1, 2, 3), 2, (1, 2, 3), ("not-preferred",)),
        ((1, 2, 3), 1, (1,), ("under-min-isr", "under-replicated")),
        ((1,), 1, (1,), ("under-min-isr",)),
        ((), None, (), ("offline", "under-min-isr")),
    ],
)
def test_partition_states_match_the_condition_of_the_partition(
    replicas: tuple[int, ...], leader: int | None, isr: tuple[int, ...], states: tuple[str, ...]
) -> None:
    one = PartitionDescription("orders", 0, leader, 0, replicas, isr, ())
    assert snapshot(one).states(one) == states
    moving = snapshot(one, reassignments={("orders", 0): Reassignment(replicas, (), ())})
    assert moving.states(one) == (*states, "moving")


def test_a_healthy_cluster_has_no_alarms() -> None:
    assert titles(snapshot(part(0, 1, (1, 2, 3)), quorum=QUIET_QUORUM)) == []


def test_alarms_name_partitions_by_state_and_list_errors_first() -> None:
    found = snapshot(part(0, None, ()), part(1, 2, (2,)), part(2, 1, (1, 2)))
    assert titles(found) == ["Offline partitions", "Under min ISR", "Voters behind", "Under-replicated"]
    by_title = {alarm.title: alarm for alarm in find_alarms(found)}
    assert by_title["Under min ISR"].text.startswith("2 partitions ")
    assert "orders-0" in by_title["Offline partitions"].text
    assert by_title["Under-replicated"].severity is Severity.WARNING
    assert by_title["Voters behind"].text.startswith("node 102 is")


def test_alarms_name_a_missing_broker_with_replicas() -> None:
    found = snapshot(part(0, 1, (1, 2)), brokers=(1, 2), quorum=QUIET_QUORUM)
    assert titles(found) == ["Brokers missing", "Under-replicated"]
    assert [(row.node_id, row.state) for row in broker_rows(found)] == [(1, "active"), (2, "active"), (3, "missing")]


def test_a_quorum_without_a_leader_raises_an_alarm() -> None:
    assert titles(snapshot(quorum=QuorumDescription(None, 7, 40, (), ()))) == ["No controller"]
    assert titles(snapshot(quorum=None, problems={"quorum": "no"})) == ["Quorum unknown"]


def test_quorum_rows_show_the_lag_behind_the_leader() -> None:
    assert [(row.node_id, row.role, row.lag) for row in quorum_rows(snapshot())] == [
        (101, "leader", 0), (102, "voter", 10),
    ]  # fmt: skip


def test_partitions_are_filtered_by_state_and_broker() -> None:
    found = snapshot(part(0, None, ()), part(1, 2, (1, 2, 3)), part(2, 1, (1, 2, 3)))
    assert [one.index for one in choose_partitions(found, "ORD", "offline", "")] == [0]
    assert [one.index for one in choose_partitions(found, "", "not-preferred", "3")] == [1]
    assert choose_partitions(found, "", "", "9") == []
    (row,) = topic_rows(found)
    assert row.states == {"offline": 1, "under-min-isr": 1, "under-replicated": 1, "not-preferred": 1}


def test_the_fault_strip_shows_affected_partitions_first_and_internal_topics_last() -> None:
    def topic(name: str, *leaders: int | None, is_internal: bool = False) -> TopicDescription:
        parts = [PartitionDescription(name, at, leader, 0, (1,), (1,), ()) for at, leader in enumerate(leaders)]
        return TopicDescription(name, None, is_internal, tuple(parts))

    topics = {
        "__consumer_offsets": topic("__consumer_offsets", 1, None, is_internal=True),
        "zoo": topic("zoo", 1, None),
    }
    cells = strip_of(snapshot(topics=topics), [])["cells"]
    assert [cell["name"] for cell in cells] == ["zoo-1", "__consumer_offsets-1", "zoo-0", "__consumer_offsets-0"]


def test_a_page_number_out_of_range_gives_the_nearest_page() -> None:
    rows = list(range(250))
    assert [cut(rows, wanted, "rows").number for wanted in ("", "2", "9", "-1", "x", "9" * 20)] == [1, 2, 3, 1, 1, 1]
    last = cut(rows, "3", "rows")
    assert (list(last.rows), last.count, last.total) == (list(range(200, 250)), 3, 250)
    assert last.query({"q": "a b", "page": "3", "notice": "x"}, 2) == "q=a+b&page=2"
    assert cut([], "", "rows").count == 1


def test_a_setting_row_shows_its_source_and_default() -> None:
    entry = ConfigEntry(
        "retention.ms", "5", ConfigSource.TOPIC, False, False, "<p>Age.</p>",
        synonyms=(
            ConfigSynonym("retention.ms", "5", ConfigSource.TOPIC), ConfigSynonym("log", "9", ConfigSource.DEFAULT),
        ),
    )  # fmt: skip
    secret = ConfigEntry("ssl.key", "hush", ConfigSource.DEFAULT, True, True)
    changed, hidden = config_rows([entry, secret])
    assert (changed.value, changed.default, changed.source, changed.is_changed) == ("5", "9", "this topic", True)
    assert changed.documentation == "Age."
    assert (hidden.value, hidden.is_changed) == (None, False)


def test_a_move_row_shows_the_share_of_bytes_copied() -> None:
    move = Reassignment((1, 2, 3), adding=(3,), removing=(1,))
    held = {
        (broker, "t", 0): ("/d", LogDirReplica("t", 0, bytes_held, 0, False))
        for broker, bytes_held in ((1, 400), (2, 400), (3, 100))
    }
    assert move_row("t", 0, move, held).share == 0.25
    assert move_row("t", 0, move, {}).share is None


def test_the_console_shows_a_nodes_metrics_as_values_or_as_rates_per_second() -> None:
    text = """# TYPE x gauge
kafka_server_replicamanager_partitioncount 12.0
kafka_server_brokertopicmetrics_bytesinpersec_total 1000.0
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 4.5
kafka_other{a="b"} 1
process_resident_memory_bytes NaN
"""
    values = parse_samples(text)
    assert "process_resident_memory_bytes" not in values, "what the node does not know is no value"
    assert values['kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}'] == 4.5
    assert "kafka_other" not in "".join(values)
    metrics = NodeMetrics(plain_settings("h:1"))
    metrics.take(1, 10.0, values)
    metrics.take(1, 12.0, {**values, "kafka_server_brokertopicmetrics_bytesinpersec_total": 5000.0})
    assert metrics.of(1)["Bytes in"] == (2000.0,)
    assert metrics.of(1)["Partitions"] == (12.0, 12.0)


def test_a_sparkline_stays_within_its_box_and_escapes_its_label() -> None:
    drawn = sparkline([0, 10, 5], label='<"a">', width=100, height=20)
    assert 'points="2.0,18.0 50.0,2.0 98.0,10.0"' in drawn
    assert "<title>&lt;" in drawn
    assert "style=" not in drawn
    assert "polyline" not in sparkline([], label="none")


def test_the_console_shows_numbers_sizes_metrics_ids_and_times_in_readable_form() -> None:
    assert [number(one) for one in (None, 1234567, 0.5, 1234.5)] == ["–", "1,234,567", "0.50", "1,234"]
    shown = [metric(*one) for one in ((2048.0, "Bytes in"), (2048.0, "Memory"), (0.014, "CPU"), (6.8, "Produce p99"))]
    assert shown == ["2.0 KiB/s", "2.0 KiB", "1% of a core", "6.80 ms"]
    assert [metric(3.0, "Messages in"), metric(3.0, "Partitions")] == ["3 /s", "3"]
    assert [shown_id(None), shown_id(UUID(int=1))] == ["–", "AAAAAAAAAAAAAAAAAAAAAQ"]
    assert [size(one) for one in (None, 10, 1536, 3 * 1024**3)] == ["–", "10 B", "1.5 KiB", "3.0 GiB"]
    assert [ago(one) for one in (5, 90_000, 600_000, 10_000_000, 864_000_000)] == [
        "now",
        "90 s",
        "10 min",
        "3 h",
        "10 d",
    ]
    assert clock_time(0) == "1970-01-01 00:00:00.000Z"
    assert clock_time(10**18) == str(10**18)
    assert [counted(count, "group") for count in (0, 1, 2_000)] == ["0 groups", "1 group", "2,000 groups"]


@pytest.mark.parametrize(
    ("costs_s", "pause"),
    [((0.01,), 2.0), ((0.5,), 5.0), ((4.0,), 10.0), ((), 2.0), ((0.1, 3.9, 0.1, 3.9), 2.0)],
)
def test_the_console_pauses_ten_times_its_shortest_recent_round_of_requests_within_bounds(
    costs_s: tuple[float, ...], pause: float
) -> None:
    assert pause_s(costs_s, least_ms=2_000) == pause


def test_a_reset_form_accepts_iso_8601_times_and_explains_invalid_ones() -> None:
    assert read_rule("time", "1970-01-01T01:00").value == 3_600_000
    assert read_rule("time", " 1970-01-01T01:00+01:00 ").value == 0
    assert read_rule("shift", "-5").value == -5
    wrong = (("time", "soon", "is not a time"), ("shift", "x", "expected a number"), ("up", "", "one of"))
    for to, value, words in wrong:
        with pytest.raises(HTTPException, match=words):
            read_rule(to, value)
