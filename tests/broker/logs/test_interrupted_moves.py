"""Interrupted moves between log directories: by a crash, a failing device, a cancellation, or a reader of the old log.
No acknowledged record is lost, no file remains, and only failed directories go offline.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.broker.coordinator.shard_loading import load_state
from kraft.broker.group.durable import EMPTY_STATE
from kraft.broker.group.records import decode_entry
from kraft.client import KafkaError, Producer
from kraft.client.admin import NewTopic
from kraft.seam import Disk, DiskError
from kraft.sim.cluster.shape import host_name
from kraft.sim.world.filesystem import Directory
from kraft.storage.log import Log
from tests.broker.logs.late_calls import LateCall
from tests.broker.logs.moving import PART, SOON_MS, Moving, play, write

EIO = 5
SYNCED = {"flush.messages": "1"}
UNKNOWN_KIND = b"\x03\xe7"
"""A record type that group coordinators do not know and skip."""


# crashes


def test_a_move_copy_does_not_replace_a_log_that_may_be_in_an_offline_directory() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        here, there = await stage.move_to_spare()
        await write(stage, 0, 10)
        async with stage.replica().blocking:
            await stage.move(there)
            target = stage.directory(there).directory_id
            await stage.until(lambda: stage.state().directory_of(1) == target)
            await write(stage, 10, 10)
            stage.cluster.missing_directory.add(1)
            stage.cluster.world.fail_directory("node-1", here)
            stage.restart(lose_power=False)
        await stage.until(lambda: stage.state().leader == -1 and not stage.cluster.down)
        await stage.until(lambda: stage.replica().is_offline)
        stage.cluster.world.fail_directory("node-1", None)
        stage.restart(lose_power=False)
        stage.cluster.missing_directory.clear()
        await stage.until(lambda: not stage.cluster.trouble())
        assert await stage.values() == list(range(20))
        await stage.moved(there)
        assert await stage.values() == list(range(20))

    play(work)


def test_records_that_were_deleted_during_a_move_stay_deleted_after_a_crash() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 10, size=900_000)
        await stage.throttle(5_000_000)
        there = stage.other()
        await stage.move(there)
        await stage.cluster.world.sleep_ms(300)
        assert stage.path() != there
        await stage.admin.partitions.delete_records({PART: 5})
        await stage.moved(there)
        stage.restart(lose_power=False)
        await stage.until(lambda: not stage.cluster.trouble())
        assert await stage.values() == list(range(5, 10))

    play(work)


def _folders(stage: Moving, path: str) -> list[str]:
    """Return the topic's folders in a log directory of broker 1, which is down."""
    disk = stage.cluster.world.host("node-1").root
    for name in path.strip("/").split("/"):
        below = disk.entries[name]
        assert isinstance(below, Directory)
        disk = below
    return [name for name in disk.entries if name.startswith(stage.topic[:100])]


@pytest.mark.parametrize("topic", ["t", "t" * 220])
def test_after_a_crash_between_the_renames_of_a_move_the_complete_copy_becomes_the_replica(topic: str) -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic(topic, 1))
        here, there = await stage.move_to_spare()
        await write(stage, 0, 5, size=900_000)
        await stage.throttle(100_000)
        await stage.move(there)
        await stage.cluster.world.sleep_ms(300)
        await stage.move(here)
        await stage.throttle(100_000_000)
        await write(stage, 5, 5)
        target = stage.directory(there).directory_id
        async with stage.replica().blocking:
            await stage.move(there)
            await stage.until(lambda: stage.state().directory_of(1) == target)
            await stage.cluster.world.sleep_ms(1_000)
            stage.cluster.crash(1, lose_power=False, is_noticed=True)
        marks = sorted(name.rpartition("-")[2] for name in _folders(stage, there))
        assert marks == ["delete", "future"]
        stage.cluster.delete_folder(1, (topic, 0))  # the state of the folders after the first of the two renames
        assert _folders(stage, here) == []
        stage.cluster.start(1)
        await stage.until(lambda: not stage.cluster.trouble())
        assert stage.path() == there
        assert await stage.values() == list(range(10))

    play(work, topic=topic)


def test_a_move_copy_that_becomes_the_replica_ignores_checkpoint_lines_of_an_earlier_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[str, object]] = []
    honest = Log.open_log

    def open_log(disk: Disk, directory: str, *arguments: Any, **options: Any) -> Log:
        opened.append((directory, options["recovery_point"]))
        return honest(disk, directory, *arguments, **options)

    monkeypatch.setattr(Log, "open_log", open_log)

    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        _, there = await stage.move_to_spare()
        await write(stage, 0, 10)
        directory = stage.directory(there)
        async with stage.replica().blocking:
            await stage.move(there)
            await stage.until(lambda: stage.state().directory_of(1) == directory.directory_id)
            directory.recovery_points[PART] = 1_000
            await stage.replicas().checkpoints.write_recovery_points_of(directory)
            stage.cluster.crash(1, lose_power=False, is_noticed=True)
        stage.cluster.delete_folder(1, PART)
        opened.clear()
        stage.cluster.start(1)
        await stage.until(lambda: not stage.cluster.trouble())
        assert await stage.values() == list(range(10))
        assert (f"{there}/t-0", 0) in opened
        assert stage.directory(there).recovery_points.get(PART, 0) <= 10

    play(work)


