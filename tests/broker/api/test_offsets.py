"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and retention, in clusters of one node and of three."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BATCH_HEADER_BYTES, read_header, write_crc
from kraft.wire.records.compression import Compression
from tests.broker.api.fetch.test_fetch import write_in_transaction, write_marker
from tests.stages.plane import EPOCH_MS, Plane, batch, error, far_apart, run, three, values

NONE = ErrorCode.NONE
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


async def timed(plane: Plane, *timestamps: int, name: str = "orders", **configs: str) -> None:
    await plane.create_topic(name, **configs)
    for number, timestamp in enumerate(timestamps):
        await plane.produce(name, batch(f"{number}", timestamp=EPOCH_MS + timestamp))


@pytest.mark.parametrize("version", range(1, 11))
def test_list_offsets_returns_the_start_and_end_of_a_log_in_every_version(version: int) -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10, 20, 30)
        for timestamp, offset in ((LATEST, 3), (EARLIEST, 0), (EPOCH_MS + 15, 1)):
            row = await plane.list_offset("orders", timestamp, version=version)
            assert (error(row), row.offset) == (NONE, offset)

    run(test)


def test_list_offsets_by_time_returns_the_first_record_at_or_after_that_time() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10, 50, 30, 60)
        for timestamp, expected in ((0, 0), (10, 0), (11, 1), (50, 1), (51, 3), (61, -1)):
            row = await plane.list_offset("orders", EPOCH_MS + timestamp)
            assert (error(row), row.offset) == (NONE, expected), timestamp
        row = await plane.list_offset("orders", MAX_TIMESTAMP)
        assert (row.offset, row.timestamp) == (3, EPOCH_MS + 60)
        compressed = batch("a", "b", timestamp=EPOCH_MS + 70, compression=Compression.GZIP)
        await plane.produce("orders", compressed)
        row = await plane.list_offset("orders", EPOCH_MS + 65)
        assert row.offset == 4

    run(test)


def test_a_timestamp_lookup_that_finds_an_out_of_range_record_time_gets_corrupt_message() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 0)
        data = far_apart(2**63 - 1)
        plane.partition("orders").append_as_leader(memoryview(data), read_header(data), EPOCH_MS)
        await plane.delete_records("orders", 2)
        assert error(await plane.list_offset("orders", EPOCH_MS)) == ErrorCode.CORRUPT_MESSAGE
        assert (await plane.list_offset("orders", LATEST)).offset == 3

    run(test)


def test_max_timestamp_ignores_deleted_records_of_a_partly_deleted_batch() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert error(await plane.produce("orders", far_apart(-5))) == NONE
        await plane.delete_records("orders", 1)
        row = await plane.list_offset("orders", MAX_TIMESTAMP)
        assert (error(row), row.offset, row.timestamp) == (NONE, 1, EPOCH_MS - 5)

    run(test)


def test_a_timestamp_lookup_in_an_unparsable_batch_gets_corrupt_message_and_is_logged_once() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10)
        write_unreadable(plane, "orders")
        with capture_logs() as logs:
            for _ in range(3):
                assert error(await plane.list_offset("orders", EPOCH_MS + 20)) == ErrorCode.CORRUPT_MESSAGE
        told = [one for one in logs if one["log_level"] in ("error", "warning")]
        assert [(one["event"], one["topic"], one["partition"], one["offset"]) for one in told] == [
            ("stored batch cannot be read", "orders", 0, 1)
        ]
        assert (await plane.list_offset("orders", EPOCH_MS)).offset == 0

    run(test)


def write_unreadable(plane: Plane, name: str) -> None:
    """Write a batch with a valid CRC whose record does not parse, as an older version accepted it from a producer."""
    data = batch("x", timestamp=EPOCH_MS + 30)
    data[BATCH_HEADER_BYTES] = 0x7F
    write_crc(data, 0)
    plane.partition(name).append_as_leader(memoryview(data), read_header(data), EPOCH_MS)


