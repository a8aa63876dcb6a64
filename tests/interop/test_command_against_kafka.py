"""The kraft command and its admin client on Apache Kafka: the same commands work for everything that both clusters
support.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from kraft.client.admin import topics
from tests.interop.kafka_nodes import kafka_running
from tests.stages.kraft_command import Command

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries emit warnings


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Address of an Apache Kafka broker."""
    with kafka_running() as bootstrap:
        yield bootstrap


@pytest.fixture
def kraft(tmp_path: Path, servers: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("KRAFT_BOOTSTRAP_SERVER", servers)
    return Command(tmp_path)


def test_kraft_commands_manage_topics_partitions_and_configs_of_kafka(
    kraft: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = kraft.json("topics", "create", "t", "--partitions", "2", "--config", "retention.ms=777000")
    assert created == {"topic": "t", "created": True, "partitions": 2, "replication_factor": 1}
    assert kraft.json("topics", "describe", "t")["settings"] == {"retention.ms": "777000"}
    kraft.run("topics", "alter", "t", "--partitions", "3")
    kraft.run("configs", "alter", "--topic", "t", "--set", "segment.ms=60000", "--delete", "retention.ms")
    changed = {row["key"] for row in kraft.json("configs", "describe", "--topic", "t", "--changed")}
    assert "segment.ms" in changed
    assert "retention.ms" not in changed
    assert len(kraft.json("partitions", "list", "t")) == 3
    rows = [row for row in kraft.json("topics", "describe", "--at-min-isr") if row["topic"] == "t"]
    assert [(row["isr"], row["elr"], row["last_known_elr"]) for row in rows] == [
        (row["replicas"], [], []) for row in rows
    ]
    assert [row["partition"] for row in rows] == [0, 1, 2]
    monkeypatch.setattr(topics, "PAGE_PARTITIONS_MAX", 1)
    assert [row["partition"] for row in kraft.json("topics", "describe", "t")["partitions"]] == [0, 1, 2]
    assert "TOPIC_ALREADY_EXISTS" in kraft.run("topics", "create", "t", code=1)
    kraft.run("topics", "delete", "t")
    assert "see kraft topics list" in kraft.run("topics", "describe", "t", code=4)


def test_kraft_produce_and_consume_work_with_kafka(kraft: Command) -> None:
    kraft.run("topics", "create", "records", "--partitions", "1")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        kraft.run("produce", "records", "-z", codec, "-K", ":", "-H", f"codec={codec}", text=f"{codec}:1\n")
    lines = [json.loads(line) for line in kraft.run("consume", "records", "--json").splitlines()]
    assert [(line["offset"], line["key"]) for line in lines] == list(
        enumerate(["none", "gzip", "snappy", "lz4", "zstd"])
    )
    assert kraft.run("consume", "records", "--header", "codec=^s", "--format", "%o %h") == "2 codec=snappy"
    assert [row["offset"] for row in kraft.json("partitions", "offsets", "records", "--at", "newest")] == [4]
    kraft.run("partitions", "delete-records", "records", "--before", "3", "--yes")
    assert kraft.run("consume", "records", "--format", "%o ") == "3 4 "
    assert kraft.json("partitions", "producers", "records")


def test_kraft_consume_reads_as_a_member_of_a_share_group_of_kafka(kraft: Command) -> None:
    kraft.run("topics", "create", "shared", "--partitions", "1")
    kraft.run("configs", "alter", "--group", "workers", "--set", "share.auto.offset.reset=earliest")
    kraft.run("produce", "shared", text="1\n2\n3\n4\n")
    read = ("consume", "shared", "--share-group", "workers")
    assert kraft.run(*read, "-n", "1", "--release") == "1\n"
    assert kraft.run(*read, "-n", "2", "--reject") == "1\n2\n"
    assert kraft.run(*read, "-n", "2") == "3\n4\n"


def test_kraft_groups_command_works_with_kafka(kraft: Command, servers: str) -> None:
    kraft.run("topics", "create", "read", "--partitions", "2")
    kraft.run("produce", "read", "--partition", "0", text="1\n2\n3\n4\n")
    settings = {"group.id": "team", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    member = Consumer({"bootstrap.servers": servers, **settings})
    member.subscribe(["read"])
    try:
        assert sum(member.poll(10) is not None for _ in range(4)) == 4
        member.commit(asynchronous=False)
        described = kraft.json("groups", "describe", "team")
        assert (described["state"], described["lag"], described["assignor"]) == ("Stable", 0, "range")
        (row,) = kraft.json("groups", "members", "team")
        assert row["assignment"] == ["read-0", "read-1"]
        assert "NON_EMPTY_GROUP" in kraft.run("groups", "delete", "team", code=1)
    finally:
        member.close()
    kraft.run("groups", "reset-offsets", "team", "--topic", "read:0", "--shift-by", "-3", "--execute")
    assert kraft.json("groups", "describe", "team")["lag"] == 3
    of_all = kraft.json("groups", "reset-offsets", "--all-groups", "--all-topics", "--to-latest")["partitions"]
    assert next((row["before"], row["after"]) for row in of_all if row["group"] == "team") == (1, 4)
    assert ["team", "Empty"] in [[row["group"], row["state"]] for row in kraft.json("groups", "list")]
    kraft.run("groups", "delete-offsets", "team", "--topic", "read:0")
    kraft.run("groups", "delete", "team")
    assert "see kraft groups list" in kraft.run("groups", "describe", "team", code=4)


def test_kraft_commands_show_nodes_and_log_directories_of_kafka(kraft: Command) -> None:
    assert [(row["broker"], row["state"]) for row in kraft.json("brokers")] == [(1, "active")]
    assert kraft.json("quorum")["leader"] == 1
    (directory,) = kraft.json("logdirs")
    assert directory["usable_bytes"] > 0
    assert kraft.json("cluster")["active_controller"] == 1
    assert {row["type"] for row in kraft.json("configs", "list")} >= {"broker"}


def test_kraft_metadata_show_on_kafka_advises_to_use_the_option_folder(kraft: Command) -> None:
    assert "give --folder" in kraft.run("metadata", "show", code=1)
