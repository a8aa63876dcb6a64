"""Apache Kafka's share consumer and share group tools on our brokers (KIP-932)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.interop.test_kafkas_tools import SCRIPT, rows, tool
from tests.stages.kraft_command import Command
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
RECORDS = 40
SECONDS_MAX = 90
WAIT_MS = "20000"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def begin(cluster: LocalCluster, name: str) -> None:
    """Create a topic and a share group of this name; the group begins at the start of the topic."""
    cluster.create_topic(name, partitions=2, replication_factor=3)
    reset = ("--entity-type", "groups", "--entity-name", name, "--add-config", "share.auto.offset.reset=earliest")
    tool(cluster, "ConfigCommand", "--alter", *reset)


def write(cluster: LocalCluster, topic: str, first: int, count: int) -> set[str]:
    values = {f"value-{number}" for number in range(first, first + count)}
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    return values


def consumer(cluster: LocalCluster, name: str, count: int, *options: str) -> subprocess.Popen[str]:
    """Start Kafka's console share consumer, which ends after this many records."""
    command = [SCRIPT, "tool", CONSUMER, "--bootstrap-server", cluster.bootstrap, "--topic", name, "--group", name]
    limits = ["--max-messages", str(count), "--timeout-ms", WAIT_MS, *options]
    return subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def consumed(process: subprocess.Popen[str]) -> list[str]:
    """Return the values that a consumer has printed, once it has ended. It also prints that it waited in vain."""
    out, _ = process.communicate(timeout=SECONDS_MAX)
    return [line for line in out.split() if line.startswith("value-")]


def describe(cluster: LocalCluster, group: str, *options: str) -> str:
    return tool(cluster, "ShareGroupCommand", "--describe", "--group", group, *options)


def test_kafkas_share_consumer_reads_every_record_once(cluster: LocalCluster) -> None:
    begin(cluster, "once")
    values = write(cluster, "once", 0, RECORDS)
    found = consumed(consumer(cluster, "once", RECORDS))
    assert sorted(found) == sorted(values)
    later = write(cluster, "once", RECORDS, RECORDS)
    assert sorted(consumed(consumer(cluster, "once", RECORDS))) == sorted(later)


def test_two_share_consumers_divide_the_records(cluster: LocalCluster) -> None:
    begin(cluster, "divided")
    values = write(cluster, "divided", 0, 4 * RECORDS)
    processes = [consumer(cluster, "divided", 4 * RECORDS) for _ in range(2)]
    found = [value for process in processes for value in consumed(process)]
    assert sorted(found) == sorted(values)


def test_rejected_records_are_not_delivered_again(cluster: LocalCluster) -> None:
    begin(cluster, "rejected")
    write(cluster, "rejected", 0, RECORDS)
    assert len(consumed(consumer(cluster, "rejected", RECORDS, "--reject"))) == RECORDS
    later = write(cluster, "rejected", RECORDS, 1)
    assert consumed(consumer(cluster, "rejected", 1)) == list(later)


def test_a_released_record_is_delivered_until_its_limit(cluster: LocalCluster) -> None:
    begin(cluster, "released")
    write(cluster, "released", 0, 1)
    assert consumed(consumer(cluster, "released", 5, "--release")) == ["value-0"] * 5


def test_kafkas_share_groups_tool_shows_and_changes_a_group(cluster: LocalCluster) -> None:
    begin(cluster, "shown")
    write(cluster, "shown", 0, RECORDS)
    consumed(consumer(cluster, "shown", RECORDS))
    assert "shown" in tool(cluster, "ShareGroupCommand", "--list").split()
    assert "Empty" in describe(cluster, "shown", "--state")
    table = rows(describe(cluster, "shown"))
    assert sum(int(row["START-OFFSET"]) for row in table) == RECORDS
    reset = ("--reset-offsets", "--group", "shown", "--topic", "shown", "--to-earliest", "--execute")
    tool(cluster, "ShareGroupCommand", *reset)
    assert sum(int(row["START-OFFSET"]) for row in rows(describe(cluster, "shown"))) == 0
    assert len(consumed(consumer(cluster, "shown", RECORDS))) == RECORDS
    tool(cluster, "ShareGroupCommand", "--delete-offsets", "--group", "shown", "--topic", "shown")
    assert "Deletion of requested share groups ('shown') was successful" in tool(
        cluster, "ShareGroupCommand", "--delete", "--group", "shown"
    )
    assert "shown" not in tool(cluster, "ShareGroupCommand", "--list").split()


def test_our_tool_and_kafkas_tool_see_the_same_share_group(cluster: LocalCluster, tmp_path: Path) -> None:
    begin(cluster, "seen")
    write(cluster, "seen", 0, RECORDS)
    consumed(consumer(cluster, "seen", RECORDS // 2))
    command = Command(tmp_path)

    def ours(*words: str) -> Any:
        return json.loads(command.run("groups", *words, "--json", "--bootstrap-server", cluster.bootstrap))

    def progress() -> dict[str, tuple[str, str]]:
        return {row["PARTITION"]: (row["START-OFFSET"], row["LAG"]) for row in rows(describe(cluster, "seen"))}

    def our_progress() -> dict[str, tuple[str, str]]:
        found = ours("describe", "seen")["partitions"]
        return {str(one["partition"]): (_shown(one["start_offset"]), _shown(one["lag"])) for one in found}

    listed = {one["group"]: (one["type"], one["state"]) for one in ours("list", "--type", "share")}
    assert listed["seen"] == ("Share", "Empty")
    assert progress() == our_progress()
    reset = ours("reset-offsets", "seen", "--topic", "seen", "--to-earliest", "--execute")
    assert reset["executed"]
    assert sum(int(start) for start, _ in progress().values()) == 0
    assert progress() == our_progress()
    ours("delete-offsets", "seen", "--topic", "seen")
    ours("delete", "seen")
    assert "seen" not in tool(cluster, "ShareGroupCommand", "--list").split()


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)
