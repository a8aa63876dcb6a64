"""Checkpoints: what is on disk when a truncation goes on."""

from __future__ import annotations

import trio

from kraft.storage.log_dir import LogDirectory
from tests.data_plane.plane import Plane, run
from tests.data_plane.test_replication import produce_numbers


def test_a_checkpoint_that_is_written_while_a_log_is_cut_does_not_stay_above_its_end() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", flush_messages="1")
        partition = plane.partition("orders")
        directory, log = partition.directory, partition.log
        maintenance = plane.cluster.node(1).broker.broker.replicas.maintenance

        def on_disk() -> int:
            storage: LogDirectory = directory.storage
            return storage.read_recovery_points()["orders", 0]

        await produce_numbers(plane, 1)
        await plane.until(lambda: log.recovery_point == 1)
        await maintenance.write_recovery_points()
        await produce_numbers(plane, 1, first=1)
        await plane.until(lambda: log.recovery_point == 2)
        plane.world.slow_disk("b1", 300)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(maintenance.write_recovery_points)  # the timer's
            await plane.until(lambda: on_disk() == 2)
            assert directory.checkpointing.locked(), "it is still under way"
            log.truncate_to(1, 0)
            await maintenance.write_recovery_points_of(directory)
            assert on_disk() == 1, "appends go on from here"
        assert on_disk() == 1

    run(test, combined=1)
