"""Synchronous: plan the micro-batches of a stream of `metadata_events`: the end of the next micro-batch, and the ranges
of its tasks.

The planner lives in the query's planning process. An offset is {"offset": n}, where n is the next event to read. A
micro-batch depends only on its start and end offsets, so that a replayed one has the same rows. The planner requests
the log's end at most once per poll interval.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from kraft.client.spark.blocking.retries import Pause
from kraft.client.spark.history.events import EventRange, TopicNames, needs_names, split
from kraft.client.spark.history.points import LogReader, open_log
from kraft.client.spark.history.rows import RANGE_EVENTS, as_state_error, learn, name_ranges, starting_offset
from kraft.client.spark.settings import Position, TableSettings
from kraft.client.spark.state.request import StateError

POLL_INTERVAL_SECONDS = 0.1
BELIEVED_MS = 5_000
"""Milliseconds for which the reported log end must stay below the offset already read before this counts as a truncated
log. A lagging broker may report a low end for a moment."""
Offset = Mapping[str, Any]


class EventsPlanner:
    """Plans the micro-batches of one query."""

    def __init__(self, settings: TableSettings, columns: tuple[str, ...]) -> None:
        self._settings = settings
        self._needs_names = needs_names(columns)
        self._open = ExitStack()
        self._log: LogReader | None = None
        self._end: int | None = None
        """The end of the log as last reported."""
        self._request_at = float("-inf")
        self._target: int | None = None
        """Offset at which a run with Trigger.AvailableNow ends."""
        self._names = TopicNames()
        self._learned_to: int | None = None
        """`_names` contains all topics created before this offset."""

    @property
    def log(self) -> LogReader:
        """The log, opened on first use."""
        if self._log is None:
            self._log = self._open.enter_context(open_log(self._settings))
            self._log.bounds()  # raises with the reason if the log cannot be read
        return self._log

    def close(self) -> None:
        """Close the log. Later calls open it again."""
        self._log = None
        self._open.close()

    def initial_offset(self) -> dict[str, Any]:
        """Return the offset at which a query without a checkpoint begins: the log's end, unless the options name
        another point. Raises StateError for a point that is not in the log."""
        with as_state_error(self._settings.table):
            position = self._settings.starting or Position(kind="latest")
            return {"offset": starting_offset(self.log, self.log.bounds(), position)}

    def next_offset(self, start: Offset, offsets_max: int | None) -> dict[str, Any]:
        """Return the end of the next micro-batch, or `start` if there is nothing to read.

        A micro-batch has at most `offsets_max` offsets (None: no limit). If the last request was less than a poll
        interval ago, wait before the next request. Raises StateError if the log cannot be read. Also raises it if the
        log ends before `start`, because the query has then read a different log."""
        begin = offset_of(start)
        end = self._target if self._target is not None else self._known_end(begin)
        if end < begin:
            self._confirm(begin)
            end = begin
        return {"offset": end if offsets_max is None else min(end, begin + offsets_max)}

    def known_offset(self) -> dict[str, Any] | None:
        """Return the last known end of the log, without a request."""
        return None if self._end is None else {"offset": self._end}

    def fix_target(self) -> None:
        """Store the log's present end as the end of this run; later events are read by the next run. Raises StateError
        if the log cannot be read."""
        self._target = self._request()

    def ranges(self, start: Offset, end: Offset) -> list[EventRange]:
        """Return the ranges that the tasks of a micro-batch read; equal offsets always give equal ranges. Raises
        StateError if the log cannot be read."""
        begin = offset_of(start)
        ranges = split(begin, offset_of(end), RANGE_EVENTS)
        if not self._needs_names:
            return [EventRange(*one, {}) for one in ranges]
        with as_state_error(self._settings.table):
            self._learn_to(begin)
            named = name_ranges(self.log, self._names, ranges)
        self._learned_to = max(begin, offset_of(end))
        return named

    def _known_end(self, begin: int) -> int:
        if self._end is None or self._end <= begin:
            time.sleep(max(0.0, self._request_at - time.monotonic()))
            return self._request()
        return self._end

    def _confirm(self, begin: int) -> None:
        """Request the log's end until it reaches the offset already read. Raises StateError if it does not within
        BELIEVED_MS."""
        pause = Pause(BELIEVED_MS)
        while (end := self._request()) < begin:
            if not pause.once_more():
                raise StateError(
                    f"the checkpoint is at offset {begin} of the metadata log, which ends at offset {end}: it is the "
                    "log of another cluster, or was recreated. Start the query with a new checkpoint"
                )

    def _request(self) -> int:
        with as_state_error(self._settings.table):
            self._end = self.log.end()
        self._request_at = time.monotonic() + POLL_INTERVAL_SECONDS
        return self._end

    def _learn_to(self, begin: int) -> None:
        if self._learned_to is None or self._learned_to > begin:
            known = self.log.bounds()
            self._names = TopicNames(self.log.names(known))
            self._learned_to = known.start
        learn(self.log, self._names, self._learned_to, begin)


def offset_of(offset: Offset) -> int:
    """Return the number in an offset from Spark's checkpoint. Raises StateError for an offset of another source."""
    found = offset.get("offset")
    if type(found) is not int:
        raise StateError(
            f"the checkpoint is not of table metadata_events: it has {dict(offset)}, expected "
            '{"offset": N}; give the query a checkpoint of its own'
        )
    return found
