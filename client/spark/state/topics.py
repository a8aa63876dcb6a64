"""Async: the tables `topics`, `partitions` and `replicas`.

One Metadata response, limited to the topics that filters select, serves all three. Eligible leader replicas, settings,
reassignments and live columns each need requests of their own. For a partition without a leader, or if a broker or
controller does not respond, the columns from these requests are NULL. So a cluster with a dead broker still has all its
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kraft.client.admin import PartitionDescription, Reassignment, TopicDescription
from kraft.client.core.records import TopicPartition
from kraft.client.spark.state.cells import id_text, known, time_of, whole
from kraft.client.spark.state.live import Ends, LogAt, request_ends, request_logs
from kraft.client.spark.state.request import Getter
from kraft.client.spark.state.table_query import Family, TableQuery
from kraft.client.spark.state.topic_settings import NO_SETTINGS, request_topic_settings

Settings = Mapping[str, str | None]


NOT_MOVED = Reassignment((), (), ())


async def request_topic_descriptions(query: TableQuery) -> tuple[TopicDescription, ...]:
    """Return the topics that filters select, with their partitions, and with eligible leader replicas if that column is
    read."""
    names, topics = query.wanted("topic"), query.admin.topics
    found = await (topics.list() if names is None else topics.describe(names, skip_unknown=True))
    if query.reads("elr", "last_known_elr", "is_eligible") and found:
        return await topics.describe_partitions(None if names is None else [topic.name for topic in found])
    return found


def partitions_of(query: TableQuery, topics: Iterable[TopicDescription]) -> Iterator[PartitionDescription]:
    """Yield the partitions of these topics that filters on column `partition` admit."""
    wanted = query.bounds.values("partition")
    for topic in topics:
        for part in topic.partitions:
            if wanted is None or part.index in wanted:
                yield part


def with_leader(parts: Iterable[PartitionDescription]) -> list[TopicPartition]:
    """Return only the partitions that have a leader."""
    return [(part.topic, part.index) for part in parts if part.leader is not None]


# topics


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, the settings that its columns need, and its live values."""

    topic: TopicDescription
    settings: Settings
    size_bytes: int | None
    records: int | None

    @property
    def min_insync_replicas(self) -> int | None:
        return whole(self.settings.get(MIN_INSYNC))

    @property
    def under_min_isr(self) -> int | None:
        """Number of partitions with fewer in-sync replicas than min.insync.replicas; None if that setting is
        not known."""
        least = self.min_insync_replicas
        return None if least is None else sum(len(part.isr) < least for part in self.topic.partitions)


MIN_INSYNC = "min.insync.replicas"
SETTING_OF = MappingProxyType(
    {
        "min_insync_replicas": MIN_INSYNC,
        "under_min_isr": MIN_INSYNC,
        "is_under_min_isr": MIN_INSYNC,
        "cleanup_policy": "cleanup.policy",
        "retention_ms": "retention.ms",
        "retention_bytes": "retention.bytes",
    }
)
"""Column → the topic setting from which it is computed."""


async def request_topics(query: TableQuery) -> list[TopicRow]:
    topics = await request_topic_descriptions(query)
    settings = await request_topic_settings(query, [topic.name for topic in topics], SETTING_OF)
    sizes: dict[str, int] = {}
    if query.reads("size_bytes"):
        every = [part for topic in topics for part in topic.partitions]
        logs = await request_logs(query, {broker for part in every for broker in part.replicas}, every)
        for (_, name, _), log in logs.items():
            sizes[name] = sizes.get(name, 0) + log.size_bytes
    ends = await request_ends(query, [tp for topic in topics for tp in with_leader(topic.partitions)])
    return [
        TopicRow(topic, settings.get(topic.name, NO_SETTINGS), sizes.get(topic.name), _records(topic, ends))
        for topic in topics
    ]


def _records(topic: TopicDescription, ends: Mapping[TopicPartition, Ends]) -> int | None:
    """Return the number of records in all partitions; None if the number of one partition is not known."""
    total = 0
    for part in topic.partitions:
        end = ends.get((topic.name, part.index))
        if end is None or end.records is None:
            return None
        total += end.records
    return total


# partitions


class PartitionRow(NamedTuple):
    """A partition, its topic's id and settings, its reassignment if it is being moved, and its live values."""

    part: PartitionDescription
    topic_id: UUID | None
    move: Reassignment | None
    settings: Settings
    ends: Ends | None
    log: LogAt | None


async def request_partitions(query: TableQuery) -> list[PartitionRow]:
    topics = await request_topic_descriptions(query)
    settings = await request_topic_settings(query, [topic.name for topic in topics], SETTING_OF)
    parts = list(partitions_of(query, topics))
    move_of = await request_moves(query)
    ends = await request_ends(query, with_leader(parts))
    logs: Mapping[tuple[int, str, int], LogAt] = {}
    if query.reads("size_bytes"):
        logs = await request_logs(query, {part.leader for part in parts if part.leader is not None}, parts)
    ids = {topic.name: topic.topic_id for topic in topics}
    return [
        PartitionRow(
            part,
            ids[part.topic],
            move_of(part),
            settings.get(part.topic, NO_SETTINGS),
            ends.get((part.topic, part.index)),
            logs.get((part.leader, part.topic, part.index)) if part.leader is not None else None,
        )
        for part in parts
    ]


