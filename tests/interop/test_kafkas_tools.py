"""Apache Kafka's own command-line tools at work on our brokers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import LocalCluster, running

pytestmark = pytest.mark.interop

SCRIPT = Path(__file__).with_name("kafka.sh")
SECONDS_MAX = 90
RECORDS = 2_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def tool(cluster: LocalCluster, name: str, *arguments: str) -> str:
    """What a tool prints. It must end well."""
    package = "kafka.admin" if name == "ConfigCommand" else "org.apache.kafka.tools"
    command = [SCRIPT, "tool", f"{package}.{name}", "--bootstrap-server", cluster.bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def test_topics(cluster: LocalCluster) -> None:
    create = ("--create", "--topic", "life", "--partitions", "2", "--replication-factor", "3")
    assert "Created topic life" in tool(cluster, "TopicCommand", *create, "--config", "retention.ms=777000")
    described = tool(cluster, "TopicCommand", "--describe", "--topic", "life")
    assert "PartitionCount: 2" in described
    assert "retention.ms=777000" in described
    tool(cluster, "TopicCommand", "--alter", "--topic", "life", "--partitions", "3")
    assert "PartitionCount: 3" in tool(cluster, "TopicCommand", "--describe", "--topic", "life")
    assert tool(cluster, "TopicCommand", "--describe", "--under-replicated-partitions").strip() == ""
    tool(cluster, "TopicCommand", "--delete", "--topic", "life")
    assert "life" not in tool(cluster, "TopicCommand", "--list").split()


def test_configs(cluster: LocalCluster) -> None:
    cluster.create_topic("set", partitions=1, replication_factor=3)
    entity = ("--entity-type", "topics", "--entity-name", "set")
    tool(cluster, "ConfigCommand", "--alter", *entity, "--add-config", "segment.ms=60000")
    assert "segment.ms=60000" in tool(cluster, "ConfigCommand", "--describe", *entity)
    tool(cluster, "ConfigCommand", "--alter", *entity, "--delete-config", "segment.ms")
    assert "segment.ms=60000" not in tool(cluster, "ConfigCommand", "--describe", *entity)
    broker = tool(cluster, "ConfigCommand", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "num.partitions=" in broker


def test_records_speed_offsets_and_groups(cluster: LocalCluster) -> None:
    cluster.create_topic("perf", partitions=2, replication_factor=3)
    sent = tool(
        cluster,
        "ProducerPerformance",
        *("--topic", "perf", "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"),
    )
    assert f"{RECORDS} records sent" in sent
    offsets = tool(cluster, "GetOffsetShell", "--topic", "perf")
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split()) == RECORDS
    read = ("--topic", "perf", "--num-records", str(RECORDS), "--group", "readers")
    assert f" {RECORDS}," in tool(cluster, "ConsumerPerformance", *read)
    group = ("--group", "readers")
    described = tool(cluster, "consumer.group.ConsumerGroupCommand", "--describe", *group)
    lags = [line.split()[5] for line in described.splitlines() if line.startswith("readers")]
    assert lags == ["0", "0"]
    reset = ("--reset-offsets", "--topic", "perf", "--to-earliest", "--execute")
    tool(cluster, "consumer.group.ConsumerGroupCommand", *reset, *group)
    described = tool(cluster, "consumer.group.ConsumerGroupCommand", "--describe", *group)
    lags = [line.split()[5] for line in described.splitlines() if line.startswith("readers")]
    assert sum(map(int, lags)) == RECORDS
    assert "readers" in tool(cluster, "consumer.group.ConsumerGroupCommand", "--list")
    tool(cluster, "consumer.group.ConsumerGroupCommand", "--delete", *group)
    assert "readers" not in tool(cluster, "consumer.group.ConsumerGroupCommand", "--list").split()


def test_the_quorum(cluster: LocalCluster) -> None:
    status = tool(cluster, "MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:" in status
    assert "HighWatermark:" in status
    replicas = tool(cluster, "MetadataQuorumCommand", "describe", "--replication")
    assert replicas.count("Follower") == 2
    assert replicas.count("Observer") == 3
