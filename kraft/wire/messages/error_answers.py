"""Response to a request in which everything failed with one error, for deliberate fault injection.

One rule for every API is derived from the messages themselves. Each struct of the response that can carry an error
carries this one. For each element that the request names (a topic, a partition, a group, a resource), the response has
an element. An array of the response corresponds to the array of the request with which it shares most identifying
fields.
Source: Kafka protocol.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from kraft.seam import Buffer, Chunk
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.answered_errors import ERROR_FIELDS
from kraft.wire.messages.fetch import FetchResult, decode_fetch_request
from kraft.wire.messages.fetch_response import encode_fetch_response
from kraft.wire.messages.named_partitions import NamedPartition, named_partitions, plain_name
from kraft.wire.messages.produce import ProduceResult, decode_produce_request, encode_produce_response
from kraft.wire.messages.schema import ENTITY, Field, fields_of
from kraft.wire.rpc import FIRST_INTERNAL_KEY

FIRST_FETCH_WITH_TOP_LEVEL_ERROR = 7
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors that apply to a Fetch as a whole, never to one of its partitions."""

_IDENTIFYING = frozenset(
    {
        "name",
        "topic_id",
        "partition",
        "group_id",
        "resource_name",
        "resource_type",
        "key",
        "member_id",
        "producer_id",
        "transactional_id",
    }
)


def error_problem(api_key: int) -> str | None:
    """Return why no response of this API can report an error; None if one can."""
    if api_key >= FIRST_INTERNAL_KEY:
        return f"answers to internal requests (key {api_key}) have no common place for an error"
    if api_key in (ApiKey.PRODUCE, ApiKey.FETCH) or _has_error(messages.response_class(api_key)):
        return None
    return f"an answer of {ApiKey(api_key).name} has no place for an error"


def error_answer(
    api_key: int, version: int, body: Buffer, error: ErrorCode, session: Iterable[NamedPartition] = ()
) -> tuple[Chunk, ...] | None:
    """Return the body of the response; None if the request expects none (Produce with acks=0). Raises WireError if
    `body` does not parse.

    `session` is only for Fetch: the partitions of its session, which the request itself does not name."""
    if api_key == ApiKey.PRODUCE:
        return _produce(version, memoryview(body), error)
    if api_key == ApiKey.FETCH:
        return _fetch(version, memoryview(body), error, session)
    request = messages.decode_request(api_key, version, body)
    response = _failed(messages.response_class(api_key), request, error)
    return (messages.encode_response(api_key, version, response),)


def _produce(version: int, body: memoryview, error: ErrorCode) -> tuple[Chunk, ...] | None:
    produce = decode_produce_request(version, body)
    if produce.acks == 0:
        return None
    rows = [
        (name, topic_id, [ProduceResult(index, error) for index, _ in partitions])
        for name, topic_id, partitions in produce.topics
    ]
    return (encode_produce_response(version, rows),)


def _fetch(version: int, body: memoryview, error: ErrorCode, session: Iterable[NamedPartition]) -> tuple[Chunk, ...]:
    fetch = decode_fetch_request(version, body)
    if error in SESSION_ERRORS and version >= FIRST_FETCH_WITH_TOP_LEVEL_ERROR:
        return tuple(encode_fetch_response(version, (), error_code=error))
    rows: dict[tuple[str | None, UUID | None], dict[int, FetchResult]] = {}
    for topic, topic_id, index in (*named_partitions(ApiKey.FETCH, version, body), *session):
        # a request that names topics by id is answered by id, whether or not the name is known
        key = (topic, None) if topic_id is None else (None, topic_id)
        rows.setdefault(key, {})[index] = FetchResult(index, error)
    topics = [(name, topic_id, [*results.values()]) for (name, topic_id), results in rows.items()]
    return tuple(encode_fetch_response(version, topics, session_id=fetch.session_id))


# the general rule


def _has_error(cls: Any) -> bool:
    return any(
        field.name in ERROR_FIELDS or (field.kind == ENTITY and _has_error(field.entity)) for field in fields_of(cls)
    )


def _error_field(cls: Any) -> str:
    return next(field.name for field in fields_of(cls) if field.name in ERROR_FIELDS)


def _failed(cls: Any, request: Any, error: ErrorCode) -> Any:
    """Return an instance of the response class `cls` that answers `request` (or one of its elements) with the error."""
    values: dict[str, Any] = {}
    given = {plain_name(field.name): field for field in fields_of(request.__class__)}
    for field in fields_of(cls):
        same = given.get(plain_name(field.name))
        if field.name in ERROR_FIELDS:
            values[field.name] = error
        elif field.is_array and field.kind == ENTITY and _has_error(field.entity):
            values[field.name] = tuple(_elements(field.entity, request, error))
        elif same is not None and not same.is_array and plain_name(field.name) in _IDENTIFYING:
            values[field.name] = getattr(request, same.name)
    return messages.build(cls, **values)


def _elements(entity: Any, request: Any, error: ErrorCode) -> Iterator[Any]:
    """Return the elements of one array of the response, in the order of the request elements that they answer."""
    names = {
        plain_name(field.name): field.name for field in fields_of(entity) if plain_name(field.name) in _IDENTIFYING
    }
    shared = {field.name: names.keys() & _identity(field) for field in fields_of(request.__class__) if field.is_array}
    array = max(shared, key=lambda name: len(shared[name]), default="")
    if not array or not shared[array]:
        for field in fields_of(request.__class__):
            if field.is_array and field.kind == ENTITY:  # a level that the response does not have
                for element in getattr(request, field.name) or ():
                    if names:
                        yield from _elements(entity, element, error)
                    else:  # responses without a name are in the order of the request's elements
                        yield _failed(entity, element, error)
        return
    for element in getattr(request, array) or ():
        if dataclasses.is_dataclass(element):
            yield _failed(entity, element, error)
        else:
            (plain,) = shared[array]
            yield messages.build(entity, **{names[plain]: element, _error_field(entity): error})


def _identity(array: Field) -> set[str]:
    """Return the fields that identify the elements of a request's array."""
    if array.kind != ENTITY:
        return {plain_name(array.name)}
    return {plain_name(field.name) for field in fields_of(array.entity)}
