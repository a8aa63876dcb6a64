"""The topics and partitions that a request names, for any API, determined from the message's fields.

An array of structs with a topic's name or id is an array of topics. Inside it, an array of partition numbers, or of
structs with one, is the topic's partitions. Source: Kafka protocol.
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
    """A partition that a request names. One of `topic` and `topic_id` may be None. `partition` is WHOLE_TOPIC where the
    request names only the topic."""

    topic: str | None
    topic_id: UUID | None
    partition: int


def plain_name(name: str) -> str:
    """Return the common name of fields with the same meaning in different messages, including arrays of plain
    values."""
    return _PLAIN_NAMES.get(name, name)


def named_partitions(api_key: int, version: int, body: Buffer) -> list[NamedPartition]:
    """Return the partitions that a request names. Raises WireError if the request does not parse."""
    if api_key >= FIRST_INTERNAL_KEY:
        return []
    if api_key == ApiKey.PRODUCE:
        produce = decode_produce_request(version, memoryview(body))
        return [NamedPartition(name, topic_id, index) for name, topic_id, rows in produce.topics for index, _ in rows]
    if api_key == ApiKey.FETCH:
        fetch = decode_fetch_request(version, body)
        return [
            NamedPartition(name, topic_id, partition.partition)
            for name, topic_id, partitions in fetch.topics
            for partition in partitions
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
