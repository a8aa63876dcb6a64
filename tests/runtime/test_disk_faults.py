"""Disk faults: syncs are delayed or fail as configured and are counted, and a seam without disk faults has no
overhead.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kraft.runtime import open_seam
from kraft.runtime.disk import RealDisk
from kraft.runtime.disk_faults import DiskFaults, FaultyDisk
from kraft.runtime.fault_control import FaultControl
from kraft.runtime.file import RealFile
from kraft.runtime.links import LinkPolicies
from kraft.seam import Disk, DiskError
from kraft.wire.reply_policy import ReplyPolicy

LONG_MS = 60_000


@asynccontextmanager
async def open_disk(faults: DiskFaults | None) -> AsyncIterator[Disk]:
    async with open_seam(node_name="node", disk_faults=faults) as seam:
        yield seam.disk


async def wait_for_delayed(faults: DiskFaults, count: int) -> None:
    with trio.fail_after(20):
        while faults.syncs_delayed < count:  # noqa: ASYNC110 - a thread counts
            await trio.sleep(0.001)


async def test_a_seam_without_disk_faults_has_no_disk_or_files_that_inject_faults(tmp_path: Path) -> None:
    async with open_disk(None) as disk:
        assert type(disk) is RealDisk
        assert type(disk.create(str(tmp_path / "log"))) is RealFile
    async with open_disk(DiskFaults()) as disk:
        assert type(disk) is FaultyDisk


async def test_a_failing_sync_is_a_disk_error_until_the_fault_is_cleared(tmp_path: Path) -> None:
    faults = DiskFaults()
    async with open_disk(faults) as disk:
        file = disk.create(str(tmp_path / "log"))
        file.append(b"bytes")
        faults.set(fail_syncs=True)
        with pytest.raises(DiskError, match="on purpose") as failed:
            await disk.sync(file)
        assert (failed.value.errno, failed.value.path) == (errno.EIO, str(tmp_path / "log"))
        with pytest.raises(DiskError):
            disk.sync_directory(str(tmp_path))
        with pytest.raises(DiskError):
            disk.write_file_atomic(str(tmp_path / "small"), b"new")
        assert faults.syncs_failed == 3
        assert not (tmp_path / "small").exists()
        assert disk.open(str(tmp_path / "log")).read(0, 5) == b"bytes"
        faults.set()
        await disk.sync(file)
        assert faults.syncs_failed == 3


async def test_a_delayed_sync_ends_when_the_fault_is_cleared(tmp_path: Path) -> None:
    faults = DiskFaults()
    ended: list[str] = []
    async with open_disk(faults) as disk, trio.open_nursery() as nursery:
        file = disk.create(str(tmp_path / "log"))
        file.append(b"bytes")
        faults.set(sync_delay_ms=LONG_MS)

        async def sync() -> None:
            await disk.sync(file)
            ended.append("synced")

        nursery.start_soon(sync)
        await wait_for_delayed(faults, 1)
        file.append(b"more")  # only the sync waits
        assert ended == []
        faults.set()
    assert ended == ["synced"]
    assert faults.describe() == {"sync_delay_ms": 0, "fail_syncs": False, "syncs_delayed": 1, "syncs_failed": 0}


async def test_a_delayed_sync_fails_when_syncs_begin_to_fail_meanwhile(tmp_path: Path) -> None:
    faults = DiskFaults()
    failed: list[int] = []
    async with open_disk(faults) as disk, trio.open_nursery() as nursery:
        file = disk.create(str(tmp_path / "log"))
        faults.set(sync_delay_ms=LONG_MS)

        async def sync() -> None:
            with pytest.raises(DiskError):
                await disk.sync(file)
            failed.append(1)

        nursery.start_soon(sync)
        await wait_for_delayed(faults, 1)
        faults.set(fail_syncs=True)
    assert failed == [1]


def test_fault_control_sets_lists_and_clears_disk_faults() -> None:
    control = FaultControl(LinkPolicies(), ReplyPolicy())
    answer = control.handle(b'{"verb": "disk", "sync_delay_ms": 800}')
    assert answer == {"ok": True, "sync_delay_ms": 800, "fail_syncs": False, "syncs_delayed": 0, "syncs_failed": 0}
    control.handle(b'{"verb": "disk", "fail_syncs": true}')
    assert control.handle(b'{"verb": "list"}')["disk"]["fail_syncs"] is True
    assert control.disk.sync_delay_ms == 0
    control.handle(b'{"verb": "clear"}')
    assert not control.disk.fail_syncs


@pytest.mark.parametrize("given", ['"sync_delay_ms": -1', '"sync_delay_ms": true', '"fail_syncs": 1'])
def test_fault_control_refuses_invalid_disk_faults(given: str) -> None:
    control = FaultControl(LinkPolicies(), ReplyPolicy())
    answer = control.handle(b'{"verb": "disk", %s}' % given.encode())
    assert answer["ok"] is False
    assert "sync_delay_ms is from 0 to" in answer["error"]
    assert (control.disk.sync_delay_ms, control.disk.fail_syncs) == (0, False)


def test_fault_control_reports_the_nodes_clocks() -> None:
    control = FaultControl(LinkPolicies(), ReplyPolicy())
    first, second = (control.handle(b'{"verb": "clock"}') for _ in range(2))
    assert first["ok"]
    assert first["monotonic_ms"] <= second["monotonic_ms"]
    assert first["wall_ms"] > 1_700_000_000_000