def test_special_timestamps_are_rejected_in_list_offsets_versions_that_lack_them() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10)
        needed = ((MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11))
        for timestamp, first in needed:
            assert error(await plane.list_offset("orders", timestamp, version=first)) == NONE
            row = await plane.list_offset("orders", timestamp, version=first - 1)
            assert error(row) == ErrorCode.UNSUPPORTED_VERSION
        for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            row = await plane.list_offset("orders", timestamp, version=11)
            assert (row.timestamp, row.offset, row.leader_epoch) == (-1, -1, -1), "no log has a remote part"
        assert error(await plane.list_offset("orders", -7, version=11)) == ErrorCode.UNSUPPORTED_VERSION
        assert error(await plane.list_offset("nowhere", LATEST)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error(await plane.list_offset("orders", LATEST, epoch=99)) == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(test)


def test_list_offsets_with_read_committed_returns_the_last_stable_offset_as_the_end() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10)
        write_in_transaction(plane, "orders", 7, 0, "maybe")
        await plane.produce("orders", batch("plain"))
        assert (await plane.list_offset("orders", LATEST)).offset == 3
        assert (await plane.list_offset("orders", LATEST, isolation=1)).offset == 1
        write_marker(plane, "orders", 7, commit=False)
        assert (await plane.list_offset("orders", LATEST, isolation=1)).offset == 4

    run(test)


def test_a_partition_that_list_offsets_names_twice_is_rejected() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10)
        request_class = messages.request_class(ApiKey.LIST_OFFSETS)
        topic_class = messages.nested_class(request_class, "topics")
        row_class = messages.nested_class(topic_class, "partitions")
        row = messages.build(row_class, partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
        topic = messages.build(topic_class, name="orders", partitions=[row, row])
        client = await plane.client()
        response = await client.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[topic])
        assert {error(found) for found in response.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}

    run(test)


async def end_of_epoch(plane: Plane, epoch: int, *, current: int = -1, broker_id: int = 1, version: int = 4) -> Any:
    request_class = messages.request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    topic_class = messages.nested_class(request_class, "topics")
    row_class = messages.nested_class(topic_class, "partitions")
    row = messages.build(row_class, partition=0, current_leader_epoch=current, leader_epoch=epoch)
    client = await plane.client(broker_id)
    response = await client.ask(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=-1,
        topics=[messages.build(topic_class, topic="orders", partitions=[row])],
    )
    return response.topics[0].partitions[0]


def test_offset_for_leader_epoch_returns_the_end_of_the_epoch() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10, 20)
        epoch = plane.partition("orders").leader_epoch
        for version in (2, 3, 4):
            row = await end_of_epoch(plane, epoch, version=version)
            assert (error(row), row.leader_epoch, row.end_offset) == (NONE, epoch, 2)
        row = await end_of_epoch(plane, epoch + 5)
        assert (error(row), row.leader_epoch, row.end_offset) == (NONE, -1, -1)
        assert error(await end_of_epoch(plane, epoch, current=epoch + 1)) == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(test)


def test_offset_for_leader_epoch_returns_the_end_of_the_previous_epoch_after_a_failover() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        first = plane.partition("orders", 1).leader_epoch
        for number in range(3):
            await plane.produce("orders", batch(f"{number}"))
        plane.world.kill("b1")
        await plane.until(lambda: plane.leader("orders") in (2, 3))
        leader = plane.leader("orders")
        await plane.world.sleep_ms(50)
        assert error(await plane.produce("orders", batch("new"), broker_id=leader)) == NONE
        second = plane.partition("orders", leader).leader_epoch
        row = await end_of_epoch(plane, first, broker_id=leader)
        assert (row.leader_epoch, row.end_offset) == (first, 3)
        row = await end_of_epoch(plane, second, broker_id=leader)
        assert (row.leader_epoch, row.end_offset) == (second, 4)
        other = 5 - leader
        assert error(await end_of_epoch(plane, first, broker_id=other)) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    three(test)


# delete records


