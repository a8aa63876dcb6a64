"""Three brokers whose disks lose what was not synced, are full, or fail: one log directory of several, or the last."""

from __future__ import annotations

import pytest

from kraft.seam import DiskError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.plane import Plane, batch, error, three, values
from tests.stages.replicas import BROKERS, NONE, produce_numbers, settled


def test_with_a_flush_per_message_a_power_failure_of_all_loses_nothing() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, flush_messages="1")
        await produce_numbers(plane, 20)
        await produce_numbers(plane, 5, first=20, acks=1)
        for broker in BROKERS:
            plane.world.power_off(f"b{broker}")
        for broker in BROKERS:
            plane.world.restart(f"b{broker}")
        await plane.world.sleep_ms(20)
        await plane.cluster.wait_ready(60_000)
        await plane.until(lambda: plane.leader("orders") in BROKERS)
        leader = plane.leader("orders")
        await plane.until(lambda: plane.partition("orders", leader).log is not None)
        await settled(plane)
        client = await plane.another_client(leader)
        found = await plane.fetch("orders", 0, broker_id=leader, client=client)
        assert values(found.records)[:20] == [b"%d" % number for number in range(20)]

    three(test)


def test_a_full_disk_ends_the_broker_and_the_others_go_on() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 3)
        plane.world.disk_full("b2", True)
        row = await plane.produce("orders", batch("3"), timeout_ms=60_000)
        assert error(row) == NONE
        assert plane.partition("orders", 1).leader.isr.committed == {1, 3}
        failures, plane.cluster.failures = plane.cluster.failures, []
        assert failures
        assert all(isinstance(failure, DiskError) for _, failure in failures)

    three(test, replica_lag_time_max_ms="3000")


def test_one_failed_log_directory_takes_its_own_partitions_with_it_only() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 2, leader=1)
        for index in (0, 1):
            assert error(await plane.produce("orders", batch("before"), index)) == NONE
        replicas = plane.cluster.node(1).broker.broker.replicas
        failing = next(one for one in replicas.directories.all if one.path == "/more")
        (lost,) = [index for index in (0, 1) if plane.partition("orders", 1, index).directory is failing]
        replicas.failures.directory_failed(failing, DiskError("the device is gone", errno=5, path="/more"))
        row = await plane.produce("orders", batch("refused"), lost)
        assert error(row) in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert error(await plane.produce("orders", batch("taken"), 1 - lost)) == NONE
        await plane.until(lambda: plane.leader("orders", lost) in (2, 3))
        leader = plane.leader("orders", lost)
        await plane.until(lambda: plane.partition("orders", leader, lost).leader is not None)
        assert error(await plane.produce("orders", batch("after"), lost, broker_id=leader)) == NONE

    three(test, log_dirs="/data,/more")


def test_a_broker_that_has_lost_its_last_log_directory_stops() -> None:
    """It went on without a place for any replica; its metadata log was elsewhere, or had nothing to write."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 2, leader=1)
        replicas = plane.cluster.node(1).broker.broker.replicas
        first, last = replicas.directories.all
        replicas.failures.directory_failed(first, DiskError("the device is gone", errno=5, path=first.path))
        await plane.until(lambda: {plane.leader("orders", 0), plane.leader("orders", 1)} > {1})
        assert plane.is_up(1)
        replicas.failures.directory_failed(last, DiskError("the device is gone", errno=5, path=last.path))
        await plane.until(lambda: not plane.is_up(1))
        failures, plane.cluster.failures = plane.cluster.failures, []
        assert "no log directory is left: the device is gone" in str(failures)
        await plane.until(lambda: plane.leader("orders", 0) in (2, 3) and plane.leader("orders", 1) in (2, 3))

    three(test, log_dirs="/data,/more")


@pytest.mark.parametrize("path", ["", "/elsewhere/orders-0"])
def test_an_error_whose_path_lies_in_no_log_directory_ends_the_directory_of_its_replica(path: str) -> None:
    """It was passed over: the replica went on, on a device that had refused."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 2, leader=1)
        replicas = plane.cluster.node(1).broker.broker.replicas
        failing = next(one for one in replicas.directories.all if one.path == "/more")
        (lost,) = [index for index in (0, 1) if plane.partition("orders", 1, index).directory is failing]
        replicas.failures.disk_failed(
            plane.partition("orders", 1, lost), DiskError("the device is gone", errno=5, path=path)
        )
        assert [one.path for one in replicas.directories.online] == ["/data"]
        await plane.until(lambda: plane.leader("orders", lost) in (2, 3))
        assert error(await plane.produce("orders", batch("taken"), 1 - lost)) == NONE

    three(test, log_dirs="/data,/more")


def test_a_directory_that_fails_while_logs_wait_to_be_opened_in_it_takes_nothing_else_with_it() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 4, leader=1)
        for index in range(4):
            assert error(await plane.produce("orders", batch("before"), index)) == NONE
        plane.world.slow_disk("b1", 300)
        plane.world.fail_directory("b1", "/more")
        row = messages.nested_class(messages.request_class(ApiKey.DELETE_TOPICS), "topics")
        client = await plane.client(3)
        answer = await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[messages.build(row, name="orders")], timeout=5000)
        assert answer.responses[0].error_code == 0
        await plane.create_topic("orders", 4, leader=1)
        replicas = plane.cluster.node(1).broker.broker.replicas
        for one in replicas.hosted:  # they wait for the old folders to be renamed
            replicas.logs.opener.want_soon(one)
        (failed,) = [directory for directory in replicas.directories.all if directory.path == "/more"]
        await plane.until(lambda: not failed.is_online)
        await plane.until(lambda: all(one.is_offline or one.log is not None for one in replicas.hosted))
        assert plane.is_up(1)
        assert {one.is_offline for one in replicas.hosted} == {True, False}
        assert all(one.is_offline == (one.directory is failed) for one in replicas.hosted)

    three(test, log_dirs="/data,/more")
