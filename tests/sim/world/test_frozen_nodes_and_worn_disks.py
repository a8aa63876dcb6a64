"""Tests of frozen processes, connections that stall, and disks that are slow, lose synced data, or are replaced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kraft.seam import DiskError, HandleRevoked, InvariantError
from kraft.sim.world import World
from tests.sim.world.test_crashes import new_log
from tests.sim.world.test_links_and_clocks import Pair
from tests.sim.world.test_links_and_clocks import run as run_pair


def run(body: Callable[[World], Awaitable[None]], *, seeds: int = 5) -> None:
    for seed in range(seeds):
        World(seed).run(body)


# frozen processes


def test_a_frozen_node_answers_everything_in_order_after_resuming() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        pair.world.pause("server")
        for number in range(10):
            near.say(b"%d" % number)
            await pair.world.sleep_ms(100)
        assert pair.world.is_paused("server")
        assert not near.heard
        pair.world.resume("server")
        assert await near.wait_heard(10) == b"0123456789"

    run_pair(body)


def test_timers_due_while_a_node_is_frozen_fire_when_it_resumes() -> None:
    async def body(world: World) -> None:
        woken: list[tuple[str, int]] = []

        async def sleeper(seam: object) -> None:
            clock = seam.clock  # type: ignore[attr-defined]
            began_ms = clock.monotonic_ms()
            async with trio.open_nursery() as nursery:
                for duration_ms in (10, 20, 400):
                    nursery.start_soon(_sleep, clock, duration_ms, began_ms, woken)

        life = world.start("server", sleeper)
        await world.sleep_ms(1)
        world.pause("server")
        await world.sleep_ms(200)
        assert not woken
        world.resume("server")
        await life.ended.wait()
        assert sorted(name for name, _ in woken) == ["10", "20", "400"]
        assert all(190 <= at_ms <= 215 for name, at_ms in woken if name != "400")
        assert all(395 <= at_ms <= 410 for name, at_ms in woken if name == "400")

    run(body)


async def _sleep(clock: object, duration_ms: int, began_ms: int, woken: list[tuple[str, int]]) -> None:
    await clock.sleep_ms(duration_ms)  # type: ignore[attr-defined]
    woken.append((str(duration_ms), clock.monotonic_ms() - began_ms))  # type: ignore[attr-defined]


def test_a_sync_of_a_frozen_node_completes_only_after_it_resumes() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        file = new_log(disk)
        file.append(b"x" * 10)
        world.pause("server")
        with trio.move_on_after(5):
            await disk.sync(file)
        assert world.host("server").dirty_bytes == 10
        world.resume("server")
        await disk.sync(file)
        assert world.host("server").dirty_bytes == 0

    run(body)


def test_a_frozen_simulated_node_can_be_killed() -> None:
    async def body(world: World) -> None:
        raised: list[BaseException] = []

        async def main(seam: object) -> None:
            try:
                await seam.disk.offload(lambda: None)  # type: ignore[attr-defined]
            except HandleRevoked as error:
                raised.append(error)
                raise

        world.start("server", main)
        await trio.lowlevel.checkpoint()
        world.pause("server")
        await world.sleep_ms(50)
        world.kill("server")
        assert not world.is_paused("server")
        await world.sleep_ms(50)
        assert raised

    run(body)


# connections that stall


def test_data_of_other_connections_overtakes_data_of_a_stalled_connection() -> None:
    overtaken = 0

    async def body(pair: Pair) -> None:
        nonlocal overtaken
        first, second = await pair.dial(), await pair.dial()
        pair.world.stall_links("client", "server", 1_000, one_in=2)
        first.say(b"a")
        second.say(b"b")
        await pair.world.sleep_ms(500)
        heard = [bytes(connection.heard) for connection in pair.accepted]
        overtaken += b"" in heard and heard != [b"", b""]
        await first.wait_heard(1)
        await second.wait_heard(1)

    run_pair(body, seeds=12)
    assert overtaken


# disks


def test_a_slow_disk_delays_every_sync_and_access() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data")
        file = disk.create("/data/log")
        world.slow_disk("server", 500)
        began_ns = world.now_ns
        for _ in range(20):
            file.append(b"x")
            await disk.sync(file)
            await disk.offload(lambda: None)
        assert world.now_ns - began_ns > 2_000_000_000
        world.slow_disk("server", 0)
        began_ns = world.now_ns
        await disk.offload(lambda: None)
        assert world.now_ns - began_ns < 10_000_000

    run(body)


def test_a_replaced_disk_is_empty() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data")
        disk.create("/data/log").append(b"gone")
        with pytest.raises(InvariantError):
            world.wipe("server")
        world.kill("server")
        world.wipe("server")
        assert not world.node("server").disk.exists("/data")

    run(body)


def test_bytes_lost_by_a_failed_sync_do_not_count_as_durable() -> None:
    """The device has zeros there. The disk observer must not mistake them for the batches that were written."""

    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data")
        file = disk.create("/data/log")
        disk.sync_directory("/data")
        file.append(b"first")
        await disk.sync(file)
        file.append(b"second")
        world.sync_fails("server", True)
        with pytest.raises(DiskError):
            await disk.sync(file)
        world.sync_fails("server", False)
        file.append(b"third")
        await disk.sync(file)
        inode = file.inode  # type: ignore[attr-defined]
        assert (inode.safe_bytes, len(inode.durable)) == (5, 16)
        file.truncate(5)
        file.append(b"second")
        await disk.sync(file)
        assert inode.safe_bytes == 11

    run(body)


def test_a_failing_device_affects_only_its_directory() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        for directory in ("/data/a", "/data/b"):
            disk.make_directory(directory)
        bad, good = disk.create("/data/b/log"), disk.create("/data/a/log")
        bad.append(b"before")
        world.fail_directory("server", "/data/b")
        calls: list[Callable[[], object]] = [
            lambda: bad.append(b"x"),
            lambda: bad.truncate(0),
            lambda: bad.read(0, 1),
            bad.sync_blocking,
            lambda: disk.create("/data/b/other"),
            lambda: disk.list("/data/b"),
            lambda: disk.rename("/data/b/log", "/data/b/moved"),
            lambda: disk.unlink("/data/b/log"),
            lambda: disk.sync_directory("/data/b"),
        ]
        for call in calls:
            with pytest.raises(DiskError) as failure:
                call()
            assert failure.value.errno == 5
        good.append(b"kept")
        await disk.sync(good)
        world.fail_directory("server", None)
        assert disk.read_file("/data/b/log") == b"before"

    run(body)


def test_reads_of_an_unreadable_device_sometimes_come_from_the_page_cache() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        for folder in ("/data", "/other"):
            disk.make_directory(folder)
            disk.write_file_atomic(f"{folder}/file", b"content")
        file, other = disk.open("/data/file"), disk.open("/other/file")
        world.fail_reads("server", "/data")
        with pytest.raises(DiskError, match="cannot read /data/file: Input/output error"):
            file.read(0, 7)
        with pytest.raises(DiskError, match="cannot read /data/file"):
            disk.read_file("/data/file")
        assert {file.read_cached(0, 7) for _ in range(50)} == {None, b"content"}
        file.append(b", more")
        assert (other.read(0, 7), disk.read_file("/other/file")) == (b"content", b"content")
        world.fail_reads("server", None)
        assert file.read(0, 20) == b"content, more"

    run(body)


def test_a_corrupted_byte_stays_after_a_power_loss_without_any_error() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data")
        disk.write_file_atomic("/data/file", b"content")
        world.host("server").root.entries["data"].entries["file"].change(0, ord("k"))  # type: ignore[union-attr]
        assert disk.read_file("/data/file") == b"kontent"
        world.power_off("server")
        assert world.node("server").disk.read_file("/data/file") == b"kontent"

    run(body)


def test_a_folder_can_be_removed_only_while_its_node_is_dead_and_stays_removed() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data/orders-0")
        disk.write_file_atomic("/data/orders-0/file", b"content")
        with pytest.raises(InvariantError, match="server runs"):
            world.delete_folder("server", "/data/orders-0")
        world.kill("server")
        world.delete_folder("server", "/data/orders-0")
        world.delete_folder("server", "/data/nothing")
        world.power_off("server")
        assert world.node("server").disk.list("/data") == []

    run(body)
