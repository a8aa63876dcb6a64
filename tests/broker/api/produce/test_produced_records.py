"""Checks of the records in every produced batch: records that contradict the header are rejected, and the stored latest
timestamp is that of the records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio

from kraft.broker.api.produce import prepare_batch
from kraft.broker.partition.partition_host import PendingAppend
from kraft.broker.partition.partition_states import AppendState
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import ProduceResult, decode_produce_response, encode_produce_request
from kraft.wire.record_walk import HEADERS_MAX
from kraft.wire.records import Record, check_crc, encode_batch, pack_header, read_header, write_crc
from kraft.wire.records.compression import Compression, compress
from kraft.wire.records.validation import RECORDS_MAX
from kraft.wire.varints import encode_zigzag
from tests.stages.plane import EPOCH_MS, PRODUCE_VERSION, Plane, batch, error, records, run, three, values

NONE = ErrorCode.NONE
every_codec = pytest.mark.parametrize("codec", Compression)
NOISE = [Random(number).randbytes(1_000) for number in range(600)]
"""Incompressible bytes; more than the maximum size that is decompressed on the event loop."""


def record(offset: int = 0, *, timestamp: int = 0, value: bytes = b"v", length: int | None = None) -> bytes:
    fields = encode_zigzag(timestamp) + encode_zigzag(offset) + encode_zigzag(1) + b"k"
    body = b"\0" + fields + encode_zigzag(len(value)) + value + b"\0"
    return encode_zigzag(len(body) if length is None else length) + body


def batch_around(block: bytes, codec: Compression, *, count: int = 2, squeeze: bool = True, **fields: Any) -> bytearray:
    """Return a batch with a correct CRC, with this block of records (valid or not) and a header that announces `count`
    records."""
    header = read_header(encode_batch([Record(0, EPOCH_MS, b"k", b"v")], compression=codec))
    content = compress(codec, block) if squeeze else block
    made = bytearray(61) + content
    fields = {"last_offset_delta": count - 1, "record_count": count, **fields}
    pack_header(made, 0, header._replace(batch_length=len(made) - 12, **fields))
    write_crc(made, 0)
    return made


NAMELESS = b"\0\0\0\1\1\2\1\1"
MALFORMED: dict[str, Callable[[Compression], bytearray]] = {
    "fewer records than announced": lambda codec: batch_around(record(0) + record(1), codec, count=3),
    "more records than announced": lambda codec: batch_around(record(0) + record(1), codec, count=1),
    "a record that is cut short": lambda codec: batch_around(record(0) + record(1)[:-2], codec),
    "bytes after the records": lambda codec: batch_around(record(0) + record(1) + bytes(3), codec),
    "a negative length": lambda codec: batch_around(record(0, length=-5), codec, count=1),
    "a length that is too large": lambda codec: batch_around(record(0, length=2**31 - 1), codec, count=1),
    "offset deltas with a hole": lambda codec: batch_around(record(0) + record(2), codec),
    "a header without a name": lambda codec: batch_around(encode_zigzag(8) + NAMELESS, codec, count=1),
    "no records": lambda codec: batch_around(b"", codec, count=1),
    "garbage": lambda codec: batch_around(Random(1).randbytes(100), codec),
    "a timestamp beyond 64 bits": lambda codec: batch_around(record(0, timestamp=2**63 - 1), codec, count=1),
}


@every_codec
@pytest.mark.parametrize("name", MALFORMED)
def test_a_batch_whose_records_contradict_its_header_is_rejected_and_the_next_produce_is_served(
    name: str, codec: Compression
) -> None:
    async def test(plane: Plane) -> None:
        for topic, options in (("plain", {}), ("stamped", {"message_timestamp_type": "LogAppendTime"})):
            await plane.create_topic(topic, **options)  # type: ignore[arg-type]
            result = await plane.produce(topic, MALFORMED[name](codec))
            assert (error(result), result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            assert result.error_message
            assert error(await plane.produce(topic, batch("after", compression=codec))) == NONE
            assert values((await plane.fetch(topic, 0)).records) == [b"after"]

    run(test)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_batch_with_a_corrupt_compressed_block_is_rejected(codec: Compression) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        whole = compress(codec, record(0) + record(1))
        for block in (record(0) + record(1), b"", b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\5hello", whole[:-5]):
            data = batch_around(block, codec, squeeze=False)
            assert error(await plane.produce("orders", data)) == ErrorCode.INVALID_RECORD

    run(test)


def with_max_timestamp(data: bytearray, max_timestamp: int) -> bytearray:
    struct.pack_into(">q", data, 35, max_timestamp)
    write_crc(data, 0)
    return data


@every_codec
@pytest.mark.parametrize("told", [0, -1, EPOCH_MS + 39, 2**45, -(2**63)])
@pytest.mark.parametrize("filling", [[], NOISE], ids=["small", "large"])
def test_the_stored_max_timestamp_is_computed_from_the_records_not_copied_from_the_header(
    told: int, codec: Compression, filling: list[bytes]
) -> None:
    times = [10, 40, 30]
    items = [Record(0, EPOCH_MS + time, b"k", b"v") for time in times]
    items += [Record(0, EPOCH_MS + 5, b"k", value) for value in filling]

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        data = with_max_timestamp(encode_batch(items, compression=codec), told)
        assert error(await plane.produce("orders", data)) == NONE
        (piece,) = (await plane.fetch("orders", 0)).records
        header = read_header(piece)
        assert (header.base_timestamp, header.max_timestamp) == (EPOCH_MS + 10, EPOCH_MS + 40)
        assert check_crc(piece, 0, header)
        assert [item.timestamp for item in records([piece])] == [item.timestamp for item in items]
        assert plane.partition("orders").log.active.max_timestamp == EPOCH_MS + 40  # type: ignore[union-attr]

    run(test)


@every_codec
def test_a_log_append_time_topic_ignores_the_timestamps_in_produced_records(codec: Compression) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("stamped", message_timestamp_type="LogAppendTime")
        data = with_max_timestamp(batch("a", "b", compression=codec, timestamp=2**45), -1)
        result = await plane.produce("stamped", data)
        assert error(result) == NONE
        (piece,) = (await plane.fetch("stamped", 0)).records
        header = read_header(piece)
        assert header.is_log_append_time
        assert (header.max_timestamp, header.base_timestamp) == (result.log_append_time_ms, 2**45)
        assert check_crc(piece, 0, header)

    run(test)


async def produce_both_ways(plane: Plane, topic: str, data: bytearray) -> ProduceResult:
    """Produce the batch in a version with record errors and in one without. Check that the error code is the same, and
    return the result with record errors."""
    old = await plane.produce(topic, bytearray(data), version=7)
    new = await plane.produce(topic, data, version=8)
    assert (error(old), list(old.record_errors), old.error_message) == (error(new), [], None)
    return new


@every_codec
def test_a_produce_response_lists_records_with_invalid_timestamps_by_index_from_version_8(codec: Compression) -> None:
    hour_ms = 3_600_000

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", message_timestamp_before_max_ms="1000")
        offsets = (0, -100 * hour_ms, 5, 100 * hour_ms)
        items = [Record(0, EPOCH_MS + offset, b"k", b"v") for offset in offsets] + [Record(0, -1, b"k", b"v")]
        result = await produce_both_ways(plane, "orders", encode_batch(items, compression=codec))
        assert error(result) == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in result.record_errors] == [1, 3]
        assert str(result.record_errors[1][1]).startswith(
            f"Timestamp {EPOCH_MS + 100 * hour_ms} of message with offset"
        )
        assert str(result.error_message).startswith("One or more records have been rejected due to invalid timestamp")

    run(test)


@every_codec
@pytest.mark.parametrize("filling", [[], NOISE], ids=["small", "large"])
def test_a_batch_with_an_extreme_base_timestamp_is_rejected_and_the_next_produce_is_served(
    codec: Compression, filling: list[bytes]
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", message_timestamp_before_max_ms="1000")
        block = b"".join(record(at, value=value) for at, value in enumerate([b"v", *filling]))
        for base in (-(2**63), 2**63 - 1):
            data = batch_around(block, codec, count=1 + len(filling), base_timestamp=base)
            assert error(await plane.produce("orders", data)) == ErrorCode.INVALID_TIMESTAMP
        assert error(await plane.produce("orders", batch("after", compression=codec))) == NONE

    run(test)


@pytest.mark.parametrize("large", [False, True])
def test_a_batch_with_too_many_record_headers_is_rejected(large: bool) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", max_message_bytes="4000000")
        body = b"\0\0\0\1\1" + encode_zigzag(HEADERS_MAX + 1) + b"\0\1" * (HEADERS_MAX + 1)
        codec = Compression.ZSTD if large else Compression.NONE
        result = await plane.produce("orders", batch_around(encode_zigzag(len(body)) + body, codec, count=1))
        assert error(result) == ErrorCode.MESSAGE_TOO_LARGE
        assert "send smaller batches" in str(result.error_message)

    run(test)


def test_a_batch_with_many_record_headers_is_checked_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def note(source: bytes, *rest: Any) -> Any:
        opened.append(len(source))
        return prepare(source, *rest)

    prepare = prepare_batch.prepare_batch
    monkeypatch.setattr(prepare_batch, "prepare_batch", note)
    monkeypatch.setattr(prepare_batch, "HEADERS_AT_ONCE_MAX", 2)

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for count in (1, 2, 3):
            items = [Record(0, EPOCH_MS, b"k", b"v", (("h", None),))] * count
            assert error(await plane.produce("orders", encode_batch(items))) == NONE
            assert len(opened) == (count > 2)

    run(test)


def test_an_unexpected_error_in_decompression_rejects_the_batch_and_the_next_produce_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(prepare_batch, "RECORDS_AT_ONCE_MAX", 2)

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        with monkeypatch.context() as patched:
            patched.setattr(prepare_batch, "prepare_batch", fail)
            result = await plane.produce("orders", batch("a", "b", "c"))
        assert error(result) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert error(await plane.produce("orders", batch("d", "e", "f"))) == NONE
        assert values((await plane.fetch("orders", 0)).records) == [b"d", b"e", b"f"]

    run(test)


async def pipeline(plane: Plane, count: int) -> list[ProduceResult]:
    """Send this many batches of three records on one connection without waiting. Return their results in order."""
    client = await plane.client()
    topic_id = plane.cluster.node(1).publisher.image.topics.get("orders").topic_id  # type: ignore[union-attr]
    results: list[ProduceResult] = []

    def on_reply(reply: memoryview | None) -> None:
        assert reply is not None
        results.append(decode_produce_response(PRODUCE_VERSION, bytes(reply)).topics[0][2][0])

    for number in range(count):
        data = batch(*[f"{number}-{place}" for place in range(3)])
        topics = [("orders", topic_id, [(0, data)])]
        body = encode_produce_request(PRODUCE_VERSION, acks=-1, timeout_ms=10_000, topics=topics, transactional_id=None)
        client.connection.send(ApiKey.PRODUCE, PRODUCE_VERSION, [b"".join(body)], on_reply)
    await plane.until(lambda: len(results) == count)
    return results


def test_at_most_one_batch_per_connection_is_decompressed_off_the_loop_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepare_batch, "RECORDS_AT_ONCE_MAX", 2)
    waiting: list[int] = []

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert error(await plane.produce("orders", batch("first"))) == NONE
        partition = plane.partition("orders")
        append_later = partition.append_later

        def count_waiting(append: PendingAppend) -> None:
            append_later(append)
            waiting.append(len(partition.pending))

        monkeypatch.setattr(type(partition), "append_later", lambda _, append: count_waiting(append))
        results = await pipeline(plane, 20)
        assert waiting == [1] * 20
        assert [(error(result), result.base_offset) for result in results] == [(NONE, 1 + 3 * at) for at in range(20)]
        assert plane.cluster.node(1).gates.memory.used_bytes < 1 << 20

    run(test)


def test_batches_that_wait_for_files_overdraw_the_memory_budget_by_at_most_one_per_connection() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        partition, memory = plane.partition("orders"), plane.cluster.node(1).gates.memory
        partition.append_state = AppendState.PREPARING
        memory.take(memory.total_bytes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pipeline, plane, 20)
            await plane.until(lambda: bool(partition.pending))
            await plane.world.sleep_ms(100)
            assert len(partition.pending) == 1
            memory.give(memory.total_bytes)
            partition.append_state = AppendState.READY
            partition.run_pending()
        assert partition.log.log_end_offset == 60  # type: ignore[union-attr]

    run(test)


def test_a_log_append_time_batch_from_a_client_is_rejected_with_an_error_for_each_record() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("stamped", message_timestamp_type="LogAppendTime")
        data = encode_batch([Record(0, EPOCH_MS, b"k", b"v")] * 3, log_append_time_ms=EPOCH_MS)
        result = await produce_both_ways(plane, "stamped", data)
        assert error(result) == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in result.record_errors] == [0, 1, 2]

    run(test)


def bomb(codec: Compression, *, megabytes: int) -> bytearray:
    return batch_around(record(0, value=bytes(megabytes << 20)), codec, count=1)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("compression_type", ["producer", "snappy"])
def test_a_batch_that_decompresses_to_too_much_is_rejected_and_its_memory_released(
    codec: Compression, compression_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_batch, "OPENED_BYTES_MAX", 4 << 20)

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", compression_type=compression_type)
        data = bomb(codec, megabytes=5)
        assert len(data) < 100_000
        result = await plane.produce("orders", data)
        assert error(result) == ErrorCode.MESSAGE_TOO_LARGE
        assert "send smaller batches" in str(result.error_message)
        assert plane.cluster.node(1).gates.memory.used_bytes < 1 << 20  # the connection's buffer
        assert error(await plane.produce("orders", bomb(codec, megabytes=3))) == NONE

    run(test)


def test_a_batch_with_too_many_records_is_rejected_before_decompression() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        result = await plane.produce("orders", batch_around(b"", Compression.ZSTD, count=RECORDS_MAX + 1))
        assert error(result) == ErrorCode.MESSAGE_TOO_LARGE
        assert f"at most {RECORDS_MAX}" in str(result.error_message)

    run(test)


@every_codec
def test_a_batch_of_many_records_is_checked_off_the_loop_and_keeps_its_place_in_the_log(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_batch, "RECORDS_AT_ONCE_MAX", 2)

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        data = with_max_timestamp(batch("a", "b", "c", compression=codec), 0)
        assert error(await plane.produce("orders", data)) == NONE
        assert error(await plane.produce("orders", batch_around(record(0) * 3, codec, count=3))) == 87
        assert error(await plane.produce("orders", batch("d"))) == NONE
        found = (await plane.fetch("orders", 0)).records
        assert values(found) == [b"a", b"b", b"c", b"d"]
        assert read_header(found[0]).max_timestamp == EPOCH_MS

    run(test)


@every_codec
def test_a_codec_conversion_keeps_the_bytes_of_the_records(codec: Compression) -> None:
    """A header name that is not UTF-8 and decreasing timestamps come out of the conversion unchanged."""
    body = b"\0" + encode_zigzag(7) + b"\0\1\1" + encode_zigzag(1) + encode_zigzag(2) + b"\xffa" + encode_zigzag(-1)
    block = encode_zigzag(len(body)) + body + record(1, timestamp=-9)

    async def test(plane: Plane) -> None:
        await plane.create_topic("plain", compression_type="uncompressed")
        assert error(await plane.produce("plain", batch_around(block, codec, max_timestamp=0))) == NONE
        (piece,) = (await plane.fetch("plain", 0)).records
        assert bytes(piece[61:]) == block
        assert read_header(piece).max_timestamp == EPOCH_MS + 7
        assert [item.headers for item in records([piece])] == [(("\ufffda", None),), ()]

    run(test)


def test_a_batch_that_exceeds_the_size_limit_after_codec_conversion_is_rejected() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("small", compression_type="uncompressed", max_message_bytes="1000")
        result = await plane.produce("small", batch("x" * 5_000, compression=Compression.GZIP))
        assert error(result) == ErrorCode.MESSAGE_TOO_LARGE

    run(test)


async def store_unchecked(plane: Plane, data: bytearray) -> None:
    """Store a batch like a leader of an older version, which did not check records. The log already has one batch
    before it."""
    assert error(await plane.produce("orders", batch("before", key=b"k"))) == NONE
    partition = plane.partition("orders", 1)
    partition.append_as_leader(memoryview(data), read_header(data), EPOCH_MS)
    plane.cluster.node(1).broker.broker.seam.network.request_pass()


@pytest.mark.parametrize("name", MALFORMED)
def test_followers_copy_a_malformed_batch_that_an_older_version_stored(name: str) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for codec in (Compression.NONE, Compression.ZSTD):
            await store_unchecked(plane, MALFORMED[name](codec))
            assert error(await plane.produce("orders", batch("after"))) == NONE
        ends = {plane.partition("orders", broker).log.log_end_offset for broker in (1, 2, 3)}  # type: ignore[union-attr]
        assert len(ends) == 1

    three(test)


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_batch_of_an_older_version_does_not_end_the_cleaner(name: str) -> None:
    options = {"cleanup_policy": "compact", "internal_segment_bytes": "300", "min_cleanable_dirty_ratio": "0.01"}

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **options)  # type: ignore[arg-type]
        await store_unchecked(plane, MALFORMED[name](Compression.LZ4))
        for _ in range(10):
            assert error(await plane.produce("orders", batch("after", key=b"other"))) == NONE
        cleaner = plane.cluster.node(1).broker.broker.replicas.logs.cleaner
        cleaned = await cleaner.clean_dirtiest()
        copied = "offset deltas with a hole", "a header without a name", "a timestamp beyond 64 bits"
        # if no record is removed, or bytes are only copied, the round finds no error
        assert cleaned is (name in copied)
        assert not plane.partition("orders").is_offline
        assert error(await plane.produce("orders", batch("after", key=b"k"))) == NONE

    run(test, combined=1, log_cleaner_backoff_ms="3600000")