def test_a_fetch_of_deleted_records_gets_offset_out_of_range_on_every_replica() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(10):
            await plane.produce("orders", batch(f"{number}"))
        row = await plane.delete_records("orders", 4)
        assert (error(row), row.low_watermark) == (NONE, 4)
        assert [plane.partition("orders", broker).log.log_start_offset for broker in (1, 2, 3)] == [4, 4, 4]
        assert error(await plane.fetch("orders", 3)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values((await plane.fetch("orders", 4)).records)[0] == b"4"
        assert (await plane.list_offset("orders", EARLIEST)).offset == 4
        row = await plane.delete_records("orders", -1)
        assert (error(row), row.low_watermark) == (NONE, 10)

    three(test)


def test_delete_records_is_rejected_above_the_high_watermark_and_for_a_compacted_topic() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, 10, 20)
        for offset in (3, -2):
            assert error(await plane.delete_records("orders", offset)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert error(await plane.delete_records("nowhere", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await plane.create_topic("latest", cleanup_policy="compact")
        assert error(await plane.delete_records("latest", 0)) == ErrorCode.POLICY_VIOLATION

    run(test)


def test_an_acknowledged_delete_records_survives_a_crash() -> None:
    async def test(plane: Plane) -> None:
        await timed(plane, *range(10))
        assert error(await plane.delete_records("orders", 6)) == NONE
        plane.world.kill("b1")
        plane.world.restart("b1")
        await plane.world.sleep_ms(10)
        await plane.cluster.wait_ready()
        await plane.until(lambda: plane.partition("orders").log is not None)
        assert plane.partition("orders").log.log_start_offset == 6

    run(test)


# retention


def test_retention_by_size_deletes_the_oldest_segments() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", internal_segment_bytes="500", retention_bytes="1000")
        for number in range(40):
            await plane.produce("orders", batch(f"{number}".ljust(100, ".")))
        log = plane.partition("orders").log
        before = log.size_bytes
        await plane.world.sleep_ms(31_000)
        assert 1000 <= log.size_bytes < 2000 < before
        assert log.log_start_offset == log.segments[0].base_offset > 0
        assert (await plane.list_offset("orders", EARLIEST)).offset == log.log_start_offset
        assert error(await plane.fetch("orders", 0)) == ErrorCode.OFFSET_OUT_OF_RANGE
        disk = plane.cluster.node(1).broker.broker.seam.disk
        assert [name for name in disk.list("/data/orders-0") if name.endswith(".deleted")]
        await plane.world.sleep_ms(61_000)
        assert not [name for name in disk.list("/data/orders-0") if name.endswith(".deleted")]

    run(test)


def test_retention_by_time_also_deletes_the_active_segment_and_the_log_continues() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", retention_ms="60000")
        await plane.produce("orders", batch("old", timestamp=EPOCH_MS - 3_600_000))
        await plane.world.sleep_ms(400_000)
        assert (await plane.list_offset("orders", EARLIEST)).offset == 1
        result = await plane.produce("orders", batch("new", timestamp=EPOCH_MS + 400_000))
        assert (error(result), result.base_offset) == (NONE, 1)

    run(test)


def test_retention_does_not_trim_compacted_topics() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic(
            "latest", cleanup_policy="compact", retention_ms="1000", retention_bytes="1", internal_segment_bytes="500"
        )
        for number in range(20):
            await plane.produce("latest", batch(f"{number}".ljust(100, "."), key=b"k", timestamp=EPOCH_MS - 10**9))
        await plane.world.sleep_ms(400_000)
        assert (await plane.list_offset("latest", EARLIEST)).offset == 0
        assert len(plane.partition("latest").log.segments) > 3

    run(test)


def test_retention_deletes_nothing_above_the_high_watermark() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic(
            "orders", leader=1, min_insync_replicas="3", retention_ms="1000", internal_segment_bytes="500"
        )
        await plane.produce("orders", batch("in sync", timestamp=EPOCH_MS - 10**9))
        plane.world.kill("b2")
        await plane.until(lambda: not plane.partition("orders", 1).leader.has_enough_replicas)
        for number in range(20):
            row = await plane.produce("orders", batch(f"{number}".ljust(100, "."), timestamp=EPOCH_MS - 10**9), acks=1)
            assert error(row) == NONE
        mark = plane.partition("orders", 1).high_watermark
        assert mark < 21
        await plane.world.sleep_ms(400_000)
        log = plane.partition("orders", 1).log
        assert log.log_start_offset <= mark
        assert log.log_end_offset == 21

    three(test)
