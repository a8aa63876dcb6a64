"""Delivery: committed batches, snapshots and leadership, told to each listener in order.

Nothing above the high watermark is ever delivered. What was appended by this process is delivered from memory, in the
step in which it commits; what was on disk before is read off the loop first. A listener is told that this node leads
only after it has got everything past the start of the epoch, and told so no more once leadership is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio

from kraft.node.metadata_batches import CommittedBatch
from kraft.node.metadata_log import MetadataLog, SnapshotContent
from kraft.raft.log_view import SnapshotId
from kraft.raft.ready import Leadership


class MetadataListener(Protocol):
    """Who replays the log. All are called on the loop and never suspend."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Committed batches, contiguous from the last ones (or from the last snapshot)."""
        ...

    def on_snapshot(self, offset: int, epoch: int, records: Iterable[bytes]) -> None:
        """State up to `offset` (exclusive), which replaces everything."""
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

    def installed(self, content: SnapshotContent) -> None:
        """A snapshot has replaced the log: every listener that is not past it gets it."""
        self._snapshot = content.snapshot
        self._tail.clear()
        self._tail_start = content.snapshot.end_offset
        self._high_watermark = max(self._high_watermark, content.snapshot.end_offset)
        for cursor in self._cursors:
            if cursor.next_offset < content.snapshot.end_offset:
                self._load(cursor, content)

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
        """Deliver what is in memory and committed. A listener may append in its callback: that comes back here, and
        is left to the call that is under way."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._pump_once():
                pass
        finally:
            self._is_pumping = False

    def _pump_once(self) -> bool:
        """One round over all listeners. True if anything was delivered."""
        progress = False
        for cursor in self._cursors:
            if cursor.next_offset < 0:
                self._behind.set()
                continue
            if cursor.next_offset < min(self._high_watermark, self._memory_start()):
                self._behind.set()
                continue
            batches = self._committed_from(cursor.next_offset)
            if batches:
                cursor.next_offset = batches[-1].next_offset
                cursor.listener.on_commit(batches)
                progress = True
            progress |= self._tell_leadership(cursor)
        self._forget_delivered()
        return progress

    def _committed_from(self, offset: int) -> list[CommittedBatch]:
        batches = []
        for batch in self._tail:
            if batch.next_offset > self._high_watermark:
                break
            if batch.base_offset >= offset:
                batches.append(batch)
        return batches

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
            while await self._catch_up():
                pass
            self.pump()

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
            if cursor.next_offset < snapshot.end_offset:
                self._load(cursor, content)
            return True
        end_offset = min(self._high_watermark, self._memory_start())
        if offset >= end_offset:
            return False
        async with self._files:
            if cursor.next_offset != offset or offset < log.log.log_start_offset:
                return True
            batches = await log.disk.offload(log.read_batches, offset, end_offset)
        for other in self._cursors:
            if other.next_offset == offset:
                other.next_offset = batches[-1].next_offset
                other.listener.on_commit(batches)
                self._tell_leadership(other)
        return True

    def _load(self, cursor: _Cursor, content: SnapshotContent) -> None:
        cursor.next_offset = content.snapshot.end_offset
        cursor.listener.on_snapshot(content.snapshot.end_offset, content.snapshot.epoch, content.values)
