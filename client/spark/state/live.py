"""Async: what lies in logs now: offsets by ListOffsets, sizes by DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import trio

from kraft.client.admin import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, LogDir, PartitionDescription
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.spark.state.asking import Asking
from kraft.wire.api_keys import ApiKey

VERSION_WITH_MAX_TIMESTAMP = 7
"""Of ListOffsets (KIP-734)."""


class Ends(NamedTuple):
    """A partition's offsets and its newest time in ms; None: not asked for, or its leader does not answer."""

    start: int | None
    end: int | None
    stable: int | None
    newest_ms: int | None

    @property
    def records(self) -> int | None:
        """End less start."""
        return None if self.start is None or self.end is None else self.end - self.start


class LogAt(NamedTuple):
    """A replica's log on one broker. `is_future`: it is being moved into another directory there."""

    path: str
    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class _Question:
    """One ListOffsets request to each leader: for which columns, at what, for which readers."""

    columns: tuple[str, ...]
    at: int
    read_committed: bool = False


_QUESTIONS = (
    _Question(("start_offset", "records", "is_expired"), EARLIEST),
    _Question(("end_offset", "records", "lag"), LATEST),
    _Question(("stable_offset",), LATEST, read_committed=True),
    _Question(("newest_timestamp",), MAX_TIMESTAMP),
)
_Found = Mapping[TopicPartition, FoundOffset | KafkaError]


async def ask_ends(
    asking: Asking, partitions: Iterable[TopicPartition], also: Iterable[str] = ()
) -> dict[TopicPartition, Ends]:
    """The ends of these partitions, as far as columns that are read, or those of `also`, need them."""
    read = asking.columns | set(also)
    answers: list[_Found] = [{} for _ in _QUESTIONS]
    listed = list(partitions)

    async def ask(number: int, question: _Question) -> None:
        offsets_of_each = asking.admin.partitions.offsets_of_each
        wanted = dict.fromkeys(listed, question.at)
        answers[number] = await offsets_of_each(wanted, read_committed=question.read_committed)

    async with trio.open_nursery() as nursery:
        for number, question in enumerate(_QUESTIONS):
            is_new = question.at == MAX_TIMESTAMP
            can_answer = not is_new or asking.answers(ApiKey.LIST_OFFSETS, VERSION_WITH_MAX_TIMESTAMP)
            if listed and can_answer and not read.isdisjoint(question.columns):
                nursery.start_soon(ask, number, question)
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


async def ask_logs(
    asking: Asking, brokers: Iterable[int], parts: Iterable[PartitionDescription]
) -> dict[tuple[int, str, int], LogAt]:
    """By (broker, topic, partition): the logs of these brokers, as far as they answer. Where only some topics are
    wanted, no others are asked for."""
    up = {one.node_id for one in (await asking.admin.nodes.cluster()).brokers if not one.is_fenced}
    only = None
    if asking.bounds.values("topic") is not None:
        only = [(part.topic, part.index) for part in parts]
    ask = partial(_ask_log_dirs, asking, only)
    outcomes = await asking.each("broker", sorted(up.intersection(brokers)), ask)
    found: dict[tuple[int, str, int], LogAt] = {}
    for broker, dirs in outcomes.items():
        if not isinstance(dirs, Exception):
            found.update(_logs(broker, dirs))
    return found


async def _ask_log_dirs(asking: Asking, only: list[TopicPartition] | None, broker: int) -> tuple[LogDir, ...]:
    return await asking.admin.nodes.log_dirs([broker], partitions=only)


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
