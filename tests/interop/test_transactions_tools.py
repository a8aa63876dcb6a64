"""Tools for transactions across implementations: Kafka's kafka-transactions on our brokers, and `kraft transactions` on
Apache Kafka. Each finds and aborts a hanging transaction, and fences a producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import KafkaException, Producer

from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from tests.bench.kafka import free_port, layout_running
from tests.deploy.cli.hanging_transaction import leave_hanging
from tests.interop.kafka_nodes import SETTINGS
from tests.interop.test_kafkas_tools import rows, tool
from tests.stages.kraft_command import Command
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries emit warnings

LOST = 4_242
HOUR_MS = 3_600_000
UNVERIFIED = "transaction.partition.verification.enable=false"
TOOL = "TransactionsCommand"


def begun(bootstrap: str, transactional_id: str, topic: str) -> Producer:
    """Return a producer with an open transaction, which has a record in partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    assert producer.flush(30) == 0
    return producer


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def test_kafkas_tool_finds_and_aborts_transactions_of_our_brokers(cluster: LocalCluster, tmp_path: Path) -> None:
    kraft, servers = Command(tmp_path), ("--bootstrap", cluster.bootstrap)
    kraft.run("topics", "create", "hung", "--partitions", "2", *servers)
    kraft.run("configs", "alter", "--broker", "all", "--set", UNVERIFIED, *servers)
    trio.run(lambda: leave_hanging(cluster.bootstrap, "hung", 1, LOST, age_ms=HOUR_MS))
    producer = begun(cluster.bootstrap, "open-1", "hung")

    (listed,) = rows(tool(cluster, TOOL, "list", "--transactional-id-pattern", "open-."))
    assert (listed["TransactionalId"], listed["TransactionState"]) == ("open-1", "Ongoing")
    assert rows(tool(cluster, TOOL, "list", "--duration-filter", str(HOUR_MS))) == []
    (described,) = rows(tool(cluster, TOOL, "describe", "--transactional-id", "open-1"))
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", "hung-0")
    (found,) = rows(tool(cluster, TOOL, "find-hanging", "--topic", "hung"))
    assert (found["Partition"], found["ProducerId"], found["StartOffset"]) == ("1", str(LOST), "0")
    tool(cluster, TOOL, "abort", "--topic", "hung", "--partition", "1", "--start-offset", "0")
    assert rows(tool(cluster, TOOL, "find-hanging", "--topic", "hung")) == []
    tool(cluster, TOOL, "forceTerminateTransaction", "--transactionalId", "open-1")
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert kraft.run("consume", "hung", "--isolation", "read_committed", *servers) == ""


def test_kraft_transactions_finds_and_aborts_transactions_of_kafka(tmp_path: Path) -> None:
    layout = KafkaLayout.plain(free_port(), is_single=True)
    with layout_running(layout, (*SETTINGS, UNVERIFIED), QUICK_NODE_JVM) as kafka:
        kraft, servers = Command(tmp_path), ("--bootstrap", kafka.bootstrap)
        kraft.run("topics", "create", "hung", "--partitions", "2", *servers)
        trio.run(lambda: leave_hanging(kafka.bootstrap, "hung", 1, LOST, age_ms=HOUR_MS))
        producer = begun(kafka.bootstrap, "open-1", "hung")

        (listed,) = kraft.json("transactions", "list", "--pattern", "open-.", "--state", "Ongoing", *servers)
        assert listed["transactional_id"] == "open-1"
        assert kraft.json("transactions", "list", "--longer-than", "1h", *servers) == []
        described = kraft.json("transactions", "describe", "open-1", *servers)
        assert (described["state"], described["partitions"]) == ("Ongoing", [{"topic": "hung", "partition": 0}])
        (found,) = kraft.json("transactions", "find-hanging", *servers)
        assert (found["partition"], found["producer_id"], found["start_offset"]) == (1, LOST, 0)
        refused = kraft.run("transactions", "abort", "hung:0", "--start-offset", "0", "--yes", *servers, code=1)
        assert "it belongs to transactional id open-1, which is Ongoing" in refused
        kraft.run("transactions", "abort", "hung:1", "--start-offset", "0", "--yes", *servers)
        assert kraft.json("transactions", "find-hanging", "--older-than", "0s", *servers) == []
        kraft.run("transactions", "force-terminate", "open-1", "--yes", *servers)
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)
        assert kraft.run("consume", "hung", "--isolation", "read_committed", *servers) == ""
        assert "TRANSACTIONAL_ID_NOT_FOUND" in kraft.run("transactions", "describe", "nobody", *servers, code=4)
