"""Synchronous: how a stream of `metadata_events` goes on: where the next micro-batch ends, and the ranges of its tasks.

It lives in the query's planning process. Offsets are {"offset": n}: the next event to read. A batch is a function of
its two offsets alone, so that one that is replayed has the same rows. The cluster is asked for its end at most once in
the poll interval.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from kraft.client.spark.blocking.retries import Pause
from kraft.client.spark.history.events import EventRange, TopicNames, needs_names, split
from kraft.client.spark.history.points import Log, opened
from kraft.client.spark.history.rows import RANGE_EVENTS, explained, learn, name_ranges, starting_offset
from kraft.client.spark.settings import Position, TableSettings
from kraft.client.spark.state.request import StateError

POLL_INTERVAL_SECONDS = 0.1
BELIEVED_MS = 5_000
"""How long the log must end before what was read until that is believed: a broker that lags may report it for a
moment."""
Offset = Mapping[str, Any]


class EventsPlanner:
    """Plans the micro-batches of one query."""

    def __init__(self, settings: TableSettings, columns: tuple[str, ...]) -> None:
        self._settings = settings
        self._needs_names = needs_names(columns)
        self._open = ExitStack()
        self._log: Log | None = None
        self._end: int | None = None
        """As the log told last."""
        self._ask_at = float("-inf")
        self._target: int | None = None
        """Where a run with Trigger.AvailableNow ends."""
        self._names = TopicNames()
        self._learned_to: int | None = None
        """`_names` knows what is created before this offset."""

    @property
    def log(self) -> Log:
        """The log, opened when it is first needed."""
        if self._log is None:
            self._log = self._open.enter_context(opened(self._settings))
            self._log.bounds()  # says what is wrong where the log cannot be read
        return self._log

    def close(self) -> None:
        """Close what is open; it is opened again if something is asked afterwards."""
        self._log = None
        self._open.close()

    def initial_offset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins: at the end, unless the options say otherwise. StateError for a
        point that is not there."""
        with explained(self._settings.table):
            position = self._settings.starting or Position(kind="latest")
            return {"offset": starting_offset(self.log, self.log.bounds(), position)}

    def next_offset(self, start: Offset, offsets_max: int | None) -> dict[str, Any]:
        """The end of the next micro-batch of at most so many offsets (None: no limit); `start` if there is nothing.
        Waits for the rest of the poll interval before it asks again. StateError if the log cannot be read, or ends
        before `start`: it is not the log that the query has read."""
        begin = offset_of(start)
        end = self._target if self._target is not None else self._known_end(begin)
        if end < begin:
            self._confirm(begin)
            end = begin
        return {"offset": end if offsets_max is None else min(end, begin + offsets_max)}

    def known_offset(self) -> dict[str, Any] | None:
        """The end of the log as it is known; the cluster is not asked."""
        return None if self._end is None else {"offset": self._end}

    def fix_target(self) -> None:
        """What is written from now on is for the next run. StateError if the log cannot be read."""
        self._target = self._ask()

    def ranges(self, start: Offset, end: Offset) -> list[EventRange]:
        """The ranges of a micro-batch, the same for the same offsets. StateError if the log cannot be read."""
        begin = offset_of(start)
        ranges = split(begin, offset_of(end), RANGE_EVENTS)
        if not self._needs_names:
            return [EventRange(*one, {}) for one in ranges]
        with explained(self._settings.table):
            self._learn_to(begin)
            named = name_ranges(self.log, self._names, ranges)
        self._learned_to = max(begin, offset_of(end))
        return named

    def _known_end(self, begin: int) -> int:
        if self._end is None or self._end <= begin:
            time.sleep(max(0.0, self._ask_at - time.monotonic()))
            return self._ask()
        return self._end

    def _confirm(self, begin: int) -> None:
        """Ask until the log reaches what was read. StateError if it does not within BELIEVED_MS."""
        pause = Pause(BELIEVED_MS)
        while (end := self._ask()) < begin:
            if not pause.once_more():
                raise StateError(
                    f"the checkpoint is at offset {begin} of the metadata log, which ends at offset {end}: it is the "
                    "log of another cluster, or was created anew. Start the query with a new checkpoint"
                )

    def _ask(self) -> int:
        with explained(self._settings.table):
            self._end = self.log.end()
        self._ask_at = time.monotonic() + POLL_INTERVAL_SECONDS
        return self._end

    def _learn_to(self, begin: int) -> None:
        if self._learned_to is None or self._learned_to > begin:
            known = self.log.bounds()
            self._names = TopicNames(self.log.names(known))
            self._learned_to = known.start
        learn(self.log, self._names, self._learned_to, begin)


def offset_of(offset: Offset) -> int:
    """The number in an offset of Spark's. StateError for one of another source."""
    found = offset.get("offset")
    if type(found) is not int:
        raise StateError(
            f"the checkpoint is not of table metadata_events: it has {dict(offset)}, expected "
            '{"offset": N}; give the query a checkpoint of its own'
        )
    return found
