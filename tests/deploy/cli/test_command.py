"""The kraft command as a user runs it: nodes and their folders, completion, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from kraft.deploy.launch.node_process import read_config
from tests.stages.kraft_command import Command, free_port

NOWHERE = "127.0.0.1:1"
PATIENT_COMPLETION = """
from kraft.deploy.cli import completing, main
completing.ANSWER_MS_MAX = 60_000
main()
"""
TWO_CONTROLLERS = "1@a:1:AAAAAAAAAAAAAAAAAAAAAQ,2@b:2:AAAAAAAAAAAAAAAAAAAAAg"


def test_kraft_status_shows_the_role_and_state_of_every_node(up: Command, home: Path) -> None:
    status = up.json("status")
    assert [(node["node"], node["roles"], node["state"]) for node in status["nodes"]] == [
        (101, ["controller"], "ready"),
        (1, ["broker"], "ready"),
        (2, ["broker"], "ready"),
    ]
    assert status["up"] is True
    assert status["data"] == str(home / "data")
    assert "STATE" in up.run("status")


def completed(kraft: Command, line: str) -> str:
    """Return the candidates that bash offers for the end of a line. A real shell would not wait this long for the
    cluster."""
    asked = {"_KRAFT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    environment = {**os.environ, "XDG_STATE_HOME": str(kraft.state), **asked}
    command = [sys.executable, "-c", PATIENT_COMPLETION]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "verb",
    [
        "topics describe",
        "configs describe --topic",
        "logdirs --topic",
        "groups describe --topic",
        "groups delete-offsets g --topic",
        "groups reset-offsets g --topic",
    ],
)
def test_shell_completion_offers_the_names_of_the_clusters_topics(up: Command, verb: str) -> None:
    up.run("topics", "create", "complete-me", "--if-not-exists")
    assert completed(up, f"kraft {verb} compl") == "complete-me\n"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("logdirs --broker ", "1\n2\n"),
        ("unregister ", "1\n2\n"),
        ("configs describe --broker ", "all\n1\n2\n"),
        ("partitions reassign plan t --brokers 2,", "2,1\n"),
        ("quorum remove-controller ", "101\n"),
    ],
)
def test_shell_completion_offers_the_ids_of_the_clusters_nodes(up: Command, line: str, offered: str) -> None:
    assert completed(up, f"kraft {line}") == offered


def test_kraft_status_lists_all_clusters_that_this_user_has_started(up: Command, home: Path) -> None:
    (row,) = up.json("status", "--all")
    assert (row["data"], row["up"]) == (str(home / "data"), True)


def test_kraft_kill_ends_a_node_and_kraft_start_starts_it_again(up: Command) -> None:
    assert up.json("kill", "2")["done"] == "killed"
    assert "does not run" in up.run("kill", "2", code=4)
    shown, said = up.both("logdirs")
    assert [line.split()[0] for line in shown.splitlines()] == ["BROKER", "1"]
    assert said == "not running, so not shown: broker 2\n"
    assert up.json("start", "2")["done"] == "started"
    assert "already runs" in up.run("start", "2", code=1)
    assert up.json("pause", "2")["pid"] == up.json("resume", "2")["pid"]
    assert "node 2 was not paused" in up.run("resume", "2")


def test_kraft_logs_shows_the_lines_of_all_nodes(up: Command) -> None:
    assert "the node starts" in up.run("logs", "1")
    lines = [json.loads(line) for line in up.run("logs", "--json").splitlines()]
    assert {line["node"] for line in lines} == {101, 1, 2}


def test_kraft_log_dump_prints_files_as_text_and_as_json(up: Command, home: Path) -> None:
    up.run("topics", "create", "dumped", "--partitions", "1", "--replication-factor", "2")
    up.run("produce", "dumped", text="hello\n")
    segment = home / "data" / "1" / "data" / "dumped-0" / "00000000000000000000.log"
    rows = [json.loads(line) for line in up.run("log", "dump", segment, "--json").splitlines()]
    assert [row["kind"] for row in rows] == ["batch", "record"]
    assert (rows[0]["crc_ok"], rows[1]["value"]) == (True, "hello")
    assert "value=hello" in up.run("log", "dump", segment)
    assert "value=hello" not in up.run("log", "dump", segment, "--batches-only")
    metadata = home / "data" / "101" / "data" / "__cluster_metadata-0"
    events = [json.loads(line) for line in up.run("log", "dump", metadata, "--json").splitlines()]
    assert any(row.get("type") == "Topic" and row["name"] == "dumped" for row in events)
    assert "meta.properties" not in up.run("log", "dump", home / "data" / "1" / "data" / "dumped-0")


def test_kraft_storage_info_shows_the_cluster_and_node_of_a_folder(up: Command, home: Path) -> None:
    config = home / "data" / "1" / "server.properties"
    (row,) = up.json("storage", "info", "--config", config)
    assert (row["state"], row["node_id"]) == ("formatted", 1)
    assert "formatted already" in up.run("storage", "format", "--config", config, code=1)
    assert up.json("storage", "format", "--config", config, "--cluster-id", row["cluster_id"], "--ignore-formatted")


def test_a_second_kraft_up_on_one_folder_is_refused_with_advice(up: Command, home: Path) -> None:
    assert "kraft status" in up.spawn("up", "--data", home / "data", "--background", code=1)
    said = up.run("up", "--data", home / "data", "--brokers", "7", code=2)
    assert "has brokers=2, not 7" in said


def test_a_failed_kraft_up_keeps_its_logs_and_does_not_become_the_default_cluster(up: Command, home: Path) -> None:
    port = str(free_port(ClusterLayout(combined=1)))
    bad = ("--combined", "1", "--port", port, "--set", "log.dirs=/proc/nowhere", "--background")
    assert "node 1 did not start: " in up.spawn("up", "--data", home / "bad", *bad, code=1)
    assert (home / "bad" / "1" / "node.log").exists()
    (row,) = up.json("status", "--all")
    assert row["data"] == str(home / "data")


def test_a_command_on_a_stopped_cluster_shows_how_to_start_it(kraft: Command, tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "data")
    folder.create(ClusterLayout(combined=1), "an-id")
    shown = kraft.run("status", "--data", folder.path)
    assert shown.splitlines()[-1] == f"start it again with kraft up --background --data {folder.path}"
    assert kraft.json("status", "--data", folder.path)["up"] is False


def test_relative_log_directories_are_resolved_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.properties").write_text(
        "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://127.0.0.1:9193\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=1@127.0.0.1:9193\nlog.dirs=data, ../other,/absolute\nmetadata.log.dir=data\n"
    )
    config = read_config(Path("server.properties"))
    assert config.log_dirs == (f"{tmp_path}/data", f"{tmp_path.parent}/other", "/absolute")
    assert config.metadata_log_dir == f"{tmp_path}/data"


def test_kraft_storage_format_formats_a_directory_only_once(kraft: Command, tmp_path: Path) -> None:
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
        (("status",), 4, "start one with kraft up"),
        (("status", "--data", "/nowhere"), 4, "/nowhere holds no kraft cluster"),
        (("kill", "1"), 4, "start one with kraft up"),
        (("up", "--external", "foo"), 2, "expected HOST:PORT"),
        (("up", "--port", "65500"), 2, "choose a lower one"),
        (("topics", "list", "("), 2, "not a regular expression"),
        (("topics", "create", "t", "--replica-assignment", "1:x"), 2, "expected broker ids"),
        (("groups", "reset-offsets", "g", "--to-latest"), 2, "which topics?"),
        (("groups", "reset-offsets", "g", "--topic", "t"), 2, "where to?"),
        (("groups", "reset-offsets", "--topic", "t", "--to-latest"), 2, "which groups? give either GROUP… or --all-g"),
        (("groups", "reset-offsets", "g", "--all-groups", "--all-topics", "--to-latest"), 2, "which groups?"),
        (("groups", "remove-members", "g"), 2, "which members?"),
        (("consume", "t", "--follow", "--until", "now"), 2, "--follow has no end"),
        (("consume", "t:1", "--partition", "1"), 2, "either with --partition or as"),
        (("produce", "t", "--key-separator", ""), 2, "--key-separator is empty"),
        (("produce", "t", "-X", "security.protocol=SASL_SSL"), 2, "SASL not yet"),
        (("quorum", "add-controller", TWO_CONTROLLERS, "-b", NOWHERE), 2, "one controller at a time, not 2: 1, 2"),
        (("quorum", "add-controller", ",", "-b", NOWHERE), 2, "one controller at a time, not 0"),
        (("kill", "one"), 2, "'NODE': 'one' is not a valid whole number"),
        (("produce", "t", "--header", "trace"), 2, "--header trace: expected NAME=VALUE"),
        (("nothing",), 2, "nothing"),
        (("topics", "list", "--bootstrap", "nowhere"), 2, "is not HOST:PORT"),
        (("up", "--set", "num.partition=1"), 2, "did you mean num.partitions?"),
        (("up", "--set", "num.partitions"), 2, "expected KEY=VALUE"),
        (("up", "--set", "num.partitions=none"), 2, "is not a whole number"),
        (("up", "--combined", "1", "--brokers", "2"), 2, "--combined replaces --controllers"),
        (("up", "--profile", "prod"), 2, "expected dev or kafka"),
        (("node", "--config", "/nowhere/server.properties"), 2, "cannot read"),
        (("log", "dump", "/nowhere"), 4, "there is no /nowhere"),
        (("configs", "describe"), 2, "give either --topic TOPIC, --broker ID, --group GROUP or --loggers ID"),
        (("configs", "describe", "--broker", "x"), 2, "expected a broker id"),
        (("configs", "alter", "--topic", "t"), 2, "nothing to change"),
        (("groups", "list", "--state", "foo"), 2, "expected one of PreparingRebalance, "),
        (("groups", "list", "--type", "foo"), 2, "expected one of classic, "),
        (("node", "--config", "x", "--log-level", "loud"), 2, "expected one of debug"),
        (("configs", "alter", "--topic", "t", "--delete", "retention.mss"), 2, "did you mean retention.ms?"),
        (("consume", "t", "--since", "2026"), 2, "write 2026-01-01"),
        (("consume", "t", "-b", ""), 2, "--bootstrap-server is empty"),
        (("topic", "list", "("), 2, "not a regular expression"),
        (("produce", "t", "--timeout", "-1"), 2, "--timeout"),
        (("consume", "t", "--offset", "soon"), 2, "expected earliest, latest, N, -N or START:END"),
        (("consume", "t", "--offset", "5:3"), 2, "must be more than 5"),
        (("consume", "t", "--offset", "5:5"), 2, "must be more than 5"),
        (("consume", "t", "--offset", ":0"), 2, "must be more than 0"),
        (("consume", "t", "--since", "now", "--until", "-1h"), 2, "--until must be later than --since"),
        (("produce", "t", "--key", "k", "-K", ":"), 2, "--key and --key-separator: "),
        (("produce", "t", "--from-json", "-K", ":"), 2, "--from-json and --key-separator: "),
        (("produce", "t", "--from-json", "--null", "-"), 2, "--from-json and --null: "),
        (("produce", "t", "--from-json", "--keep-partitions", "-p", "0"), 2, "--partition and --keep-partitions: "),
        (("produce", "t", "--keep-partitions"), 2, "--keep-partitions is for the lines of --from-json"),
        (("produce", "t", "--file", "x", "-K", ":"), 2, "--file and --key-separator: "),
        (("produce", "t", "--file", "x", "--null", "-"), 2, "--file and --null: "),
        (("produce", "t", "--file", "x", "--from-json"), 2, "--file and --from-json: "),
        (("consume", "t", "--group", "g", "--since", "0"), 2, "--group continues at the committed offsets"),
        (("consume", "t", "--group-protocol", "consumer"), 2, "--group-protocol needs --group"),
        (("consume", "t", "-g", "g", "--group-protocol", "new"), 2, "new: expected classic or consumer"),
        (("groups", "reset-offsets", "g", "--from-file", "x", "--topic", "t"), 2, "--from-file names the partitions"),
        (("groups", "reset-offsets", "g", "--from-file", "x", "--all-topics"), 2, "--from-file names the partitions"),
        (("perf", "produce", "t", "--partitions", "3"), 2, "for a topic of the measurement's own, not for t"),
        (("perf", "e2e", "t", "--replication-factor", "1"), 2, "for a topic of the measurement's own, not for t"),
        (
            ("perf", "consume", "t", "--record-size", "1000"),
            2,
            "--record-size: for a topic of the measurement's own, not",
        ),
        (
            ("perf", "consume", "t", "--record-size", "9", "--partitions", "1"),
            2,
            "--partitions and --record-size: for a topic of the measurement's own",
        ),
        (
            ("quorum", "-b", NOWHERE, "remove-controller", "1", "--yes"),
            2,
            "--bootstrap-server stands before remove-contr",
        ),
        (("quorum", "-b", NOWHERE, "describe"), 2, "--bootstrap-server stands before describe"),
        (("quorum", "--json", "add-controller", "--config", "/nowhere"), 2, "--json stands before add-controller"),
    ],
)
def test_impossible_kraft_commands_are_refused_with_the_reason(
    kraft: Command, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    assert expected in kraft.run(*arguments, code=code)


def test_kraft_run_as_a_process_prints_its_advice_and_its_help(kraft: Command) -> None:
    assert "start one with kraft up" in kraft.spawn("status", code=4)
    assert "Start a cluster on this machine" in kraft.spawn("--help")


def test_kraft_log_dump_of_an_unknown_file_kind_is_refused(kraft: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    assert "not a file that kraft writes" in kraft.run("log", "dump", tmp_path / "thesis.tex", code=2)


def test_a_setting_without_effect_is_warned_of(kraft: Command, tmp_path: Path) -> None:
    said = kraft.run("up", "--set", "background.threads=5", "--profile", "prod", "--data", tmp_path / "data", code=2)
    assert "background.threads has no effect: " in said


def test_the_option_h_prints_the_help_of_a_kraft_command(kraft: Command) -> None:
    assert kraft.run("-h") == kraft.run("--help")
    assert kraft.run("topics", "list", "-h") == kraft.run("topics", "list", "--help")


def test_an_unreachable_cluster_gives_exit_code_3_after_the_timeout(kraft: Command) -> None:
    assert "no broker answered within 300 ms" in kraft.run("topics", "list", "-b", NOWHERE, "--timeout", "0.3", code=3)


KAFKAS_FILE = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
log.dirs=/tmp/kafka-data
"""
README = (Path(__file__).resolve().parents[3] / "README.md").read_text()
READMES_FILE = README[README.index("    process.roles=") :].partition("\n\n")[0].replace("    ", "")


@pytest.mark.parametrize("properties", [KAFKAS_FILE, READMES_FILE], ids=["Kafka's own", "the README's"])
def test_the_readme_commands_for_a_single_node_work(properties: str, kraft: Command, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(properties.replace("log.dirs=/tmp/kafka-data", f"log.dirs={tmp_path}/data"))
    (line,) = [line.split("$ kraft ")[1] for line in README.splitlines() if "$ kraft storage format" in line]
    words = [str(config) if word == "server.properties" else word for word in line.split()]
    assert f"formatted {tmp_path}/data for node 1" in kraft.run(*words)
