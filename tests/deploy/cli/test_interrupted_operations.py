"""Rolling restarts and drains that end early, by ctrl-C or because a node dies: their messages, and how the next one
continues.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.kraft_command import Command, free_port

pytestmark = pytest.mark.slow
SHAPE = ClusterLayout(controllers=1, brokers=3)
LINES = [f"record {number} " + "x" * 1_000 for number in range(60)]
END_SECONDS_MAX = 60
SLOW_BYTES = "100"
"""Throttle in bytes per second. Each partition has 20 kB, of which a fetch gets at most two batches of one record. So
each move takes minutes unless the throttle is removed."""
FETCH_BYTES_MAX = 2_000
INTERRUPTED = 130
NOT_RUNNING = 4


class Place:
    """A cluster of one controller and three brokers, with records in a topic of replication factor 2."""

    def __init__(self, home: Path) -> None:
        self.kraft = Command(home / "state")
        self.folder = home / "data"
        shape = ("--controllers", "1", "--brokers", "3", "--port", str(free_port(SHAPE)))
        fetches = ("--set", f"replica.fetch.max.bytes={FETCH_BYTES_MAX}")
        self.kraft.spawn("up", *shape, *fetches, "--data", self.folder, "--background")
        self.cluster = LocalCluster.find(ClusterFolder(self.folder))
        # One in-sync replica is enough: below min.insync.replicas, a new leader may not have learned the high
        # watermark.
        settings = ("--partitions", "3", "--replication-factor", "2", "--config", "min.insync.replicas=1")
        self.kraft.run("topics", "create", "t", *settings)
        self.kraft.run("produce", "t", "-X", "batch.size=1000", text="\n".join(LINES) + "\n")

    @property
    def starts(self) -> dict[int, int]:
        return {one.node_id: one.starts for one in self.cluster.status()}

    def start_missing(self) -> list[int]:
        """Start the nodes that are down, and return their ids."""
        missing = [one.node_id for one in self.cluster.status() if one.pid is None]
        for node in missing:
            self.kraft.run("start", str(node))
        return missing

    def require_all_records(self) -> None:
        assert sorted(self.kraft.run("consume", "t").splitlines()) == sorted(LINES)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.kraft.run("down")


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str], code: int) -> str:
    """Wait until a command ends with this exit code. Return its standard error."""
    printed, said = process.communicate(timeout=END_SECONDS_MAX)
    assert process.returncode == code, printed + said
    return said


def advised(said: str) -> list[str]:
    """Return the arguments, after `kraft`, of the command that the message advises."""
    found = re.search(r"Continue with kraft (rolling-restart(?: --node \d+)*)$", said, re.MULTILINE)
    assert found is not None, said
    return found[1].split()


def test_an_interrupted_rolling_restart_names_the_remaining_nodes_and_the_next_run_restarts_them(place: Place) -> None:
    before = place.starts
    with place.kraft.start("rolling-restart", "--only", "brokers") as process:
        assert first_line(process) == "node 1 restarted, in sync"
        process.send_signal(signal.SIGINT)
        said = ended(process, INTERRUPTED)
    assert "1 of 3 nodes restarted, remaining: 2, 3." in said
    assert set(place.start_missing()) <= {2}
    place.require_all_records()
    assert "node 3 restarted, in sync" in place.kraft.run(*advised(said))
    assert place.starts[1] == before[1] + 1
    assert place.starts[3] == before[3] + 1
    assert place.starts[101] == before[101]
    place.require_all_records()


def test_a_rolling_restart_stops_when_another_node_dies_and_the_next_run_continues(place: Place) -> None:
    before = place.starts
    with place.kraft.start("rolling-restart", "--only", "brokers") as process:
        assert first_line(process) == "node 1 restarted, in sync"
        place.cluster.kill(3)
        said = ended(process, NOT_RUNNING)
    assert "start them first: kraft start 3" in said
    assert "remaining: 2, 3." in said
    refused = place.kraft.run(*advised(said), code=NOT_RUNNING)
    assert "not all nodes" in refused
    assert 3 in place.start_missing()
    place.kraft.run(*advised(said), "--even-if-under-replicated")
    assert place.starts[1] == before[1] + 1
    place.require_all_records()


def test_a_rolling_restart_stops_when_the_restarted_node_does_not_start(place: Place) -> None:
    before = place.starts
    file = place.folder / "2" / "server.properties"
    good = file.read_text()
    file.write_text(good + "num.partitions=many\n")
    said = place.kraft.run("rolling-restart", "--only", "brokers", code=1)
    assert "num.partitions" in said
    assert "1 of 3 nodes restarted, remaining: 2, 3." in said
    assert "kraft start 2" in said
    assert place.starts[3] == before[3]
    place.require_all_records()

    file.write_text(good)
    assert place.start_missing() == [2]
    place.kraft.run(*advised(said), "--even-if-under-replicated")
    assert place.starts[3] == before[3] + 1
    place.require_all_records()


def test_moves_of_an_interrupted_drain_continue_and_the_next_run_finishes_the_drain(place: Place) -> None:
    with place.kraft.start("brokers", "drain", "1", "--throttle", SLOW_BYTES, "--yes") as process:
        assert "TARGET" in first_line(process)
        while not place.kraft.json("partitions", "reassign", "list"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = ended(process, INTERRUPTED)
    assert "moves in progress continue" in said
    assert "kraft brokers drain 1 moves the rest and removes the throttle" in said
    assert place.kraft.json("partitions", "reassign", "list")

    assert place.kraft.json("brokers", "drain", "1", "--yes")["drained"] is True
    assert place.kraft.json("partitions", "reassign", "list") == []
    held = {row["broker"]: row["replicas"] for row in place.kraft.json("brokers")}
    assert held[1] == 0
    throttled = place.kraft.json("configs", "describe", "--broker", "2", "--changed")
    assert [row["key"] for row in throttled if "throttled.rate" in row["key"]] == []
    place.require_all_records()


def test_a_drain_reports_a_dead_target_broker_and_finishes_when_it_is_back(place: Place) -> None:
    plan = {tuple(row["target"]) for row in place.kraft.json("brokers", "drain", "1", "--plan")}
    target = max(broker for replicas in plan for broker in replicas)
    with place.kraft.start("brokers", "drain", "1", "--throttle", SLOW_BYTES, "--yes") as process:
        while not place.kraft.json("partitions", "reassign", "list"):
            assert process.poll() is None
        place.cluster.kill(target)
        assert process.stderr is not None
        assert f"moves wait for brokers that are down: {target}." in process.stderr.readline()
        place.kraft.run("start", str(target))
        for broker in ("1", "2", "3"):
            rates = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
            place.kraft.run("configs", "alter", "--broker", broker, *(f"--delete={rate}" for rate in rates))
        ended(process, 0)
    place.require_all_records()
