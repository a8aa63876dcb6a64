"""Pure: the rows that the history pages show, built from images and events."""

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
"""Maximum number of changes that a comparison lists. If there are more, the page only says so."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a metadata image."""

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
class RowsPage:
    """Rows of one page. `number` is the page's number from 0; `total` is the number of rows of all pages."""

    rows: Sequence[Any]
    number: int
    total: int

    @property
    def last(self) -> int:
        return max((self.total - 1) // PAGE_ROWS, 0)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A changed value. `mark` is + for added, - for removed, ~ for changed."""

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


def partitions_page(image: MetadataImage, search: str, number: int) -> RowsPage:
    """Return one page of the partitions of topics whose names contain `search`; internal topics come last. Rows of
    other pages are not built."""
    names = [name for name in sorted(image.topics.names, key=_by_name) if search.lower() in name.lower()]
    topics = [topic for topic in (image.topics.get(name) for name in names) if topic is not None]
    total = sum(topic.partition_count for topic in topics)
    number = min(number, total // PAGE_ROWS)
    first = number * PAGE_ROWS
    rows = islice(_partitions(topics), first, first + PAGE_ROWS)
    return RowsPage([_row(name, index, state) for name, index, state in rows], number, total)


def changes_page(before: MetadataImage, after: MetadataImage, number: int) -> tuple[RowsPage, bool]:
    """Return the differences between two images, internal topics last, and whether there are more than CHANGES_MAX. A
    topic that is the same object in both images has no differences and is skipped."""
    pairs = [(before.topics.get(name), after.topics.get(name)) for name in {*before.topics.names, *after.topics.names}]
    old = tree_of(before, [was for was, now in pairs if was is not now and was is not None])
    new = tree_of(after, [now for was, now in pairs if was is not now and now is not None])
    found = sorted(islice(_changes(old, new), CHANGES_MAX + 1), key=lambda row: row.path.startswith(INTERNAL_PATH))
    first = number * PAGE_ROWS
    return RowsPage(found[first : first + PAGE_ROWS], number, min(len(found), CHANGES_MAX)), len(found) > CHANGES_MAX


def _by_name(name: str) -> tuple[bool, str]:
    return name.startswith(INTERNAL_PREFIX), name


def event_rows(entries: Iterable[Entry], *images: MetadataImage) -> list[EventRow]:
    """Return rows of events with topic names. A topic's name is taken from the first of `images` that has the topic,
    else from the event that created the topic."""
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
