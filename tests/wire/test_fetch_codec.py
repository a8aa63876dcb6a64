from __future__ import annotations

import datetime
import io
from typing import Any
from uuid import UUID

import kio.index
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from kraft.seam import Chunk, FileRange, WireError
from kraft.wire.messages.fetch import (
    NO_HIGH_WATERMARK,
    FetchPartition,
    FetchRequest,
    FetchResult,
    ReplicaTags,
    decode_fetch_request,
    encode_fetch_request,
)
from kraft.wire.messages.fetch_response import decode_fetch_response, encode_fetch_response
from kraft.wire.messages.tagged import CurrentLeader, NodeEndpoint
from tests.stages.fake_transport import MemoryFile, chunk_bytes

VERSIONS = range(4, 19)
STEPS = (4, 7, 12, 13, 18)
"""Versions tested in every run: the first and last, and those that added sessions, tagged fields and topic ids."""
every_version = pytest.mark.parametrize(
    "version",
    [pytest.param(version, marks=() if version in STEPS else pytest.mark.slow) for version in VERSIONS],
)
NAMES = st.text(min_size=1, max_size=12)
IDS = st.uuids().filter(lambda value: value.int != 0)
INT32 = st.integers(-1, 2**31 - 1)
INT64 = st.integers(-1, 2**62)


def partitions_of(version: int) -> st.SearchStrategy[FetchPartition]:
    tags: st.SearchStrategy[ReplicaTags | int] = st.just(0)
    if version >= 17:
        high_watermark = INT64 if version >= 18 else st.just(NO_HIGH_WATERMARK)
        tags |= st.builds(ReplicaTags, IDS, high_watermark)
    return st.builds(
        FetchPartition,
        partition=INT32,
        current_leader_epoch=INT32 if version >= 9 else st.just(-1),
        fetch_offset=INT64,
        last_fetched_epoch=INT32 if version >= 12 else st.just(-1),
        log_start_offset=INT64 if version >= 5 else st.just(-1),
        partition_max_bytes=INT32,
        tags=tags,
    )