async def request_moves(query: TableQuery) -> Callable[[PartitionDescription], Reassignment | None]:
    """Return a function from a partition to its reassignment. The function returns NOT_MOVED if the partition is not
    being moved, and None if no controller responded."""
    moves: Mapping[TopicPartition, Reassignment] | None = {}
    if query.reads("adding", "removing", "is_adding", "is_removing"):
        moves = await query.or_none(query.admin.partitions.reassignments)
    if moves is None:
        return lambda _part: None
    known_moves = moves
    return lambda part: known_moves.get((part.topic, part.index), NOT_MOVED)


def _is_under_min_isr(row: PartitionRow) -> bool | None:
    least = whole(row.settings.get(MIN_INSYNC))
    return None if least is None else len(row.part.isr) < least


# replicas


class ReplicaRow(NamedTuple):
    """A replica of a partition, and its position in the partition's list of replicas."""

    part: PartitionDescription
    broker: int
    position: int
    move: Reassignment | None
    log: LogAt | None


async def request_replicas(query: TableQuery) -> list[ReplicaRow]:
    parts = list(partitions_of(query, await request_topic_descriptions(query)))
    wanted = query.bounds.values("broker_id")
    move_of = await request_moves(query)
    logs: Mapping[tuple[int, str, int], LogAt] = {}
    if query.reads("log_dir", "size_bytes", "lag", "is_future"):
        brokers = {broker for part in parts for broker in part.replicas}
        logs = await request_logs(query, brokers if wanted is None else brokers & wanted, parts)
    return [
        ReplicaRow(
            part,
            broker,
            position,
            move_of(part),
            logs.get((broker, part.topic, part.index)),
        )
        for part in parts
        for position, broker in enumerate(part.replicas)
        if wanted is None or broker in wanted
    ]


def _lists(path: str) -> Getter:
    get = attrgetter(path)
    return lambda row: list(get(row))


def _preferred(row: PartitionRow) -> int | None:
    return row.part.replicas[0] if row.part.replicas else None


FAMILIES = MappingProxyType(
    {
        "topics": Family(
            {
                "topic": attrgetter("topic.name"),
                "topic_id": lambda row: id_text(row.topic.topic_id),
                "is_internal": attrgetter("topic.is_internal"),
                "partitions": lambda row: len(row.topic.partitions),
                "replication_factor": attrgetter("topic.replication_factor"),
                "under_replicated": lambda row: sum(part.is_under_replicated for part in row.topic.partitions),
                "under_min_isr": attrgetter("under_min_isr"),
                "leaderless": lambda row: sum(part.leader is None for part in row.topic.partitions),
                "min_insync_replicas": attrgetter("min_insync_replicas"),
                "cleanup_policy": lambda row: row.settings.get("cleanup.policy"),
                "retention_ms": lambda row: whole(row.settings.get("retention.ms")),
                "retention_bytes": lambda row: whole(row.settings.get("retention.bytes")),
                "size_bytes": attrgetter("size_bytes"),
                "records": attrgetter("records"),
            },
            request_topics,
            lambda row: (row.topic.name,),
        ),
        "partitions": Family(
            {
                "topic": attrgetter("part.topic"),
                "topic_id": lambda row: id_text(row.topic_id),
                "partition": attrgetter("part.index"),
                "leader": attrgetter("part.leader"),
                "leader_epoch": lambda row: known(row.part.leader_epoch),
                "replicas": _lists("part.replicas"),
                "isr": _lists("part.isr"),
                "offline_replicas": _lists("part.offline"),
                "elr": _lists("part.elr"),
                "last_known_elr": _lists("part.last_known_elr"),
                "adding": lambda row: None if row.move is None else list(row.move.adding),
                "removing": lambda row: None if row.move is None else list(row.move.removing),
                "preferred_leader": _preferred,
                "is_preferred_led": lambda row: row.part.leader is not None and row.part.leader == _preferred(row),
                "is_under_replicated": attrgetter("part.is_under_replicated"),
                "is_under_min_isr": _is_under_min_isr,
                "is_offline": lambda row: row.part.leader is None,
                "start_offset": lambda row: row.ends and row.ends.start,
                "end_offset": lambda row: row.ends and row.ends.end,
                "stable_offset": lambda row: row.ends and row.ends.stable,
                "records": lambda row: row.ends and row.ends.records,
                "newest_timestamp": lambda row: row.ends and time_of(row.ends.newest_ms),
                "size_bytes": lambda row: row.log and row.log.size_bytes,
            },
            request_partitions,
            lambda row: (row.part.topic, row.part.index),
        ),
        "replicas": Family(
            {
                "topic": attrgetter("part.topic"),
                "partition": attrgetter("part.index"),
                "broker_id": attrgetter("broker"),
                "position": attrgetter("position"),
                "is_leader": lambda row: row.broker == row.part.leader,
                "is_in_sync": lambda row: row.broker in row.part.isr,
                "is_offline": lambda row: row.broker in row.part.offline,
                "is_eligible": lambda row: row.broker in row.part.elr,
                "is_adding": lambda row: None if row.move is None else row.broker in row.move.adding,
                "is_removing": lambda row: None if row.move is None else row.broker in row.move.removing,
                "log_dir": lambda row: row.log and row.log.path,
                "size_bytes": lambda row: row.log and row.log.size_bytes,
                "lag": lambda row: row.log and row.log.lag,
                "is_future": lambda row: row.log and row.log.is_future,
            },
            request_replicas,
            lambda row: (row.part.topic, row.part.index, row.broker),
        ),
    }
)