# failing devices


@pytest.mark.parametrize("failing", ["the target's, before the copy", "the old one's, after the swap"])
def test_when_one_directory_sync_of_a_move_fails_only_that_directory_goes_offline(failing: str) -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1, configs=SYNCED))
        here, there = await stage.move_to_spare()
        if failing.startswith("the target"):
            await stage.move(there)
            await stage.moved(there)
            here, there = there, here
        await write(stage, 0, 20)
        host = stage.cluster.world.host("node-1")
        spare = stage.dirs[1]
        observer = host.when_synced
        seen: list[str] = []

        def when_synced() -> None:
            if observer is not None:
                observer()
            folders = [name for name in host.incarnation.seam.disk.list(there) if name.startswith("t-0")]
            is_near = any(name == "t-0" for name in folders) or failing.startswith("the target")
            if folders and is_near and not seen:
                seen.extend(folders)
                stage.cluster.world.fail_directory("node-1", spare)

        host.when_synced = when_synced
        stage.cluster.missing_directory.add(1)
        await stage.move(there)
        await stage.until(lambda: bool(stage.offline()))
        host.when_synced = observer
        await stage.cluster.world.sleep_ms(2_000)
        assert stage.offline() == [spare]
        assert stage.assigned()
        assert stage.path() != spare
        await write(stage, 20, 5)
        assert await stage.values() == list(range(25))

    play(work)


def test_a_disk_error_while_removing_a_moved_log_fails_the_directory_of_the_files() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        here, there = await stage.move_to_spare()
        await write(stage, 0, 10)
        replicas = stage.replicas()
        waiting = [f"{here}/t-0/00000000000000000000.log.deleted"]
        stage.as_node(replicas.logs.removal.remove_later, 2_000, waiting, stage.replica())
        await stage.move(there)
        await stage.moved(there)
        stage.cluster.missing_directory.add(1)
        stage.cluster.world.fail_directory("node-1", here)
        await stage.cluster.world.sleep_ms(5_000)
        assert stage.offline() == [here]
        assert await stage.values() == list(range(10))

    play(work)


# reports to the controller


@pytest.mark.parametrize("end", ["given up", "target fails", "source fails"])
def test_a_move_that_ends_during_the_report_of_its_target_causes_another_report(end: str) -> None:
    async def work(stage: Moving) -> None:
        world = stage.cluster.world
        await stage.admin.topics.create(NewTopic("t", 1))
        here, there = await stage.move_to_spare()
        if end == "target fails":
            await stage.move(there)
            await stage.moved(there)
            here, there = there, here
        await write(stage, 0, 10)
        controller = host_name(stage.cluster.shape.controller_ids[0])
        target = stage.directory(there).directory_id
        world.partition_one_way(controller, "node-1")
        await stage.move(there)
        await stage.until(lambda: stage.state().directory_of(1) == target)
        if end == "given up":
            await stage.move(here)
        else:
            failing = there if end == "target fails" else here
            stage.cluster.missing_directory.add(1)
            stage.as_node(
                stage.replicas().failures.disk_failed_at,
                DiskError("Input/output error", errno=EIO, path=f"{failing}/t-0"),
            )
        await world.sleep_ms(200)
        world.heal_all()
        if end == "source fails":
            await stage.until(lambda: stage.state().leader == -1)
            assert stage.replica().is_offline
        else:
            await stage.until(lambda: stage.assigned() and stage.state().leader == 1)
            assert stage.path() == here
            await world.sleep_ms(1_000)
            assert await stage.values() == list(range(10))

    play(work)


# cancellation and several requests


@pytest.mark.parametrize("after_ms", range(0, 240, 20))
def test_a_move_cancelled_at_its_end_is_either_complete_or_undone(after_ms: int) -> None:
    async def work(stage: Moving) -> None:
        world = stage.cluster.world
        await stage.admin.topics.create(NewTopic("t", 1, configs=SYNCED))
        await write(stage, 0, 10)
        there, replica = stage.other(), stage.replica()
        async with trio.open_nursery() as nursery:
            async with replica.blocking:
                await stage.move(there)
                await stage.until(lambda: replica.blocking.statistics().tasks_waiting > 0)
                nursery.start_soon(lambda: write(stage, 10, 5))
                await stage.until(lambda: replica.log is not None and replica.log.log_end_offset > 10)
                world.slow_disk("node-1", 100)
            await world.sleep_ms(after_ms)
            stays = stage.path()
            stage.replicas().moves.give_up(replica)
            await world.sleep_ms(2_000)
            world.slow_disk("node-1", 0)
        await stage.until(stage.assigned)
        await world.sleep_ms(1_000)
        assert stage.path() == stays
        incarnation = world.host("node-1").incarnation
        assert incarnation is not None
        assert [name for name in incarnation.seam.disk.list(stage.other()) if name.startswith("t-")] == []
        stage.restart(lose_power=True)
        await stage.until(lambda: not stage.cluster.trouble())
        assert stage.path() == stays
        assert await stage.values() == list(range(15))

    play(work, seed=after_ms, log_segment_delete_delay_ms="0")


