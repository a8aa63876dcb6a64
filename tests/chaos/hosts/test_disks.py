"""Tests of small disks of nodes: a filled disk has no free block, and a broker on it loses no acknowledged record."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.folder import ClusterFolder
from kraft.sim.chaos.hosts import disks
from kraft.sim.chaos.hosts.disks import BLOCK_BYTES, CannotMount, NodeDisk, can_mount
from kraft.sim.chaos.hosts.warden import Warden, WardenError
from tests.chaos.hosts.nodes import running_nodes
from tests.chaos.hosts.privileges import needs_mounts
from tests.chaos.hosts.records import read, send

MIB = 1 << 20


@pytest.fixture
def warden() -> Iterator[Warden]:
    with Warden() as opened:
        yield opened
    assert opened.leftovers == ()


@pytest.fixture
def disk(tmp_path: Path, warden: Warden) -> Iterator[NodeDisk]:
    path = tmp_path / "data"
    path.mkdir()
    disk = NodeDisk(path, 4 * MIB, warden)
    disk.mount()
    yield disk
    disk.unmount()
    assert not disk.is_mounted


def write(path: Path, count: int) -> None:
    with path.open("ab", buffering=0) as file:
        written = file.write(bytes(count))
    if written != count:
        raise OSError(errno.ENOSPC, f"{written} of {count} bytes were written")


@needs_mounts
def test_a_filled_disk_accepts_no_further_block_until_it_is_freed(disk: NodeDisk) -> None:
    assert 3 * MIB < disk.free_bytes <= 4 * MIB
    assert disk.fill() == 0
    with pytest.raises(OSError, match="No space left") as refused:
        write(disk.path / "log", 1)
    assert refused.value.errno == errno.ENOSPC
    assert disk.is_filled
    assert disk.ballast_bytes > 3 * MIB
    assert disk.free() > 3 * MIB
    assert not disk.is_filled
    write(disk.path / "log", MIB)


@needs_mounts
def test_a_disk_filled_except_for_some_bytes_accepts_exactly_these_bytes(disk: NodeDisk) -> None:
    assert disk.fill(leave_bytes=2 * BLOCK_BYTES) == 2 * BLOCK_BYTES
    write(disk.path / "log", 2 * BLOCK_BYTES)
    with pytest.raises(OSError, match="No space left"):
        write(disk.path / "log", 1)


@needs_mounts
def test_filling_a_disk_again_takes_the_space_freed_in_the_meantime(disk: NodeDisk) -> None:
    write(disk.path / "log", MIB)
    disk.fill()
    (disk.path / "log").unlink()
    assert disk.free_bytes >= MIB
    assert disk.fill() == 0


@needs_mounts
def test_filling_an_unmounted_disk_is_rejected(tmp_path: Path, warden: Warden) -> None:
    disk = NodeDisk(tmp_path, 4 * MIB, warden)
    with pytest.raises(CannotMount, match="no file system of the run's own"):
        disk.fill()
    assert os.listdir(tmp_path) == []


@needs_mounts
def test_mounting_a_disk_over_a_mounted_one_is_rejected(disk: NodeDisk, warden: Warden) -> None:
    with pytest.raises(WardenError, match="mounted"):
        NodeDisk(disk.path, 4 * MIB, warden).mount()


@needs_mounts
def test_the_warden_unmounts_a_disk_in_use(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    with Warden() as warden:
        disk = NodeDisk(path, 4 * MIB, warden)
        disk.mount()
        with (path / "held").open("wb"):
            assert warden.close() == ()
            assert not disk.is_mounted


def test_can_mount_returns_the_reason_on_a_machine_that_cannot_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, size_bytes: int) -> None:
        raise CannotMount("cannot mount a tmpfs: Operation not permitted; it takes root")

    monkeypatch.setattr(disks, "mount_tmpfs", refuse)
    can_mount.cache_clear()
    try:
        assert "takes root" in can_mount()
    finally:
        can_mount.cache_clear()


@needs_mounts
def test_a_broker_on_a_full_disk_stops_and_keeps_acknowledged_records_after_a_restart(
    tmp_path: Path, warden: Warden
) -> None:
    small: list[NodeDisk] = []

    def prepare(folder: ClusterFolder) -> None:
        path = folder.node(1) / "data"
        path.mkdir()
        disk = NodeDisk(path, 64 * MIB, warden)
        disk.mount()
        small.append(disk)

    with running_nodes(tmp_path / "cluster", before_start=prepare) as cluster:
        (disk,) = small
        acked = send(cluster.bootstrap_servers, "orders", [b"%d" % number for number in range(10)])
        assert len(acked) == 10
        disk.fill()
        more = [b"%d " % number + bytes(2 * BLOCK_BYTES) for number in range(10, 20)]
        acked += send(cluster.bootstrap_servers, "orders", more, timeout_ms=2_000)
        assert len(acked) < 20
        cluster.wait_ended([1])
        assert cluster.status()[0].ended == "exit code 1"
        assert "No space left on device" in log_of(cluster)
        with pytest.raises(LaunchError, match="No space left on device"):
            cluster.start(1)
        disk.free()
        cluster.start(1)
        assert read(cluster.bootstrap_servers, "orders", len(acked))[: len(acked)] == acked
    disk.unmount()


def log_of(cluster: LocalCluster) -> str:
    return (cluster.folder.node(1) / "node.log").read_text()
