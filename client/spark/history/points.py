"""Synchronous: the metadata log behind the tables, of a running cluster or in a node's files: where it begins and ends,
and the cluster's metadata at a point of it.

The last images that a process has made are kept: a question about the same point, or a later one, costs only the events
in between. Source: KIP-595, KIP-630 (snapshots).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol
from uuid import UUID

from kraft.client.metadata_log.entries import BatchMark, LogBatch, entries_between, entries_of
from kraft.client.metadata_log.errors import BeginsInSnapshot, LogRefused, NotInLog
from kraft.client.metadata_log.folder import FolderLog, find_folder
from kraft.client.metadata_log.replaying import NO_TIME, LogPoint, Replay, Until
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.history.network import NetworkLog
from kraft.client.spark.settings import TableSettings, When
from kraft.client.spark.state.cells import time_of
from kraft.image import MetadataImage

POINTS_MAX = 3
"""So many images a process keeps: those of two points that are compared, and of the present."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What there is of a log. `identity` tells logs apart. `start` and `end` are of the events; `base_offset` is the
    oldest offset with an image, None if there is none: the log's begin is in a snapshot that cannot be had."""

    identity: str
    start: int
    end: int
    base_offset: int | None


class Log(Protocol):
    """A metadata log, wherever it is."""

    def bounds(self) -> LogBounds:
        """Where it begins and ends now."""
        ...

    def end(self) -> int:
        """Where it ends now, at the cost of one question at most."""
        ...

    def base(self) -> MetadataImage:
        """The image at `base_offset`."""
        ...

    def batches(self, start: int, end: int) -> Iterator[LogBatch]:
        """The whole batches that hold offsets from `start` to before `end`."""
        ...

    def offset_at(self, time_ms: int, bounds: LogBounds) -> int:
        """An offset that is behind all that was written before this time, and not behind anything that was not."""
        ...

    def names(self, bounds: LogBounds) -> Mapping[UUID, str]:
        """Of topics that were created before the log's first event, as far as they are known."""
        ...

    def oldest(self, bounds: LogBounds) -> str:
        """The oldest point that is there, as errors name it."""
        ...


class FilesLog:
    """The log in a node's folder, or in that of a whole cluster."""

    def __init__(self, path: str) -> None:
        """NotInLog if there is none."""
        self._log = FolderLog(find_folder(Path(path)))

    def bounds(self) -> LogBounds:
        snapshot = self._log.oldest_snapshot()
        start = self._log.start_offset
        base = None if snapshot is None and start > 0 else 0 if snapshot is None else snapshot.end_offset
        return LogBounds(str(self._log.folder.resolve()), start, self._log.end_offset(), base)

    def end(self) -> int:
        return self._log.end_offset()

    def base(self) -> MetadataImage:
        return self._log.base()

    def batches(self, start: int, end: int) -> Iterator[LogBatch]:
        return self._log.batches(start, end)

    def offset_at(self, time_ms: int, bounds: LogBounds) -> int:
        for batch in self.batches(bounds.start, bounds.end):
            if batch.header.max_timestamp >= time_ms:
                for entry in entries_of(batch):
                    if entry.timestamp_ms >= time_ms:
                        return entry.offset
        return bounds.end

    def names(self, bounds: LogBounds) -> Mapping[UUID, str]:
        return {topic.topic_id: topic.name for topic in self.base().topics} if bounds.base_offset else {}

    def oldest(self, bounds: LogBounds) -> str:
        if bounds.base_offset is None:
            return f"the log in {self._log.folder} begins at offset {bounds.start}, and its snapshots are gone"
        if bounds.base_offset:
            return f"the oldest point in {self._log.folder} is the snapshot at offset {bounds.base_offset}"
        return f"the log in {self._log.folder} begins at offset 0"


class ClusterLog:
    """The committed log of a running cluster."""

    def __init__(self, cluster: SyncCluster) -> None:
        self._log = NetworkLog(cluster)

    def bounds(self) -> LogBounds:
        """LogRefused, ClusterUnreachable."""
        found = self._log.bounds()
        return LogBounds(found.cluster_id, found.start, found.end, None if found.start else 0)

    def end(self) -> int:
        return self._log.end_offset()

    def base(self) -> MetadataImage:
        return MetadataImage()

    def batches(self, start: int, end: int) -> Iterator[LogBatch]:
        return self._log.batches(start, end)

    def offset_at(self, time_ms: int, bounds: LogBounds) -> int:
        found = self._log.offset_at(time_ms)
        return bounds.end if found is None else found

    def names(self, bounds: LogBounds) -> Mapping[UUID, str]:
        return {} if bounds.start == 0 else self._log.topic_names()

    def oldest(self, bounds: LogBounds) -> str:
        if bounds.base_offset is None:
            return (
                f"the log that the cluster serves begins at offset {bounds.start}, and what was before is in a "
                "snapshot, which only its nodes can fetch. Read a node's files instead: option folder=DIR, in which "
                "the oldest point is the oldest snapshot"
            )
        return f"the log that the cluster serves begins at offset {bounds.start}"


