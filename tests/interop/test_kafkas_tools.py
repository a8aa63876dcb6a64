"""Apache Kafka's own command-line tools on our brokers."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.interop.members import ConfluentMember, wait_owned
from tests.stages.started_clusters import LocalCluster, running

pytestmark = pytest.mark.interop

SCRIPT = Path(__file__).with_name("kafka.sh")
SECONDS_MAX = 90
RECORDS = 2_000
FIRST_MS = int(time.time()) * 1000 - 3_600_000
"""Timestamp of the first record, recent enough to be kept by retention."""
PACKAGES = {
    "ConfigCommand": "kafka.admin",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
    "ShareGroupCommand": "org.apache.kafka.tools.consumer.group",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def tool(cluster: LocalCluster, name: str, *arguments: str, code: int = 0, text: str = "") -> str:
    """Run one of Kafka's tools with `text` as its input, and return its output. The tool must exit with `code`."""
    return run(name, "--bootstrap-server", cluster.bootstrap, *arguments, code=code, text=text)


def run(name: str, *arguments: str, code: int = 0, text: str = "") -> str:
    command = [SCRIPT, "tool", f"{PACKAGES.get(name, 'org.apache.kafka.tools')}.{name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, input=text, check=False)
    assert done.returncode == code, f"{name} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def rows(table: str) -> list[dict[str, str]]:
    """Return the rows of a table that has a header and no empty cells, by column name."""
    header, *lines = [line.split() for line in table.splitlines() if line.strip()]
    return [dict(zip(header, line, strict=False)) for line in lines]


def test_kafka_topics_tool_manages_our_topics(cluster: LocalCluster) -> None:
    create = ("--create", "--topic", "life", "--replica-assignment", "1:2:3,3:1:2", "--config", "retention.ms=777000")
    assert "Created topic life" in tool(cluster, "TopicCommand", *create)
    described = tool(cluster, "TopicCommand", "--describe", "--topic", "life")
    for expected in ("PartitionCount: 2", "ReplicationFactor: 3", "retention.ms=777000"):
        assert expected in described
    assert "Partition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: \tLastKnownElr: " in described
    assert "Partition: 1\tLeader: 3\tReplicas: 3,1,2\tIsr: 3,1,2" in described
    assert "Topic 'life' already exists." in tool(cluster, "TopicCommand", "--create", "--topic", "life", code=1)
    tool(cluster, "TopicCommand", "--alter", "--topic", "life", "--partitions", "3")
    assert "PartitionCount: 3" in tool(cluster, "TopicCommand", "--describe", "--topic", "life")
    assert tool(cluster, "TopicCommand", "--describe", "--under-replicated-partitions").strip() == ""
    tool(cluster, "TopicCommand", "--delete", "--topic", "life")
    assert "life" not in tool(cluster, "TopicCommand", "--list").split()


def test_kafkas_tools_print_errors_of_our_brokers_in_kafkas_words(cluster: LocalCluster) -> None:
    twice = ("--create", "--topic", "twice", "--partitions", "2", "--replication-factor", "3")
    tool(cluster, "TopicCommand", *twice)
    for words, refused in [
        ("Topic 'twice' already exists.", ("TopicCommand", *twice)),
        ("Topic already has 2 partition(s).", ("TopicCommand", "--alter", "--topic", "twice", "--partitions", "2")),
        ("No Authorizer is configured on the broker", ("AclCommand", "--list")),
    ]:
        assert words in tool(cluster, *refused, code=1)
    assert "TransactionalId" in tool(cluster, "TransactionsCommand", "list")


def test_kafka_configs_tool_shows_and_alters_our_topic_settings(cluster: LocalCluster) -> None:
    cluster.create_topic("set", partitions=1, replication_factor=3)
    entity = ("--entity-type", "topics", "--entity-name", "set")
    assert "Completed updating" in tool(
        cluster, "ConfigCommand", "--alter", *entity, "--add-config", "segment.ms=60000"
    )
    assert "segment.ms=60000" in tool(cluster, "ConfigCommand", "--describe", *entity)
    tool(cluster, "ConfigCommand", "--alter", *entity, "--delete-config", "segment.ms")
    assert "segment.ms=60000" not in tool(cluster, "ConfigCommand", "--describe", *entity)
    tool(cluster, "ConfigCommand", "--alter", *entity, "--add-config", "nonsense=1", code=1)


def test_kafka_configs_tool_shows_and_alters_our_broker_settings(cluster: LocalCluster) -> None:
    one, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    assert "num.partitions=" in tool(cluster, "ConfigCommand", "--describe", "--all", *one)
    tool(cluster, "ConfigCommand", "--alter", *every, "--add-config", "log.retention.ms=200000000")
    tool(cluster, "ConfigCommand", "--alter", *one, "--add-config", "log.retention.ms=100000000")
    assert "log.retention.ms=200000000" in tool(cluster, "ConfigCommand", "--describe", *every)
    described = tool(cluster, "ConfigCommand", "--describe", "--all", *one)
    (line,) = [line for line in described.splitlines() if line.strip().startswith("log.retention.ms=")]
    synonyms = re.findall(r"(\w+):log\.retention\.ms=(\d+)", line)
    assert synonyms[:2] == [("DYNAMIC_BROKER_CONFIG", "100000000"), ("DYNAMIC_DEFAULT_BROKER_CONFIG", "200000000")]


def test_kafkas_perf_tools_run_against_our_brokers(cluster: LocalCluster) -> None:
    cluster.create_topic("perf", partitions=2, replication_factor=3)
    settings = ("--command-property", "acks=all", "--command-property", "compression.type=lz4")
    amount = ("--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1")
    sent = tool(cluster, "ProducerPerformance", "--topic", "perf", *amount, *settings)
    summary = sent.splitlines()[-1]
    assert re.match(rf"{RECORDS} records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), ", summary)
    assert re.search(r" ms avg latency, .* 50th, .* 99th, ", summary)
    offsets = tool(cluster, "GetOffsetShell", "--topic", "perf")
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split()) == RECORDS
    read = tool(cluster, "ConsumerPerformance", "--topic", "perf", "--num-records", str(RECORDS))
    (figures,) = csv.DictReader(read.splitlines(), skipinitialspace=True)
    assert int(figures["data.consumed.in.nMsg"]) == RECORDS
    assert float(figures["nMsg.sec"]) > 0


