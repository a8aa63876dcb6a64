"""Pure: rows of table `metadata_diff`: the differences between two points of the metadata log.

A topic, partition, broker or controller that was added or removed is one row, with all of its fields as JSON. One that
changed has a row per changed field. Secrets are shown as `[hidden]`.
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
    """One row of `metadata_diff`. `before` or `after` is None if the object did not exist, or the field had no value,
    at that point."""

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
    """Return the differences between two metadata images, sorted by kind and name."""
    topics = _changed_topics(before, after)
    old = tree_of(before, [topic for topic, _ in topics if topic is not None])
    new = tree_of(after, [topic for _, topic in topics if topic is not None])
    for kind, rows_of in _KINDS.items():
        for names, gone, come in differing(old[kind], new[kind]):
            yield from rows_of(names, gone, come)


def diff_rows(
    columns: tuple[str, ...], before: MetadataImage, after: MetadataImage, as_of: datetime | None
) -> Iterator[tuple[Any, ...]]:
    """Return the differences as rows with these columns. `as_of` is the time of the later point."""
    ends = {"as_of_offset": after.offset, "as_of": as_of}
    for row in differences_between(before, after):
        yield tuple([ends[name] if name in ends else getattr(row, name) for name in columns])


def _changed_topics(before: MetadataImage, after: MetadataImage) -> list[tuple[TopicImage | None, TopicImage | None]]:
    """Return the topics that may differ between two images. A topic without an event in between is the same Python
    object in both, and is skipped."""
    names = sorted({*before.topics.names, *after.topics.names})
    pairs = ((before.topics.get(name), after.topics.get(name)) for name in names)
    return [(old, new) for old, new in pairs if old is not new]


def _changes(old: Any, new: Any) -> tuple[str, str | None, str | None]:
    """Return (change, before, after) for a value that exists before, after, or at both points."""
    change = "added" if old is None else "removed" if new is None else "changed"
    return change, _text(old), _text(new)


def _text(value: Any) -> str | None:
    """Return text unchanged, and everything else as JSON."""
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
    # a field of a partition that exists at both points; its value at one point may be None, such as no leader
    if field is not None:
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
    if len(names) < 3:  # all settings of a resource, or of a type of resource, were added or removed
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
"""Function that makes the rows of differences, by the part of the metadata that it compares (such as topics)."""
