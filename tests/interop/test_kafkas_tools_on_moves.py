"""Apache Kafka's tools move our replicas between brokers and log directories, and change our voters."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from kraft.sim.chaos.clusters.held_ports import hold_ports
from tests.interop.test_kafkas_tools import SCRIPT, SECONDS_MAX
from tests.stages.started_clusters import KRAFT, UP_SECONDS_MAX, LocalCluster, running

pytestmark = pytest.mark.interop

MOVES_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def tool(bootstrap: str, name: str, *arguments: str | Path) -> str:
    """Run one of Kafka's tools, which must succeed, and return its output."""
    command = [SCRIPT, "tool", f"org.apache.kafka.tools.{name}", "--bootstrap-server", bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def reassign(cluster: LocalCluster, *arguments: str | Path) -> str:
    return tool(cluster.bootstrap, "reassign.ReassignPartitionsCommand", *arguments)


def written(folder: Path, *placed: tuple[int, list[int]]) -> Path:
    rows = [{"topic": "movable", "partition": at, "replicas": replicas} for at, replicas in placed]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return path


def test_kafkas_tool_moves_throttles_verifies_lists_and_cancels_reassignments(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("movable", partitions=2, replication_factor=1)
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "movable"}]}')
    generated = reassign(cluster, "--topics-to-move-json-file", topics, "--broker-list", "1,2,3", "--generate")
    assert "Proposed partition reassignment configuration" in generated
    plan = written(tmp_path, (0, [3, 2]), (1, [1, 2, 3]))
    begun = reassign(cluster, "--reassignment-json-file", plan, "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignments" in begun
    until = time.monotonic() + MOVES_SECONDS_MAX
    while "is still in progress" in (shown := reassign(cluster, "--reassignment-json-file", plan, "--verify")):
        assert time.monotonic() < until, shown
    assert shown.count("is completed") == 2
    assert "Clearing topic-level throttles" in shown
    described = tool(cluster.bootstrap, "TopicCommand", "--describe", "--topic", "movable")
    assert "Replicas: 3,2" in described
    assert "No partition reassignments found" in reassign(cluster, "--list")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(20):
        producer.produce("movable", bytes(500_000), partition=0)
    assert producer.flush(30) == 0
    back = written(tmp_path, (0, [1, 2]))
    reassign(cluster, "--reassignment-json-file", back, "--execute", "--throttle", "1000")
    assert "movable-0: replicas: 1,2,3. adding: 1. removing: 3." in reassign(cluster, "--list")
    cancelled = reassign(cluster, "--reassignment-json-file", back, "--cancel")
    assert "Successfully cancelled partition reassignment for: movable-0" in cancelled


def properties(folder: Path, node_id: int, port: int, role: str, controller: int, extra: str = "") -> Path:
    """Return the path of a node's server.properties, which Kafka's tools read too."""
    listener = "CONTROLLER" if role == "controller" else "PLAINTEXT"
    path = folder / f"{node_id}.properties"
    path.write_text(
        f"process.roles={role}\nnode.id={node_id}\nlisteners={listener}://127.0.0.1:{port}\n"
        f"advertised.listeners={listener}://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
        f"log.dirs={folder}/{node_id}/a{extra}\n"
    )
    return path


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The bootstrap servers and the folder of a cluster: controller 101, an observer 102, and broker 1 with two log
    directories."""
    folder = tmp_path_factory.mktemp("joined")
    base, ports = hold_ports(range(3))
    first, second, broker = range(base, base + 3)
    paths = {
        101: (properties(folder, 101, first, "controller", first), "--standalone"),
        102: (properties(folder, 102, second, "controller", first), "--no-initial-controllers"),
        1: (properties(folder, 1, broker, "broker", first, f",{folder}/1/b"), None),
    }
    with ExitStack() as stack:
        stack.callback(ports.release)
        cluster_id = "c2ltdWxhdGVkLWNsdXN0ZQ"
        for node_id, (path, choice) in paths.items():
            words = [*KRAFT, "storage", "format", "--config", path, "--cluster-id", cluster_id]
            subprocess.run([*words, *([choice] if choice else [])], check=True, capture_output=True)
            output = stack.enter_context((folder / f"{node_id}.log").open("w"))
            node = subprocess.Popen([*KRAFT, "node", "--config", path], stdout=output, stderr=output)
            stack.callback(_end, node)
        bootstrap = f"127.0.0.1:{broker}"
        until = time.monotonic() + UP_SECONDS_MAX
        while subprocess.run([*KRAFT, "cluster", "-b", bootstrap], capture_output=True).returncode:
            assert time.monotonic() < until, (folder / "1.log").read_text()
        yield bootstrap, folder


def _end(node: subprocess.Popen[bytes]) -> None:
    if psutil.pid_exists(node.pid):
        node.terminate()
    node.wait(timeout=UP_SECONDS_MAX)


def test_kafkas_tool_adds_and_removes_a_voter(joined: tuple[str, Path]) -> None:
    bootstrap, folder = joined
    config = folder / "102.properties"
    added = tool(bootstrap, "MetadataQuorumCommand", "--command-config", config, "add-controller")
    assert "Added controller 102 with directory id" in added
    directory = (folder / "102/a/meta.properties").read_text().split("directory.id=")[1].split()[0]
    status = tool(bootstrap, "MetadataQuorumCommand", "describe", "--status")
    assert directory in status
    remove = ("remove-controller", "--controller-id", "102", "--controller-directory-id", directory)
    assert "Removed" in tool(bootstrap, "MetadataQuorumCommand", *remove)
    observers = tool(bootstrap, "MetadataQuorumCommand", "describe", "--status").split("CurrentObservers")[1]
    assert '"id": 102' in observers


def test_kafkas_tool_moves_a_replica_to_another_log_directory(joined: tuple[str, Path]) -> None:
    bootstrap, folder = joined
    create = ("--create", "--topic", "here", "--partitions", "1", "--replication-factor", "1")
    tool(bootstrap, "TopicCommand", *create)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("here", b"a record")  # a replica that was never written has no folder
    assert not producer.flush(30)
    found = "a" if (folder / "1/a/here-0").exists() else "b"
    target = f"{folder}/1/{'b' if found == 'a' else 'a'}"
    plan = folder / "dirs.json"
    row = {"topic": "here", "partition": 0, "replicas": [1], "log_dirs": [target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    command = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", plan)
    assert "uccessfully started moving log directory" in tool(bootstrap, *command, "--execute")
    until = time.monotonic() + MOVES_SECONDS_MAX
    while "completed successfully" not in (shown := tool(bootstrap, *command, "--verify")):
        assert time.monotonic() < until, shown
    assert Path(target, "here-0").exists()
    described = tool(bootstrap, "LogDirsCommand", "--describe", "--topic-list", "here")
    assert target in described
