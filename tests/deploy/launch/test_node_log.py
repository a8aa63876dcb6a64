"""The log of a node process: its format, and levels that change at runtime."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from kraft.node.loggers.levels import LOGGERS
from tests.stages.kraft_command import Command, free_port

SOURCES = Path(__file__).parents[3] / "kraft"


def start(kraft: Command, tmp_path: Path, *options: str) -> Path:
    """Start one node of both roles in the background. Return the path of its log."""
    port = str(free_port(ClusterLayout(combined=1)))
    kraft.spawn("up", "--data", str(tmp_path / "data"), "--combined", "1", "--port", port, "--background", *options)
    return ClusterFolder(tmp_path / "data").node(1) / "node.log"


def test_every_line_of_a_node_is_json_with_log_json(kraft: Command, tmp_path: Path) -> None:
    log = start(kraft, tmp_path, "--log-json")
    kraft.run("down")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"the node starts", "broker is registered", "the node has stopped"} <= {line["event"] for line in lines}
    assert all({"timestamp", "level", "event", "node"} <= line.keys() for line in lines)


def test_a_logger_follows_a_changed_level_in_a_running_node(kraft: Command, tmp_path: Path) -> None:
    log = start(kraft, tmp_path, "--log-level", "warning")
    before = log.read_text()
    kraft.run("configs", "alter", "--loggers", "1", "--set", "kraft.broker=INFO")
    levels = {row["key"]: row["value"] for row in kraft.json("configs", "describe", "--loggers", "1")}
    kraft.run("down")
    after = log.read_text()
    assert " INFO " not in before
    assert (levels["kraft.broker.lifecycle"], levels["kraft.quorum"]) == ("INFO", "WARN")
    assert "broker stops" in after, "of the logger kraft.broker"
    assert "the node has stopped" not in after, "of another logger"


def test_the_list_of_loggers_contains_every_logger_that_writes_to_the_nodes_log() -> None:
    found = subprocess.run(
        ["grep", "-rhoE", "--include=*.py", r'get_logger\("[^"]+"\)', *(f"{SOURCES / part}/" for part in PARTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {re.findall(r'"(.+)"', line)[0] for line in found.stdout.splitlines()} <= LOGGERS


PARTS = ("broker", "node", "quorum", "controller", "runtime", "raft", "control", "wire", "storage", "deploy/launch")
