"""The response that reports one error for everything in a request, for every API and version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.error_answers import error_answer, error_problem
from kraft.wire.messages.fetch import FetchPartition, FetchRequest, encode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response
from kraft.wire.messages.named_partitions import WHOLE_TOPIC, NamedPartition, named_partitions
from kraft.wire.messages.produce import decode_produce_response, encode_produce_request
from kraft.wire.messages.schema import ENTITY, fields_of

TOPIC_ID = UUID(int=7)
GENERAL = [
    (key, version)
    for key, served in BROKER_APIS.items()
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH)
    for version in range(served.min, served.max + 1)
]
WITHOUT_A_PLACE = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


def filled(cls: Any) -> Any:
    """Return a message in which every array has one element, so that there is something to answer."""
    values = {}
    for field in fields_of(cls):
        if field.is_array and field.kind == ENTITY:
            values[field.name] = (filled(field.entity),)
        elif field.is_array and field.kind == "string":
            values[field.name] = ("one",)
        elif field.is_array and field.kind.startswith("int"):
            values[field.name] = (3,)
        elif field.kind == "string":
            values[field.name] = "one"
    return messages.build(cls, **values)


def errors(message: Any) -> list[int]:
    """Return every error code in a message, at any depth."""
    found = []
    for field in fields_of(message.__class__):
        value = getattr(message, field.name)
        if field.name in {"error_code", "partition_error_code"}:
            found.append(value)
        elif field.kind == ENTITY and value is not None:
            for element in value if field.is_array else (value,):
                found += errors(element)
    return found


@pytest.mark.parametrize(("key", "version"), GENERAL, ids=str)
def test_error_response_of_every_api_has_only_the_requested_error_code(key: ApiKey, version: int) -> None:
    assert error_problem(key) is None
    cls = messages.request_class(key)
    body = messages.encode_request(key, version, filled(cls))
    chunks = error_answer(key, version, body, ErrorCode.REQUEST_TIMED_OUT)
    assert chunks is not None
    response = messages.decode_response(key, version, b"".join(bytes(chunk) for chunk in chunks))
    found = errors(response)
    if (key, version) not in WITHOUT_A_PLACE:
        assert ErrorCode.REQUEST_TIMED_OUT in found
    allowed = {ErrorCode.REQUEST_TIMED_OUT} if version == messages.newest_version(key) else {7, 0}
    assert set(found) <= allowed, "0 is only what an older version does not tell"


def test_error_response_has_an_element_for_each_element_of_its_request() -> None:
    request = messages.build(
        messages.request_class(ApiKey.LIST_OFFSETS),
        topics=[
            {"name": "a", "partitions": [{"partition_index": 1}, {"partition_index": 2}]},
            {"name": "b", "partitions": [{"partition_index": 0}]},
        ],
    )
    body = messages.encode_request(ApiKey.LIST_OFFSETS, 7, request)
    chunks = error_answer(ApiKey.LIST_OFFSETS, 7, body, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert chunks is not None
    response = messages.decode_response(ApiKey.LIST_OFFSETS, 7, chunks[0])  # type: ignore[arg-type]
    rows = [(t.name, p.partition_index, p.error_code) for t in response.topics for p in t.partitions]
    wrong = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rows == [("a", 1, wrong), ("a", 2, wrong), ("b", 0, wrong)]


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_error_response_to_produce_has_every_partition_but_acks_0_gets_no_response(version: int) -> None:
    named = (None, TOPIC_ID) if version >= 13 else ("a", None)

    def body(acks: int) -> bytes:
        chunks = encode_produce_request(version, acks=acks, timeout_ms=1, topics=[(*named, [(4, b""), (5, b"")])])
        return b"".join(bytes(chunk) for chunk in chunks)

    assert error_answer(ApiKey.PRODUCE, version, bytearray(body(0)), ErrorCode.CORRUPT_MESSAGE) is None
    chunks = error_answer(ApiKey.PRODUCE, version, bytearray(body(-1)), ErrorCode.CORRUPT_MESSAGE)
    assert chunks is not None
    (topic,) = decode_produce_response(version, b"".join(bytes(chunk) for chunk in chunks)).topics  # type: ignore[arg-type]
    assert topic[:2] == named
    assert [(row.partition, row.error_code) for row in topic[2]] == [(4, 2), (5, 2)]


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_error_response_to_fetch_covers_the_partitions_of_the_request_and_of_its_session(version: int) -> None:
    named = (None, TOPIC_ID) if version >= 13 else ("a", None)
    request = FetchRequest(0, 0, [(*named, [FetchPartition(1, -1, 0, -1, 0, 1)])], session_id=5 if version > 6 else 0)
    body = encode_fetch_request(version, request)
    held = [NamedPartition(*named, 2)]
    chunks = error_answer(ApiKey.FETCH, version, body, ErrorCode.FENCED_LEADER_EPOCH, held)
    assert chunks is not None
    response = decode_fetch_response(version, b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]
    assert response.error_code == 0
    (topic,) = response.topics
    assert topic[:2] == named
    assert [(row.partition, row.error_code) for row in topic[2]] == [(1, 74), (2, 74)]


def test_a_fetch_session_error_is_never_a_partition_error() -> None:
    body = encode_fetch_request(12, FetchRequest(0, 0, [("a", None, [FetchPartition(1, -1, 0, -1, 0, 1)])]))
    chunks = error_answer(ApiKey.FETCH, 12, body, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert chunks is not None
    response = decode_fetch_response(12, bytes(chunks[0]))  # type: ignore[arg-type]
    assert (response.error_code, [*response.topics]) == (70, [])


@pytest.mark.parametrize("key", [key for key in BROKER_APIS if key not in (ApiKey.PRODUCE, ApiKey.FETCH)], ids=str)
def test_named_partitions_are_found_in_every_request_with_topics(key: ApiKey) -> None:
    cls = messages.request_class(key)
    names = [field.name for field in fields_of(cls) if field.name == "topics" and field.is_array]
    body = messages.encode_request(key, messages.newest_version(key), filled(cls))
    assert bool(named_partitions(key, messages.newest_version(key), body)) >= bool(names)


def test_partitions_named_in_a_request_are_found_as_numbers_and_as_structs() -> None:
    deletion = messages.build(
        messages.request_class(ApiKey.DELETE_RECORDS),
        topics=[{"name": "a", "partitions": [{"partition_index": 3, "offset": 9}]}],
    )
    body = messages.encode_request(ApiKey.DELETE_RECORDS, 2, deletion)
    assert named_partitions(ApiKey.DELETE_RECORDS, 2, body) == [NamedPartition("a", None, 3)]
    creation = messages.build(messages.request_class(ApiKey.CREATE_TOPICS), topics=[{"name": "a"}])
    body = messages.encode_request(ApiKey.CREATE_TOPICS, 7, creation)
    assert named_partitions(ApiKey.CREATE_TOPICS, 7, body) == [NamedPartition("a", None, WHOLE_TOPIC)]
