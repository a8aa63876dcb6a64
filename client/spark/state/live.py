"""Async: the present state of partitions' logs: offsets by ListOffsets, sizes by DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import trio

from kraft.client.admin import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, LogDir, PartitionDescription
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.spark.state.table_query import TableQuery
from kraft.wire.api_keys import ApiKey

VERSION_WITH_MAX_TIMESTAMP = 7
"""The first version of ListOffsets with MAX_TIMESTAMP (KIP-734)."""


class Ends(NamedTuple):
    """A partition's start and end offsets, and its newest timestamp in ms. A field is None if it was not requested, or
    the leader does not respond."""

    start: int | None
    end: int | None
    stable: int | None
    newest_ms: int | None

    @property
    def records(self) -> int | None:
        """Number of offsets between start and end."""
        return None if self.start is None or self.end is None else self.end - self.start


class LogAt(NamedTuple):
    """A replica's log on one broker. `is_future`: the log is being moved into another directory of that broker."""

    path: str
    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class _OffsetsRequest:
    """A kind of ListOffsets request, sent to each leader: the columns for which it is needed, the requested time or
    special offset, and the isolation level."""

    columns: tuple[str, ...]
    at: int
    read_committed: bool = False


_OFFSETS_REQUESTS = (
    _OffsetsRequest(("start_offset", "records", "is_expired"), EARLIEST),
    _OffsetsRequest(("end_offset", "records", "lag"), LATEST),
    _OffsetsRequest(("stable_offset",), LATEST, read_committed=True),
    _OffsetsRequest(("newest_timestamp",), MAX_TIMESTAMP),
)
_Found = Mapping[TopicPartition, FoundOffset | KafkaError]


async def request_ends(
    query: TableQuery, partitions: Iterable[TopicPartition], also: Iterable[str] = ()
) -> dict[TopicPartition, Ends]:
    """Return the ends of these partitions. Only offsets that are needed for the columns being read, or for the columns
    `also`, are requested."""
    read = query.columns | set(also)
    answers: list[_Found] = [{} for _ in _OFFSETS_REQUESTS]
    listed = list(partitions)

    async def send(number: int, question: _OffsetsRequest) -> None:
        offsets_of_each = query.admin.partitions.offsets_of_each
        wanted = dict.fromkeys(listed, question.at)
        answers[number] = await offsets_of_each(wanted, read_committed=question.read_committed)

    async with trio.open_nursery() as nursery:
        for number, question in enumerate(_OFFSETS_REQUESTS):
            is_new = question.at == MAX_TIMESTAMP
            can_answer = not is_new or query.answers(ApiKey.LIST_OFFSETS, VERSION_WITH_MAX_TIMESTAMP)
            if listed and can_answer and not read.isdisjoint(question.columns):
                nursery.start_soon(send, number, question)
    if not any(answers):
        return {}
    starts, ends, stable, newest = answers
    return {
        tp: Ends(_offset(starts, tp), _offset(ends, tp), _offset(stable, tp), _time_ms(newest, tp)) for tp in listed
    }


def _offset(found: _Found, tp: TopicPartition) -> int | None:
    value = found.get(tp)
    return value.offset if isinstance(value, FoundOffset) and value.offset >= 0 else None


def _time_ms(found: _Found, tp: TopicPartition) -> int | None:
    value = found.get(tp)
    return value.timestamp_ms if isinstance(value, FoundOffset) and value.timestamp_ms >= 0 else None


async def request_logs(
    query: TableQuery, brokers: Iterable[int], parts: Iterable[PartitionDescription]
) -> dict[tuple[int, str, int], LogAt]:
    """Return the logs of the brokers that respond, by (broker, topic, partition). If filters select topics, only logs
    of the given partitions are requested."""
    up = {one.node_id for one in (await query.admin.nodes.cluster()).brokers if not one.is_fenced}
    only = None
    if query.bounds.values("topic") is not None:
        only = [(part.topic, part.index) for part in parts]
    send = partial(_request_log_dirs, query, only)
    outcomes = await query.each("broker", sorted(up.intersection(brokers)), send)
    found: dict[tuple[int, str, int], LogAt] = {}
    for broker, dirs in outcomes.items():
        if not isinstance(dirs, Exception):
            found.update(_logs(broker, dirs))
    return found


async def _request_log_dirs(query: TableQuery, only: list[TopicPartition] | None, broker: int) -> tuple[LogDir, ...]:
    return await query.admin.nodes.log_dirs([broker], partitions=only)


def _logs(broker: int, dirs: Iterable[LogDir]) -> dict[tuple[int, str, int], LogAt]:
    current = {}
    future = set()
    for each in dirs:
        for replica in each.replicas:
            key = broker, replica.topic, replica.partition
            if replica.is_future:
                future.add(key)
            else:
                current[key] = LogAt(each.path, replica.size_bytes, replica.lag, False)
    return {key: log._replace(is_future=True) if key in future else log for key, log in current.items()}
