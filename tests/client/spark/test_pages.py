"""Tests that the code on the documentation pages about Spark runs, from top to bottom, against a real cluster, with the
documented results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.judge.histories import KILLED, HistoryBuilder, fault_of, samples_of, steady_history
from tests.chaos.judge.test_anomalies import CASES
from tests.client.spark.chaos_runs import besides, write_run
from tests.client.spark.topic_records import Record, create_topic, read_records, write_records
from tests.docs.pages import ROOT
from tests.stages.started_clusters import LocalCluster, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FIRST_MS = 1_795_255_200_000
"""2026-11-21T10:00:00Z in ms since 1970."""
COUNT, CUSTOMERS, PARTITIONS = 180, ("ada", "grace"), 3
NAMES = ("cluster-health", "incident-timeline", "chaos-analysis", "windowed-aggregation", "archive", "replay")
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def orders() -> list[Record]:
    """Return three minutes of orders, one per second, alternating between two customers and between partitions."""
    return [
        Record(
            key=CUSTOMERS[number % 2].encode(),
            value=json.dumps({"amount": number}).encode(),
            headers=(("number", b"%d" % number),),
            partition=number % PARTITIONS,
            timestamp_ms=FIRST_MS + number * 1000,
        )
        for number in range(COUNT)
    ]


@pytest.fixture(scope="module")
def shop() -> Iterator[LocalCluster]:
    """A cluster with a topic of orders, and empty topics for the results."""
    with running(settings=["group.initial.rebalance.delay.ms=0"]) as cluster:
        for name in ("orders", "orders-per-minute", "orders-again", "orders-paced", "new-orders"):
            create_topic(cluster.bootstrap, name, partitions=PARTITIONS, replication_factor=3)
        write_records(cluster.bootstrap, "orders", orders())
        yield cluster


def write_chaos_runs(folder: Path) -> None:
    """Write the folders of two chaos runs: one with a fault, and one with a lost record."""
    write_run(
        folder, "demo", steady_history(silent=((4_000, 7_000),)), faults=[fault_of()], samples=samples_of(*KILLED)
    )
    lost = HistoryBuilder()
    CASES["lost write"].bad(lost)
    write_run(folder, "lost", besides(lost))


def run_page(path: Path, spark: SparkSession, cluster: LocalCluster, folder: Path) -> dict[str, Any]:
    """Run the code of a documentation page, and return the variables that it has defined."""
    names: dict[str, Any] = {"spark": spark}
    for block in _BLOCK.findall(path.read_text()):
        code = block.replace("localhost:9092", cluster.bootstrap)
        code = code.replace('"/data', f'"{folder}/data').replace('"chaos-runs', f'"{folder}/chaos-runs')
        exec(compile(code, str(path), "exec"), names)
    return names


def check_health(names: Mapping[str, Any], cluster: LocalCluster, folder: Path) -> None:
    load = names["health"].load.collect()
    assert [row.broker_id for row in load] == [1, 2, 3]
    assert sum(row.leaders for row in load) * 3 == sum(row.replicas for row in load)
    assert names["health"].troubled.count() == 0
    assert "data:image/png;base64," in (folder / "data/health.html").read_text()


def check_timeline(names: Mapping[str, Any], cluster: LocalCluster, folder: Path) -> None:
    faults = names["timeline"].moments.where("source = 'fault'").collect()
    assert [(row.kind, row.broker_id) for row in faults] == [("fault begins", 2), ("fault ends", 2)]
    assert "topic orders is created" in (folder / "data/timeline.html").read_text()
    assert "chaos-0 is led by broker 1, ISR 1,3" in (folder / "data/chaos-timeline.html").read_text()


def check_chaos(names: Mapping[str, Any], cluster: LocalCluster, folder: Path) -> None:
    runs = {row.run: row for row in names["analysis"].runs.collect()}
    assert {name: (row.found, row.agrees) for name, row in runs.items()} == {
        "demo": ({}, True),
        "lost": ({"lost write": 1}, True),
    }
    assert "lost: 1 × lost write" in (folder / "data/chaos.html").read_text()


def check_windows(names: Mapping[str, Any], cluster: LocalCluster, folder: Path) -> None:
    found = [json.loads(record.value or b"") for record in read_records(cluster.bootstrap, "orders-per-minute")]
    whole_minutes = range(2)  # the watermark has not passed the end of the third window
    expected = {
        (f"2026-11-21T10:0{minute}:00.000Z", customer): (
            30,
            float(sum(number for number in range(minute * 60, minute * 60 + 60) if number % 2 == at)),
        )
        for minute in whole_minutes
        for at, customer in enumerate(CUSTOMERS)
    }
    assert {(one["window_start"], one["key"]): (one["count"], one["total"]) for one in found} == expected
    assert len(found) == len(expected)


def check_archive(names: Mapping[str, Any], cluster: LocalCluster, folder: Path) -> None:
    rows = names["archived"].orderBy("partition", "offset").collect()
    written = read_records(cluster.bootstrap, "orders")
    assert [(row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in rows] == [
        (one.partition, one.offset, one.key, one.value) for one in written
    ]
    assert [[(header.key, bytes(header.value)) for header in row.headers] for row in rows] == [
        [*one.headers] for one in written
    ]
    assert (folder / "data/archive/topic=orders/date=2026-11-21/partition=0").is_dir()


def check_replay(names: Mapping[str, Any], cluster: LocalCluster, folder: Path) -> None:
    original, again = (read_records(cluster.bootstrap, name) for name in ("orders", "orders-again"))
    kept = [
        [(one.partition, one.key, one.value, one.headers, one.timestamp_ms) for one in each]
        for each in (original, again)
    ]
    assert kept[0] == kept[1]
    paced = read_records(cluster.bootstrap, "orders-paced")
    assert [one.value for one in paced] == [one.value for one in original if one.partition == 0]
    moved = {new.timestamp_ms - old.timestamp_ms for new, old in zip(paced, original, strict=False)}
    assert len(moved) == 1
    assert moved != {0}
    assert names["written"].steps > 1


CHECKS: dict[str, Callable[[Mapping[str, Any], LocalCluster, Path], None]] = dict(
    zip(NAMES, (check_health, check_timeline, check_chaos, check_windows, check_archive, check_replay), strict=True)
)


@pytest.mark.parametrize("name", NAMES)
def test_code_on_a_pipelines_page_runs_and_gives_the_documented_results(
    name: str, spark: SparkSession, shop: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    write_chaos_runs(tmp_path / "chaos-runs")
    names = run_page(ROOT / "docs" / "spark" / f"{name}.md", spark, shop, tmp_path)
    CHECKS[name](names, shop, tmp_path)


def test_code_on_the_spark_front_page_runs_from_top_to_bottom(
    spark: SparkSession, shop: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    run_page(ROOT / "docs" / "spark.md", spark, shop, tmp_path)


def test_every_spark_pipeline_has_a_documentation_page() -> None:
    from kraft.client.spark.jobs.registry import JOBS

    assert tuple(JOBS) == NAMES
    assert {path.stem for path in (ROOT / "docs" / "spark").glob("*.md")} >= set(NAMES)
