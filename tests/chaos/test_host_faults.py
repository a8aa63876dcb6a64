"""Tests of host faults that cannot begin or end, and of measurements of hosts, which never wait for a node."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.folder import ClusterFolder
from kraft.sim.chaos.clusters import host_faults
from kraft.sim.chaos.clusters.host_faults import FAILING_SYNC, FULL_DISK, SLOW_DISK, HostFaults
from kraft.sim.chaos.clusters.repeated_measurement import RepeatedMeasurement
from kraft.sim.chaos.hosts.disks import CannotMount
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError

SECONDS_MAX = 10


class Running:
    """A cluster whose nodes ignore kills and starts: they keep running."""

    def kill(self, node: int) -> None:
        """Do nothing."""

    def start(self, node: int, *, until_ready: bool = True) -> None:
        """Do nothing."""

    def is_running(self, node: int) -> bool:
        return True


class LostDisk:
    """A small disk that was unmounted after it was filled."""

    free_bytes = 0

    def __init__(self, path: Path, size_bytes: int, warden: Warden) -> None:
        """Mount nothing."""

    def mount(self) -> None:
        """Do nothing."""

    def fill(self) -> None:
        """Do nothing."""

    def free(self) -> None:
        raise CannotMount("no file system of the run's own is mounted")


@pytest.fixture(autouse=True)
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture: no node answers, as if it had never been started."""
    monkeypatch.setattr(FaultClient, "of_node", lambda folder, node: FaultClient(tmp_path / "nowhere"))


def hosts_of(tmp_path: Path, warden: Warden, *kinds: str) -> HostFaults:
    hosts = HostFaults(kinds, warden)
    (tmp_path / "1").mkdir()
    hosts.prepare(ClusterFolder(tmp_path), [1], [1])
    return hosts


@pytest.mark.parametrize("kind", [SLOW_DISK, FAILING_SYNC])
def test_a_disk_fault_on_a_node_that_does_not_listen_raises_cluster_error_each_time(tmp_path: Path, kind: str) -> None:
    with Warden() as warden:
        hosts = hosts_of(tmp_path, warden)
        for _ in range(2):
            with pytest.raises(ClusterError, match="no node listens"):
                hosts.begin(Fault(at_ms=0, kind=kind, node=1), Running())


def test_a_host_fault_that_cannot_be_ended_raises_cluster_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_faults, "NodeDisk", LostDisk)
    with Warden() as warden:
        hosts = hosts_of(tmp_path, warden, FULL_DISK)
        end = hosts.begin(Fault(at_ms=0, kind=FULL_DISK, node=1), Running())
        assert end is not None
        with pytest.raises(ClusterError, match="mounted"):
            end()


def test_a_full_disk_fault_on_a_node_without_a_small_disk_raises_cluster_error(tmp_path: Path) -> None:
    with Warden() as warden:
        hosts = hosts_of(tmp_path, warden)
        with pytest.raises(ClusterError, match="node 101 is not a broker"):
            hosts.begin(Fault(at_ms=0, kind=FULL_DISK, node=101), Running())


def test_reported_sync_counts_of_a_node_are_those_of_its_last_answered_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(client: FaultClient, **request: Any) -> dict[str, Any]:
        asked.append(request["verb"])
        if asked.count("list") > 1:
            raise LaunchError("not-running", "frozen")
        return {"disk": {"syncs_delayed": 7, "syncs_failed": 0}}

    monkeypatch.setattr(FaultClient, "_ask", answer)
    with Warden() as warden:
        hosts = hosts_of(tmp_path, warden)
        hosts.begin(Fault(at_ms=0, kind=SLOW_DISK, node=1), Running())
        assert hosts.facts() == {}
        assert asked == ["disk"], "who wants to know the facts asks no node"
        hosts.ask()
        hosts.ask()
        assert hosts.facts() == {"slow syncs 1": 7.0, "failed syncs 1": 0.0}


def test_a_repeated_measurement_runs_until_it_is_closed() -> None:
    looks, seen = [0], threading.Event()

    def look() -> None:
        looks[0] += 1
        if looks[0] == 3:
            seen.set()

    repeated = RepeatedMeasurement(look, 0.001)
    repeated.begin()
    assert seen.wait(SECONDS_MAX)
    repeated.close()
    before = looks[0]
    repeated.raise_failure()
    assert not any(one.name == "kraft chaos measurement" and one.is_alive() for one in threading.enumerate())
    assert looks[0] == before


def test_the_error_of_a_repeated_measurement_is_raised_for_its_reader() -> None:
    failed = threading.Event()

    def look() -> None:
        failed.set()
        raise ClusterError("tc is gone")

    repeated = RepeatedMeasurement(look, 0.001)
    repeated.begin()
    assert failed.wait(SECONDS_MAX)
    repeated.close()
    with pytest.raises(ClusterError, match="tc is gone"):
        repeated.raise_failure()