@contextmanager
def opened(settings: TableSettings) -> Iterator[Log]:
    """The log that a table's options name."""
    if settings.connection is None:
        yield FilesLog(settings.folder or "")
        return
    with SyncCluster(settings.connection) as cluster:
        yield ClusterLog(cluster)


class Points:
    """The last images of a process, by log."""

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self._points: OrderedDict[tuple[str, int], LogPoint] = OrderedDict()
        self._points_max = points_max

    def before(self, identity: str, until: Until) -> LogPoint | None:
        """The latest point from which `until` can be reached."""
        found = [point for (log, _), point in self._points.items() if log == identity and point.can_reach(until)]
        return max(found, key=lambda point: point.image.offset, default=None)

    def keep(self, identity: str, point: LogPoint) -> None:
        key = identity, point.image.offset
        self._points[key] = point
        self._points.move_to_end(key)
        while len(self._points) > self._points_max:
            self._points.popitem(last=False)

    def forget(self, identity: str) -> None:
        """The log is another one than it was."""
        for key in [key for key in self._points if key[0] == identity]:
            del self._points[key]


_points = Points()


def point_at(log: Log, when: When | None, points: Points = _points) -> LogPoint:
    """The metadata as of `when` (None: now). NotInLog for a point that is not there, with the oldest that is;
    MetadataLogError if the log cannot be read."""
    bounds = log.bounds()
    until = _until(log, bounds, when)
    known = points.before(bounds.identity, until)
    point = None if known is None else _go_on(log, known, until, bounds)
    if point is None:
        if known is not None:
            points.forget(bounds.identity)
        point = _replay(LogPoint(log.base()), log.batches(bounds.base_offset or 0, bounds.end), until, bounds)
    if until.timestamp_ms is not None and point.last_ms == NO_TIME:
        _check_time(log, until.timestamp_ms, point.image.offset, bounds)
    points.keep(bounds.identity, point)
    return point


def _until(log: Log, bounds: LogBounds, when: When | None) -> Until:
    if bounds.base_offset is None:
        asked = "now" if when is None else f"at {when_text(when)}"
        raise BeginsInSnapshot(f"the cluster's metadata {asked} cannot be had from the log: {log.oldest(bounds)}")
    if when is None:
        return Until(offset=bounds.end)
    if when.offset is None:
        return Until(timestamp_ms=when.timestamp_ms)
    if when.offset > bounds.end:
        raise NotInLog(f"there is no offset {when.offset} yet: the metadata log ends at offset {bounds.end}")
    if when.offset < bounds.base_offset:
        raise NotInLog(f"there is no offset {when.offset} any more: {log.oldest(bounds)}")
    return Until(offset=when.offset)


def _go_on(log: Log, known: LogPoint, until: Until, bounds: LogBounds) -> LogPoint | None:
    """From a point that is known, if the log is still the one that it was made of; else None."""
    if known.last is None or known.last.base_offset < bounds.start:
        return None
    batches = log.batches(known.last.base_offset, bounds.end if until.offset is None else until.offset)
    first = next(batches, None)
    if first is None or BatchMark.of(first.header) != known.last:
        return None
    return _replay(known, chain([first], batches), until, bounds)


def _replay(start: LogPoint, batches: Iterator[LogBatch], until: Until, bounds: LogBounds) -> LogPoint:
    replay = Replay(start, until)
    for batch in batches:
        replay.feed(batch)
        if replay.is_done:
            break
    return replay.point(bounds.end)


def _check_time(log: Log, time_ms: int, start: int, bounds: LogBounds) -> None:
    """NotInLog for a time before the first event, which is at `start` or behind it."""
    first = next(entries_between(log.batches(start, bounds.end), start, bounds.end), None)
    if first is not None and time_ms < first.timestamp_ms:
        raise NotInLog(
            f"the time {time_text(time_ms)} is before the first event that is there: offset {first.offset}, written "
            f"at {time_text(first.timestamp_ms)}; {log.oldest(bounds)}"
        )


def present_point(settings: TableSettings) -> LogPoint | None:
    """The metadata now, for the columns that are only in the log; None if the cluster does not serve its log, or no
    longer serves its begin."""
    with opened(settings) as log:
        try:
            return point_at(log, None)
        except (LogRefused, BeginsInSnapshot):
            return None


def when_text(when: When) -> str:
    """`offset 5`, or the time."""
    return f"offset {when.offset}" if when.offset is not None else time_text(when.timestamp_ms or 0)


def time_text(time_ms: int) -> str:
    """ISO 8601 in UTC, to the ms."""
    moment = time_of(time_ms)
    return f"{time_ms} ms" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
