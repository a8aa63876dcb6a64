"""Delivery: committed batches, snapshots and leadership, told to each listener in order.

Nothing above the high watermark is ever delivered. What was appended by this process is delivered from memory, in the
step in which it commits, or, if there is much of it, in the steps of a task, in portions; what was on disk before is
read off the loop first. A batch and a snapshot are told as a whole; what a listener can do before it is told of a
large one, it does in steps (`replay_ahead`, `load_ahead`), and nobody is told anything meanwhile. A listener is told
that this node leads only after it has got everything past the start of the epoch, and told so no more once leadership
is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio

from kraft.quorum.metadata_batches import CommittedBatch
from kraft.quorum.metadata_log import MetadataLog, SnapshotContent
from kraft.raft.log_view import SnapshotId
from kraft.raft.ready import Leadership

EVENTS_PER_STEP_MAX = 1_000
"""Of committed events so many are told in one step of the loop, or one larger batch, for which work is done ahead."""


class MetadataListener(Protocol):
    """Who replays the log. All are called on the loop and never suspend."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Committed batches, contiguous from the last ones (or from the last snapshot)."""
        ...

    def on_snapshot(self, offset: int, epoch: int, records: Iterable[bytes]) -> None:
        """State up to `offset` (exclusive), which replaces everything."""
        ...

    def replay_ahead(self, batch: CommittedBatch, events_max: int) -> Iterator[None] | None:
        """`batch` is large and comes next: what can be done before, at most `events_max` events between two results.
        None if there is nothing to do."""
        ...

    def load_ahead(self, offset: int, epoch: int, records: Sequence[bytes], events_max: int) -> Iterator[None]:
        """The same for a snapshot."""
        ...

    def on_leader(self, leader_id: int | None, epoch: int) -> None:
        """Another leader or epoch of the quorum is known."""
        ...

    def on_became_leader(self, epoch: int, start_offset: int) -> None:
        """This node leads, and the listener has replayed past the start of the epoch."""
        ...

    def on_lost_leadership(self) -> None:
        """It leads no more; told only to who was told that it leads."""
        ...


@dataclass(slots=True, eq=False)
class _Cursor:
    listener: MetadataListener
    next_offset: int = -1
    """-1: it has got nothing yet, not even a snapshot."""
    leads_epoch: int = -1
    """The epoch that it was told this node leads."""


