"""Moves of replicas between the log directories of their broker during writes, and events that interfere with moves."""

from __future__ import annotations

import pytest
import trio

from kraft.broker.logs.replica_copy import Move
from kraft.client.admin import ConfigChange, ConfigOperation, ConfigResource, NewTopic, ResourceType
from kraft.wire.error_codes import ErrorCode
from tests.broker.logs.moving import PART, Moving, play, write


def test_a_leader_moves_with_all_its_records_and_the_metadata_name_its_new_directory() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 50)
        there = stage.other()
        await stage.move(there)
        await stage.moved(there)
        await write(stage, 50, 10)
        assert await stage.values() == list(range(60))
        held = {
            one.path: [(row.topic, row.is_future) for row in one.replicas] for one in await stage.admin.nodes.log_dirs()
        }
        assert held == {stage.other(): [], there: [("t", False)]}

    play(work)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("flush", ["1", "9223372036854775807"])
def test_a_replica_moves_while_it_is_written_to_and_no_record_is_lost_or_duplicated(seed: int, flush: str) -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1, configs={"flush.messages": flush, "segment.bytes": "1048576"}))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: write(stage, 0, 400, size=2_000, pause_ms=1))
            await stage.cluster.world.sleep_ms(50)
            for _ in range(2):
                there = stage.other()
                await stage.move(there)
                await stage.moved(there)
        assert await stage.values() == list(range(400))

    play(work, seed=seed)


def test_a_replica_moved_back_to_a_directory_gets_no_checkpoint_of_its_former_log_in_it() -> None:
    """Offsets that were synced in this directory before may not be synced now: the log may have been truncated while it
    was in the other directory."""

    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1, configs={"flush.messages": "1"}))
        await write(stage, 0, 5)
        here, there = stage.path(), stage.other()
        await stage.replicas().checkpoints.write_recovery_points()

        def recovery_point() -> int | None:
            storage = stage.directory(here).storage
            assert storage is not None
            return storage.read_recovery_points().get(PART)

        assert recovery_point() == 5
        for path in (there, here):
            await stage.move(path)
            await stage.moved(path)
        assert recovery_point() is None

    play(work)


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_moves_while_its_leader_is_written_to_and_stays_in_sync(seed: int) -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [2, 1]}))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: write(stage, 0, 300, pause_ms=1))
            await stage.cluster.world.sleep_ms(20)
            there = stage.other(1)
            await stage.move(there, 1)
            await stage.moved(there, 1)
        await stage.until(lambda: not stage.cluster.trouble())
        assert set(stage.state().isr) == {1, 2}
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        await stage.until(lambda: stage.state().leader == 1)
        assert await stage.values() == list(range(300))

    play(work, brokers=2, seed=seed)


def test_checks_catch_a_move_that_loses_the_last_records(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Move.lag
    monkeypatch.setattr(Move, "lag", lambda move: max(0, honest(move) - 10))

    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 10)
        there = stage.other()
        await stage.move(there)
        await stage.moved(there)
        assert await stage.values() == list(range(10))

    with pytest.raises(AssertionError):
        play(work)


def test_describe_log_dirs_shows_a_slow_move_as_a_future_replica_and_the_move_can_be_cancelled() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 10, size=900_000)
        slow = ConfigChange(ConfigOperation.SET, "replica.alter.log.dirs.io.max.bytes.per.second", "100000")
        await stage.admin.configs.alter(ConfigResource(ResourceType.BROKER, "1"), [slow])
        here, there = stage.path(), stage.other()
        await stage.move(there)
        await stage.cluster.world.sleep_ms(500)
        shown = {one.path: one.replicas for one in await stage.admin.nodes.log_dirs()}
        assert [(row.is_future, row.lag > 0) for row in shown[there]] == [(True, True)]
        assert [row.is_future for row in shown[here]] == [False]
        await stage.move(here)
        await stage.cluster.world.sleep_ms(1_000)
        assert [one.replicas for one in await stage.admin.nodes.log_dirs() if one.path == there] == [()]
        assert (stage.path(), stage.assigned()) == (here, True)
        await write(stage, 10, 1)
        assert await stage.values() == list(range(11))

    play(work)


@pytest.mark.parametrize("after_ms", [1, 5, 20, 60, 200])
@pytest.mark.parametrize("lose_power", [False, True])
def test_a_crash_at_any_moment_of_a_move_loses_no_record_of_the_replica(after_ms: int, lose_power: bool) -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1, configs={"flush.messages": "1"}))
        await write(stage, 0, 40, size=5_000)
        there = stage.other()
        await stage.move(there)
        await stage.cluster.world.sleep_ms(after_ms)
        stage.cluster.crash(1, lose_power=lose_power, is_noticed=True)
        stage.cluster.start(1)
        await stage.until(lambda: not stage.cluster.trouble())
        await stage.until(stage.assigned)
        assert await stage.values() == list(range(40))
        await write(stage, 40, 1)
        assert await stage.values() == list(range(41))

    play(work, seed=after_ms)


