"""Which topics and partitions a request names, for any API: read from the message's own fields.

An array of structs with a topic's name or id is an array of topics; an array of partition numbers, or of structs with
one, inside it is its partitions. Source: Kafka protocol.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kraft.seam import Buffer
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.fetch import decode_fetch_request
from kraft.wire.messages.produce import decode_produce_request
from kraft.wire.messages.schema import fields_of
from kraft.wire.rpc import FIRST_INTERNAL_KEY

WHOLE_TOPIC = -1

_PLAIN_NAMES = MappingProxyType(
    {
        "index": "partition",
        "partition_index": "partition",
        "partition_indexes": "partition",
        "partition_id": "partition",
        "partitions": "partition",
        "topic": "name",
        "topic_name": "name",
        "groups": "group_id",
        "group_ids": "group_id",
        "groups_names": "group_id",
        "coordinator_keys": "key",
        "transactional_ids": "transactional_id",
    }
)


class NamedPartition(NamedTuple):
    """A partition that a request names. One of `topic` and `topic_id` may be None; `partition` is WHOLE_TOPIC where the
    request speaks of the topic alone."""

    topic: str | None
    topic_id: UUID | None
    partition: int


def plain_name(name: str) -> str:
    """The one name of fields that mean the same in different messages; among them arrays of plain values."""
    return _PLAIN_NAMES.get(name, name)


def named_partitions(api_key: int, version: int, body: Buffer) -> list[NamedPartition]:
    """What a request names. WireError if it does not parse."""
    if api_key >= FIRST_INTERNAL_KEY:
        return []
    if api_key == ApiKey.PRODUCE:
        produce = decode_produce_request(version, memoryview(body))
        return [NamedPartition(name, topic_id, index) for name, topic_id, rows in produce.topics for index, _ in rows]
    if api_key == ApiKey.FETCH:
        fetch = decode_fetch_request(version, body)
        return [
            NamedPartition(name, topic_id, wish.partition) for name, topic_id, wishes in fetch.topics for wish in wishes
        ]
    return [*_in_message(messages.decode_request(api_key, version, body))]


def _in_message(message: Any) -> Iterator[NamedPartition]:
    for field in fields_of(message.__class__):
        if not field.is_array or field.entity is None:
            continue
        for element in getattr(message, field.name) or ():
            values = {plain_name(inner.name): getattr(element, inner.name) for inner in fields_of(element.__class__)}
            if "name" in values or "topic_id" in values:
                partitions = [*_partitions(values.get("partition"))] or [WHOLE_TOPIC]
                for index in partitions:
                    yield NamedPartition(values.get("name"), values.get("topic_id"), index)
            else:
                yield from _in_message(element)


def _partitions(values: Any) -> Iterator[int]:
    for value in values if isinstance(values, tuple) else ():
        if not dataclasses.is_dataclass(value):
            yield value
            continue
        for field in fields_of(value.__class__):
            if plain_name(field.name) == "partition" and not field.is_array:
                yield getattr(value, field.name)
