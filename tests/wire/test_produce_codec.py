from __future__ import annotations

import datetime
import io
import struct
from typing import Any
from uuid import UUID

import kio.index
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from kraft.seam import Buffer, WireError
from kraft.wire.messages.produce import (
    ProduceResult,
    ProduceSuccess,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)
from kraft.wire.messages.tagged import CurrentLeader, NodeEndpoint

VERSIONS = range(3, 14)
every_version = pytest.mark.parametrize("version", VERSIONS)
NAMES = st.text(min_size=1, max_size=20)
IDS = st.uuids().filter(lambda value: value.int != 0)
RECORDS = st.none() | st.binary(max_size=200) | st.integers(60, 40_000).map(bytes)
PARTITIONS = st.lists(st.tuples(st.integers(0, 2**31 - 1), RECORDS), max_size=3)
Topics = list[tuple[str | None, UUID | None, list[tuple[int, bytes | None]]]]


def topics_of(version: int) -> st.SearchStrategy[Topics]:
    name = st.none() if version >= 13 else NAMES
    topic_id = IDS if version >= 13 else st.none()
    return st.lists(st.tuples(name, topic_id, PARTITIONS), max_size=3)


def kio_request(version: int, body: bytes) -> Any:
    message, size = entity_reader(kio.index.load_request_schema(0, version))(body, 0)
    assert size == len(body)
    return message


def kio_response(version: int, body: bytes) -> Any:
    message, size = entity_reader(kio.index.load_response_schema(0, version))(body, 0)
    assert size == len(body)
    return message


def plain(topics: Any) -> Topics:
    return [
        (name, topic_id, [(index, None if records is None else bytes(records)) for index, records in partitions])
        for name, topic_id, partitions in topics
    ]


@every_version
@given(data=st.data())
def test_produce_requests_are_encoded_as_by_kio_and_decoded_in_place(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version))
    transactional_id = data.draw(st.none() | st.text(max_size=10))
    chunks: list[Buffer] = encode_produce_request(
        version, acks=-1, timeout_ms=1500, topics=topics, transactional_id=transactional_id
    )
    body = b"".join(chunks)
    message = kio_request(version, body)
    assert (message.transactional_id, message.acks) == (transactional_id, -1)
    assert message.timeout == datetime.timedelta(milliseconds=1500)
    assert [
        (getattr(t, "name", None), getattr(t, "topic_id", None), [(p.index, p.records) for p in t.partition_data])
        for t in message.topic_data
    ] == topics
    for tail in (b"", b"tail"):
        request = decode_produce_request(version, memoryview(bytearray(body + tail)))
        assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 1500)
        assert plain(request.topics) == topics


@every_version
def test_produced_records_are_writable_views_and_encoding_does_not_copy_them(version: int) -> None:
    records = bytes(range(256))
    topic = (None, UUID(int=5)) if version >= 13 else ("orders", None)
    chunks = encode_produce_request(version, acks=1, timeout_ms=0, topics=[(*topic, [(0, records)])])
    assert any(chunk is records for chunk in chunks)
    body = bytearray(b"".join(chunks))
    request = decode_produce_request(version, memoryview(body))
    view = request.topics[0][2][0][1]
    assert view is not None
    view[0:4] = b"\xff\xff\xff\xff"
    assert b"\xff\xff\xff\xff" + records[4:] in body