def test_kafka_get_offsets_tool_works_on_our_brokers(cluster: LocalCluster) -> None:
    cluster.create_topic("times", partitions=2, replication_factor=3)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in (0, 1, 4, 2, 3):  # the record with the greatest timestamp has offset 2
        producer.produce("times", "at a time", partition=0, timestamp=FIRST_MS + 1000 * number)
    assert producer.flush(20) == 0

    def at(time: str) -> list[str]:
        return tool(cluster, "GetOffsetShell", "--topic", "times", "--time", time).split()

    assert at("earliest") == ["times:0:0", "times:1:0"]
    assert at("latest") == ["times:0:5", "times:1:0"]
    assert at("max-timestamp") == ["times:0:2"]
    assert at(str(FIRST_MS + 1_500)) == ["times:0:2"]
    assert tool(cluster, "GetOffsetShell", "--topic-partitions", "times:0").split() == ["times:0:5"]


def test_kafka_consumer_groups_tool_works_on_our_groups(cluster: LocalCluster) -> None:
    cluster.create_topic("read", partitions=2, replication_factor=3)
    # Records have keys, because a reader that leaves after its tenth record commits only partitions that it has read:
    # here both.
    keyed = "".join(f"{number}:record {number}\n" for number in range(10))
    keys = ("--property", "parse.key=true", "--property", "key.separator=:")
    tool(cluster, "ConsoleProducer", "--topic", "read", *keys, text=keyed)
    group = ("--group", "readers")
    read = ("--topic", "read", "--from-beginning", "--max-messages", "10", *group)
    assert sorted(tool(cluster, "ConsoleConsumer", *read).splitlines()) == [f"record {number}" for number in range(10)]

    def lag() -> list[int]:
        return [int(row["LAG"]) for row in rows(tool(cluster, "ConsumerGroupCommand", "--describe", *group))[:2]]

    def reset(*how: str) -> None:
        tool(cluster, "ConsumerGroupCommand", "--reset-offsets", "--topic", "read", *how, *group)

    assert lag() == [0, 0]
    reset("--to-earliest", "--dry-run")
    assert lag() == [0, 0]
    reset("--to-datetime", "2025-01-01T00:00:00.000", "--execute")
    assert sum(lag()) == 10
    assert {"GROUP": "readers", "STATE": "Empty"} in rows(tool(cluster, "ConsumerGroupCommand", "--list", "--state"))
    deleted = rows(
        tool(cluster, "ConsumerGroupCommand", "--delete-offsets", "--topic", "read", *group).split("\n", 1)[1]
    )
    assert [row["STATUS"] for row in deleted] == ["Successful", "Successful"]
    tool(cluster, "ConsumerGroupCommand", "--delete", *group)
    assert "readers" not in tool(cluster, "ConsumerGroupCommand", "--list").split()


