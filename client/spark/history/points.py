"""Synchronous: read a metadata log, from a running cluster or a node's files: its first and last offsets, and the
cluster's metadata at any point of it.

A process caches the last metadata images that it has built. A query for the same or a later point replays only the
events in between. Source: KIP-595, KIP-630 (snapshots).
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

from kraft.client.metadata_log.entries import BatchIdentity, LogBatch, entries_between, entries_of
from kraft.client.metadata_log.errors import BeginsInSnapshot, LogRefused, NotInLog
from kraft.client.metadata_log.folder import FolderLog, find_folder
from kraft.client.metadata_log.replaying import NO_TIME, LogPoint, Replay, Until
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.history.network import NetworkLog
from kraft.client.spark.settings import TableSettings, When
from kraft.client.spark.state.cells import time_of
from kraft.image import MetadataImage

POINTS_MAX = 3
"""Maximum metadata images that a process caches: two points that a query compares, and the present."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The available part of a log. `identity` is unique per log. `start` is the offset of its first event, `end` that
    of the next event to be written. `base_offset` is the oldest offset for which an image can be built; None if the
    log's beginning was replaced by a snapshot that is not available."""

    identity: str
    start: int
    end: int
    base_offset: int | None


class LogReader(Protocol):
    """Interface of a metadata log that can be read, of a running cluster or in files."""

    def bounds(self) -> LogBounds:
        """Return the offsets at which the log begins and ends now."""
        ...

    def end(self) -> int:
        """Return the offset at which the log ends now, with at most one request."""
        ...

    def base(self) -> MetadataImage:
        """Return the metadata image at `base_offset`."""
        ...

    def batches(self, start: int, end: int) -> Iterator[LogBatch]:
        """Return the whole batches that contain the offsets from `start` to before `end`."""
        ...

    def offset_at(self, time_ms: int, bounds: LogBounds) -> int:
        """Return an offset that divides the log at this time: events written before the time are below it, events
        written after the time are not."""
        ...

    def names(self, bounds: LogBounds) -> Mapping[UUID, str]:
        """Return the known names of topics that were created before the log's first event, by topic id."""
        ...

    def oldest(self, bounds: LogBounds) -> str:
        """Describe the oldest available point of the log, for error messages."""
        ...


class FilesLog:
    """The metadata log in the data folder of a node or of a whole cluster."""

    def __init__(self, path: str) -> None:
        """Open the log in the folder. Raises NotInLog if the folder has none."""
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
    """The committed metadata log of a running cluster."""

    def __init__(self, cluster: SyncCluster) -> None:
        self._log = NetworkLog(cluster)

    def bounds(self) -> LogBounds:
        """Return the offsets at which the log begins and ends now. Raises LogRefused, ClusterUnreachable."""
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
def open_log(settings: TableSettings) -> Iterator[LogReader]:
    """Open the log that a table's options name."""
    if settings.connection is None:
        yield FilesLog(settings.folder or "")
        return
    with SyncCluster(settings.connection) as cluster:
        yield ClusterLog(cluster)


class PointCache:
    """Cache of the metadata images that a process has built last, by log."""

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self._points: OrderedDict[tuple[str, int], LogPoint] = OrderedDict()
        self._points_max = points_max

    def before(self, identity: str, until: Until) -> LogPoint | None:
        """Return the latest cached point from which `until` can be reached by replaying events; None if no point is
        suitable."""
        found = [point for (log, _), point in self._points.items() if log == identity and point.can_reach(until)]
        return max(found, key=lambda point: point.image.offset, default=None)

    def keep(self, identity: str, point: LogPoint) -> None:
        key = identity, point.image.offset
        self._points[key] = point
        self._points.move_to_end(key)
        while len(self._points) > self._points_max:
            self._points.popitem(last=False)

    def forget(self, identity: str) -> None:
        """Drop the cached points of a log that was replaced by another log."""
        for key in [key for key in self._points if key[0] == identity]:
            del self._points[key]


_points = PointCache()


def point_at(log: LogReader, when: When | None, points: PointCache = _points) -> LogPoint:
    """Return the metadata as of the point `when` (None: now).

    Raises NotInLog if the point is not available; the message names the oldest available point. Raises MetadataLogError
    if the log cannot be read."""
    bounds = log.bounds()
    until = _until(log, bounds, when)
    known = points.before(bounds.identity, until)
    point = None if known is None else _continue_from(log, known, until, bounds)
    if point is None:
        if known is not None:
            points.forget(bounds.identity)
        point = _replay(LogPoint(log.base()), log.batches(bounds.base_offset or 0, bounds.end), until, bounds)
    if until.timestamp_ms is not None and point.last_ms == NO_TIME:
        _check_time(log, until.timestamp_ms, point.image.offset, bounds)
    points.keep(bounds.identity, point)
    return point


def _until(log: LogReader, bounds: LogBounds, when: When | None) -> Until:
    if bounds.base_offset is None:
        asked = "now" if when is None else f"at {when_text(when)}"
        raise BeginsInSnapshot(f"the cluster's metadata {asked} is not available from the log: {log.oldest(bounds)}")
    if when is None:
        return Until(offset=bounds.end)
    if when.offset is None:
        return Until(timestamp_ms=when.timestamp_ms)
    if when.offset > bounds.end:
        raise NotInLog(f"there is no offset {when.offset} yet: the metadata log ends at offset {bounds.end}")
    if when.offset < bounds.base_offset:
        raise NotInLog(f"there is no offset {when.offset} any more: {log.oldest(bounds)}")
    return Until(offset=when.offset)


def _continue_from(log: LogReader, known: LogPoint, until: Until, bounds: LogBounds) -> LogPoint | None:
    """Replay the events after a cached point. Return None if the log no longer contains the last batch of
    that point."""
    if known.last is None or known.last.base_offset < bounds.start:
        return None
    batches = log.batches(known.last.base_offset, bounds.end if until.offset is None else until.offset)
    first = next(batches, None)
    if first is None or BatchIdentity.of(first.header) != known.last:
        return None
    return _replay(known, chain([first], batches), until, bounds)


def _replay(start: LogPoint, batches: Iterator[LogBatch], until: Until, bounds: LogBounds) -> LogPoint:
    replay = Replay(start, until)
    for batch in batches:
        replay.feed(batch)
        if replay.is_done:
            break
    return replay.point(bounds.end)


def _check_time(log: LogReader, time_ms: int, start: int, bounds: LogBounds) -> None:
    """Raise NotInLog if the time is before the log's first event, which is at offset `start` or later."""
    first = next(entries_between(log.batches(start, bounds.end), start, bounds.end), None)
    if first is not None and time_ms < first.timestamp_ms:
        raise NotInLog(
            f"the time {time_text(time_ms)} is before the first event that is there: offset {first.offset}, written "
            f"at {time_text(first.timestamp_ms)}; {log.oldest(bounds)}"
        )


def present_point(settings: TableSettings) -> LogPoint | None:
    """Return the present metadata, for columns that only the log has. Return None if the cluster does not serve its log
    from the beginning."""
    with open_log(settings) as log:
        try:
            return point_at(log, None)
        except (LogRefused, BeginsInSnapshot):
            return None


def when_text(when: When) -> str:
    """Return a point of the log as text: `offset 5`, or its time."""
    return f"offset {when.offset}" if when.offset is not None else time_text(when.timestamp_ms or 0)


def time_text(time_ms: int) -> str:
    """Return the time in ISO 8601, UTC, to the ms."""
    moment = time_of(time_ms)
    return f"{time_ms} ms" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
