"""The kraft command, as a user runs it: every verb, its JSON, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.layout import ClusterLayout
from tests.deploy.clusters import Command, free_port

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def up(home: Path) -> Iterator[Command]:
    """A cluster of one controller and two brokers, which is the one started last."""
    shape = ClusterLayout(controllers=1, brokers=2)
    kraft = Command(home / "state")
    arguments = ("--controllers", "1", "--brokers", "2", "--data", home / "data", "--port", str(free_port(shape)))
    answer = kraft.spawn("up", *arguments, "--background", "--set", "num.partitions=2", "--json")
    assert json.loads(answer)["ready"] is True
    yield kraft
    kraft.run("down")


@pytest.fixture
def kraft(tmp_path: Path) -> Command:
    """The command in a home where no cluster was ever started."""
    return Command(tmp_path / "state")


def test_status_shows_every_node(up: Command, home: Path) -> None:
    status = up.json("status")
    assert [(node["node"], node["roles"], node["state"]) for node in status["nodes"]] == [
        (101, ["controller"], "ready"),
        (1, ["broker"], "ready"),
        (2, ["broker"], "ready"),
    ]
    assert status["up"] is True
    assert status["data"] == str(home / "data")
    assert "STATE" in up.run("status")


def test_a_topic_is_created_described_grown_and_deleted(up: Command) -> None:
    created = up.json("topics", "create", "life", "--replication-factor", "2", "--config", "retention.ms=1000")
    assert created == {"topic": "life", "partitions": 2, "replication_factor": 2}
    described = up.json("topics", "describe", "life")
    assert described["settings"] == {"retention.ms": "1000"}
    assert [sorted(part["replicas"]) for part in described["partitions"]] == [[1, 2], [1, 2]]
    up.run("topics", "alter", "life", "--partitions", "3")
    assert ["life", 3] in [[row["topic"], row["partitions"]] for row in up.json("topics", "list")]
    assert "LEADER" in up.run("topics", "describe", "life")
    up.run("topics", "delete", "life")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in up.run("topics", "describe", "life", code=4)


def test_a_topic_that_exists_is_refused(up: Command) -> None:
    up.run("topics", "create", "twice")
    assert "TOPIC_ALREADY_EXISTS" in up.run("topics", "create", "twice", code=1)


def test_records_go_in_and_come_out(up: Command) -> None:
    up.run("topics", "create", "records", "--partitions", "1")
    sent = up.json("produce", "records", "--key-separator", ":", text="a:1\nb:2\nc:3\n")
    assert [report["offset"] for report in sent] == [0, 1, 2]
    assert up.run("consume", "records") == "a\t1\nb\t2\nc\t3\n"
    assert up.run("consume", "records", "--offset", "1", "-n", "1") == "b\t2\n"
    line = up.run("consume", "records", "-n", "1", "--json")
    assert json.loads(line)["key"] == "a"
    assert up.run("consume", "records", "--offset", "latest") == ""


def test_settings_are_shown_with_their_source_and_changed(up: Command) -> None:
    up.run("topics", "create", "settings")
    up.run("configs", "alter", "--topic", "settings", "--set", "retention.ms=5", "--append", "cleanup.policy=compact")
    shown = {row["key"]: row for row in up.json("configs", "describe", "--topic", "settings")}
    assert (shown["retention.ms"]["value"], shown["retention.ms"]["source"]) == ("5", "topic")
    assert shown["cleanup.policy"]["value"] == "delete,compact"
    up.run("configs", "alter", "--topic", "settings", "--delete", "retention.ms")
    again = {row["key"]: row for row in up.json("configs", "describe", "--topic", "settings", "--changed")}
    assert "retention.ms" not in again
    broker = {row["key"]: row["source"] for row in up.json("configs", "describe", "--broker", "1")}
    assert broker["num.partitions"] == "server.properties"
    wrong = ("configs", "alter", "--topic", "settings", "--set", "retention.ms=-7")
    assert "must be at least -1" in up.run(*wrong, code=1)


def test_brokers_and_quorum_are_shown(up: Command) -> None:
    assert [(row["broker"], row["state"]) for row in up.json("brokers")] == [(1, "active"), (2, "active")]
    quorum = up.json("quorum")
    assert quorum["leader"] == 101
    assert {row["node"]: row["role"] for row in quorum["replicas"]} == {101: "leader", 1: "observer", 2: "observer"}
    assert "HIGH" not in up.run("quorum")


def test_a_node_is_killed_and_started(up: Command) -> None:
    assert up.json("kill", "2")["done"] == "killed"
    assert "does not run" in up.run("kill", "2", code=4)
    assert up.json("start", "2")["done"] == "started"
    assert "already runs" in up.run("start", "2", code=1)
    assert up.json("pause", "2")["pid"] == up.json("resume", "2")["pid"]


def test_logs_are_shown(up: Command) -> None:
    assert "the node starts" in up.run("logs", "1")
    lines = [json.loads(line) for line in up.run("logs", "--json").splitlines()]
    assert {line["node"] for line in lines} == {101, 1, 2}


def test_files_are_dumped_as_text_and_as_json(up: Command, home: Path) -> None:
    up.run("topics", "create", "dumped", "--partitions", "1", "--replication-factor", "2")
    up.run("produce", "dumped", text="hello\n")
    segment = home / "data" / "1" / "data" / "dumped-0" / "00000000000000000000.log"
    rows = [json.loads(line) for line in up.run("log", "dump", segment, "--json").splitlines()]
    assert [row["kind"] for row in rows] == ["batch", "record"]
    assert (rows[0]["crc_ok"], rows[1]["value"]) == (True, "hello")
    assert "value=hello" in up.run("log", "dump", segment)
    metadata = home / "data" / "101" / "data" / "__cluster_metadata-0"
    events = [json.loads(line) for line in up.run("log", "dump", metadata, "--json").splitlines()]
    assert any(row.get("type") == "Topic" and row["name"] == "dumped" for row in events)
    assert "meta.properties" not in up.run("log", "dump", home / "data" / "1" / "data" / "dumped-0")


def test_storage_says_whose_a_folder_is(up: Command, home: Path) -> None:
    config = home / "data" / "1" / "server.properties"
    (row,) = up.json("storage", "info", "--config", config)
    assert (row["state"], row["node_id"]) == ("formatted", 1)
    assert "formatted already" in up.run("storage", "format", "--config", config, code=1)
    assert up.json("storage", "format", "--config", config, "--cluster-id", row["cluster_id"], "--ignore-formatted")


def test_a_second_start_on_one_folder_says_what_to_do(up: Command, home: Path) -> None:
    assert "kraft status" in up.spawn("up", "--data", home / "data", "--background", code=1)
    said = up.run("up", "--data", home / "data", "--brokers", "7", code=2)
    assert "has brokers=2, not 7" in said


def test_storage_is_formatted_once(kraft: Command, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://127.0.0.1:9193\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9193\nlog.dirs={tmp_path}/data\n"
    )
    kraft.run("storage", "info", "--config", config, "--json", code=4)
    formatted = kraft.json("storage", "format", "--config", config)
    assert formatted["formatted"] == [f"{tmp_path}/data"]
    assert "expected 22 characters" in kraft.run("storage", "format", "--config", config, "--cluster-id", "x", code=2)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("status",), 2, "start one with kraft up"),
        (("kill", "1"), 2, "start one with kraft up"),
        (("kill", "one"), 2, "NODE"),
        (("nothing",), 2, "nothing"),
        (("topics", "list", "--bootstrap", "nowhere"), 2, "is not HOST:PORT"),
        (("up", "--set", "num.partition=1"), 2, "did you mean num.partitions?"),
        (("up", "--set", "num.partitions"), 2, "expected KEY=VALUE"),
        (("up", "--set", "num.partitions=none"), 2, "is not a whole number"),
        (("up", "--combined", "1", "--brokers", "2"), 2, "--combined stands for itself"),
        (("up", "--profile", "prod"), 1, "expected dev or kafka"),
        (("node", "--config", "/nowhere/server.properties"), 2, "cannot read"),
        (("log", "dump", "/nowhere"), 4, "there is no /nowhere"),
        (("configs", "describe"), 2, "either --topic TOPIC or --broker ID"),
        (("configs", "describe", "--broker", "x"), 2, "expected a broker id"),
        (("configs", "alter", "--topic", "t"), 2, "nothing to change"),
        (("consume", "t", "--offset", "soon"), 2, "expected earliest, latest or a number"),
    ],
)
def test_what_cannot_be_done_says_why(kraft: Command, arguments: tuple[str, ...], code: int, expected: str) -> None:
    assert expected in kraft.run(*arguments, code=code)


def test_the_command_as_a_process_says_the_same(kraft: Command) -> None:
    assert "start one with kraft up" in kraft.spawn("status", code=2)
    assert "Start a cluster on this machine" in kraft.spawn("--help")


def test_a_cluster_that_is_not_there_gives_its_own_exit_code(kraft: Command) -> None:
    assert "no broker answered" in kraft.run("topics", "list", "--bootstrap", NOWHERE, code=3)


def test_a_file_of_an_unknown_kind_is_refused(kraft: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    assert "not a file that kraft writes" in kraft.run("log", "dump", tmp_path / "thesis.tex", code=2)