def test_a_move_interrupted_by_the_end_of_the_process_continues_at_the_next_start() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 10, size=900_000)
        there = stage.other()
        slow = ConfigChange(ConfigOperation.SET, "replica.alter.log.dirs.io.max.bytes.per.second", "100000")
        await stage.admin.configs.alter(ConfigResource(ResourceType.BROKER, "1"), [slow])
        await stage.move(there)
        await stage.cluster.world.sleep_ms(300)
        await stage.cluster.stop(1, timeout_ms=5_000)
        stage.cluster.start(1)
        await stage.until(lambda: not stage.cluster.trouble())
        await stage.admin.configs.alter(
            ConfigResource(ResourceType.BROKER, "1"), [ConfigChange(ConfigOperation.DELETE, slow.name)]
        )
        await stage.moved(there)
        assert await stage.values() == list(range(10))

    play(work)


def test_deleting_a_topic_cancels_its_move_and_leaves_no_files() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await write(stage, 0, 20, size=5_000)
        await stage.move(stage.other())
        await stage.admin.topics.delete("t")
        await stage.cluster.world.sleep_ms(1_000)
        disk = stage.cluster.world.node("node-1").disk
        left = [name for path in stage.dirs for name in disk.list(path) if name.startswith("t-")]
        assert left == []

    play(work, log_segment_delete_delay_ms="0")


def test_an_impossible_move_is_rejected_with_kafkas_error_code() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        nodes = stage.admin.nodes
        for partition, path, code in (
            (PART, "/nowhere", ErrorCode.LOG_DIR_NOT_FOUND),
            (("gone", 0), stage.dirs[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            problem = (await nodes.move_replicas(1, {partition: path}))[partition]
            assert problem is not None
            assert problem.code is code
        assert await nodes.move_replicas(1, {PART: stage.path()}) == {PART: None}
        assert stage.replicas().directories.preferred == {}

    play(work)


@pytest.mark.parametrize("number", [0, 1])
def test_the_log_directory_of_a_replica_can_be_chosen_before_the_replica_is_created(number: int) -> None:
    async def work(stage: Moving) -> None:
        path = stage.cluster.shape.log_dirs_of(2)[number]
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1]}))
        await write(stage, 0, 5)
        assert (await stage.admin.nodes.move_replicas(2, {PART: path}))[PART] is not None
        await stage.admin.partitions.reassign({PART: [2]})
        await stage.until(lambda: stage.state().replicas == (2,))
        await stage.moved(path, 2)
        assert await stage.values() == list(range(5))

    play(work, brokers=2)


def test_a_replica_that_returns_to_a_broker_is_created_in_the_requested_directory() -> None:
    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1]}))
        await write(stage, 0, 5)
        stage.restart(lose_power=False)
        await stage.until(lambda: not stage.cluster.trouble())
        other = stage.other()
        await stage.admin.partitions.reassign({PART: [2]})
        await stage.until(lambda: stage.state().replicas == (2,) and stage.replicas().find(*PART) is None)
        assert (await stage.admin.nodes.move_replicas(1, {PART: other}))[PART] is not None
        await stage.admin.partitions.reassign({PART: [1]})
        await stage.until(lambda: stage.state().replicas == (1,))
        await stage.moved(other)
        assert await stage.values() == list(range(5))

    play(work, brokers=2)


@pytest.mark.parametrize("which", ["here", "there"])
@pytest.mark.parametrize("after_ms", [5, 40, 400])
def test_a_directory_that_fails_during_a_move_takes_only_its_own_replicas_offline(which: str, after_ms: int) -> None:
    async def work(stage: Moving) -> None:
        world = stage.cluster.world
        await stage.admin.topics.create(NewTopic("t", assignment={0: [2, 1]}))
        metadata, spare = stage.cluster.shape.log_dirs_of(2)
        here, there = (spare, metadata) if which == "here" else (metadata, spare)
        await stage.move(here, 2)
        await stage.moved(here, 2)
        await write(stage, 0, 20, size=200_000)
        slow = ConfigChange(ConfigOperation.SET, "replica.alter.log.dirs.io.max.bytes.per.second", "400000")
        await stage.admin.configs.alter(ConfigResource(ResourceType.BROKER, "2"), [slow])
        await stage.move(there, 2)
        await world.sleep_ms(after_ms)
        stage.cluster.missing_directory.add(2)
        world.fail_directory("node-2", spare)
        await write(stage, 20, 10)
        leader = 1 if which == "here" else 2
        await stage.until(lambda: stage.state().leader == leader)
        assert await stage.values() == list(range(30))
        if which == "there":
            assert (stage.path(2), stage.assigned(2)) == (here, True)

    play(work, brokers=2)
