"""Delivery of committed batches, snapshots and leadership changes to each listener, in order.

Invariants: nothing above the high watermark is delivered. A listener learns that this node leads only after it has
replayed past the start of the epoch. It learns at once when leadership is lost.

Batches appended by this process are delivered from memory, in the step in which they commit; if there are many, a task
delivers them in portions. Older batches are read from disk off the loop first. A batch or a snapshot is always
delivered whole. Before a large one is delivered, each listener prepares for it in steps (`replay_ahead`, `load_ahead`),
and nothing else is delivered meanwhile.
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
"""Maximum committed events delivered in one step of the loop. A single larger batch is delivered whole, after
preparation in steps."""


class MetadataListener(Protocol):
    """A consumer of the committed log. All methods are called on the loop and never suspend."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Replay committed batches, which continue the batches (or the snapshot) delivered last."""
        ...

    def on_snapshot(self, offset: int, epoch: int, records: Iterable[bytes]) -> None:
        """Replace all state by a snapshot up to `offset` (exclusive)."""
        ...

    def replay_ahead(self, batch: CommittedBatch, events_max: int) -> Iterator[None] | None:
        """Prepare for a large `batch` that comes next, in steps of at most `events_max` events. Return None if there is
        nothing to prepare."""
        ...

    def load_ahead(self, offset: int, epoch: int, records: Sequence[bytes], events_max: int) -> Iterator[None]:
        """Prepare for a snapshot that comes next, in steps of at most `events_max` events."""
        ...

    def on_leader(self, leader_id: int | None, epoch: int) -> None:
        """Called when another leader or epoch of the quorum becomes known."""
        ...

    def on_became_leader(self, epoch: int, start_offset: int) -> None:
        """Called when this node leads and the listener has replayed past the start of the epoch."""
        ...

    def on_lost_leadership(self) -> None:
        """Called when this node no longer leads; only after `on_became_leader`."""
        ...


@dataclass(slots=True, eq=False)
class _Cursor:
    listener: MetadataListener
    next_offset: int = -1
    """Offset of the next batch for this listener; -1 until the first delivery, which may be a snapshot."""
    leads_epoch: int = -1
    """The epoch in which this listener was notified that this node leads; -1 if it was not."""


