"""Syncs by time: what flush.ms and the flush scheduler sync to the device. Without them nothing is synced by time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.plane import Plane, batch, error, run, three


async def filled(plane: Plane, **configs: str) -> None:
    await plane.create_topic("orders", **configs)
    for number in range(3):
        assert not error(await plane.produce("orders", batch(f"{number}")))


def recovery_point(plane: Plane) -> int:
    return plane.partition("orders").log.recovery_point


def test_without_a_flush_scheduler_no_log_is_synced_by_time() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, flush_ms="100")
        await plane.world.sleep_ms(60_000)
        assert recovery_point(plane) == 0

    run(test, combined=1)


def test_with_a_flush_scheduler_a_log_is_synced_when_its_flush_ms_has_passed_and_not_before() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, flush_ms="2000")
        await plane.world.sleep_ms(1_000)
        assert recovery_point(plane) == 0
        await plane.until(lambda: recovery_point(plane) == 3, 2_000)
        assert not error(await plane.produce("orders", batch("more")))
        await plane.until(lambda: recovery_point(plane) == 4, 4_000)

    run(test, combined=1, log_flush_scheduler_interval_ms="500")


def test_the_flush_schedulers_interval_is_the_default_of_flush_ms() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane)
        assert plane.partition("orders").config.flush_ms == 300
        await plane.until(lambda: recovery_point(plane) == 3, 1_000)

    run(test, combined=1, log_flush_scheduler_interval_ms="300")


def test_records_synced_by_the_flush_scheduler_survive_a_power_loss() -> None:
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


def test_a_broker_keeps_no_more_log_files_open_than_configured() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=40)
        replicas = plane.cluster.node(1).broker.broker.replicas
        assert replicas.logs.file_cache.open_files_max == 16
        for index in range(40):
            assert not error(await plane.produce("orders", batch("x"), index))
        for index in range(40):
            replicas.logs.syncer.request_full_sync(plane.partition("orders", index=index))
        replicas.loop.request_pass()
        await plane.until(lambda: not any(plane.partition("orders", index=i).log.unsynced for i in range(40)))
        for index in range(40):
            assert not error(await plane.fetch("orders", 0, index))
        assert replicas.logs.file_cache.open_files <= 16

    run(test, combined=1, kraft_log_open_files_max="16")


async def no_more_syncs(plane: Plane) -> None:
    """Reset the topic's flush.messages to its default."""
    resource = messages.nested_class(messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), "resources")
    config = messages.nested_class(resource, "configs")
    wanted = messages.build(
        resource,
        resource_type=2,
        resource_name="orders",
        configs=[messages.build(config, name="flush.messages", config_operation=1, value=None)],
    )
    client = await plane.another_client()
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[wanted], validate_only=False)
    assert answer.responses[0].error_code == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_that_waits_for_a_sync_is_answered_when_flush_messages_is_reset(acks: int) -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, flush_messages="1")
        client = await plane.another_client()
        partition = plane.partition("orders")
        plane.world.slow_disk("b1", 5_000)
        answers: list[Any] = []

        async def produce() -> None:
            answers.append(await plane.produce("orders", batch("x"), client=client, acks=acks, timeout_ms=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await plane.until(lambda: partition.log.log_end_offset == 4)
            plane.world.slow_disk("b1", 0)  # the sync that is in progress stays slow
            await no_more_syncs(plane)
            await plane.until(lambda: bool(answers), 100)
        assert error(answers[0]) is ErrorCode.NONE
        assert partition.high_watermark == 4
        assert partition.log.synced_end_offset == 3, "no produce waited for that"

    run(test, combined=1)


def test_a_follower_that_waits_for_a_sync_fetches_again_when_flush_messages_is_reset() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, flush_messages="1")
        assert not error(await plane.produce("orders", batch("x")))
        plane.world.slow_disk("b2", 5_000)
        for number in range(3):
            assert not error(await plane.produce("orders", batch(f"{number}"), acks=1))
        follower = plane.partition("orders", 2)
        await plane.until(lambda: bool(follower.waiting_for_disk))
        plane.world.slow_disk("b2", 0)
        await no_more_syncs(plane)
        await plane.until(lambda: not follower.waiting_for_disk, 100)
        assert not error(await plane.produce("orders", batch("after"), timeout_ms=1_000))

    three(test)


def test_a_follower_acknowledges_unsynced_appends_of_an_earlier_leader_only_after_the_sync() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, flush_messages="1")
        assert not error(await plane.produce("orders", batch("x")))
        plane.world.slow_disk("b3", 5_000)
        assert not error(await plane.produce("orders", batch("y"), acks=1))
        follower = plane.partition("orders", 3)
        await plane.until(lambda: bool(follower.waiting_for_disk))
        plane.world.kill("b1")
        await plane.until(lambda: plane.leader("orders") == 2 and plane.partition("orders", 2).leader is not None)
        await plane.until(lambda: follower.state.leader == 2)
        await plane.world.sleep_ms(300)
        leader = plane.partition("orders", 2).leader
        assert follower.log.log_end_offset == 2
        assert follower.log.synced_end_offset == 1
        assert leader.followers[3].end_offset <= 1
        plane.world.slow_disk("b3", 0)
        await plane.until(lambda: leader.followers[3].end_offset == follower.log.synced_end_offset == 2, 10_000)

    three(test)