class Delivery:
    def __init__(self, files: trio.Lock) -> None:
        """`files` is held while files of the log are read or changed off the loop."""
        self._files = files
        self._log: MetadataLog | None = None
        self._cursors: list[_Cursor] = []
        self._tail: deque[CommittedBatch] = deque()
        """Batches appended in this life and not yet delivered to all; contiguous up to the log end."""
        self._tail_start = 0
        self._high_watermark = -1
        self._leadership = Leadership(None, 0, False)
        self._snapshot: SnapshotId | None = None
        self._behind = trio.Event()
        self._is_pumping = False
        self._ahead: Iterator[None] | None = None
        """Work for the batch that comes next, left to `run`: nothing is delivered before it is done."""

    @property
    def leadership(self) -> Leadership:
        return self._leadership

    def add(self, listener: MetadataListener) -> None:
        cursor = _Cursor(listener)
        self._cursors.append(cursor)
        if self._log is not None:
            listener.on_leader(self._leadership.leader_id, self._leadership.epoch)
            self._behind.set()

    def open(self, log: MetadataLog, snapshot: SnapshotId | None, end_offset: int) -> None:
        """The log is there; nothing of it is known to be committed but the newest snapshot."""
        self._log = log
        self._snapshot = snapshot
        self._tail_start = end_offset
        self._behind.set()

    # what happened to the log

    def appended(self, batches: Iterable[CommittedBatch]) -> None:
        self._tail.extend(batches)

    def truncated(self, end_offset: int) -> None:
        while self._tail and self._tail[-1].next_offset > end_offset:
            self._tail.pop()
        self._tail_start = min(self._tail_start, end_offset)

    async def installed(self, content: SnapshotContent) -> None:
        """A snapshot has replaced the log: every listener that is not past it gets it."""
        self._snapshot = content.snapshot
        self._tail.clear()
        self._tail_start = content.snapshot.end_offset
        self._high_watermark = max(self._high_watermark, content.snapshot.end_offset)
        for cursor in self._cursors:
            await self._load(cursor, content)

    def written(self, snapshot: SnapshotId) -> None:
        """This node wrote a snapshot of its own; who begins anew begins there."""
        self._snapshot = max(self._snapshot, snapshot) if self._snapshot is not None else snapshot

    # what is told

    def lead(self, leadership: Leadership) -> None:
        """Another leader, or none."""
        before, self._leadership = self._leadership, leadership
        for cursor in self._cursors:
            if cursor.leads_epoch >= 0 and not (leadership.is_local and leadership.epoch == cursor.leads_epoch):
                cursor.leads_epoch = -1
                cursor.listener.on_lost_leadership()
            if (leadership.leader_id, leadership.epoch) != (before.leader_id, before.epoch):
                cursor.listener.on_leader(leadership.leader_id, leadership.epoch)
        self.pump()

    def commit(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        self.pump()

    def pump(self) -> None:
        """Deliver what is in memory and committed, a portion of it; `run` goes on with the next. A listener may append
        in its callback: that comes back here, and is left to the call that is under way."""
        if self._is_pumping or self._ahead is not None:
            return
        self._is_pumping = True
        try:
            room = EVENTS_PER_STEP_MAX
            while (events := self._pump_once(room)) is not None:
                room -= events
        finally:
            self._is_pumping = False

    def _pump_once(self, room: int) -> int | None:
        """One round over all listeners; how many events one was given at most, None if nothing was delivered. Whatever
        is too much for now is left to `run`, for all listeners: they are told in their order."""
        progress, most = False, 0
        for cursor in self._cursors:
            if cursor.next_offset < 0:
                self._behind.set()
                continue
            if cursor.next_offset < min(self._high_watermark, self._memory_start()):
                self._behind.set()
                continue
            batches, events = self._committed_from(cursor.next_offset)
            if events > room and room < EVENTS_PER_STEP_MAX:
                self._behind.set()
                break
            if events > EVENTS_PER_STEP_MAX:
                self._ahead = cursor.listener.replay_ahead(batches[0], EVENTS_PER_STEP_MAX)
                if self._ahead is not None:
                    self._behind.set()
                    break
            if batches:
                most = max(most, events)
                cursor.next_offset = batches[-1].next_offset
                cursor.listener.on_commit(batches)
                progress = True
            progress |= self._tell_leadership(cursor)
        self._forget_delivered()
        return most if progress else None

    def _committed_from(self, offset: int) -> tuple[list[CommittedBatch], int]:
        """The next portion of what is committed, and how many events are in it."""
        end = self._high_watermark
        committed = (batch for batch in self._tail if batch.base_offset >= offset and batch.next_offset <= end)
        return next(_portions(committed), ([], 0))

    def _memory_start(self) -> int:
        return self._tail[0].base_offset if self._tail else self._tail_start

    def _forget_delivered(self) -> None:
        delivered = min((cursor.next_offset for cursor in self._cursors), default=self._high_watermark)
        while self._tail and self._tail[0].next_offset <= min(delivered, self._high_watermark):
            self._tail_start = self._tail.popleft().next_offset

    def _tell_leadership(self, cursor: _Cursor) -> bool:
        leadership = self._leadership
        if not leadership.is_local or cursor.leads_epoch == leadership.epoch:
            return False
        if cursor.next_offset <= leadership.epoch_start_offset:
            return False
        cursor.leads_epoch = leadership.epoch
        cursor.listener.on_became_leader(leadership.epoch, leadership.epoch_start_offset)
        return True

    # what is not in memory

    async def run(self) -> None:
        """Bring listeners that are behind to where memory begins, until cancelled."""
        while True:
            await self._behind.wait()
            self._behind = trio.Event()
            await self._work_ahead()
            while await self._catch_up():
                pass
            self.pump()

    async def _work_ahead(self) -> None:
        for _ in self._ahead or ():
            await trio.lowlevel.checkpoint()
        self._ahead = None

    async def _catch_up(self) -> bool:
        """One snapshot or one piece of the log, for the listener that is furthest behind. False if none is."""
        log = self._log
        if log is None or not self._cursors:
            return False
        cursor = min(self._cursors, key=lambda item: item.next_offset)
        offset, snapshot = cursor.next_offset, self._snapshot
        if offset < 0 and snapshot is None:
            cursor.next_offset = 0
            return True
        if snapshot is not None and (offset < 0 or offset < log.log.log_start_offset):
            async with self._files:
                if self._snapshot != snapshot:  # a newer one has replaced it, and its file
                    return True
                content = await log.disk.offload(log.read_snapshot, snapshot)
            await self._load(cursor, content)
            return True
        end_offset = min(self._high_watermark, self._memory_start())
        if offset >= end_offset:
            return False
        async with self._files:
            if cursor.next_offset != offset or offset < log.log.log_start_offset:
                return True
            batches = await log.disk.offload(log.read_batches, offset, end_offset)
        for portion, events in _portions(batches):
            if portion[0] is not batches[0]:
                await trio.lowlevel.checkpoint()
            await self._tell_portion(offset, portion, events)
            offset = portion[-1].next_offset
        return True

    async def _tell_portion(self, offset: int, portion: list[CommittedBatch], events: int) -> None:
        """What stands at `offset`, to all listeners that are there."""
        if events > EVENTS_PER_STEP_MAX:
            for cursor in self._cursors:
                if cursor.next_offset == offset:
                    for _ in cursor.listener.replay_ahead(portion[0], EVENTS_PER_STEP_MAX) or ():
                        await trio.lowlevel.checkpoint()
        for cursor in self._cursors:
            if cursor.next_offset == offset:
                cursor.next_offset = portion[-1].next_offset
                cursor.listener.on_commit(portion)
                self._tell_leadership(cursor)

    async def _load(self, cursor: _Cursor, content: SnapshotContent) -> None:
        """A snapshot, unless the listener is past it by now."""
        end_offset, epoch = content.snapshot.end_offset, content.snapshot.epoch
        if cursor.next_offset < end_offset:
            for _ in cursor.listener.load_ahead(end_offset, epoch, content.values, EVENTS_PER_STEP_MAX):
                await trio.lowlevel.checkpoint()
        if cursor.next_offset < end_offset:
            cursor.next_offset = end_offset
            cursor.listener.on_snapshot(end_offset, epoch, content.values)


def _portions(batches: Iterable[CommittedBatch]) -> Iterator[tuple[list[CommittedBatch], int]]:
    """As many batches at a time as have no more than EVENTS_PER_STEP_MAX events, but at least one; and how many."""
    portion: list[CommittedBatch] = []
    events = 0
    for batch in batches:
        if portion and events + len(batch.records) > EVENTS_PER_STEP_MAX:
            yield portion, events
            portion, events = [], 0
        portion.append(batch)
        events += len(batch.records)
    if portion:
        yield portion, events