@pytest.mark.parametrize("ways", [(1, 0), (1, 0, 1), (0, 1, 0, 1, 0)])
def test_when_several_moves_of_a_replica_are_requested_the_last_target_is_used(ways: tuple[int, ...]) -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 10)
        paths = [stage.path(), stage.other()]
        for after_ms in (0, 3, 30):
            for way in ways:
                stage.replicas().moves.alter("t", 0, paths[way])
                await stage.cluster.world.sleep_ms(after_ms)
            await stage.cluster.world.sleep_ms(2_000)
            assert stage.path() == paths[ways[-1]]
            assert stage.assigned()
        assert await stage.values() == list(range(10))

    play(work)


# writes and truncations during a move


def test_a_move_of_a_replica_under_constant_writes_completes() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        there = stage.other()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: write(stage, 0, 1_000, pause_ms=1))
            await stage.move(there)
            await stage.moved(there)
            assert stage.replica().high_watermark < 900
        assert await stage.values() == list(range(1_000))

    play(work)


def test_a_log_truncated_before_the_swap_is_copied_again_without_holding_appends_back() -> None:
    async def work(stage: Moving) -> None:
        world = stage.cluster.world
        await stage.admin.topics.create(NewTopic("t", assignment={0: [2, 1]}))
        await write(stage, 0, 10, size=900_000)
        await stage.throttle(3_000_000)
        there, replica = stage.other(), stage.replica()
        await stage.until(lambda: replica.log is not None and replica.log.log_end_offset == 10)
        assert replica.log is not None
        target = stage.directory(there).directory_id
        await stage.move(there)
        await stage.until(lambda: stage.replicas().moves.into(stage.directory(there)) != [])
        async with replica.blocking:
            await stage.until(lambda: stage.state().directory_of(1) == target)
            await stage.until(lambda: replica.blocking.statistics().tasks_waiting > 0)
            await world.sleep_ms(100)
            replica.log.truncate_to(9, stage.replicas().clock.wall_ms())
        await world.sleep_ms(500)
        assert stage.path() != there
        await stage.moved(there)
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        await stage.until(lambda: stage.state().leader == 1)
        assert await stage.values() == list(range(10))

    play(work, brokers=2)


# readers of the old log


def test_a_timestamp_lookup_continues_in_the_log_that_replaced_the_moved_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = LateCall(monkeypatch, "advance_steps")

    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 10)
        there = stage.other()
        found = []

        async def ask() -> None:
            found.append(await stage.admin.partitions.offsets({PART: 1}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await stage.until(lambda: late.has_come)
            stage.as_node(stage.replicas().moves.alter, "t", 0, there)
            await stage.moved(there)
            late.may_go.set()
        assert found[0][PART].offset == 0

    play(work)


def test_a_timestamp_lookup_in_a_log_that_is_deleted_meanwhile_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    late = LateCall(monkeypatch, "advance_steps")

    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 10)
        problems = []

        async def ask() -> None:
            try:
                await stage.admin.partitions.offsets({PART: 1})
            except KafkaError as problem:
                problems.append(problem)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await stage.until(lambda: late.has_come)
            await stage.admin.topics.delete("t")
            await stage.until(lambda: stage.replicas().find("t", 0) is None)
            await stage.cluster.world.sleep_ms(100)
            late.may_go.set()
        assert len(problems) == 1
        assert not stage.cluster.trouble()

    play(work)


def test_groups_are_loaded_from_a_log_that_is_moved_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        seam = stage.cluster.world.node("producer")
        async with Producer(bootstrap_servers=stage.bootstrap_servers, seam=seam) as producer:
            for _ in range(3):
                await producer.send("t", b"", key=UNKNOWN_KIND, partition=0)
        replica, there, loaded = stage.replica(), stage.other(), []
        assert replica.log is not None
        replica.log.active.log.close()
        late = LateCall(monkeypatch, "warm")

        async def load() -> None:
            gates = stage.cluster.watch.nodes[1].node.gates
            loaded.append(
                await load_state(
                    stage.replicas().disk,
                    gates,
                    replica,
                    lambda: True,
                    1_000,
                    empty_state=lambda: EMPTY_STATE,
                    decode_entry=decode_entry,
                )
            )

        with trio.move_on_after(SOON_MS / 1000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load)
                await stage.until(lambda: late.has_come)
                await stage.move(there)
                await stage.moved(there)
                late.may_go.set()
        ((_, end_offset),) = loaded
        assert end_offset == 3

    play(work)
