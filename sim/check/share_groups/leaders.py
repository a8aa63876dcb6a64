"""LedRecords: what the leader of a share partition must know of its records, by the steps that it has taken.

The model keeps each record by itself. It computes what a step changes from the arguments of the step, not from its
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kraft.broker.share_partition.states import AcknowledgeType, RecordState
from kraft.sim.check.share_groups.ledger import COMPLETE, RecordedDelivery
from kraft.sim.check.share_groups.steps import NO_WRITE, AcknowledgedRange


@dataclass(slots=True)
class Holding:
    """A record that a member holds. `write` is the number of the write that will end that, or NO_WRITE."""

    member: str
    delivery_count: int
    lock_until_ms: int
    write: int = NO_WRITE


@dataclass(slots=True)
class LedRecords:
    """The records of one share partition at one leader. `begin` is the number of the begin of the state that the leader
    has read."""

    begin: int
    start_offset: int
    """Offset below which all records are known to be finished."""
    counts: dict[int, int] = field(default_factory=dict)
    """Offset → number of deliveries so far, of records that no member holds."""
    held: dict[int, Holding] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    """Offsets of the records that are complete at the leader."""
    changes: dict[int, dict[int, RecordedDelivery]] = field(default_factory=dict)
    """Number of a write that has not ended → the deliveries that it must contain."""
    unknown: set[int] = field(default_factory=set)
    """Offsets of records that were completed by a write that was not confirmed. It may be persisted or not."""
    repeated: dict[int, dict[int, RecordedDelivery]] = field(default_factory=dict)
    """Number of a write that was not confirmed → its deliveries, which are in effect at the leader nevertheless. It
    writes them again, also together with those of other such writes."""
    log_start_offset: int = 0
    delivered_end: int = 0
    """Offset after the last record that the leader has delivered."""
    _in_effect: set[int] = field(default_factory=set)

    def take_state(self, deliveries: dict[int, RecordedDelivery]) -> None:
        """Begin with the persisted deliveries."""
        for offset, (count, state) in deliveries.items():
            if state in COMPLETE:
                self.finished.add(offset)
            else:
                self.counts[offset] = count

    def give(self, offset: int, holding: Holding) -> None:
        self.counts.pop(offset, None)
        self.held[offset] = holding
        self.delivered_end = max(self.delivered_end, offset + 1)

    def acknowledge(
        self, items: Iterable[AcknowledgedRange], write: int, lock_until_ms: int, deliveries_max: int
    ) -> dict[int, RecordedDelivery]:
        """Apply the acknowledgements of a member; return the deliveries that must be persisted."""
        due: dict[int, RecordedDelivery] = {}
        for item in items:
            for offset, holding in self._held_within(item.first, item.end):
                if item.type is AcknowledgeType.RENEW:
                    holding.lock_until_ms = lock_until_ms
                    continue
                holding.write = write
                due[offset] = (holding.delivery_count, _state_after(item.type, holding, deliveries_max))
        self.changes[write] = due
        return due

    def release(self, member: str, deliveries_max: int, write: int) -> None:
        """Let a member's records become available when a write is persisted, or archived after their last delivery."""
        due = {
            offset: (holding.delivery_count, _state_after(AcknowledgeType.RELEASE, holding, deliveries_max))
            for offset, holding in self.held.items()
            if holding.member == member and holding.write == NO_WRITE
        }
        for offset in due:
            self.held[offset].write = write
        self.changes[write] = due

    def expire(self, now_ms: int, deliveries_max: int, write: int) -> None:
        """Free the records whose lock has expired, at once."""
        due: dict[int, RecordedDelivery] = {}
        for offset, holding in list(self.held.items()):
            if holding.write == NO_WRITE and holding.lock_until_ms <= now_ms:
                state = _state_after(AcknowledgeType.RELEASE, holding, deliveries_max)
                due[offset] = (holding.delivery_count, state)
                self._settle(offset, due[offset])
        self.changes[write] = due
        self._in_effect.add(write)

    def end_write(self, write: int, *, is_stored: bool) -> None:
        if not is_stored and (write in self._in_effect or write not in self.changes):
            self.repeated.setdefault(write, self.changes.get(write, {}))
        for offset, delivery in self.changes.pop(write, {}).items():
            holding = self.held.get(offset)
            if holding is None or holding.write != write:
                continue
            if is_stored:
                self._settle(offset, delivery)
                continue
            holding.write = NO_WRITE
            if delivery[1] in COMPLETE:
                self.unknown.add(offset)

    def drop_below(self, log_start_offset: int) -> None:
        """Forget the records that are no longer in the log."""
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        for known in (self.counts, self.held):
            for offset in [offset for offset in known if offset < log_start_offset]:
                del known[offset]

    def unfinished_below(self, start_offset: int, write: int) -> Iterator[int]:
        """Yield the offsets below `start_offset` that are neither complete nor completed by this write, nor below the
        log start offset."""
        due = self.changes.get(write, {})
        for offset in range(max(self.start_offset, self.log_start_offset), start_offset):
            if offset not in self.finished and due.get(offset, (0, 0))[1] not in COMPLETE:
                yield offset

    def completed_by(self, write: int) -> Iterator[int]:
        """Yield the offsets of the records that will be complete when this write is persisted."""
        for offset, (_, state) in self.changes.get(write, {}).items():
            if state in COMPLETE and offset not in self.finished:
                yield offset

    def complete_from(self, start_offset: int, write: int) -> int:
        """Return how many records from `start_offset` on are complete when this write is persisted."""
        return sum(offset >= start_offset for offset in (*self.finished, *self.completed_by(write)))

    def is_known(self, offset: int) -> bool:
        """Return whether the leader has delivered this record, or has found it in the persisted state."""
        return offset in self.held or offset in self.counts or offset in self.finished

    def due_again(
        self, write: int, start_offset: int, sent: Mapping[int, RecordedDelivery]
    ) -> dict[int, RecordedDelivery]:
        """Return the deliveries that a repeated write must have which has `sent`: its own, and those of other writes
        that were not confirmed, if it has them."""
        due = {offset: delivery for offset, delivery in sent.items() if self._may_repeat(offset, delivery)}
        for offset, delivery in self.repeated[write].items():
            if offset >= start_offset:
                due[offset] = max(delivery, due.get(offset, delivery))
        return due

    def _may_repeat(self, offset: int, delivery: RecordedDelivery) -> bool:
        """Return whether this delivery of a record is one that was not confirmed and is in effect."""
        return any(deliveries.get(offset) == delivery for deliveries in self.repeated.values())

    def _held_within(self, first: int, end: int) -> Iterator[tuple[int, Holding]]:
        for offset in range(first, end):
            holding = self.held.get(offset)
            if holding is not None:
                yield offset, holding

    def _settle(self, offset: int, delivery: RecordedDelivery) -> None:
        del self.held[offset]
        count, state = delivery
        if state in COMPLETE:
            self.finished.add(offset)
        else:
            self.counts[offset] = count


def _state_after(kind: AcknowledgeType, holding: Holding, deliveries_max: int) -> int:
    """Return the state of a record after an acknowledgement of this type. The expiry of a lock and the end of a session
    have the effect of RELEASE."""
    if kind is AcknowledgeType.ACCEPT:
        return int(RecordState.ACKNOWLEDGED)
    is_released = kind is AcknowledgeType.RELEASE and holding.delivery_count < deliveries_max
    return int(RecordState.AVAILABLE if is_released else RecordState.ARCHIVED)
