"""Produce against one node: appends, acks, and each check in the table of docs/produce-checks.md."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

import pytest

from kraft.broker.partition.partition_states import AppendState
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import decode_produce_response, encode_produce_request
from kraft.wire.records import read_header, write_crc
from kraft.wire.records.compression import Compression
from kraft.wire.server import Request, ServerConnection, ServerLimits
from tests.stages.fake_transport import RecordingTransport
from tests.stages.plane import EPOCH_MS, Plane, batch, error, far_apart, records, run, values

NONE = ErrorCode.NONE


def test_records_produced_in_any_version_are_fetched() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for version in range(3, 14):
            result = await plane.produce("orders", batch(f"v{version}"), version=version)
            assert (error(result), result.base_offset, result.log_append_time_ms) == (NONE, version - 3, -1)
        result = await plane.fetch("orders", 0)
        assert values(result.records) == [f"v{version}".encode() for version in range(3, 14)]
        assert result.high_watermark == 11

    run(test)


def test_a_produce_with_acks_0_gets_no_response_and_the_next_request_is_served() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        client = await plane.client()
        topic_id = plane.cluster.node(1).publisher.image.topics.get("orders").topic_id
        body = encode_produce_request(
            12, acks=0, timeout_ms=1000, topics=[("orders", topic_id, [(0, batch("silent"))])]
        )
        client.connection.send(ApiKey.PRODUCE, 12, body, None)
        assert error(await plane.produce("orders", batch("loud"))) == NONE
        assert values((await plane.fetch("orders", 0)).records) == [b"silent", b"loud"]

    run(test)


def test_an_error_in_a_produce_with_acks_0_closes_the_connection() -> None:
    async def test(plane: Plane) -> None:
        client = await plane.client()
        body = encode_produce_request(12, acks=0, timeout_ms=1000, topics=[("nowhere", None, [(0, batch("x"))])])
        client.connection.send(ApiKey.PRODUCE, 12, body, None)
        await plane.until(lambda: client.connection.is_closed)

    run(test)


def test_the_partitions_of_one_produce_succeed_or_fail_independently() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 3)
        await plane.create_topic("items")
        response = await plane.produce_many(
            [
                ("orders", [(2, batch("a")), (7, batch("b")), (0, b"")]),
                ("nowhere", [(0, batch("c"))]),
                ("items", [(0, batch("d", "e"))]),
            ]
        )
        found = {
            name: [(row.partition, error(row), row.base_offset) for row in rows] for name, _, rows in response.topics
        }
        assert found == {
            "orders": [
                (2, NONE, 0),
                (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
                (0, ErrorCode.INVALID_RECORD, -1),
            ],
            "nowhere": [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)],
            "items": [(0, NONE, 0)],
        }

    run(test)


def test_a_produce_without_topics_gets_an_empty_response() -> None:
    async def test(plane: Plane) -> None:
        assert (await plane.produce_many([])).topics == []

    run(test)


def patched(change: Callable[[bytearray], None], *, crc: bool = True) -> bytearray:
    data = batch("one", "two")
    change(data)
    if crc:
        write_crc(data, 0)
    return data


def put(form: str, position: int, value: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(form, data, position, value)


BAD_BATCHES = {
    "no records at all": (lambda: None, ErrorCode.INVALID_RECORD),
    "no bytes": (lambda: b"", ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: patched(put(">b", 16, 1), crc=False), ErrorCode.INVALID_RECORD),
    "magic 7": (lambda: patched(put(">b", 16, 7), crc=False), ErrorCode.INVALID_RECORD),
    "a batch that is cut short": (lambda: batch("long enough")[:-3], ErrorCode.INVALID_RECORD),
    "a length below the header's": (lambda: patched(put(">i", 8, 20), crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a base offset": (lambda: patched(put(">q", 0, 5)), ErrorCode.INVALID_RECORD),
    "a wrong CRC": (lambda: patched(put(">i", 17, 99), crc=False), ErrorCode.CORRUPT_MESSAGE),
    "another count than offsets": (lambda: patched(put(">i", 57, 3)), ErrorCode.INVALID_RECORD),
    "no record": (lambda: patched(lambda d: (put(">i", 57, 0)(d), put(">i", 23, -1)(d))), ErrorCode.INVALID_RECORD),
    "a control batch": (lambda: patched(put(">h", 21, 0x20)), ErrorCode.INVALID_RECORD),
    "a producer id without sequence": (lambda: patched(put(">q", 43, 7)), ErrorCode.INVALID_RECORD),
    "an unknown codec": (lambda: patched(put(">h", 21, 6)), ErrorCode.INVALID_RECORD),
    "a time in the future": (lambda: batch("x", timestamp=2**45), ErrorCode.INVALID_TIMESTAMP),
    "an append time without a time": (
        lambda: patched(lambda d: (put(">h", 21, 8)(d), put(">q", 27, -1)(d), put(">q", 35, -1)(d))),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "more than max.message.bytes": (lambda: batch("x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_an_invalid_batch_is_rejected_as_a_whole(name: str) -> None:
    make, expected = BAD_BATCHES[name]

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert error(await plane.produce("orders", batch("before"))) == NONE
        result = await plane.produce("orders", make())
        assert (error(result), result.base_offset) == (expected, -1)
        assert error(await plane.produce("orders", batch("after"))) == NONE
        assert values((await plane.fetch("orders", 0)).records) == [b"before", b"after"]

    run(test)


def test_an_incomplete_second_batch_in_a_produce_is_ignored() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert error(await plane.produce("orders", batch("whole") + batch("tail")[:-1])) == NONE
        assert values((await plane.fetch("orders", 0)).records) == [b"whole"]

    run(test)


def test_a_zstd_batch_is_rejected_before_produce_version_7() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        data = batch("x" * 500, compression=Compression.ZSTD)
        result = await plane.produce("orders", data, version=6)
        assert error(result) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert error(await plane.produce("orders", data, version=7)) == NONE

    run(test)


def test_a_produce_with_acks_other_than_minus_1_0_or_1_is_rejected() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert error(await plane.produce("orders", batch("x"), acks=2)) == ErrorCode.INVALID_REQUIRED_ACKS

    run(test)


def test_a_produce_with_an_unknown_topic_id_gets_unknown_topic_id() -> None:
    async def test(plane: Plane) -> None:
        result = await plane.produce("nowhere", batch("x"), version=13)
        assert error(result) == ErrorCode.UNKNOWN_TOPIC_ID

    run(test)


def test_transactional_batches_are_rejected_without_a_transactional_id_or_a_coordinator() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 2)
        one = batch("x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        other = batch("x", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert error(await plane.produce("orders", one)) == refused
        for version in (10, 11, 12):
            result = await plane.produce("orders", one, version=version, transactional_id="t")
            assert error(result) == ErrorCode.NOT_ENOUGH_REPLICAS, "the topic of the coordinators does not exist yet"
        response = await plane.produce_many([("orders", [(0, one), (1, other)])], transactional_id="t")
        assert {error(row) for row in response.topics[0][2]} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    run(test)


def test_a_produce_of_an_ordinary_client_to_an_internal_topic_is_rejected() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("__consumer_offsets")
        assert error(await plane.produce("__consumer_offsets", batch("x"))) == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(test)


def test_a_transactional_produce_to_the_transaction_topic_is_rejected_for_every_client() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("__transaction_state")
        client = await plane.cluster.connect(1, plane.seam, client_id="__admin_client")
        identity = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        one = batch("x", key=b"k", transactional=True, **identity)
        result = await plane.produce("__transaction_state", one, client=client, transactional_id="t")
        assert error(result) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert error(await plane.produce("__transaction_state", batch("x", key=b"k"), client=client)) == NONE

    run(test)


def test_a_record_without_a_key_is_rejected_by_a_compacted_topic() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("latest", cleanup_policy="compact")
        result = await plane.produce("latest", batch("a", "b"))
        assert error(result) == ErrorCode.INVALID_RECORD
        assert [index for index, _ in result.record_errors] == [0, 1]
        assert result.log_start_offset == 0
        for codec in Compression:
            assert error(await plane.produce("latest", batch("a", key=b"k", compression=codec))) == NONE

    run(test)


def test_a_topic_with_log_append_time_stamps_its_batches() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("stamped", message_timestamp_type="LogAppendTime")
        for timestamp in (5, EPOCH_MS - 1, 2**45):
            result = await plane.produce("stamped", batch("a", timestamp=timestamp))
            assert error(result) == NONE
            assert result.log_append_time_ms > EPOCH_MS
        found = records((await plane.fetch("stamped", 0)).records)
        assert all(EPOCH_MS < record.timestamp < EPOCH_MS + 60_000 for record in found)
        assert len(found) == 3
        told = await plane.produce("stamped", patched(put(">h", 21, 8)))
        assert error(told) == ErrorCode.INVALID_TIMESTAMP

    run(test)


def test_a_produced_batch_marked_log_append_time_is_stored_as_create_time_in_a_create_time_topic() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert error(await plane.produce("orders", patched(put(">h", 21, 8)))) == NONE
        (piece,) = (await plane.fetch("orders", 0)).records
        assert not read_header(piece).is_log_append_time

    run(test)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_batch_with_a_codec_other_than_compression_type_is_converted(codec: str) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("small", compression_type=codec)
        target = Compression.named(codec)
        for number, source in enumerate(Compression):
            data = batch("x" * 300, key=b"k", compression=source, producer_id=5, producer_epoch=0, base_sequence=number)
            assert error(await plane.produce("small", data)) == NONE
            (piece,) = (await plane.fetch("small", number)).records
            header = read_header(piece)
            assert (header.compression, header.producer_id, header.base_sequence) == (target, 5, number)
            assert values([piece]) == [b"x" * 300]

    run(test)


def test_a_batch_with_a_timestamp_beyond_64_bits_is_rejected_instead_of_converted() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("small", compression_type="lz4")
        assert error(await plane.produce("small", far_apart(2**63 - 1))) == ErrorCode.INVALID_RECORD
        assert error(await plane.produce("small", far_apart(5))) == NONE

    run(test)


def test_a_codec_conversion_rejects_a_far_future_record_timestamp_missing_from_the_header() -> None:
    """Retention never deletes a segment whose largest timestamp lies far in the future."""
    day_ms = 86_400_000

    async def test(plane: Plane) -> None:
        await plane.create_topic("small", compression_type="lz4")
        await plane.create_topic("stamped", compression_type="lz4", message_timestamp_type="LogAppendTime")
        assert error(await plane.produce("small", far_apart(day_ms))) == ErrorCode.INVALID_TIMESTAMP
        assert error(await plane.produce("stamped", far_apart(day_ms))) == NONE

    run(test)


def test_batches_produced_after_a_batch_in_codec_conversion_keep_their_order() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("small", compression_type="gzip")
        client = await plane.client()
        answers: list[object] = []
        for number in range(6):
            codec = Compression.GZIP if number % 2 else Compression.NONE
            rows = [("small", None, [(0, batch(f"{number}", compression=codec))])]
            body = encode_produce_request(9, acks=-1, timeout_ms=1000, topics=rows)
            client.connection.send(ApiKey.PRODUCE, 9, body, answers.append)
        await plane.until(lambda: len(answers) == 6)
        assert values((await plane.fetch("small", 0)).records) == [b"%d" % number for number in range(6)]

    run(test)


# idempotence


def numbered(sequence: int, *texts: str, producer_id: int = 9, epoch: int = 0) -> bytearray:
    return batch(*(texts or ("x",)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_resent_idempotent_batch_gets_the_offset_of_its_first_append() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for sequence in range(6):
            assert (await plane.produce("orders", numbered(sequence))).base_offset == sequence
        for sequence in range(1, 6):
            again = await plane.produce("orders", numbered(sequence))
            assert (error(again), again.base_offset) == (NONE, sequence)
        forgotten = await plane.produce("orders", numbered(0))
        assert error(forgotten) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert plane.partition("orders").log.log_end_offset == 6

    run(test)


def test_a_batch_with_a_sequence_gap_or_an_older_producer_epoch_is_rejected() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert error(await plane.produce("orders", numbered(40))) == NONE, "no state: any sequence"
        assert error(await plane.produce("orders", numbered(42))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert error(await plane.produce("orders", numbered(7, epoch=1))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert error(await plane.produce("orders", numbered(0, epoch=1))) == NONE
        assert error(await plane.produce("orders", numbered(41, epoch=0))) == ErrorCode.INVALID_PRODUCER_EPOCH

    run(test)


def test_an_idempotent_batch_resent_after_a_broker_restart_is_not_duplicated() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for sequence in range(3):
            await plane.produce("orders", numbered(sequence))
        for end in (plane.world.kill, None):
            if end is None:
                plane.cluster.node(1).request_stop()
                await plane.world.wait_ended("b1")
            else:
                end("b1")
            plane.world.restart("b1")
            await plane.world.sleep_ms(10)
            await plane.cluster.wait_ready()
            again = await plane.produce("orders", numbered(2))
            assert (error(again), again.base_offset) == (NONE, 2)
        assert plane.partition("orders").log.log_end_offset == 3

    run(test)


def test_pipelined_produces_of_one_connection_are_appended_and_answered_in_order() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        client = await plane.client()
        offsets: list[int] = []

        def on_reply(body: memoryview | None) -> None:
            assert body is not None
            offsets.append(decode_produce_response(9, body).topics[0][2][0].base_offset)

        for sequence in range(200):
            rows = [("orders", None, [(0, numbered(sequence))])]
            body = encode_produce_request(9, acks=-1, timeout_ms=1000, topics=rows)
            client.connection.send(ApiKey.PRODUCE, 9, body, on_reply)
        await plane.until(lambda: len(offsets) == 200)
        assert offsets == list(range(200))

    run(test)


def test_a_large_compressed_batch_for_a_compacted_topic_is_decompressed_off_the_loop() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("latest", cleanup_policy="compact")
        noise = [Random(number).randbytes(2_000) for number in range(20)]
        result = await plane.produce("latest", batch(*noise, compression=Compression.LZ4))
        assert error(result) == ErrorCode.INVALID_RECORD
        assert len(result.record_errors) == 20
        assert error(await plane.produce("latest", batch(*noise, key=b"k", compression=Compression.LZ4))) == NONE
        assert values((await plane.fetch("latest", 0)).records) == noise

    run(test)


def test_a_batch_that_waits_for_its_partition_does_not_keep_its_request_frame_in_memory() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        dispatcher, partition = plane.cluster.node(1).broker.broker.dispatcher, plane.partition("orders")
        partition.append_state = AppendState.PREPARING  # and the state stays so
        body = encode_produce_request(9, acks=-1, timeout_ms=60_000, topics=[("orders", None, [(0, batch("x"))])])
        frame = bytearray(b"".join(body))
        connection = ServerConnection(RecordingTransport(), lambda _: None, limits=ServerLimits(), budget=None)
        request = Request(connection, ApiKey.PRODUCE, 9, 1, "client", memoryview(frame), True)
        session = Session("PLAINTEXT", "PLAINTEXT", "User:ANONYMOUS", "here", "client")
        dispatcher._handlers[ApiKey.PRODUCE](request, session)
        assert len(partition.pending) == 1
        request.body = memoryview(b"")
        frame.append(0)  # raises BufferError while a view of the frame exists

    run(test)
