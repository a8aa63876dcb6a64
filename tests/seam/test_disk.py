"""Behaviour common to every Disk, the real one and the simulated world's."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trio

from kraft.runtime.disk import RealDisk
from kraft.seam import DiskError, DiskLocked, File
from tests.seam.sites import DIRTY_BUDGET_BYTES, RealSite, Site, WorldSite

AnySite = RealSite | WorldSite


def cached(file: File, position: int, count: int) -> bytes:
    """Return the result of `read_cached` as soon as the bytes are in memory."""
    for _ in range(50):
        data = file.read_cached(position, count)
        if data is not None:
            return data
    raise AssertionError("never in the cache")


def test_appends_are_written_at_the_end_and_read_back(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/log")
        file.append(b"one")
        file.append(bytearray(b"two"), memoryview(b"-three-")[1:6], b"")
        file.append()
        assert file.size == 11
        assert file.read(0, 100) == cached(file, 0, 100) == b"onetwothree"
        assert file.read(3, 3) == cached(file, 3, 3) == b"two"
        assert file.read(9, 100) == cached(file, 9, 100) == b"ee"
        assert file.read(11, 5) == cached(file, 11, 5) == cached(file, 50, 5) == b""
        again = site.server.disk.open(f"{site.folder}/log")
        assert again.size == 11
        again.append(b"!")
        assert file.read(6, 100) == b"three!"

    site.run(body)


def test_append_of_thousands_of_buffers_writes_all_of_them_in_order(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/log")
        pieces = [b"%d," % number for number in range(5_000)]
        file.append(*pieces)
        assert file.read(0, file.size + 1) == b"".join(pieces)
        assert file.size == len(b"".join(pieces))

    site.run(body)


def test_appends_to_a_truncated_file_continue_at_its_new_end(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/log")
        file.append(b"0123456789")
        file.truncate(4)
        assert file.size == 4
        assert file.read(0, 100) == cached(file, 0, 100) == b"0123"
        file.append(b"xy")
        assert file.read(0, 100) == b"0123xy"

    site.run(body)


def test_a_closed_file_refuses_appends(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/log")
        assert not file.closed
        file.close()
        file.close()
        assert file.closed
        with pytest.raises(DiskError):
            file.append(b"x")
        with pytest.raises(DiskError):
            file.truncate(0)

    site.run(body)


def test_a_missing_file_is_a_disk_error_with_errno_2(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        missing = f"{site.folder}/missing"
        for call in (disk.open, disk.read_file, disk.list, disk.modified_ms, disk.sync_directory):
            with pytest.raises(DiskError) as failure:
                call(missing)
            assert failure.value.errno == errno.ENOENT
            assert failure.value.path == missing
        with pytest.raises(DiskError):
            disk.create(f"{missing}/log")
        with pytest.raises(DiskError):
            disk.rename(missing, f"{site.folder}/other")
        assert not disk.exists(missing)
        assert not disk.is_directory(missing)
        disk.unlink(missing)
        disk.remove_tree(missing)

    site.run(body)


def test_directory_entries_are_created_renamed_and_removed(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        disk.make_directory(f"{site.folder}/a/b/c")
        disk.make_directory(f"{site.folder}/a/b/c")
        assert disk.is_directory(f"{site.folder}/a/b/c")
        for name in ("zeta", "alpha", "beta"):
            disk.create(f"{site.folder}/a/{name}").append(name.encode())
        assert disk.list(f"{site.folder}/a") == ["alpha", "b", "beta", "zeta"]
        assert not disk.is_directory(f"{site.folder}/a/alpha")
        disk.rename(f"{site.folder}/a/zeta", f"{site.folder}/a/alpha")
        assert disk.read_file(f"{site.folder}/a/alpha") == b"zeta"
        disk.rename(f"{site.folder}/a/beta", f"{site.folder}/a/b/beta")
        disk.unlink(f"{site.folder}/a/alpha")
        assert disk.list(f"{site.folder}/a") == ["b"]
        assert disk.exists(f"{site.folder}/a/b/beta")
        disk.rename(f"{site.folder}/a/b", f"{site.folder}/a/moved")
        assert disk.read_file(f"{site.folder}/a/moved/beta") == b"beta"
        disk.remove_tree(f"{site.folder}/a")
        assert disk.list(site.folder) == []
        with pytest.raises(DiskError):
            disk.create(f"{site.folder}/file").append(b"x")
            disk.make_directory(f"{site.folder}/file/below")

    site.run(body)


def test_a_file_that_is_created_again_is_empty(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        disk.create(f"{site.folder}/log").append(b"old")
        assert disk.create(f"{site.folder}/log").size == 0
        assert disk.read_file(f"{site.folder}/log") == b""

    site.run(body)


def test_a_small_file_is_replaced_atomically(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        path = f"{site.folder}/checkpoint"
        disk.write_file_atomic(path, b"first")
        disk.write_file_atomic(path, b"second, and longer")
        assert disk.read_file(path) == b"second, and longer"
        assert disk.list(site.folder) == ["checkpoint"]

    site.run(body)


def test_lock_file_that_is_held_cannot_be_locked_again(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        path = f"{site.folder}/.lock"
        held = disk.lock(path)
        with pytest.raises(DiskLocked) as failure:
            disk.lock(path)
        assert failure.value.path == path
        held.release()
        held.release()
        disk.lock(path).release()

    site.run(body)


def test_disk_reports_modification_times_and_free_bytes(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        disk.create(f"{site.folder}/log").append(b"x")
        assert abs(disk.modified_ms(f"{site.folder}/log") - site.server.clock.wall_ms()) < 60_000
        assert 0 < disk.free_bytes(site.folder) <= disk.total_bytes(site.folder)

    site.run(body)


def test_an_append_to_a_full_disk_leaves_the_file_unchanged(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/log")
        file.append(b"kept")
        for buffers in ([bytes(2 << 20)], [bytes(900_000), bytes(900_000)]):
            with site.no_room(), pytest.raises(DiskError) as failure:
                file.append(*buffers)
            assert failure.value.errno in (errno.ENOSPC, errno.EFBIG)
            assert failure.value.path == file.path
            assert file.size == 4
        file.append(b" whole")
        assert file.read(0, 100) == b"kept whole"
        assert site.server.disk.open(file.path).size == 10

    site.run(body)


def test_overlapping_syncs_do_not_disturb_each_other(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/log")
        file.append(b"x" * 10_000)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(site.server.disk.sync, file)
        await site.server.disk.offload(file.sync_blocking)
        site.server.disk.sync_directory(site.folder)
        assert file.read(0, 20_000) == b"x" * 10_000

    site.run(body)


def test_offload_returns_the_result_or_raises_the_error(site: AnySite) -> None:
    async def body(site: Site) -> None:
        def divide(dividend: int, divisor: int) -> int:
            return dividend // divisor

        assert await site.server.disk.offload(divide, 7, 2) == 3
        with pytest.raises(ZeroDivisionError):
            await site.server.disk.offload(divide, 1, 0)

    site.run(body)


def test_the_dirty_budget_fills_and_a_wait_ends_when_there_is_room(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        assert not disk.dirty_budget_full
        await disk.wait_dirty_budget()
        files = [disk.create(f"{site.folder}/log-{number}") for number in range(4)]
        for file in files:
            file.append(bytes(DIRTY_BUDGET_BYTES // 4))
        assert disk.dirty_budget_full
        await disk.wait_dirty_budget()
        assert not disk.dirty_budget_full

    site.run(body)


def test_a_sync_makes_room_in_the_dirty_budget(site: AnySite) -> None:
    async def body(site: Site) -> None:
        disk = site.server.disk
        file = disk.create(f"{site.folder}/log")
        file.append(bytes(DIRTY_BUDGET_BYTES))
        assert disk.dirty_budget_full
        await disk.sync(file)
        assert not disk.dirty_budget_full

    site.run(body)


def test_make_directory_makes_an_unsynced_existing_directory_durable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    synced: list[str] = []

    def sync(_disk: RealDisk, path: str) -> None:
        synced.append(path)
        if len(synced) == 1:
            raise DiskError("the device refuses", errno=errno.EIO, path=path)

    async def body(site: Site) -> None:
        monkeypatch.setattr(RealDisk, "sync_directory", sync)
        with pytest.raises(DiskError):
            site.server.disk.make_directory(f"{site.folder}/log")
        site.server.disk.make_directory(f"{site.folder}/log")
        assert site.server.disk.is_directory(f"{site.folder}/log")
        assert synced == [site.folder, site.folder]

    RealSite(tmp_path, shares_wait=False).run(body)
