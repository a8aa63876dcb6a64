"""Pure: what the pages of the history show of images and events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

from kraft.client.metadata_log.entries import Entry
from kraft.client.metadata_log.errors import MetadataLogError
from kraft.client.metadata_log.event_fields import event_fields
from kraft.client.metadata_log.tree import Tree, differing, tree_of
from kraft.image import MetadataImage, PartitionState, TopicImage
from kraft.seam.ids import encode_uuid

PAGE_ROWS = 100
INTERNAL_PREFIX = "__"
INTERNAL_PATH = f"topics / {INTERNAL_PREFIX}"
CHANGES_MAX = 10_000
"""A comparison lists so many changes; what is more is only said to be there."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of an image."""

    topic: str
    index: int
    leader: int | None
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.isr)


@dataclass(frozen=True, slots=True)
class Pageful:
    """Rows of one page; `number` begins at 0; `total` counts the rows of all."""

    rows: Sequence[Any]
    number: int
    total: int

    @property
    def last(self) -> int:
        return max((self.total - 1) // PAGE_ROWS, 0)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """`mark`: + added, - removed, ~ changed."""

    mark: str
    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class EventRow:
    offset: int
    epoch: int
    time_ms: int
    kind: str
    about: str
    fields: str


def partitions_page(image: MetadataImage, search: str, number: int) -> Pageful:
    """Partitions of the topics whose name holds `search`, without a look at those of other pages. Kafka's own topics
    come last."""
    names = [name for name in sorted(image.topics.names, key=_by_name) if search.lower() in name.lower()]
    topics = [topic for topic in (image.topics.get(name) for name in names) if topic is not None]
    total = sum(topic.partition_count for topic in topics)
    number = min(number, total // PAGE_ROWS)
    first = number * PAGE_ROWS
    rows = islice(_partitions(topics), first, first + PAGE_ROWS)
    return Pageful([_row(name, index, state) for name, index, state in rows], number, total)


def changes_page(before: MetadataImage, after: MetadataImage, number: int) -> tuple[Pageful, bool]:
    """What differs, Kafka's own topics last, and whether there is more than CHANGES_MAX. Topics that are one value in
    both are not looked at."""
    pairs = [(before.topics.get(name), after.topics.get(name)) for name in {*before.topics.names, *after.topics.names}]
    old = tree_of(before, [was for was, now in pairs if was is not now and was is not None])
    new = tree_of(after, [now for was, now in pairs if was is not now and now is not None])
    found = sorted(islice(_changes(old, new), CHANGES_MAX + 1), key=lambda row: row.path.startswith(INTERNAL_PATH))
    first = number * PAGE_ROWS
    return Pageful(found[first : first + PAGE_ROWS], number, min(len(found), CHANGES_MAX)), len(found) > CHANGES_MAX


def _by_name(name: str) -> tuple[bool, str]:
    return name.startswith(INTERNAL_PREFIX), name


def event_rows(entries: Iterable[Entry], *images: MetadataImage) -> list[EventRow]:
    """Events with the names that their topics have in the first of `images` that knows them, or that an event among
    these gave them."""
    names: dict[UUID, str] = {}
    return [_event_row(entry, images, names) for entry in entries]


def _event_row(entry: Entry, images: Sequence[MetadataImage], names: dict[UUID, str]) -> EventRow:
    try:
        event = entry.event
    except MetadataLogError as problem:
        return EventRow(entry.offset, entry.epoch, entry.timestamp_ms, "unknown", "", str(problem))
    fields = event_fields(event)
    kind = str(fields.pop("type"))
    about = _about(event, images, names)
    shown = ", ".join(f"{name} {_plain(value)}" for name, value in fields.items() if value not in (None, [], ""))
    return EventRow(entry.offset, entry.epoch, entry.timestamp_ms, kind, about, shown)


def _about(event: Any, images: Sequence[MetadataImage], names: dict[UUID, str]) -> str:
    topic_id = getattr(event, "topic_id", None)
    if isinstance(topic_id, UUID):
        if own := getattr(event, "name", None):
            names[topic_id] = str(own)
        known = (image.topics.name_of(topic_id) for image in images)
        name = names.get(topic_id) or next(filter(None, known), None) or encode_uuid(topic_id)
        index = getattr(event, "partition_id", None)
        return name if index is None else f"{name}-{index}"
    for name in ("broker_id", "controller_id"):
        if (found := getattr(event, name, None)) is not None:
            return f"{name.removesuffix('_id')} {found}"
    return str(getattr(event, "resource_name", "") or getattr(event, "name", ""))


def _changes(old: Tree, new: Tree) -> Iterator[ChangeRow]:
    for names, was, now in differing(old, new):
        if names[0] == "cluster" and names[1:] in (("offset",), ("epoch",)):
            continue
        mark = "+" if was is None else "-" if now is None else "~"
        yield ChangeRow(mark, " / ".join(names), _plain(was), _plain(now))


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _partitions(topics: Iterable[TopicImage]) -> Iterator[tuple[str, int, PartitionState]]:
    for topic in topics:
        for index, state in topic.partitions():
            yield topic.name, index, state


def _row(name: str, index: int, state: PartitionState) -> PartitionRow:
    leader = state.leader if state.leader >= 0 else None
    return PartitionRow(name, index, leader, state.leader_epoch, tuple(state.replicas), tuple(state.isr))
