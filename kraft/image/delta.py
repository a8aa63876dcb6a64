"""ImageDelta: the differences between two images. They are collected during replay, or found by comparing two images
after a snapshot was loaded. In the latter case, what the snapshot lacks counts as deleted.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from rpds import HashTrieMap

from kraft.image.image import ConfigKey, MetadataImage
from kraft.image.partitions import LEAF_PARTITIONS_MAX, TopicImage

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TopicDelta:
    """A topic of the new image that differs from the old one, with its changed partitions (all, if it is new)
    in order."""

    name: str
    topic_id: UUID
    partitions: tuple[int, ...]
    created: bool


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """The differences between two images. A topic that was deleted and created again under its name is in both
    `deleted_topics` (old id) and `topics` (new id). Removed brokers, controllers, configs and features are listed as
    well."""

    topics: Mapping[UUID, TopicDelta] = field(default_factory=dict)
    deleted_topics: Mapping[UUID, str] = field(default_factory=dict)
    brokers: tuple[int, ...] = ()
    controllers: tuple[int, ...] = ()
    configs: tuple[ConfigKey, ...] = ()
    features: tuple[str, ...] = ()
    producer_ids: bool = False

    @property
    def is_empty(self) -> bool:
        return not (
            self.topics
            or self.deleted_topics
            or self.brokers
            or self.controllers
            or self.configs
            or self.features
            or self.producer_ids
        )

    @staticmethod
    def between(old: MetadataImage, new: MetadataImage) -> ImageDelta:
        """Return all differences, in a stable order."""
        steps = ImageDelta.compare(old, new)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: ImageDelta = end.value
                return found

    @staticmethod
    def compare(old: MetadataImage, new: MetadataImage) -> Generator[None, None, ImageDelta]:
        """Same as `between`, with a yield after every leaf (block of partitions) that was compared."""
        topics: dict[UUID, TopicDelta] = {}
        for topic in new.topics:
            before = old.topics.get_by_id(topic.topic_id)
            if before is topic:
                continue
            changed = yield from _changed_partitions(before, topic)
            if before is None or changed:
                topics[topic.topic_id] = TopicDelta(topic.name, topic.topic_id, changed, before is None)
        deleted = {topic.topic_id: topic.name for topic in old.topics if new.topics.name_of(topic.topic_id) is None}
        return ImageDelta(
            topics=topics,
            deleted_topics=deleted,
            brokers=_changed_keys(old.brokers, new.brokers),
            controllers=_changed_keys(old.controllers, new.controllers),
            configs=_changed_keys(old.configs, new.configs),
            features=_changed_keys(old.features, new.features),
            producer_ids=old.next_producer_id != new.next_producer_id,
        )


def _changed_partitions(old: TopicImage | None, new: TopicImage) -> Generator[None, None, tuple[int, ...]]:
    if old is None:
        return tuple(range(new.partition_count))
    changed: list[int] = []
    for number, leaf in enumerate(new.leaves):
        before = old.leaves[number] if number < len(old.leaves) else ()
        if before is leaf:
            continue
        start = number * LEAF_PARTITIONS_MAX
        for index, state in enumerate(leaf):
            if index >= len(before) or before[index] != state:
                changed.append(start + index)
        yield
    return tuple(changed)


def _changed_keys(old: HashTrieMap[K, V], new: HashTrieMap[K, V]) -> tuple[K, ...]:
    changed = [key for key in new if key not in old or old[key] != new[key]]
    changed += [key for key in old if key not in new]
    return tuple(sorted(changed))  # type: ignore[type-var]
