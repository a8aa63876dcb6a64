"""Shadow logs: a model of every log of every node, made of the batches that the node's disk showed.

Each batch remembers the batch before it. So log matching is checked by induction, one batch at a time, also for logs
whose prefix was deleted below a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from kraft.sim.check.observations import (
    BatchWritten,
    LogCut,
    LogDurable,
    LoggedGroupEntry,
    LoggedShareEntry,
    LoggedTransaction,
    ProducedBy,
    TopicPartition,
    TransactionMarker,
)


@dataclass(frozen=True, slots=True)
class ShadowBatch:
    epoch: int
    base_offset: int
    next_offset: int
    digest: int
    before: tuple[int, int, int] | None
    """(end offset, epoch, digest) of the batch before it; None for the first of a log."""
    producer: ProducedBy | None = None
    marker: TransactionMarker | None = None
    transactions: tuple[LoggedTransaction, ...] = ()
    group_entries: tuple[LoggedGroupEntry, ...] = ()
    share_entries: tuple[LoggedShareEntry, ...] = ()


@dataclass(slots=True)
class ShadowLog:
    """Model of one log of one node."""

    start_offset: int = 0
    durable_end: int = 0
    pruned_to: int = 0
    """End of the prefix that was deleted while later batches stayed (retention)."""
    batches: list[ShadowBatch] = field(default_factory=list)
    left_behind: list[ShadowBatch] = field(default_factory=list)
    """Batches removed since the last observation by a truncation after which no batch remained: a prefix below a
    snapshot, or all of a log that was restarted."""
    _ends: list[int] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self._ends[-1] if self._ends else self.start_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else 0

    def write(self, seen: BatchWritten) -> ShadowBatch:
        last = self.batches[-1] if self.batches else None
        before = None if last is None else (last.next_offset, last.epoch, last.digest)
        batch = ShadowBatch(
            seen.epoch,
            seen.base_offset,
            seen.next_offset,
            seen.digest,
            before,
            seen.producer,
            seen.marker,
            seen.transactions,
            seen.group_entries,
            seen.share_entries,
        )
        self.batches.append(batch)
        self._ends.append(seen.next_offset)
        return batch

    def cut(self, start_offset: int, end_offset: int) -> list[ShadowBatch]:
        """Apply a LogCut; return the batches that were removed from the end. A log that now begins at or after the end
        of all its batches may have been restarted (at a snapshot's end): it has no batches any more."""
        keep = bisect_right(self._ends, end_offset)
        if keep and self._ends[keep - 1] <= start_offset:
            self.left_behind = self.batches[:keep]
            keep = 0
        removed = self.batches[keep:]
        if keep and not removed and start_offset > self.start_offset:
            self.pruned_to = max(self.pruned_to, start_offset)
        del self.batches[keep:]
        del self._ends[keep:]
        self.start_offset = max(self.start_offset, start_offset) if self.batches else start_offset
        self.durable_end = min(self.durable_end, end_offset)
        return removed

    def at_end(self, offset: int) -> ShadowBatch | None:
        """Return the batch that ends at exactly `offset`."""
        index = bisect_left(self._ends, offset)
        found = index < len(self._ends) and self._ends[index] == offset
        return self.batches[index] if found else None

    def of_leader(self, start: int, end: int) -> list[ShadowBatch]:
        """Return the batches of a leader's log with an end in (start, end], including those that the leader deleted
        below a snapshot since the last observation. A leader's log is never restarted."""
        deleted = (batch for batch in self.left_behind if start < batch.next_offset <= min(end, self.start_offset))
        return [*deleted, *self.between(start, end)]

    def holding(self, offset: int) -> ShadowBatch | None:
        """Return the batch that holds the record at `offset`, or, if `offset` is in a gap, the first batch after the
        gap."""
        index = bisect_right(self._ends, offset)
        return self.batches[index] if index < len(self.batches) else None

    def content(self, start: int = 0) -> tuple[tuple[int, int, int], ...]:
        """Return (end offset, epoch, digest) of every batch that ends after `start`, also of a prefix deleted since."""
        batches = self.batches[bisect_right(self._ends, start) :]
        return tuple((batch.next_offset, batch.epoch, batch.digest) for batch in batches)

    def first_missing(self, due: Iterable[tuple[int, int]]) -> int | None:
        """Return the lowest end offset of the `due` batches (end offset, digest) that this log lacks; batches before
        the log's start do not count. None if it has all."""
        missing = [end for end, digest in due if not self.holds(end, digest)]
        return min(missing, default=None)

    def holds(self, end: int, digest: int) -> bool:
        """Return whether this log has a batch with this end offset and digest, or begins at or after that offset."""
        return end <= self.start_offset or self._is_held(end, digest)

    def _is_held(self, end: int, digest: int) -> bool:
        held = self.at_end(end)
        return held is not None and held.digest == digest

    def between(self, start: int, end: int) -> list[ShadowBatch]:
        """Return batches with an end in (start, end]."""
        return self.batches[bisect_right(self._ends, start) : bisect_right(self._ends, end)]


class Shadows:
    """The shadow logs of all nodes. One writer updates them, and every check that needs logs reads them."""

    def __init__(self) -> None:
        self._logs: dict[tuple[int, TopicPartition | None], ShadowLog] = {}

    def log(self, node: int, log: TopicPartition | None) -> ShadowLog:
        shadow = self._logs.get((node, log))
        if shadow is None:
            shadow = self._logs[node, log] = ShadowLog()
        return shadow

    def of(self, log: TopicPartition | None) -> list[tuple[int, ShadowLog]]:
        """Return (node, log) of every node that has this log, ordered by node."""
        return sorted(
            ((node, shadow) for (node, name), shadow in self._logs.items() if name == log), key=lambda x: x[0]
        )

    def are_equal(self, log: TopicPartition | None, nodes: Iterable[int], begin: int = 0) -> bool:
        """Return whether this log has the same batches and the same end on all `nodes`. Prefixes that any node deleted
        do not count: each node deletes at a different time, and a node that joined later or lost power may never have
        had them. Batches below `begin`, where the leader's log begins, do not count either: the files of other nodes
        may still hold them."""
        start = max((shadow.pruned_to for _, shadow in self.of(log)), default=0)
        start = max(start, begin)
        held = [self.log(node, log) for node in nodes]
        return len({(shadow.end_offset, shadow.content(start)) for shadow in held}) <= 1

    def on_written(self, seen: BatchWritten) -> None:
        self.log(seen.node, seen.log).write(seen)

    def on_cut(self, seen: LogCut) -> None:
        self.log(seen.node, seen.log).cut(seen.start_offset, seen.end_offset)

    def on_durable(self, seen: LogDurable) -> None:
        self.log(seen.node, seen.log).durable_end = seen.end_offset