class Delivery:
    def __init__(self, files: trio.Lock) -> None:
        """`files` is the lock held while files of the log are read or changed off the loop."""
        self._files = files
        self._log: MetadataLog | None = None
        self._cursors: list[_Cursor] = []
        self._tail: deque[CommittedBatch] = deque()
        """Batches appended since the start of this process and not yet delivered to all; contiguous up to the log end.
        """
        self._tail_start = 0
        self._high_watermark = -1
        self._leadership = Leadership(None, 0, False)
        self._snapshot: SnapshotId | None = None
        self._behind = trio.Event()
        self._is_pumping = False
        self._ahead: Iterator[None] | None = None
        """Preparation for the next batch, carried out by `run`: nothing is delivered before it is done."""

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
        """Start delivering from this log. Of its contents only the newest snapshot is known to be committed."""
        self._log = log
        self._snapshot = snapshot
        self._tail_start = end_offset
        self._behind.set()

    # changes of the log

    def appended(self, batches: Iterable[CommittedBatch]) -> None:
        self._tail.extend(batches)

    def truncated(self, end_offset: int) -> None:
        while self._tail and self._tail[-1].next_offset > end_offset:
            self._tail.pop()
        self._tail_start = min(self._tail_start, end_offset)

    async def installed(self, content: SnapshotContent) -> None:
        """Deliver a snapshot that has replaced the log, to every listener whose position is below the snapshot's
        end."""
        self._snapshot = content.snapshot
        self._tail.clear()
        self._tail_start = content.snapshot.end_offset
        self._high_watermark = max(self._high_watermark, content.snapshot.end_offset)
        for cursor in self._cursors:
            await self._load(cursor, content)

    def written(self, snapshot: SnapshotId) -> None:
        """Record that this node wrote a snapshot. Listeners that start from the beginning will load the snapshot."""
        self._snapshot = max(self._snapshot, snapshot) if self._snapshot is not None else snapshot

    # delivery

    def lead(self, leadership: Leadership) -> None:
        """Report to the listeners that another leader is known, or none."""
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
        """Deliver a portion of the committed batches in memory; `run` delivers the remaining ones. A nested call, from
        a listener that appends in its callback, does nothing: the outer call delivers the new batch."""
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
        """Deliver once to each listener. Return the largest number of events that one listener got, None if nothing was
        delivered. A batch of more than `room` events is left to `run` for all remaining listeners, so that their order
        is kept."""
        progress, most = False, 0
        for cursor in self._cursors:
            if cursor.next_offset < 0:
                self._behind.set()
                continue
            if cursor.next_offset < min(self._high_watermark, self._first_offset_in_memory()):
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
            progress |= self._report_leadership(cursor)
        self._forget_delivered()
        return most if progress else None

    def _committed_from(self, offset: int) -> tuple[list[CommittedBatch], int]:
        """Return the next portion of committed batches, and how many events are in it."""
        end = self._high_watermark
        committed = (batch for batch in self._tail if batch.base_offset >= offset and batch.next_offset <= end)
        return next(_portions(committed), ([], 0))

    def _first_offset_in_memory(self) -> int:
        return self._tail[0].base_offset if self._tail else self._tail_start

    def _forget_delivered(self) -> None:
        delivered = min((cursor.next_offset for cursor in self._cursors), default=self._high_watermark)
        while self._tail and self._tail[0].next_offset <= min(delivered, self._high_watermark):
            self._tail_start = self._tail.popleft().next_offset

    def _report_leadership(self, cursor: _Cursor) -> bool:
        leadership = self._leadership
        if not leadership.is_local or cursor.leads_epoch == leadership.epoch:
            return False
        if cursor.next_offset <= leadership.epoch_start_offset:
            return False
        cursor.leads_epoch = leadership.epoch
        cursor.listener.on_became_leader(leadership.epoch, leadership.epoch_start_offset)
        return True

    # batches that are not in memory

    async def run(self) -> None:
        """Bring lagging listeners up to the start of the batches in memory, until cancelled."""
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
        """Deliver one snapshot or one piece of the log to the listener that is furthest behind. Return False if no
        listener is behind."""
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
                if self._snapshot != snapshot:  # a newer one has replaced it and its file
                    return True
                content = await log.disk.offload(log.read_snapshot, snapshot)
            await self._load(cursor, content)
            return True
        end_offset = min(self._high_watermark, self._first_offset_in_memory())
        if offset >= end_offset:
            return False
        async with self._files:
            if cursor.next_offset != offset or offset < log.log.log_start_offset:
                return True
            batches = await log.disk.offload(log.read_batches, offset, end_offset)
        for portion, events in _portions(batches):
            if portion[0] is not batches[0]:
                await trio.lowlevel.checkpoint()
            await self._deliver_portion(offset, portion, events)
            offset = portion[-1].next_offset
        return True

    async def _deliver_portion(self, offset: int, portion: list[CommittedBatch], events: int) -> None:
        """Deliver this portion to all listeners whose next offset is `offset`."""
        if events > EVENTS_PER_STEP_MAX:
            for cursor in self._cursors:
                if cursor.next_offset == offset:
                    for _ in cursor.listener.replay_ahead(portion[0], EVENTS_PER_STEP_MAX) or ():
                        await trio.lowlevel.checkpoint()
        for cursor in self._cursors:
            if cursor.next_offset == offset:
                cursor.next_offset = portion[-1].next_offset
                cursor.listener.on_commit(portion)
                self._report_leadership(cursor)

    async def _load(self, cursor: _Cursor, content: SnapshotContent) -> None:
        """Deliver a snapshot to a listener, unless the listener's position is already past it."""
        end_offset, epoch = content.snapshot.end_offset, content.snapshot.epoch
        if cursor.next_offset < end_offset:
            for _ in cursor.listener.load_ahead(end_offset, epoch, content.values, EVENTS_PER_STEP_MAX):
                await trio.lowlevel.checkpoint()
        if cursor.next_offset < end_offset:
            cursor.next_offset = end_offset
            cursor.listener.on_snapshot(end_offset, epoch, content.values)


def _portions(batches: Iterable[CommittedBatch]) -> Iterator[tuple[list[CommittedBatch], int]]:
    """Yield batches in groups of at most EVENTS_PER_STEP_MAX events, but at least one batch, with the number
    of events."""
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
