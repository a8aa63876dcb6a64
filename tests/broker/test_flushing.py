"""Syncs by time: what flush.ms and the scheduler put on the device, and that nothing happens without them."""

from __future__ import annotations

from tests.data_plane.plane import Plane, batch, error, run


async def filled(plane: Plane, **configs: str) -> None:
    await plane.create_topic("orders", **configs)
    for number in range(3):
        assert not error(await plane.produce("orders", batch(f"{number}")))


def recovery_point(plane: Plane) -> int:
    return plane.partition("orders").log.recovery_point


def test_without_a_scheduler_nothing_is_synced_by_time() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, flush_ms="100")
        await plane.world.sleep_ms(60_000)
        assert recovery_point(plane) == 0

    run(test, combined=1)


def test_with_one_a_log_is_synced_once_its_flush_ms_has_passed_and_not_before() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, flush_ms="2000")
        await plane.world.sleep_ms(1_000)
        assert recovery_point(plane) == 0
        await plane.until(lambda: recovery_point(plane) == 3, 2_000)
        assert not error(await plane.produce("orders", batch("more")))
        await plane.until(lambda: recovery_point(plane) == 4, 4_000)

    run(test, combined=1, log_flush_scheduler_interval_ms="500")


def test_the_schedulers_interval_is_the_flush_ms_of_a_topic_that_says_nothing() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane)
        assert plane.partition("orders").config.flush_ms == 300
        await plane.until(lambda: recovery_point(plane) == 3, 1_000)

    run(test, combined=1, log_flush_scheduler_interval_ms="300")


def test_what_was_synced_by_time_survives_a_loss_of_power() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane)
        await plane.until(lambda: recovery_point(plane) == 3)
        plane.world.power_off("b1")
        del plane.cluster.started["b1"]
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        await plane.until(lambda: plane.partition("orders").log is not None)
        assert plane.partition("orders").log.log_end_offset == 3

    run(test, combined=1, log_flush_interval_ms="100", log_flush_scheduler_interval_ms="50")


def test_as_many_files_stay_open_as_the_setting_says() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=40)
        replicas = plane.cluster.node(1).broker.broker.replicas
        assert replicas.file_cache.open_files_max == 16
        for index in range(40):
            assert not error(await plane.produce("orders", batch("x"), index))
        for index in range(40):
            replicas.want_full_sync(plane.partition("orders", index=index))
        replicas.request_pass()
        await plane.until(lambda: not any(plane.partition("orders", index=i).log.unsynced for i in range(40)))
        for index in range(40):
            assert not error(await plane.fetch("orders", 0, index))
        assert replicas.file_cache.open_files <= 16

    run(test, combined=1, kraft_log_open_files_max="16")