def named(version: int, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    name = st.none() if version >= 13 else NAMES
    topic_id = IDS if version >= 13 else st.none()
    return st.lists(st.tuples(name, topic_id, values), max_size=3)


def requests_of(version: int) -> st.SearchStrategy[FetchRequest]:
    has_session = version >= 7
    return st.builds(
        FetchRequest,
        max_wait_ms=st.integers(0, 2**31 - 1),
        min_bytes=INT32,
        topics=named(version, st.lists(partitions_of(version), max_size=4)),
        max_bytes=INT32,
        isolation_level=st.integers(0, 1),
        session_id=INT32 if has_session else st.just(0),
        session_epoch=INT32 if has_session else st.just(-1),
        forgotten=named(version, st.lists(INT32, max_size=3).map(tuple)).map(tuple) if has_session else st.just(()),
        rack_id=st.text(max_size=5) if version >= 11 else st.just(""),
        replica_id=INT32,
        replica_epoch=INT64 if version >= 15 else st.just(-1),
        cluster_id=st.none() | NAMES if version >= 12 else st.none(),
    )


def load(version: int, body: bytes, *, response: bool = False) -> Any:
    schema = kio.index.load_response_schema if response else kio.index.load_request_schema
    message, size = entity_reader(schema(1, version))(body, 0)
    assert size == len(body)
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    assert buffer.getvalue() == body, "kio writes the same bytes"
    return message


@every_version
@given(data=st.data())
def test_fetch_requests_are_encoded_as_by_kio_and_decoded_again(version: int, data: st.DataObject) -> None:
    request = data.draw(requests_of(version))
    body = encode_fetch_request(version, request)
    message = load(version, body)
    assert message.max_wait == datetime.timedelta(milliseconds=request.max_wait_ms)
    assert sum(len(topic.partitions) for topic in message.topics) == sum(len(p) for _, _, p in request.topics)
    for tail in (b"", b"tail"):
        assert decode_fetch_request(version, body + tail) == request


@every_version
@given(data=st.data())
def test_truncated_and_mutated_fetch_requests_raise_only_wire_errors(version: int, data: st.DataObject) -> None:
    body = bytearray(encode_fetch_request(version, data.draw(requests_of(version))))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(WireError):
        decode_fetch_request(version, body[:cut])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_fetch_request(version, memoryview(body))
    except WireError:
        return


def test_a_fetch_request_names_its_replica_or_consumer() -> None:
    consumer = FetchRequest(500, 1, [])
    follower = FetchRequest(500, 1, [], replica_id=3, replica_epoch=9, isolation_level=1)
    assert (consumer.replica_id, consumer.replica_epoch, consumer.isolation_level) == (-1, -1, 0)
    for version in (11, 15, 18):
        back = decode_fetch_request(version, encode_fetch_request(version, follower))
        assert (back.replica_id, back.isolation_level) == (3, 1)
        assert back.replica_epoch == (9 if version >= 15 else -1)


def test_fetch_partitions_with_follower_tags_are_read_beside_partitions_without_tags() -> None:
    directory = UUID(int=77)
    tagged = FetchPartition(1, 0, 5, 0, 0, 99, ReplicaTags(directory, 4))
    plain = FetchPartition(2, 0, 6, 0, 0, 99)
    request = FetchRequest(500, 1, [(None, UUID(int=1), [plain, tagged, plain])])
    back = decode_fetch_request(18, encode_fetch_request(18, request)).topics[0][2]
    assert [p.replica_directory_id for p in back] == [None, directory, None]
    assert [p.high_watermark for p in back] == [NO_HIGH_WATERMARK, 4, NO_HIGH_WATERMARK]
    older = decode_fetch_request(16, encode_fetch_request(16, request)).topics[0][2]
    assert [p.replica_directory_id for p in older] == [None, None, None]


RECORDS = st.lists(st.binary(min_size=1, max_size=30), max_size=1).map(tuple)


def results_of(version: int) -> st.SearchStrategy[FetchResult]:
    pairs = st.tuples(st.integers(-1, 99), st.integers(0, 99))
    flexible = version >= 12
    return st.builds(
        FetchResult,
        partition=INT32,
        error_code=st.sampled_from([int(code) for code in KioErrorCode]),
        high_watermark=INT64,
        last_stable_offset=INT64,
        log_start_offset=INT64 if version >= 5 else st.just(-1),
        aborted_transactions=st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
        preferred_read_replica=INT32 if version >= 11 else st.just(-1),
        records=RECORDS,
        diverging_epoch=st.none() | pairs if flexible else st.none(),
        current_leader=st.none() | pairs.map(lambda pair: CurrentLeader(*pair)) if flexible else st.none(),
        snapshot_id=st.none() | pairs if flexible else st.none(),
    )


@every_version
@given(data=st.data())
def test_fetch_responses_are_encoded_as_by_kio_and_decoded_in_place(version: int, data: st.DataObject) -> None:
    topics = data.draw(named(version, st.lists(results_of(version), max_size=3)))
    endpoint = st.builds(NodeEndpoint, INT32, st.text(max_size=5), st.integers(0, 99), st.none() | NAMES)
    endpoints = data.draw(st.lists(endpoint, max_size=2).map(tuple)) if version >= 16 else ()
    error_code, session_id = (70, 5) if version >= 7 else (0, 0)
    chunks = encode_fetch_response(
        version, topics, throttle_time_ms=9, error_code=error_code, session_id=session_id, node_endpoints=endpoints
    )
    body = b"".join(map(chunk_bytes, chunks))
    message = load(version, body, response=True)
    assert message.throttle_time == datetime.timedelta(milliseconds=9)
    response = decode_fetch_response(version, body)
    assert (response.error_code, response.session_id, response.throttle_time_ms) == (error_code, session_id, 9)
    assert response.node_endpoints == endpoints
    assert [(n, i, [plain(r) for r in results]) for n, i, results in response.topics] == topics
    for cut in range(0, len(body), max(1, len(body) // 20)):
        with pytest.raises(WireError):
            decode_fetch_response(version, body[:cut])


def plain(result: FetchResult) -> FetchResult:
    return result._replace(records=tuple(chunk_bytes(chunk) for chunk in result.records))


@every_version
def test_fetched_records_stay_file_ranges_and_large_buffers_are_not_copied(version: int) -> None:
    file = MemoryFile(bytes(range(256)) * 10)
    large = bytes(1000)
    ranges: list[Chunk] = [FileRange(file, 100, 50), FileRange(file, 500, 20)]
    results = [FetchResult(0, records=ranges), FetchResult(1), FetchResult(2, records=[large])]
    chunks = encode_fetch_response(version, [("t", UUID(int=1), results)])
    assert [chunk for chunk in chunks if isinstance(chunk, FileRange)] == ranges
    assert any(chunk is large for chunk in chunks)
    body = b"".join(map(chunk_bytes, chunks))
    read = decode_fetch_response(version, body).topics[0][2]
    expected = file.read(100, 50) + file.read(500, 20)
    assert [b"".join(map(chunk_bytes, result.records)) for result in read] == [expected, b"", large]


@given(st.data())
def test_mutated_fetch_responses_raise_only_wire_errors(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    result = FetchResult(1, 6, 5, 4, 3, [(1, 2)], 7, (b"records",), (1, 2), CurrentLeader(3, 4), (5, 6))
    chunks = encode_fetch_response(version, [("t", UUID(int=1), [result])], node_endpoints=[NodeEndpoint(2, "h", 9)])
    body = bytearray(b"".join(map(chunk_bytes, chunks)))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_fetch_response(version, body)
    except WireError:
        return


def test_null_and_empty_aborted_transactions_are_distinguished() -> None:
    for version in VERSIONS:
        results = [FetchResult(0, aborted_transactions=None), FetchResult(1, aborted_transactions=[])]
        chunks = encode_fetch_response(version, [("t", UUID(int=1), results)])
        read = decode_fetch_response(version, b"".join(map(chunk_bytes, chunks))).topics[0][2]
        assert [result.aborted_transactions for result in read] == [None, []]
