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
from kraft.client.spark.history.points import LogBounds, LogReader, open_log, point_at, present_point
from kraft.client.spark.history.tables import View, rows_at
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import EARLIEST, LATEST, Position, TableSettings, When
from kraft.client.spark.state.cells import time_of
from kraft.client.spark.state.request import StateError, StateRequest
from kraft.seam import WireError

RANGE_EVENTS = 100_000
"""Maximum events that one task of `metadata_events` reads, which takes a second or two."""


@dataclass(frozen=True, slots=True)
class LogValues:
    """Values of the metadata-log columns for a table of the cluster's present state. `offset` is the log offset at
    which the values were valid. `values` is keyed by (broker id,), (topic,), (topic, partition) or (topic, partition,
    broker id)."""

    values: Mapping[tuple[Any, ...], Mapping[str, Any]]
    offset: int


@contextmanager
def as_state_error(table: str) -> Iterator[None]:
    """Raise a StateError instead of each error of reading the log."""
    try:
        yield
    except (MetadataLogError, ClusterUnreachable, KafkaError, VersionMismatch, WireError) as problem:
        raise StateError(f"table {table} cannot be read: {problem}") from problem


def rows_as_of(request: StateRequest) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table as of a past point, a table read from a folder, or a table of the log itself. Values
    are in the order of `request.columns`.

    Raises StateError, before the first row, for a point that is not available or a log that cannot be read."""
    settings, columns = request.settings, request.columns
    bounds = request.bounds if isinstance(request.bounds, Bounds) else Bounds()
    with as_state_error(request.table):
        if request.table == "metadata_events":
            ranges = plan_events(settings, columns, bounds, events_max=None)
            return chain.from_iterable([read_events(settings, columns, one) for one in ranges])
        if request.table == "metadata_diff":
            return _rows_of_diff(settings, columns)
        with open_log(settings) as log:
            view = View(*_point(log, settings.as_of), with_docs=settings.with_docs)
        return rows_at(request.table, columns, view, bounds)


def log_values(settings: TableSettings, table: str, columns: tuple[str, ...]) -> LogValues | None:
    """Return the values of the metadata-log columns for a table of the cluster's present state. Return None if the
    cluster does not serve its log from the beginning; Apache Kafka's brokers never do."""
    with as_state_error(table):
        point = present_point(settings)
    if point is None:
        return None
    return LogValues(LOG_VALUES[table](point, columns), point.image.offset)


def _point(log: LogReader, when: When | None) -> tuple[LogPoint, int]:
    """Return a point of the log and its time in ms: the requested time, or the time of the last event before
    the point."""
    point = point_at(log, when)
    asked_ms = None if when is None else when.timestamp_ms
    return point, point.last_ms if asked_ms is None else asked_ms


def _rows_of_diff(settings: TableSettings, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    with open_log(settings) as log:
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
    """Return the ranges that the tasks of `metadata_events` read, with at most `events_max` events each (None: one
    range). Raises NotInLog for a start that is not in the log."""
    with open_log(settings) as log:
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


def starting_offset(log: LogReader, known: LogBounds, position: Position) -> int:
    """Return the offset at which to begin reading events. Raises NotInLog for an offset below the log's start or beyond
    its end."""
    if position.kind in ("timestamp", "timestamps"):
        times = [time for of_topic in position.timestamps.values() for time in of_topic.values()]
        return log.offset_at(times[0] if times else position.timestamp_ms, known)
    offsets = [offset for of_topic in position.offsets.values() for offset in of_topic.values()]
    wanted = offsets[0] if offsets else LATEST if position.kind == "latest" else EARLIEST
    if wanted in (EARLIEST, LATEST):
        return known.start if wanted == EARLIEST else known.end
    if wanted < known.start:
        raise NotInLog(
            f"events from offset {wanted} on are no longer in the log: the first is at {known.start}; "
            f"{log.oldest(known)}"
        )
    if wanted > known.end:
        raise NotInLog(f"there is no offset {wanted} yet: the metadata log ends at offset {known.end}")
    return wanted


def learn(log: LogReader, names: TopicNames, start: int, end: int) -> None:
    """Add to `names` the topics that are created in this part of the log."""
    for batch in log.batches(start, end):
        names.learn(values_of(batch))


def name_ranges(log: LogReader, names: TopicNames, ranges: Iterable[tuple[int, int]]) -> list[EventRange]:
    """Return the ranges, each with the topic names that its events need. `names` holds the topics created before the
    first range."""
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
    """Read the events of one range as rows. Raises StateError if they cannot be read."""
    with as_state_error("metadata_events"), open_log(settings) as log:
        if part.names is not None:
            names = dict(part.names)
            entries = _entries(log.batches(part.start, part.end), part)
        else:
            known = log.bounds()
            learned = TopicNames(log.names(known))
            entries = _entries(_learning(log, learned, known.start, part), part)
            names = learned.names
        yield from event_rows(columns, entries, names)


def _learning(log: LogReader, names: TopicNames, start: int, part: EventRange) -> Iterator[LogBatch]:
    """Yield the batches of a range. Before that, read the log from its beginning to learn the names of topics created
    earlier."""
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
