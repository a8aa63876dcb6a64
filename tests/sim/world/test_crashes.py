"""Tests of the effects of a crash on the simulated disk, on handles, and at the other end of each connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kraft.seam import (
    Address,
    Binding,
    CloseReason,
    DialFailed,
    DialOutcome,
    Disk,
    DiskError,
    DiskLocked,
    File,
    HandleRevoked,
    InvariantError,
    Peer,
    Seam,
    current_seam,
)
from kraft.sim.world import Deadlock, World, WorldOptions
from tests.stages.recorder import Recorder

LISTENER = "PLAINTEXT"
AT = Address("server", 9092)


def run(body: Callable[[World], Awaitable[None]], *, seeds: int = 1) -> None:
    for seed in range(seeds):
        World(seed).run(body)


def serve(seam: Seam) -> list[Recorder]:
    accepted: list[Recorder] = []

    def make(transport: object) -> Recorder:
        accepted.append(Recorder(transport))  # type: ignore[arg-type]
        return accepted[-1]

    seam.network.serve(Binding(LISTENER, Address("", 9092)), make)
    return accepted


async def dial(seam: Seam, *, timeout_ms: int = 1000) -> Recorder:
    return await seam.network.dial(Peer(None, LISTENER, AT), Recorder, timeout_ms=timeout_ms)


# the disk


def new_log(disk: Disk) -> File:
    """Create an empty file whose name survives a power loss."""
    disk.make_directory("/data")
    file = disk.create("/data/log")
    disk.sync_directory("/data")
    return file


def test_a_kill_of_a_process_keeps_everything_that_it_wrote_to_the_simulated_disk() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data")
        disk.create("/data/log").append(b"unsynced")
        world.kill("server")
        disk = world.node("server").disk
        assert disk.list("/data") == ["log"]
        assert disk.read_file("/data/log") == b"unsynced"

    run(body)


def test_a_power_loss_keeps_synced_bytes_and_a_random_part_of_pending_writes() -> None:
    left: set[bytes] = set()

    async def body(world: World) -> None:
        disk = world.node("server").disk
        file = new_log(disk)
        file.append(b"synced")
        await disk.sync(file)
        file.append(b"-one")
        file.append(b"-two")
        file.append(b"-three")
        world.power_off("server")
        left.add(world.node("server").disk.read_file("/data/log"))

    run(body, seeds=60)
    whole = b"synced-one-two-three"
    assert {b"synced", b"synced-one", b"synced-one-two", whole} <= left
    torn = left - {b"synced", b"synced-one", b"synced-one-two", whole}
    assert all(content.startswith(b"synced") and content.rstrip(b"\0") in whole for content in torn)


def test_a_write_torn_by_a_power_loss_ends_at_a_sector_boundary() -> None:
    lengths: set[int] = set()

    async def body(world: World) -> None:
        file = new_log(world.node("server").disk)
        file.append(b"x" * 5000)
        world.power_off("server")
        lengths.add(len(world.node("server").disk.read_file("/data/log").rstrip(b"\0")))

    run(body, seeds=80)
    assert {0, 5000} < lengths
    assert all(length == 5000 or length % 512 == 0 for length in lengths)


def test_unsynced_sectors_reach_the_device_in_any_order() -> None:
    """Synced bytes share their sector with the first unsynced write. If that write is lost, it reads as zeros, up to
    the sector's end."""
    writes = [bytes([letter]) * size for letter, size in zip(b"abc", (412, 512, 512), strict=True)]
    left: set[tuple[bool, ...]] = set()

    async def body(world: World) -> None:
        disk = world.node("server").disk
        file = new_log(disk)
        file.append(b"s" * 100)
        await disk.sync(file)
        for write in writes:
            file.append(write)
        world.power_off("server")
        content = world.node("server").disk.read_file("/data/log")
        assert content.startswith(b"s" * 100)
        if len(content) == 1536:
            sectors = [content[100:512], content[512:1024], content[1024:]]
            assert all(sector in (write, bytes(len(write))) for sector, write in zip(sectors, writes, strict=True))
            left.add(tuple(any(sector) for sector in sectors))

    run(body, seeds=300)
    assert {(False, True, True), (True, False, True), (False, False, True), (True, True, True)} <= left


