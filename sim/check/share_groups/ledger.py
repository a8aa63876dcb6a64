"""The states of share partitions as a sequence of records of `__share_group_state` has them.

The model is independent of the share coordinator's: it keeps the delivery of each offset by itself. Of two deliveries
of an offset, the one with the higher count holds, and of equal counts the one with the higher state. From one start
offset on, the highest number of complete records holds.

A state *begins* with its first snapshot, when an administrator sets the start offset, and when it is deleted. The
snapshot with a set start offset has another state epoch, or no leader has read the state since. What leaders and
members have done before does not matter to the state then. A state that is begun after a deletion may have a lower
state epoch than the one before, so each begin has a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kraft.broker.share_coordinator.records import NO_COUNT, NO_EPOCH, NO_OFFSET, ShareKey, ShareSnapshot
from kraft.broker.share_partition.states import RecordState, StateBatch

RecordedDelivery = tuple[int, int]
"""Delivery count and state of an offset."""
COMPLETE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


def deliveries_in(batches: Iterable[StateBatch]) -> dict[int, RecordedDelivery]:
    """Return the deliveries of these batches, offset by offset."""
    return {
        offset: (batch.delivery_count, batch.state)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


class RecordedShare(NamedTuple):
    """The state of one share partition. `start_offset` is -1 until a leader has found the first offset.
    `complete_count` is the persisted number of complete records from there on, -1 if it is not known. `begin` is the
    number of the state's begin, and 0 for a share partition that never had one."""

    state_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    start_offset: int = NO_OFFSET
    deliveries: dict[int, RecordedDelivery] = {}  # noqa: RUF012 - never changed; each state has a new one
    complete_count: int = NO_COUNT
    begin: int = 0

    @property
    def position(self) -> tuple[int, int]:
        """The start offset, and the number of complete records from there on."""
        return self.start_offset, self.complete_count

    def is_complete(self, offset: int) -> bool:
        """Return whether the record at this offset must not be delivered any more."""
        return offset < self.start_offset or self.deliveries.get(offset, (0, 0))[1] in COMPLETE

    def has(self, offset: int, delivery: RecordedDelivery) -> bool:
        """Return whether this delivery of the record, or a later one, is in the state."""
        return offset < self.start_offset or self.deliveries.get(offset, (-1, 0)) >= delivery


NOTHING_RECORDED = RecordedShare()


@dataclass(slots=True)
class ShareLedger:
    """All share partitions after a sequence of records. `versions` has all states that each of them has had."""

    states: dict[ShareKey, RecordedShare] = field(default_factory=dict)
    versions: dict[ShareKey, list[RecordedShare]] = field(default_factory=dict)

    def add(self, key: ShareKey, value: Any) -> RecordedShare:
        """Apply one record; return the state after it."""
        known = self.state(key)
        if value is None:
            state = self.states[key] = RecordedShare(begin=known.begin + 1)
            return state
        count, begin = value.delivery_complete_count, known.begin
        if isinstance(value, ShareSnapshot):
            epochs, start, changed = (value.state_epoch, value.leader_epoch), value.start_offset, {}
            is_set = known.start_offset == NO_OFFSET != start and value.leader_epoch == NO_EPOCH
            begin += is_set or value.state_epoch != known.state_epoch
        else:
            leader_epoch = known.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch
            epochs, start = (known.state_epoch, leader_epoch), max(known.start_offset, value.start_offset)
            if count == NO_COUNT or NO_OFFSET != value.start_offset < start:
                count = known.complete_count
            elif start == known.start_offset:
                count = max(count, known.complete_count)
            changed = dict(known.deliveries)
        for offset, delivery in deliveries_in(value.batches).items():
            changed[offset] = max(delivery, changed.get(offset, delivery))
        kept = {offset: delivery for offset, delivery in changed.items() if offset >= start}
        state = self.states[key] = RecordedShare(*epochs, start, kept, count, begin)
        self.versions.setdefault(key, []).append(state)
        return state

    def state(self, key: ShareKey) -> RecordedShare:
        """Return the state of a share partition, which is empty if there is none."""
        return self.states.get(key, NOTHING_RECORDED)

    def last_of(self, key: ShareKey, begin: int) -> RecordedShare:
        """Return the last state of a share partition before it began again after this begin."""
        return next((one for one in reversed(self.versions.get(key, ())) if one.begin == begin), NOTHING_RECORDED)