def test_kafka_consumer_groups_tool_shows_and_removes_our_members(cluster: LocalCluster) -> None:
    cluster.create_topic("shared", partitions=2, replication_factor=3)
    member = ConfluentMember(cluster.bootstrap, "shared", "at-work", assignor="range")
    try:
        wait_owned([member], 2)
        group = ("--describe", "--group", "at-work")
        (told,) = rows(tool(cluster, "ConsumerGroupCommand", *group, "--members", "--verbose"))
        assert (told["CLIENT-ID"], told["#PARTITIONS"]) == ("rdkafka", "2")
        assert "shared:0,1" in told.values()
        state = tool(cluster, "ConsumerGroupCommand", *group, "--state")
        assert re.search(r"^at-work +127\.0\.0\.1:\d+ +\(\d\) +range +Stable +1$", state, re.MULTILINE), state
        refused = tool(cluster, "ConsumerGroupCommand", "--delete", "--group", "at-work")
        assert "not empty" in refused or "GroupNotEmptyException" in refused
    finally:
        member.stop()


def test_kafka_metadata_quorum_tool_describes_our_quorum(cluster: LocalCluster) -> None:
    status = tool(cluster, "MetadataQuorumCommand", "describe", "--status")
    fields = dict(line.split(":", 1) for line in status.splitlines() if line)
    voters = json.loads(fields["CurrentVoters"])
    assert int(fields["LeaderId"]) in {voter["id"] for voter in voters}
    assert int(fields["HighWatermark"]) > 0
    assert (len(voters), len(json.loads(fields["CurrentObservers"]))) == (3, 3)
    replicas = rows(tool(cluster, "MetadataQuorumCommand", "describe", "--replication"))
    assert sorted(row["Status"] for row in replicas) == ["Follower"] * 2 + ["Leader"] + ["Observer"] * 3
    controller = voters[0]["endpoints"][0].removeprefix("CONTROLLER://")
    asked = run("MetadataQuorumCommand", "--bootstrap-controller", controller, "describe", "--status")
    assert f"LeaderId:{fields['LeaderId']}" in asked


def test_kafkas_tools_delete_our_records_and_describe_our_log_directories(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("kept", partitions=1, replication_factor=3)
    tool(cluster, "ConsoleProducer", "--topic", "kept", text="".join(f"{number}\n" for number in range(5)))
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": "kept", "partition": 0, "offset": 3}]}))
    deleted = tool(cluster, "DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "partition: kept-0\tlow_watermark: 3" in deleted
    described = tool(cluster, "LogDirsCommand", "--describe", "--topic-list", "kept").splitlines()[-1]
    found = {
        broker["broker"]: [replica["partition"] for folder in broker["logDirs"] for replica in folder["partitions"]]
        for broker in json.loads(described)["brokers"]
    }
    assert found == {1: ["kept-0"], 2: ["kept-0"], 3: ["kept-0"]}
    cluster_id = run("ClusterTool", "cluster-id", "--bootstrap-server", cluster.bootstrap)
    assert re.match(r"Cluster ID: \S{22}$", cluster_id)


def test_kafkas_dump_log_reads_a_live_segment_and_its_indexes_without_changing_them(cluster: LocalCluster) -> None:
    cluster.create_topic("dumped", partitions=1, replication_factor=3)
    cluster.wait_in_sync("dumped", 3)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "batch.size": 1})
    for number in range(500):
        producer.produce("dumped", f"value {number} ".encode() + bytes(100))
    assert producer.flush(30) == 0
    (folder,) = (cluster.folder / str(cluster.leader("dumped"))).glob("**/dumped-0")
    before = {path.name: path.stat().st_size for path in folder.iterdir()}
    first = folder / ("0" * 20)
    records = run("DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", f"{first}.log")
    assert all(f"payload: value {number} " in records for number in (0, 499))
    assert "isvalid: true" in records
    assert "isvalid: false" not in records
    for index in ("index", "timeindex"):
        checked = run("DumpLogSegments", "--verify-index-only", "--files", f"{first}.{index}")
        assert "mismatch" not in checked.lower(), checked
        assert f"Dumping {first}.{index}" in checked
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == before