def test_a_lost_sector_loses_all_writes_to_it() -> None:
    """This includes the kept piece of a write that was only partly stored."""
    left: set[tuple[bytes, bytes]] = set()

    async def body(world: World) -> None:
        file = new_log(world.node("server").disk)
        file.append(b"a" * 100)
        file.append(b"b" * 1000)
        world.power_off("server")
        content = world.node("server").disk.read_file("/data/log")
        left.add((content[:512].rstrip(b"\0"), content[512:].rstrip(b"\0")))

    run(body, seeds=300)
    sectors = (b"a" * 100 + b"b" * 412, b"b" * 512)
    assert {(b"", sectors[1]), (sectors[0], b""), sectors} <= left
    assert {first for first, _ in left} == {b"", b"a" * 100, sectors[0]}


def test_truncated_and_rewritten_sectors_may_be_lost() -> None:
    left: set[bytes] = set()

    async def body(world: World) -> None:
        disk = world.node("server").disk
        file = new_log(disk)
        file.append(b"0" * 1024)
        await disk.sync(file)
        file.truncate(512)
        file.append(b"1" * 512 + b"2" * 512)
        world.power_off("server")
        left.add(world.node("server").disk.read_file("/data/log"))

    run(body, seeds=120)
    assert b"0" * 512 + bytes(512) + b"2" * 512 in left
    assert all(content.startswith(b"0" * 512) for content in left)


def test_a_power_loss_may_undo_an_unsynced_truncation() -> None:
    left: set[bytes] = set()

    async def body(world: World) -> None:
        disk = world.node("server").disk
        file = new_log(disk)
        file.append(b"0123456789")
        await disk.sync(file)
        file.truncate(4)
        file.append(b"new")
        world.power_off("server")
        left.add(world.node("server").disk.read_file("/data/log").rstrip(b"\0"))

    run(body, seeds=40)
    assert left == {b"0123456789", b"0123", b"0123new"}


def test_a_power_loss_may_lose_unsynced_directory_entries() -> None:
    left: set[tuple[str, ...]] = set()

    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data")
        disk.create("/data/a").sync_blocking()
        disk.sync_directory("/data")
        disk.rename("/data/a", "/data/b")
        disk.create("/data/c").sync_blocking()
        disk.unlink("/data/b")
        world.power_off("server")
        left.add(tuple(world.node("server").disk.list("/data")))

    run(body, seeds=40)
    assert left == {("a",), ("b",), ("b", "c"), ("c",)}


def test_a_directory_replacing_a_removed_one_survives_a_power_loss() -> None:
    """The new directory is durable when it is created, so the removal of the old one is durable, too."""

    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data/log")
        disk.write_file_atomic("/data/log/old", b"")
        disk.remove_tree("/data/log")
        disk.make_directory("/data/log")
        disk.write_file_atomic("/data/log/vote", b"epoch 1")
        world.power_off("server")
        disk = world.node("server").disk
        assert disk.list("/data/log") == ["vote"]
        assert disk.read_file("/data/log/vote") == b"epoch 1"

    run(body, seeds=20)


def test_a_file_that_was_replaced_atomically_survives_a_power_loss() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        disk.make_directory("/data/deep/below")
        disk.write_file_atomic("/data/deep/below/vote", b"epoch 1")
        disk.write_file_atomic("/data/deep/below/vote", b"epoch 2")
        world.power_off("server")
        assert world.node("server").disk.read_file("/data/deep/below/vote") == b"epoch 2"

    run(body, seeds=20)


def test_bytes_written_long_ago_are_durable_without_a_sync() -> None:
    async def body(world: World) -> None:
        file = new_log(world.node("server").disk)
        file.append(b"old")
        await world.sleep_ms(31_000)
        file.append(b"-new")
        world.power_off("server")
        assert world.node("server").disk.read_file("/data/log").startswith(b"old")

    run(body, seeds=10)


def test_bytes_of_a_failed_sync_stay_lost_after_a_later_sync() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        file = new_log(disk)
        file.append(b"lost")
        world.sync_fails("server", True)
        with pytest.raises(DiskError) as failure:
            await disk.sync(file)
        assert failure.value.errno == 5
        world.sync_fails("server", False)
        file.append(b"kept")
        await disk.sync(file)
        assert file.read(0, 8) == b"lostkept"  # the page cache still has them
        world.power_off("server")
        assert world.node("server").disk.read_file("/data/log") == b"\0\0\0\0kept"

    run(body)


