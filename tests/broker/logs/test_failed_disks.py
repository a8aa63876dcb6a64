"""Three brokers whose disks lose unsynced writes, are full, or fail. The disk that fails has one of several log
directories, or the only one.
"""

from __future__ import annotations

import pytest

from kraft.seam import DiskError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.plane import Plane, batch, error, three, values
from tests.stages.replicas import BROKERS, NONE, produce_numbers, settled


def test_with_flush_messages_1_a_power_loss_of_all_brokers_loses_no_acknowledged_record() -> None:
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


def test_a_full_disk_stops_only_its_own_broker() -> None:
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


def test_a_failed_log_directory_takes_only_its_own_partitions_offline() -> None:
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


def test_a_broker_whose_last_log_directory_failed_stops() -> None:
    """The disk with the metadata log does not fail or is not written to, so only the log directories can stop the
    broker."""

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
def test_a_disk_error_outside_all_log_directories_takes_the_replicas_directory_offline(path: str) -> None:
    """An error whose path is in no log directory is not ignored: it shows that the replica's device has failed."""

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


def test_a_directory_that_fails_with_logs_queued_for_opening_affects_no_other_directory() -> None:
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
        for one in replicas.hosted:  # until the old folders are renamed
            replicas.logs.opener.request_soon(one)
        (failed,) = [directory for directory in replicas.directories.all if directory.path == "/more"]
        await plane.until(lambda: not failed.is_online)
        await plane.until(lambda: all(one.is_offline or one.log is not None for one in replicas.hosted))
        assert plane.is_up(1)
        assert {one.is_offline for one in replicas.hosted} == {True, False}
        assert all(one.is_offline == (one.directory is failed) for one in replicas.hosted)

    three(test, log_dirs="/data,/more")