@every_version
@given(data=st.data())
def test_truncated_and_mutated_produce_requests_raise_only_wire_errors(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version))
    body = bytearray(b"".join(encode_produce_request(version, acks=-1, timeout_ms=1, topics=topics)))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(WireError):
        decode_produce_request(version, memoryview(body[:cut]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_produce_request(version, memoryview(body))
    except WireError:
        return


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (9, b"\0\0\1\0\0\0\0\2\3\xff\xfe\2" + bytes(4) + b"\x81\1" + bytes(128) + b"\0\0\0"),
        (9, b"\0\0\1\0\0\0\0\2\3\xff\xfe\1\0\0"),
        (9, b"\0\0\1\0\0\0\0\xff\xff\xff\xff\xff\xff"),
        (9, b"\0\0\1\0\0\0\0\xff\xff\xff\xff\x07"),
        (9, b"\0\0\1\0\0\0\0\2\0\1\0\0"),
        (3, struct.pack(">hhiih", -1, 1, 0, 1, -1) + bytes(20)),
    ],
)
def test_produce_request_with_an_invalid_name_or_a_wrong_count_is_a_wire_error(version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_produce_request(version, memoryview(body))


@pytest.mark.parametrize("size", [0, 126, 127, 128, 16_381, 16_382, 16_383, 2_097_149, 2_097_150, 2_097_151, 5_000_000])
@pytest.mark.parametrize("version", [10, 13])
def test_produced_records_are_read_with_a_length_field_of_any_size(version: int, size: int) -> None:
    topic = (None, UUID(int=5)) if version >= 13 else ("orders", None)
    chunks = encode_produce_request(version, acks=1, timeout_ms=0, topics=[(*topic, [(7, bytes(size))])])
    request = decode_produce_request(version, memoryview(b"".join(chunks)))
    name, topic_id, [(index, records)] = request.topics[0]
    assert (name, topic_id, index, len(records or b"")) == (*topic, 7, size)


def test_unknown_tagged_fields_of_produce_are_skipped_at_every_level() -> None:
    tags = b"\1\5\1z"
    body = b"\0\0\1\0\0\0\0\2" + b"\2t" + b"\2" + bytes(4) + b"\3ab" + tags + tags + tags
    request = decode_produce_request(9, memoryview(body))
    assert plain(request.topics) == [("t", None, [(0, b"ab")])]


OFFSETS = st.integers(-1, 2**60)
LEADERS = st.none() | st.builds(CurrentLeader, st.integers(-1, 99), st.integers(-1, 99))
ERRORS = st.lists(st.tuples(st.integers(0, 99), st.none() | st.text(max_size=9)), max_size=3).map(tuple)


def results_of(version: int) -> st.SearchStrategy[ProduceResult]:
    return st.builds(
        ProduceResult,
        partition=st.integers(0, 99),
        error_code=st.sampled_from([int(code) for code in KioErrorCode]),
        base_offset=OFFSETS,
        log_append_time_ms=st.integers(-1, 2**40),
        log_start_offset=OFFSETS if version >= 5 else st.just(-1),
        record_errors=ERRORS if version >= 8 else st.just(()),
        error_message=st.none() | st.text(max_size=9) if version >= 8 else st.none(),
        current_leader=LEADERS.filter(lambda leader: leader != CurrentLeader()) if version >= 10 else st.none(),
    )


@every_version
@given(data=st.data())
def test_produce_responses_are_encoded_as_by_kio_and_decoded_again(version: int, data: st.DataObject) -> None:
    name = st.none() if version >= 13 else NAMES
    topic_id = IDS if version >= 13 else st.none()
    topics = data.draw(st.lists(st.tuples(name, topic_id, st.lists(results_of(version), max_size=3)), max_size=3))
    endpoint = st.builds(NodeEndpoint, st.integers(0, 9), st.text(max_size=9), st.integers(0, 99), st.none() | NAMES)
    endpoints = data.draw(st.lists(endpoint, max_size=2).map(tuple)) if version >= 10 else ()
    body = encode_produce_response(version, topics, 77, endpoints)
    message = kio_response(version, body)
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    assert buffer.getvalue() == body
    response = decode_produce_response(version, body)
    assert list(response.topics) == topics
    assert (response.throttle_time_ms, response.node_endpoints) == (77, endpoints)
    for cut in range(0, len(body), max(1, len(body) // 20)):
        with pytest.raises(WireError):
            decode_produce_response(version, body[:cut])


@every_version
@given(st.text(max_size=30), IDS, st.integers(0, 99), OFFSETS, OFFSETS, OFFSETS)
def test_the_fast_produce_response_equals_the_general_one(
    version: int, name: str, topic_id: UUID, partition: int, base_offset: int, append_ms: int, log_start: int
) -> None:
    result = ProduceResult(partition, 0, base_offset, append_ms, log_start)
    success = ProduceSuccess(version, name, topic_id, partition)
    assert success.body(base_offset, append_ms, log_start) == encode_produce_response(
        version, [(name, topic_id, [result])]
    )


@given(st.data())
def test_mutated_produce_responses_raise_only_wire_errors(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    result = ProduceResult(1, 6, -1, -1, -1, ((0, "bad"),), "why", CurrentLeader(2, 3))
    body = bytearray(encode_produce_response(version, [("t", UUID(int=1), [result])], 0, [NodeEndpoint(2, "h", 9)]))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_produce_response(version, body)
    except WireError:
        return