# the handles


def test_every_handle_of_a_crashed_incarnation_raises_and_has_no_effect() -> None:
    async def body(world: World) -> None:
        seam = world.node("server")
        seam.disk.make_directory("/data")
        file = seam.disk.create("/data/log")
        file.append(b"before")
        world.kill("server")
        calls: list[Callable[[], object]] = [
            lambda: file.append(b"after"),
            lambda: file.truncate(0),
            lambda: file.read(0, 1),
            lambda: file.read_cached(0, 1),
            lambda: seam.disk.create("/data/other"),
            lambda: seam.disk.unlink("/data/log"),
            lambda: seam.disk.write_file_atomic("/data/log", b"after"),
            lambda: seam.disk.lock("/data/.lock"),
            lambda: serve(seam),
            lambda: seam.network.request_pass(),
        ]
        for call in calls:
            with pytest.raises(HandleRevoked):
                call()
        with pytest.raises(HandleRevoked):
            await seam.disk.sync(file)
        with pytest.raises(HandleRevoked):
            await seam.disk.offload(lambda: None)
        with pytest.raises(HandleRevoked):
            await seam.clock.sleep_ms(1)
        with pytest.raises(HandleRevoked):
            await dial(seam)
        disk = world.node("server").disk
        assert disk.list("/data") == ["log"]
        assert disk.read_file("/data/log") == b"before"

    run(body)


def test_finally_blocks_of_a_crashed_node_have_no_effect() -> None:
    async def body(world: World) -> None:
        refused: list[str] = []

        async def main(seam: Seam) -> None:
            seam.disk.make_directory("/data")
            try:
                await trio.sleep_forever()
            finally:
                try:
                    seam.disk.write_file_atomic("/data/clean-shutdown", b"")
                except HandleRevoked:
                    refused.append("clean-shutdown")
                    raise

        world.start("server", main)
        await world.sleep_ms(10)
        world.kill("server")
        assert not world.is_running("server")
        await world.wait_ended("server")
        await world.sleep_ms(10)
        assert refused == ["clean-shutdown"]
        assert world.node("server").disk.list("/data") == []

    run(body)


def test_a_file_lock_ends_with_the_incarnation_that_holds_it() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        held = disk.lock("/.lock")
        with pytest.raises(DiskLocked):
            disk.lock("/.lock")
        world.kill("server")
        later = world.node("server").disk
        later.lock("/.lock")
        held.release()  # of the old incarnation: the new one keeps its lock
        with pytest.raises(DiskLocked):
            later.lock("/.lock")

    run(body)


def test_a_restarted_node_runs_the_same_main_on_the_same_disk() -> None:
    async def body(world: World) -> None:
        async def main(seam: Seam) -> None:
            file: File = seam.disk.open("/log") if seam.disk.exists("/log") else seam.disk.create("/log")
            file.append(b"life ")
            assert current_seam.get() is seam
            await trio.sleep_forever()

        world.start("server", main)
        for _ in range(2):
            await world.sleep_ms(5)
            world.kill("server")
            world.restart("server")
        await world.sleep_ms(5)
        world.kill("server")
        assert world.node("server").disk.read_file("/log") == b"life life life "

    run(body)


# the other end


def test_peers_of_a_killed_process_see_their_connections_end() -> None:
    reasons: set[CloseReason] = set()

    async def body(world: World) -> None:
        accepted = serve(world.node("server"))
        client = world.node("client")
        near = await dial(client)
        accepted[0].muted = world.random.below(2) == 0  # a process that dies with unread bytes resets
        near.say(b"x" * 200_000)
        await world.sleep_ms(5)
        world.kill("server")
        reasons.add(await near.wait_closed())
        with pytest.raises(DialFailed) as failure:
            await dial(client)
        assert failure.value.outcome is DialOutcome.REFUSED

    run(body, seeds=20)
    assert reasons == {CloseReason.PEER, CloseReason.RESET}


def test_bytes_sent_before_a_kill_still_arrive() -> None:
    async def body(world: World) -> None:
        accepted = serve(world.node("server"))
        near = await dial(world.node("client"))
        while not accepted:
            await world.sleep_ms(1)
        accepted[0].say(b"last words")
        await accepted[0].wait_sent(10)
        world.kill("server")
        assert await near.wait_closed() is CloseReason.PEER
        assert near.heard == b"last words"

    run(body, seeds=5)


