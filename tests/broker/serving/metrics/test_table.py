"""The table of metrics lists exactly the metrics of running nodes, for every combination of a node's roles."""

from __future__ import annotations

import math
import os
import resource

import psutil
import pytest

from kraft.broker.serving.metrics.metric_registry import Metrics
from kraft.broker.serving.metrics.process import register_process_metrics
from kraft.broker.serving.metrics.table import TABLE, MetricRow, MetricScope
from kraft.runtime.process import USAGE
from tests.stages.plane import Plane, batch, run

LABELS_OF_TOTALS = ((), ("topic",))


def rows(where: MetricScope) -> dict[tuple[str, str, str], MetricRow]:
    return {row.key: row for row in TABLE if row.where & where}


def check(metrics: Metrics, where: MetricScope) -> None:
    shown = {(family.name.group, family.name.type, family.name.name): family for family in metrics._families.values()}
    expected = rows(where)
    assert sorted(shown.keys() - expected.keys()) == [], "not in the table"
    assert sorted(expected.keys() - shown.keys()) == [], "not on the node"
    for key, family in shown.items():
        row = expected[key]
        assert (family.kind, family.is_on_demand) == (row.kind, row.is_on_demand), key
        for tags, _ in family.members():
            labels = tuple(name for name, _ in tags)
            assert labels in (tuple(sorted(row.labels)), *(LABELS_OF_TOTALS if "topic" in row.labels else ())), key


def test_the_metrics_table_has_no_duplicates() -> None:
    assert len({row.key for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("layout", [{"combined": 1}, {"controllers": 1, "brokers": 1}], ids=str)
def test_a_node_shows_the_metrics_of_its_roles_and_no_others(layout: dict[str, int]) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await plane.produce("orders", batch("a"))
        broker_id = plane.cluster.broker_ids[0]
        if "combined" in layout:
            check(plane.cluster.node(broker_id).metrics, MetricScope.BOTH)
        else:
            check(plane.cluster.node(broker_id).metrics, MetricScope.BROKER)
            (controller,) = {name for name in plane.cluster.started if name.startswith("c")}
            node = plane.cluster.started[controller].node
            assert node is not None
            check(node.metrics, MetricScope.CONTROLLER)

    run(test, **layout)


def test_process_metrics_equal_the_values_that_the_kernel_reports() -> None:
    metrics = Metrics()
    register_process_metrics(USAGE, metrics)
    check(metrics, MetricScope.PROCESS)
    found = {f"{name.type}_{name.name}": value for name, value in metrics.readings() if name.group == "process"}
    process = psutil.Process()
    assert found["cpu_seconds"] > 0
    assert abs(found["start_time_seconds"] - process.create_time()) < 2
    assert 0 < found["resident_memory_bytes"] < found["virtual_memory_bytes"]
    assert 0 < found["open_fds"] <= found["max_fds"]
    assert b"process_cpu_seconds_total " in metrics.exposition()
    assert b"process_open_fds " in metrics.exposition()


def test_process_metrics_are_read_without_a_free_file_descriptor() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(used, soft), hard))
    taken = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(0))
        found = {name: read() for name, read in USAGE.items()}
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found["open_fds"] == found["max_fds"] == min(used, soft)
    assert math.isnan(found["resident_memory_bytes"])
    assert found["cpu_seconds"] > 0
