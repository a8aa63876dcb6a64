"""Pure: rows of table `metadata_events`: each event of the metadata log with its most useful fields as columns, and
with all of its fields as JSON. Secrets are hidden.

Events name topics by id. A topic's id is never used again, and its name never changes. So a map from ids to names,
built from the events that create topics, is valid for any part of the log. Source: KIP-631.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kraft.client.metadata_log.entries import Entry, decode
from kraft.client.metadata_log.event_fields import event_fields
from kraft.client.spark.state.cells import id_text, known, time_of
from kraft.config.secrets import is_secret_key
from kraft.image import ConfigResourceType, Event, events

Names = Mapping[UUID, str]

_TOPIC = events.Topic.type_number
_ABOUT_TOPICS = frozenset(
    one.type_number for one in (events.Topic, events.Partition, events.PartitionChange, events.RemoveTopic)
)
_to_json = json.JSONEncoder(ensure_ascii=False).encode
_ID_HEAD = b"\xc4\x10"
"""Bytes that msgpack writes before a topic id. An event that begins with a topic id has them directly after its type
and version."""


@dataclass(frozen=True, slots=True)
class EventRange:
    """A part of the log that one task reads; `end` is exclusive. `names` maps topic ids in its events to names, as far
    as known. None: the task learns the names itself, by reading the log from its start."""

    start: int
    end: int
    names: Names | None = field(default=None, repr=False)


class EventAt(NamedTuple):
    entry: Entry
    event: Event
    names: Names

    @property
    def topic_id(self) -> UUID | None:
        return getattr(self.event, "topic_id", None)

    @property
    def topic(self) -> str | None:
        event = self.event
        if isinstance(event, events.Topic):
            return event.name
        if isinstance(event, events.ClearElr):
            return event.topic_name or None
        if isinstance(event, events.Config):
            return event.resource_name if event.resource_type == ConfigResourceType.TOPIC else None
        topic_id = self.topic_id
        return None if topic_id is None else self.names.get(topic_id)

    @property
    def broker_id(self) -> int | None:
        event = self.event
        if isinstance(event, events.Config):
            is_one = event.resource_type == ConfigResourceType.BROKER and event.resource_name.isdecimal()
            return int(event.resource_name) if is_one else None
        return getattr(event, "broker_id", None)

    @property
    def config(self) -> events.Config | None:
        return self.event if isinstance(self.event, events.Config) else None

    def replicas(self, name: str) -> list[int] | None:
        found = getattr(self.event, name, None)
        return None if found is None else list(found)


def _fields(row: EventAt) -> str:
    fields = event_fields(row.event)
    del fields["type"]
    return _to_json(fields)


def _value(row: EventAt) -> str | None:
    config = row.config
    return None if config is None or is_secret_key(config.name) else config.value


def _resource_type(number: int) -> str:
    try:
        return ConfigResourceType(number).name
    except ValueError:
        return str(number)


_GETTERS: Mapping[str, Callable[[EventAt], Any]] = MappingProxyType(
    {
        "offset": lambda row: row.entry.offset,
        "epoch": lambda row: row.entry.epoch,
        "timestamp": lambda row: time_of(row.entry.timestamp_ms),
        "type": lambda row: type(row.event).__name__,
        "type_number": lambda row: row.event.type_number,
        "topic": lambda row: row.topic,
        "topic_id": lambda row: id_text(row.topic_id),
        "partition": lambda row: getattr(row.event, "partition_id", None),
        "broker_id": lambda row: row.broker_id,
        "leader": lambda row: known(getattr(row.event, "leader", None)),
        "leader_epoch": lambda row: getattr(row.event, "leader_epoch", None),
        "isr": lambda row: row.replicas("isr"),
        "replicas": lambda row: row.replicas("replicas"),
        "resource_type": lambda row: None if row.config is None else _resource_type(row.config.resource_type),
        "resource": lambda row: None if row.config is None else row.config.resource_name,
        "config": lambda row: None if row.config is None else row.config.name,
        "value": _value,
        "fields": _fields,
        "as_of_offset": lambda row: row.entry.offset,
        "as_of": lambda row: time_of(row.entry.timestamp_ms),
    }
)


def needs_names(columns: Iterable[str]) -> bool:
    """Whether rows with these columns contain topic names."""
    return "topic" in columns


def event_rows(columns: tuple[str, ...], entries: Iterable[Entry], names: dict[UUID, str]) -> Iterator[tuple[Any, ...]]:
    """Return the events as rows with these columns, in order. `names` holds the topics created before the first event;
    topics that the events create are added to it."""
    getters = [_GETTERS[name] for name in columns]
    for entry in entries:
        event = entry.event
        if type(event) is events.Topic:
            names[event.topic_id] = event.name
        row = EventAt(entry, event, names)
        yield tuple([get(row) for get in getters])


class TopicNames:
    """Topic names by id, learned from the log in order."""

    def __init__(self, names: Names | None = None) -> None:
        self.names: dict[UUID, str] = dict(names or {})

    def learn(self, values: Iterable[bytes]) -> None:
        """Add the topics that these events create."""
        for value in values:
            if value[1] == _TOPIC:
                event = decode(value)
                if isinstance(event, events.Topic):
                    self.names[event.topic_id] = event.name

    def of(self, topic_ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the names of these topics by id. Topics that are not known are missing."""
        return {topic_id: self.names[topic_id] for topic_id in topic_ids if topic_id in self.names}


def topics_in(values: Iterable[bytes]) -> set[UUID]:
    """Return the ids of the topics that these encoded events concern. Most ids are read at their usual position,
    without decoding the event."""
    found: set[bytes] = set()
    others: set[UUID] = set()
    for value in values:
        if value[1] not in _ABOUT_TOPICS:
            continue
        if value[2] == 0 and value[3:5] == _ID_HEAD:
            found.add(value[5:21])
        else:
            topic_id = getattr(decode(value), "topic_id", None)
            if topic_id is not None:
                others.add(topic_id)
    return {UUID(bytes=one) for one in found if len(one) == 16} | others


def split(start: int, end: int, events_max: int) -> list[tuple[int, int]]:
    """Split a range of offsets into ranges of about equal size with at most `events_max` offsets each. An empty range
    gives no ranges."""
    count = -(-(end - start) // events_max)
    ends = [start + (end - start) * at // count for at in range(count + 1)] if count > 0 else []
    return list(pairwise(ends))
