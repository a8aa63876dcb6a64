"""Checkpoints: their content after a truncation, and after a log was created with the name of a removed log."""

from __future__ import annotations

import pytest
import trio

from kraft.storage.log_dir import LogDirectory
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from tests.stages.plane import EPOCH_MS, Plane, batch, error, run, three, values
from tests.stages.replicas import NONE, produce_numbers, restart


def test_a_checkpoint_written_during_a_truncation_is_lowered_to_the_new_log_end() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", flush_messages="1")
        partition = plane.partition("orders")
        directory = partition.directory
        checkpoints = plane.cluster.node(1).broker.broker.replicas.checkpoints

        def on_disk() -> int:
            storage: LogDirectory = directory.storage
            return storage.read_recovery_points()["orders", 0]

        await produce_numbers(plane, 1)
        log = partition.log
        await plane.until(lambda: log.recovery_point == 1)
        await checkpoints.write_recovery_points()
        await produce_numbers(plane, 1, first=1)
        await plane.until(lambda: log.recovery_point == 2)
        plane.world.slow_disk("b1", 300)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkpoints.write_recovery_points)  # the checkpoint that is written periodically
            await plane.until(lambda: on_disk() == 2)
            assert directory.checkpointing.locked(), "it is still under way"
            log.truncate_to(1, 0)
            await checkpoints.write_recovery_points_of(directory)
            assert on_disk() == 1, "appends continue from here"
        assert on_disk() == 1

    run(test, combined=1)


async def delete_orders(plane: Plane, broker_id: int = 1) -> None:
    client = await plane.client(broker_id)
    row = messages.nested_class(messages.request_class(ApiKey.DELETE_TOPICS), "topics")
    answer = await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[messages.build(row, name="orders")], timeout=5000)
    assert answer.responses[0].error_code == 0
    await plane.until(lambda: not plane.hosts(broker_id, "orders"))


async def write_all(plane: Plane, broker_id: int) -> None:
    checkpoints = plane.cluster.node(broker_id).broker.broker.replicas.checkpoints
    await checkpoints.write_high_watermarks()
    await checkpoints.write_recovery_points()


def lines_of_orders(plane: Plane, broker_id: int = 1) -> list[int | None]:
    """Return the high watermark, recovery point and log start offset of the topic `orders` in the checkpoint files."""
    (directory,) = plane.cluster.node(broker_id).broker.broker.replicas.directories.online
    storage = directory.storage
    assert storage is not None
    files = storage.read_high_watermarks(), storage.read_recovery_points(), storage.read_log_starts()
    return [offsets.get(("orders", 0)) for offsets in files]


@pytest.mark.parametrize("lose_power", [False, True])
def test_a_recreated_topic_does_not_get_the_checkpointed_log_start_of_the_deleted_topic(
    lose_power: bool,
) -> None:
    """Otherwise, if the broker crashed before the next write of the checkpoint, the new log would get the old log's
    start offset."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", flush_messages="1")
        await produce_numbers(plane, 5)
        assert error(await plane.delete_records("orders", 4)) == NONE
        await write_all(plane, 1)
        assert lines_of_orders(plane) == [5, 5, 4]
        await delete_orders(plane)
        await plane.create_topic("orders", flush_messages="1")
        await produce_numbers(plane, 2)
        (plane.world.power_off if lose_power else plane.world.kill)("b1")
        await restart(plane, 1)
        await plane.until(lambda: plane.partition("orders").leader is not None)
        found = await plane.fetch("orders", 0, client=await plane.another_client())
        assert (error(found), values(found.records)) == (NONE, [b"0", b"1"])

    run(test, combined=1)


def test_a_topic_recreated_while_its_broker_was_down_gets_no_offsets_of_the_deleted_topic() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=2)
        await produce_numbers(plane, 5, broker_id=2)
        await plane.until(lambda: plane.partition("orders").high_watermark == 5)
        await write_all(plane, 1)
        assert lines_of_orders(plane)[0] == 5
        plane.world.kill("b1")
        await delete_orders(plane, 2)
        await plane.create_topic("orders", leader=2)
        await restart(plane, 1)
        await plane.until(lambda: plane.partition("orders").log is not None)
        assert lines_of_orders(plane) == [None, None, None]
        assert [name for name in plane.cluster.node(1).broker.broker.seam.disk.list("/data") if name.endswith("-stray")]

    three(test)


def test_one_checkpoint_write_drops_the_lines_of_all_removed_logs() -> None:
    """A hundred recreated topics must not cause a hundred writes of each file."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 20)
        for index in range(20):
            assert error(await plane.produce("orders", batch("one"), index)) == NONE
        await write_all(plane, 1)
        await delete_orders(plane)
        replicas = plane.cluster.node(1).broker.broker.replicas
        (directory,) = replicas.directories.online
        await plane.until(lambda: len(directory.forgotten) == 20)
        await replicas.checkpoints.drop_forgotten(directory, "orders", 7)
        assert not directory.forgotten
        storage = directory.storage
        assert storage is not None
        assert not storage.read_high_watermarks()
        assert not storage.read_recovery_points()

    run(test, combined=1)


@pytest.mark.parametrize("seed", range(1, 5))
def test_deleted_records_stay_deleted_after_a_power_loss_that_undoes_the_renames_of_their_files(seed: int) -> None:
    """The checkpoint must contain the log start offset although the oldest segment begins at this offset. After the
    power loss the removed files may have their old names again."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        replicas = plane.cluster.node(1).broker.broker.replicas
        await produce_numbers(plane, 5)
        log = plane.partition("orders").log
        assert log is not None
        log.roll(EPOCH_MS)
        await produce_numbers(plane, 5, first=5)
        replicas.logs.syncer.request_full_sync(plane.partition("orders"))
        replicas.loop.request_pass()
        await plane.until(lambda: not log.unsynced)
        assert error(await plane.delete_records("orders", 5)) == NONE
        await replicas.logs.maintenance.apply_retention()
        assert log.segments[0].base_offset == 5
        await plane.world.sleep_ms(1_000)
        await write_all(plane, 1)
        plane.world.power_off("b1")
        await restart(plane, 1)
        await plane.until(lambda: plane.partition("orders").log is not None)
        assert plane.partition("orders").log.log_start_offset == 5

    run(test, seed=seed, combined=1)
