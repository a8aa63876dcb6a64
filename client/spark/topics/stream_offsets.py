"""Pure: the offset of a topic stream, as the JSON that Spark stores in the checkpoint, and how partitions have changed
since an offset.

The form is that of Spark's connector, `{"orders":{"0":17}}`, with more facts under keys that no topic can have. `@ids`
are topic ids. `@epochs` are the leader epochs of the ends. `@commit` is the consumer group to which the ends are
committed. Other keys with `@` are ignored. Invariant: equal offsets give equal texts, because Spark compares texts.
Source: Spark's JsonUtils, KIP-516 (topic ids), KIP-320 (leader epochs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kraft.client.core.records import TopicPartition

IDS, EPOCHS, COMMIT = "@ids", "@epochs", "@commit"
JsonOffset = dict[str, Any]


class OffsetError(ValueError):
    """A text is not an offset of this source: the checkpoint belongs to another source, or is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTarget:
    """The consumer group to which ends are committed, and its brokers: HOST:PORT[,HOST:PORT...]."""

    group_id: str
    bootstrap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """The next offset to read of each partition (`ends`). `ids`: topic ids, if brokers support them. `epochs`: the
    leader epoch in which an offset was the end of the log, if known."""

    ends: Mapping[TopicPartition, int]
    ids: Mapping[str, UUID] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    commit: CommitTarget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Differences between the partitions of an offset and those that exist now. Partitions of a recreated topic are in
    `new`; the partitions that the offset has of its predecessor are in `recreated`."""

    kept: tuple[TopicPartition, ...]
    new: tuple[TopicPartition, ...]
    lost: tuple[TopicPartition, ...]
    recreated: tuple[TopicPartition, ...]


def offset_json(offset: StreamOffset) -> JsonOffset:
    """Return the offset as Spark stores it: with JSON types only, in a fixed order."""
    found: JsonOffset = _by_topic(offset.ends)
    if offset.commit is not None:
        found[COMMIT] = {"bootstrap": offset.commit.bootstrap, "group": offset.commit.group_id}
    if offset.epochs:
        found[EPOCHS] = _by_topic(offset.epochs)
    if offset.ids:
        found[IDS] = {name: str(topic_id) for name, topic_id in sorted(offset.ids.items())}
    return found


def parse_offset(value: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset that Spark has stored. Raises OffsetError with the cause."""
    try:
        commit = value.get(COMMIT)
        return StreamOffset(
            ends=_of_topics({name: of for name, of in value.items() if not name.startswith("@")}),
            ids={name: UUID(text) for name, text in value.get(IDS, {}).items()},
            epochs=_of_topics(value.get(EPOCHS, {})),
            commit=None if commit is None else CommitTarget(group_id=commit["group"], bootstrap=commit["bootstrap"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise OffsetError(
            f"{str(value)[:200]} is not an offset of a stream of topics ({problem}): is the checkpoint of another "
            'query? Expected {"TOPIC":{"PARTITION":OFFSET}}'
        ) from None


def find_changes(offset: StreamOffset, partitions: Iterable[TopicPartition], ids: Mapping[str, UUID | None]) -> Changes:
    """Compare an offset with the partitions that exist now and the ids of their topics (None: brokers have no topic
    ids)."""
    here = sorted(partitions)
    there = set(here)
    known = sorted(offset.ends)
    other_id = {
        name for name, topic_id in ids.items() if topic_id is not None and offset.ids.get(name, topic_id) != topic_id
    }
    kept = tuple(tp for tp in here if tp in offset.ends and tp[0] not in other_id)
    return Changes(
        kept=kept,
        new=tuple(tp for tp in here if tp not in offset.ends or tp[0] in other_id),
        lost=tuple(tp for tp in known if tp[0] not in other_id and tp not in there),
        recreated=tuple(tp for tp in known if tp[0] in other_id),
    )


def read_ranges(start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, tuple[int, int]]:
    """Return (first offset, end) of each partition that a micro-batch from `start` to `end` reads.

    Three kinds of partitions are left out. A partition that `end` has and `start` lacks is read from the next
    micro-batch on. The same holds for a partition whose topic was recreated in between. A partition with an end below
    its start, after a loss, has nothing to read."""
    return {
        tp: (start.ends[tp], at)
        for tp, at in sorted(end.ends.items())
        if start.ends.get(tp, at) < at and start.ids.get(tp[0], end.ids.get(tp[0])) == end.ids.get(tp[0])
    }


def _by_topic(values: Mapping[TopicPartition, int]) -> JsonOffset:
    found: JsonOffset = {}
    for (topic, partition), value in sorted(values.items()):
        found.setdefault(topic, {})[str(partition)] = value
    return found


def _of_topics(values: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in values.items():
        for index, value in partitions.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"topic {topic}, partition {index}: {value!r} is not an offset")
            found[topic, int(index)] = value
    return found
