"""ShareState: the state of one share partition, as its records in the log add up to it.

Source: KIP-932, Kafka's ShareCoordinatorShard and PersisterStateBatchCombiner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraft.broker.share_coordinator.records import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    ShareKey,
    ShareSnapshot,
    ShareStateEntry,
    ShareUpdate,
)
from kraft.broker.share_partition.offset_runs import OffsetRuns
from kraft.broker.share_partition.states import StateBatch

NOT_IN_THIS_LOG = -1

DeliveryInfo = tuple[int, int]
"""Delivery count and state of an offset. Of two infos about one offset, the greater one counts."""


class ShareState(NamedTuple):
    """The state of a share partition. `updates` is the number of updates since its last snapshot, and `snapshot_offset`
    the offset of that snapshot, or NOT_IN_THIS_LOG if it is not known."""

    snapshot: ShareSnapshot
    updates: int = 0
    snapshot_offset: int = NOT_IN_THIS_LOG


def combine(batches: Iterable[StateBatch], changes: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return the batches after the changes, in ascending order without overlap, from `start_offset` on.

    Where both have an offset, the higher delivery count wins, and among equal counts the higher state."""
    runs: OffsetRuns[DeliveryInfo | None] = OffsetRuns(start_offset)
    for batch in (*batches, *changes):
        info = (batch.delivery_count, batch.state)
        end = batch.last_offset + 1
        runs.extend(end, None)
        _raise_to(runs, batch.first_offset, end, info)
    return tuple(
        StateBatch(run.first, run.end - 1, run.value[1], run.value[0]) for run in runs if run.value is not None
    )


def _raise_to(runs: OffsetRuns[DeliveryInfo | None], first: int, end: int, info: DeliveryInfo) -> None:
    runs.change(first, end, lambda known: info if known is None else max(known, info))


def updated(snapshot: ShareSnapshot, update: ShareUpdate) -> ShareSnapshot:
    """Return the state after an update. The start offset does not move back: an update with a lower one is a write that
    was sent twice, and came again after a later one, or its leader does not know that an earlier write was persisted.
    The count of such an update is that of other offsets. From one start offset on, the count does not decrease: a
    leader that counts less has not read all offsets without a record yet, or does not know of a persisted write."""
    start = max(snapshot.start_offset, update.start_offset)
    leader_epoch = snapshot.leader_epoch if update.leader_epoch == NO_EPOCH else update.leader_epoch
    count = update.delivery_complete_count
    if start == snapshot.start_offset:
        is_behind = NO_OFFSET != update.start_offset < start
        count = snapshot.delivery_complete_count if is_behind else max(snapshot.delivery_complete_count, count)
    return snapshot._replace(
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=snapshot.delivery_complete_count if count == NO_COUNT else count,
        batches=combine(snapshot.batches, update.batches, max(start, 0)),
    )


class LoadedShareStates:
    """The state of each share partition in the records that have been read so far."""

    def __init__(self) -> None:
        self.states: dict[ShareKey, ShareState] = {}

    def with_entries(self, entries: Iterable[object]) -> LoadedShareStates:
        """Apply more entries, and return this object. Entries of transactional batches and markers are skipped, because
        no coordinator writes them to this topic."""
        for entry in entries:
            if isinstance(entry, ShareStateEntry):
                apply_entry(self.states, entry)
        return self


def apply_entry(states: dict[ShareKey, ShareState], entry: ShareStateEntry, offset: int = NOT_IN_THIS_LOG) -> None:
    """Apply the record at `offset` to the states. An update of an unknown share partition, whose snapshot was deleted
    from the log, begins a state without a state epoch."""
    value, known = entry.value, states.get(entry.key)
    if value is None:
        states.pop(entry.key, None)
    elif isinstance(value, ShareSnapshot):
        states[entry.key] = ShareState(value, 0, offset)
    else:
        base = known or ShareState(_nothing(value.snapshot_epoch), 0, offset)
        states[entry.key] = base._replace(snapshot=updated(base.snapshot, value), updates=base.updates + 1)


def _nothing(snapshot_epoch: int) -> ShareSnapshot:
    return ShareSnapshot(snapshot_epoch, NO_EPOCH, NO_EPOCH, NO_OFFSET, NO_COUNT, NO_OFFSET, NO_OFFSET)


def redundant_before(states: Mapping[ShareKey, ShareState], end_offset: int) -> int:
    """Return the offset below which no record is needed to load the states: that of the earliest snapshot in use. It is
    0 while the offset of a snapshot is not known."""
    return max(min((state.snapshot_offset for state in states.values()), default=end_offset), 0)
