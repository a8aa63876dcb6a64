"""Pure: rows of `metadata_diff`: what differs between two points of the metadata log.

A topic, partition, broker or controller that came or went is one row, with all of it as JSON; of one that changed each
field is a row. Secrets read `[hidden]`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from kraft.client.metadata_log.tree import ALL, Tree, differing, tree_of
from kraft.image import MetadataImage, TopicImage


class Difference(NamedTuple):
    """A row. None in `before` or `after`: nothing is there."""

    change: str
    kind: str
    key: str
    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None
    field: str | None = None
    before: str | None = None
    after: str | None = None


def differences_between(before: MetadataImage, after: MetadataImage) -> Iterator[Difference]:
    """What differs, sorted by kind and name."""
    topics = _changed_topics(before, after)
    old = tree_of(before, [topic for topic, _ in topics if topic is not None])
    new = tree_of(after, [topic for _, topic in topics if topic is not None])
    for kind, rows_of in _KINDS.items():
        for names, gone, come in differing(old[kind], new[kind]):
            yield from rows_of(names, gone, come)


def diff_rows(
    columns: tuple[str, ...], before: MetadataImage, after: MetadataImage, as_of: datetime | None
) -> Iterator[tuple[Any, ...]]:
    """Rows with these columns; `as_of`: the time of the second point."""
    ends = {"as_of_offset": after.offset, "as_of": as_of}
    for row in differences_between(before, after):
        yield tuple([ends[name] if name in ends else getattr(row, name) for name in columns])


def _changed_topics(before: MetadataImage, after: MetadataImage) -> list[tuple[TopicImage | None, TopicImage | None]]:
    """Topics that may differ. Those that no event is about are one value in both images."""
    names = sorted({*before.topics.names, *after.topics.names})
    pairs = ((before.topics.get(name), after.topics.get(name)) for name in names)
    return [(old, new) for old, new in pairs if old is not new]


def _changes(old: Any, new: Any) -> tuple[str, str | None, str | None]:
    """(change, before, after) of what is there before, after, or both."""
    change = "added" if old is None else "removed" if new is None else "changed"
    return change, _text(old), _text(new)


def _text(value: Any) -> str | None:
    """Text as it is; everything else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _of_topics(names: tuple[str, ...], old: Any, new: Any) -> Iterator[Difference]:
    topic, *rest = names
    if not rest:
        yield from _whole_topic(topic, old, new)
    elif rest[0] == "partitions" and len(rest) > 1:
        yield _partition(topic, int(rest[1]), rest[2] if len(rest) > 2 else None, old, new)
    else:
        change, before, after = _changes(old, new)
        yield Difference(change, "topic", topic, topic=topic, field=rest[0], before=before, after=after)


def _whole_topic(topic: str, old: Any, new: Any) -> Iterator[Difference]:
    change, before, after = _changes(_without_partitions(old), _without_partitions(new))
    yield Difference(change, "topic", topic, topic=topic, before=before, after=after)
    for index, state in (old or new)["partitions"].items():
        was, becomes = (None, state) if old is None else (state, None)
        yield _partition(topic, int(index), None, was, becomes)


def _without_partitions(tree: Mapping[str, Any] | None) -> Tree | None:
    return None if tree is None else {name: value for name, value in tree.items() if name != "partitions"}


def _partition(topic: str, index: int, field: str | None, old: Any, new: Any) -> Difference:
    change, before, after = _changes(old, new)
    key = f"{topic}-{index}"
    if field is not None:  # a field of a partition that is there all along, such as a leader that is none
        change = "changed"
    return Difference(change, "partition", key, topic, index, field=field, before=before, after=after)


def _of_nodes(kind: str) -> Callable[[tuple[str, ...], Any, Any], Iterator[Difference]]:
    def rows(names: tuple[str, ...], old: Any, new: Any) -> Iterator[Difference]:
        change, before, after = _changes(old, new)
        field = names[1] if len(names) > 1 else None
        if field is not None:
            change = "changed"
        broker_id = int(names[0]) if kind == "broker" else None
        yield Difference(change, kind, names[0], broker_id=broker_id, field=field, before=before, after=after)

    return rows


def _of_configs(names: tuple[str, ...], old: Any, new: Any) -> Iterator[Difference]:
    if len(names) < 3:  # a subtree that came or went
        for name in old or new:
            yield from _of_configs((*names, name), (old or {}).get(name), (new or {}).get(name))
        return
    kind, resource, field = names
    change, before, after = _changes(old, new)
    topic = resource if kind == "topic" else None
    broker_id = int(resource) if kind == "broker" and resource != ALL else None
    yield Difference(change, "config", f"{kind}/{resource}", topic, None, broker_id, field, before, after)


def _of_features(names: tuple[str, ...], old: Any, new: Any) -> Iterator[Difference]:
    change, before, after = _changes(old, new)
    yield Difference(change, "feature", names[0], before=before, after=after)


_KINDS: Mapping[str, Callable[[tuple[str, ...], Any, Any], Iterator[Difference]]] = MappingProxyType(
    {
        "topics": _of_topics,
        "brokers": _of_nodes("broker"),
        "controllers": _of_nodes("controller"),
        "configs": _of_configs,
        "features": _of_features,
    }
)
"""Subtree of the metadata → its rows."""
