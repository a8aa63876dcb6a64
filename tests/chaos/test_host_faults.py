"""Faults of hosts that do not come about, and what is told of them without waiting for anybody."""

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
from kraft.sim.chaos.clusters.repeated_look import RepeatedLook
from kraft.sim.chaos.hosts.disks import CannotMount
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError

SECONDS_MAX = 10


class Running:
    """Nodes that run, whatever is done to them."""

    def kill(self, node: int) -> None:
        """Nothing."""

    def start(self, node: int, *, until_ready: bool = True) -> None:
        """Nothing."""

    def is_running(self, node: int) -> bool:
        return True


class LostDisk:
    """A small disk that somebody has unmounted after it was full."""

    free_bytes = 0

    def __init__(self, path: Path, size_bytes: int, warden: Warden) -> None:
        """Nothing is mounted."""

    def mount(self) -> None:
        """Nothing."""

    def fill(self) -> None:
        """Nothing."""

    def free(self) -> None:
        raise CannotMount("no file system of the run's own is mounted")


@pytest.fixture(autouse=True)
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that nobody has started."""
    monkeypatch.setattr(FaultClient, "of_node", lambda folder, node: FaultClient(tmp_path / "nowhere"))


def hosts_of(tmp_path: Path, warden: Warden, *kinds: str) -> HostFaults:
    hosts = HostFaults(kinds, warden)
    (tmp_path / "1").mkdir()
    hosts.prepare(ClusterFolder(tmp_path), [1], [1])
    return hosts


@pytest.mark.parametrize("kind", [SLOW_DISK, FAILING_SYNC])
def test_a_fault_that_a_node_cannot_be_told_of_is_an_error_of_the_cluster_each_time(tmp_path: Path, kind: str) -> None:
    with Warden() as warden:
        hosts = hosts_of(tmp_path, warden)
        for _ in range(2):
            with pytest.raises(ClusterError, match="no node listens"):
                hosts.begin(Fault(at_ms=0, kind=kind, node=1), Running())


def test_a_fault_that_cannot_be_ended_is_an_error_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_faults, "NodeDisk", LostDisk)
    with Warden() as warden:
        hosts = hosts_of(tmp_path, warden, FULL_DISK)
        end = hosts.begin(Fault(at_ms=0, kind=FULL_DISK, node=1), Running())
        assert end is not None
        with pytest.raises(ClusterError, match="mounted"):
            end()


def test_a_full_disk_of_a_node_that_has_no_small_disk_is_an_error_of_the_cluster(tmp_path: Path) -> None:
    with Warden() as warden:
        hosts = hosts_of(tmp_path, warden)
        with pytest.raises(ClusterError, match="node 101 is no broker"):
            hosts.begin(Fault(at_ms=0, kind=FULL_DISK, node=101), Running())


def test_facts_of_syncs_are_those_that_were_asked_for_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_repeated_look_goes_on_until_it_is_closed() -> None:
    looks, seen = [0], threading.Event()

    def look() -> None:
        looks[0] += 1
        if looks[0] == 3:
            seen.set()

    repeated = RepeatedLook(look, 0.001)
    repeated.begin()
    assert seen.wait(SECONDS_MAX)
    repeated.close()
    before = looks[0]
    repeated.require_well()
    assert not any(one.name == "kraft chaos look" and one.is_alive() for one in threading.enumerate())
    assert looks[0] == before


def test_a_look_that_fails_is_told_to_whoever_asks() -> None:
    failed = threading.Event()

    def look() -> None:
        failed.set()
        raise ClusterError("tc is gone")

    repeated = RepeatedLook(look, 0.001)
    repeated.begin()
    assert failed.wait(SECONDS_MAX)
    repeated.close()
    with pytest.raises(ClusterError, match="tc is gone"):
        repeated.require_well()
