"""A quorum of one node that commits on command: late, at once, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kraft.quorum.quorum import CommittedBatch, NotLeader, QuorumDescription


class FakeQuorum:
    """A quorum that keeps appended batches; `commit` notifies the listeners as the real quorum does."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.values: list[bytes] = []
        self.batches: list[CommittedBatch] = []
        self.high_watermark = 0
        self.is_leader = True
        self.epoch = 1
        self.at_once = at_once
        self.listeners: list[Any] = []
        self.snapshots: list[tuple[int, int, list[bytes]]] = []
        self.on_append: Callable[[], None] = lambda: None

    @property
    def log_end_offset(self) -> int:
        return len(self.values)

    @property
    def leader_and_epoch(self) -> tuple[int | None, int]:
        return (101 if self.is_leader else 102), self.epoch

    def add_listener(self, listener: Any) -> None:
        self.listeners.append(listener)

    def append(self, events: Sequence[bytes]) -> int:
        self.on_append()
        if not self.is_leader:
            raise NotLeader(102, self.epoch)
        base = len(self.values)
        self.values += events
        size = sum(len(one) for one in events)
        self.batches.append(CommittedBatch(base, len(self.values), self.epoch, 0, size, tuple(events)))
        if self.at_once:
            self.commit()
        return len(self.values)

    def commit(self, end_offset: int | None = None) -> None:
        """Commit everything, or everything below `end_offset`."""
        end = len(self.values) if end_offset is None else end_offset
        new = [one for one in self.batches if self.high_watermark < one.next_offset <= end]
        self.high_watermark = max(self.high_watermark, end)
        for listener in self.listeners:
            if new:
                listener.on_commit(new)

    def truncate(self) -> None:
        """Drop everything uncommitted."""
        del self.values[self.high_watermark :]
        self.batches = [one for one in self.batches if one.next_offset <= self.high_watermark]

    def lead(self) -> None:
        self.is_leader = True
        self.epoch += 1
        for listener in self.listeners:
            listener.on_leader(101, self.epoch)
            listener.on_became_leader(self.epoch, len(self.values))

    def lose(self) -> None:
        self.is_leader = False
        self.truncate()
        for listener in self.listeners:
            listener.on_leader(102, self.epoch)
            listener.on_lost_leadership()

    def describe(self) -> QuorumDescription:
        return QuorumDescription(101, self.epoch, self.high_watermark, (), (), ())

    def request_snapshot(self, offset: int, epoch: int, chunks: Iterable[Sequence[bytes]]) -> None:
        self.snapshots.append((offset, epoch, [value for chunk in chunks for value in chunk]))
