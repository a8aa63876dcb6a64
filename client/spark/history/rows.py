"""Synchronous: the rows of tables that come from the metadata log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kraft.client.core.records import KafkaError
from kraft.client.metadata_log.entries import Entry, LogBatch, entries_of, values_of
from kraft.client.metadata_log.errors import MetadataLogError, NotInLog
from kraft.client.metadata_log.replaying import LogPoint
from kraft.client.spark.blocking.link import VersionMismatch
from kraft.client.spark.blocking.retries import ClusterUnreachable
from kraft.client.spark.history.diff import diff_rows
from kraft.client.spark.history.events import EventRange, TopicNames, event_rows, needs_names, split, topics_in
from kraft.client.spark.history.log_columns import LOG_VALUES
from kraft.client.spark.history.points import Log, LogBounds, opened, point_at, present_point
from kraft.client.spark.history.tables import View, rows_at
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import EARLIEST, LATEST, Position, TableSettings, When
from kraft.client.spark.state.cells import time_of
from kraft.client.spark.state.request import StateError, StateRequest
from kraft.seam import WireError

RANGE_EVENTS = 100_000
"""A task of `metadata_events` reads so many events: a second or two of work."""


@dataclass(frozen=True, slots=True)
class LogValues:
    """Columns of tables of the present that are in the log only. `values`: by a row's key, which is (broker id,),
    (topic,), (topic, partition) or (topic, partition, broker id); `offset`: of the log that they were read from."""

    values: Mapping[tuple[Any, ...], Mapping[str, Any]]
    offset: int


@contextmanager
def explained(table: str) -> Iterator[None]:
    """What keeps the log from being read becomes StateError."""
    try:
        yield
    except (MetadataLogError, ClusterUnreachable, KafkaError, VersionMismatch, WireError) as problem:
        raise StateError(f"table {table} cannot be read: {problem}") from problem


def rows_as_of(request: StateRequest) -> Iterator[tuple[Any, ...]]:
    """The rows of a table of the past, of a folder, or of the log itself, with values in the order of
    `request.columns`. StateError, before the first row, for a point that is not there or a log that cannot be read."""
    settings, columns = request.settings, request.columns
    bounds = request.bounds if isinstance(request.bounds, Bounds) else Bounds()
    with explained(request.table):
        if request.table == "metadata_events":
            ranges = plan_events(settings, columns, bounds, events_max=None)
            return chain.from_iterable([read_events(settings, columns, one) for one in ranges])
        if request.table == "metadata_diff":
            return _rows_of_diff(settings, columns)
        with opened(settings) as log:
            view = View(*_point(log, settings.as_of), with_docs=settings.with_docs)
        return rows_at(request.table, columns, view, bounds)


def log_values(settings: TableSettings, table: str, columns: tuple[str, ...]) -> LogValues | None:
    """The log's columns of a table of the present; None if the cluster does not serve its log, as Apache Kafka's
    brokers do not, or no longer has its begin."""
    with explained(table):
        point = present_point(settings)
    if point is None:
        return None
    return LogValues(LOG_VALUES[table](point, columns), point.image.offset)


def _point(log: Log, when: When | None) -> tuple[LogPoint, int]:
    """A point, and its time in ms: the time that was asked for, else that of the last event before it."""
    point = point_at(log, when)
    asked_ms = None if when is None else when.timestamp_ms
    return point, point.last_ms if asked_ms is None else asked_ms


def _rows_of_diff(settings: TableSettings, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    with opened(settings) as log:
        if settings.from_ is None:
            raise StateError(
                "table metadata_diff needs fromOffset or fromTimestamp, and perhaps toOffset or toTimestamp"
            )
        before, _ = _point(log, settings.from_)
        after, time_ms = _point(log, settings.to)
    if after.image.offset < before.image.offset:
        raise StateError(
            f"table metadata_diff cannot be read: it goes from offset {before.image.offset} to the earlier offset "
            f"{after.image.offset}; swap the two"
        )
    return diff_rows(columns, before.image, after.image, time_of(time_ms))


# events


def plan_events(
    settings: TableSettings, columns: tuple[str, ...], bounds: Bounds, *, events_max: int | None = RANGE_EVENTS
) -> list[EventRange]:
    """Ranges of `metadata_events` for tasks, of at most `events_max` events each (None: one range). NotInLog for a
    start that is not there."""
    with opened(settings) as log:
        known = log.bounds()
        start = starting_offset(log, known, settings.starting or Position(kind="earliest"))
        low, high = bounds.range("offset")
        start, end = max(start, low or 0), known.end if high is None else min(known.end, high + 1)
        if bounds.is_empty or start >= end:
            return []
        ranges = split(start, end, end - start if events_max is None else events_max)
        if len(ranges) == 1 or not needs_names(columns):
            return [EventRange(*one, None if needs_names(columns) else {}) for one in ranges]
        names = TopicNames(log.names(known))
        learn(log, names, known.start, start)
        return name_ranges(log, names, ranges)


def starting_offset(log: Log, known: LogBounds, position: Position) -> int:
    """Where events begin. NotInLog for an offset that is not there (any more, or yet)."""
    if position.kind in ("timestamp", "timestamps"):
        times = [time for of_topic in position.timestamps.values() for time in of_topic.values()]
        return log.offset_at(times[0] if times else position.timestamp_ms, known)
    offsets = [offset for of_topic in position.offsets.values() for offset in of_topic.values()]
    wanted = offsets[0] if offsets else LATEST if position.kind == "latest" else EARLIEST
    if wanted in (EARLIEST, LATEST):
        return known.start if wanted == EARLIEST else known.end
    if wanted < known.start:
        raise NotInLog(
            f"events from offset {wanted} on are not there any more: the first is at {known.start}; {log.oldest(known)}"
        )
    if wanted > known.end:
        raise NotInLog(f"there is no offset {wanted} yet: the metadata log ends at offset {known.end}")
    return wanted


def learn(log: Log, names: TopicNames, start: int, end: int) -> None:
    """Learn the names of the topics that are created in this part of the log."""
    for batch in log.batches(start, end):
        names.learn(values_of(batch))


def name_ranges(log: Log, names: TopicNames, ranges: Iterable[tuple[int, int]]) -> list[EventRange]:
    """The ranges with the names that each needs; `names` knows what is created before the first."""
    planned = []
    for start, end in ranges:
        topic_ids = set()
        for batch in log.batches(start, end):
            values = values_of(batch)
            names.learn(values)
            topic_ids |= topics_in(values)
        planned.append(EventRange(start, end, names.of(topic_ids)))
    return planned


def read_events(settings: TableSettings, columns: tuple[str, ...], part: EventRange) -> Iterator[tuple[Any, ...]]:
    """The rows of one range. StateError if it cannot be read."""
    with explained("metadata_events"), opened(settings) as log:
        if part.names is not None:
            names = dict(part.names)
            entries = _entries(log.batches(part.start, part.end), part)
        else:
            known = log.bounds()
            learned = TopicNames(log.names(known))
            entries = _entries(_learning(log, learned, known.start, part), part)
            names = learned.names
        yield from event_rows(columns, entries, names)


def _learning(log: Log, names: TopicNames, start: int, part: EventRange) -> Iterator[LogBatch]:
    """The batches of a range, when the names from the log's begin up to each are learned."""
    for batch in log.batches(min(start, part.start), part.end):
        if batch.header.base_offset < part.start:
            names.learn(values_of(batch))
        if batch.header.next_offset > part.start:
            yield batch


def _entries(batches: Iterator[LogBatch], part: EventRange) -> Iterator[Entry]:
    for batch in batches:
        for entry in entries_of(batch):
            if part.start <= entry.offset < part.end:
                yield entry