def test_peers_see_no_end_of_connection_after_a_power_loss_until_the_host_answers() -> None:
    async def body(world: World) -> None:
        serve(world.node("server"))
        client = world.node("client")
        near = await dial(client)
        world.power_off("server")
        near.say(b"anyone?")
        await world.sleep_ms(60_000)
        assert not near.reasons
        with pytest.raises(DialFailed) as failure:
            await dial(client, timeout_ms=5_000)
        assert failure.value.outcome is DialOutcome.TIMED_OUT
        serve(world.node("server"))
        assert await near.wait_closed() is CloseReason.RESET
        await dial(client)

    run(body, seeds=5)


def test_a_waiting_dial_continues_when_its_host_has_booted() -> None:
    async def body(world: World) -> None:
        serve(world.node("server"))
        client = world.node("client")
        world.power_off("server")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: dial(client, timeout_ms=10_000))
            await world.sleep_ms(2_000)
            serve(world.node("server"))
        assert world.now_ns < 4_000_000_000

    run(body, seeds=5)


def test_an_unknown_host_is_unreachable() -> None:
    async def body(world: World) -> None:
        with pytest.raises(DialFailed) as failure:
            await dial(world.node("client"))
        assert failure.value.outcome is DialOutcome.UNREACHABLE

    run(body)


# failures


def test_an_exception_of_a_nodes_main_ends_the_run_or_is_passed_to_on_failure() -> None:
    failures: list[str] = []

    async def fall(seam: Seam) -> None:
        await seam.clock.sleep_ms(5)
        raise InvariantError("a rule of ours")

    async def careless(world: World) -> None:
        world.start("server", fall)
        await trio.sleep_forever()

    async def careful(world: World) -> None:
        world.start("server", fall, on_failure=lambda name, error: failures.append(f"{name}: {error}"))
        await world.wait_ended("server")
        await world.sleep_ms(1)

    with pytest.raises(InvariantError, match="a rule of ours") as failure:
        run(careless)
    assert any("node server" in note and "seed 0" in note for note in failure.value.__notes__)
    run(careful)
    assert failures == ["server: a rule of ours"]


def test_a_failing_connection_handler_stops_only_its_node() -> None:
    async def body(world: World) -> None:
        failures: list[str] = []

        async def main(seam: Seam) -> None:
            def fall(connection: Recorder) -> None:
                raise InvariantError("in a handler")

            def make(transport: object) -> Recorder:
                connection = Recorder(transport)  # type: ignore[arg-type]
                connection.on_heard = fall
                return connection

            seam.network.serve(Binding(LISTENER, Address("", 9092)), make)
            await trio.sleep_forever()

        world.start("server", main, on_failure=lambda name, error: failures.append(str(error)))
        await world.sleep_ms(1)
        near = await dial(world.node("client"))
        near.say(b"x")
        await near.wait_closed()
        await world.wait_ended("server")
        await world.sleep_ms(1)
        assert failures == ["in a handler"]

    run(body)


def test_a_run_without_further_events_raises_deadlock() -> None:
    async def waits(seam: Seam) -> None:
        await trio.sleep_forever()

    async def body(world: World) -> None:
        world.start("server", waits)
        await trio.sleep_forever()

    with pytest.raises(Deadlock, match=r"server \(life 1\)"):
        run(body)


def test_a_full_disk_rejects_writes_until_it_has_room() -> None:
    async def body(world: World) -> None:
        disk = world.node("server").disk
        file = disk.create("/log")
        world.disk_full("server", True)
        for call in (lambda: file.append(b"x"), lambda: disk.create("/other"), lambda: disk.make_directory("/d")):
            with pytest.raises(DiskError) as failure:
                call()
            assert failure.value.errno == 28
        assert disk.free_bytes("/") == 0
        world.disk_full("server", False)
        file.append(b"x")

    run(body)


def test_read_cached_sometimes_returns_none_unless_the_option_is_zero() -> None:
    async def body(world: World) -> None:
        file = world.node("server").disk.create("/log")
        file.append(b"x")
        cold = [file.read_cached(0, 1) for _ in range(1000)].count(None)
        assert (cold > 0) is (world.options.cold_read_one_in > 0)

    World(1).run(body)
    World(1, WorldOptions(cold_read_one_in=0)).run(body)
