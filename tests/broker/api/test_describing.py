"""DescribeLogDirs and DescribeProducers against running nodes."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.partition.partition_states import LogState
from kraft.seam import DiskError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.fetch.test_fetch import write_in_transaction, write_marker
from tests.stages.plane import EPOCH_MS, Plane, batch, error, run, three

DIRS, PRODUCERS = ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_PRODUCERS


async def log_dirs(plane: Plane, *, version: int = 5, broker_id: int = 1, **fields: Any) -> Any:
    client = await plane.client(broker_id)
    return await client.ask(DIRS, version, **{"topics": None, **fields})


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.partition_size for topic in result.topics for row in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_returns_every_replica_with_its_size_in_every_version(version: int) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=2)
        for _ in range(3):
            assert not error(await plane.produce("orders", batch("x" * 100)))
        response = await log_dirs(plane, version=version)
        (result,) = response.results
        assert (response.error_code, result.error_code, result.log_dir) == (0, 0, "/data")
        found = sizes(result)
        assert found[("orders", 0)] == plane.partition("orders").log.size_bytes > 300
        assert found[("orders", 1)] == 0
        assert set(found) == {("orders", 0), ("orders", 1)}
        assert {row.offset_lag for topic in result.topics for row in topic.partitions} == {0}
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes
        assert result.is_cordoned is False

    run(test)


def test_describe_log_dirs_returns_only_the_requested_partitions() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=3)
        wanted = [{"topic": "orders", "partitions": [0, 2]}, {"topic": "others", "partitions": [0]}]
        (result,) = (await log_dirs(plane, topics=wanted)).results
        assert [*sizes(result)] == [("orders", 0), ("orders", 2)]
        (empty,) = (await log_dirs(plane, topics=[])).results
        assert (empty.error_code, empty.topics) == (0, ())

    run(test)


def test_a_log_that_is_not_open_is_measured_on_the_disk() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert not error(await plane.produce("orders", batch("x" * 100)))
        partition = plane.partition("orders")
        size, partition.log, partition.log_state = partition.log.size_bytes, None, LogState.CLOSED
        (result,) = (await log_dirs(plane)).results
        assert sizes(result)[("orders", 0)] == size

    run(test)


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_log_that_is_deleted_while_it_is_measured_takes_no_directory_offline(
    monkeypatch: pytest.MonkeyPatch, *, is_listed: bool
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert not error(await plane.produce("orders", batch("x" * 100)))
        partition = plane.partition("orders")
        partition.log, partition.log_state = None, LogState.CLOSED
        disk = plane.cluster.node(1).broker.broker.seam.disk
        look = disk.list

        def look_while_it_is_deleted(path: str) -> list[str]:
            found = look(path) if is_listed else []
            disk.rename(path, f"{path}.00000000000000000000000000000000-delete")
            return found or list(look(path))

        monkeypatch.setattr(disk, "list", look_while_it_is_deleted)
        (result,) = (await log_dirs(plane)).results
        monkeypatch.undo()
        assert result.error_code == 0
        assert plane.partition("orders").directory.is_online
        assert plane.is_up(1)

    run(test)


def test_an_offline_directory_is_described_with_its_error_and_without_sizes() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        replicas = plane.cluster.node(1).broker.broker.replicas
        good, bad = replicas.directories.all
        replicas.failures.directory_failed(bad, DiskError("Input/output error", errno=5, path=bad.path))
        found = {result.log_dir: result for result in (await log_dirs(plane)).results}
        assert found[bad.path].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (found[bad.path].topics, found[bad.path].total_bytes) == ((), -1)
        assert found[good.path].error_code == 0

    run(test, controllers=1, brokers=1, log_dirs="/data,/more")


async def producers(plane: Plane, topic: str, *indexes: int, broker_id: int = 1) -> list[Any]:
    client = await plane.client(broker_id)
    response = await client.ask(PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": list(indexes)}])
    (found,) = response.topics
    assert found.name == topic
    return list(found.partitions)


def test_every_replica_describes_the_producers_of_its_log() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        data = batch("a", "b", "c", producer_id=7, producer_epoch=2, base_sequence=0, timestamp=EPOCH_MS + 5)
        assert not error(await plane.produce("orders", data))
        assert not error(await plane.produce("orders", batch("no producer")))
        for broker_id in (1, 2):
            (row,) = await producers(plane, "orders", 0, broker_id=broker_id)
            (state,) = row.active_producers
            assert (row.error_code, state.producer_id, state.producer_epoch, state.last_sequence) == (0, 7, 2, 2)
            assert state.last_timestamp == EPOCH_MS + 5
            assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)

    three(test)


def test_an_open_transaction_is_described_with_its_first_offset() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert not error(await plane.produce("orders", batch("before")))
        write_in_transaction(plane, "orders", 9, 0, "a")
        (row,) = await producers(plane, "orders", 0)
        assert row.active_producers[0].current_txn_start_offset == 1
        write_marker(plane, "orders", 9, commit=True)
        (row,) = await producers(plane, "orders", 0)
        assert row.active_producers[0].current_txn_start_offset == -1
        assert row.active_producers[0].coordinator_epoch >= 0

    run(test)


def test_describe_producers_returns_an_error_only_for_partitions_that_are_not_hosted() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", factor=1, leader=2)
        rows = await producers(plane, "orders", 0, 5)
        assert [row.error_code for row in rows] == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        (unknown,) = await producers(plane, "nowhere", 0)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    three(test)


class Nobody:
    """Authorizer that denies every operation."""

    def authorize(self, session: object, operation: object, resource: object) -> bool:
        return False

    def authorize_any(self, session: object, operation: object, type: object) -> bool:
        return False


def test_describe_producers_of_a_forbidden_topic_opens_no_log() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert not error(await plane.produce("orders", batch("a")))
        partition = plane.partition("orders")
        partition.log, partition.log_state = None, LogState.CLOSED  # closed, as after a restart
        node = plane.cluster.node(1)
        authorizer, node.gates.authorizer = node.gates.authorizer, Nobody()
        (row,) = await producers(plane, "orders", 0)
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await plane.world.sleep_ms(100)
        assert partition.log is None
        node.gates.authorizer = authorizer
        (row,) = await producers(plane, "orders", 0)
        assert row.error_code == ErrorCode.NONE

    run(test, brokers=1)
