"""The transactions of a run, as the committed records of `__transaction_state` have them.

A transaction is identified by the producer id and epoch of its records. With transaction.version 2 no other transaction
has the same epoch, and the markers have the next epoch (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from kraft.sim.check.observations import LoggedTransaction, TopicPartition

Identity = tuple[int, int]
"""(producer id, epoch)."""


class LoggedState(IntEnum):
    """Status byte of a record in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


PREPARED = (LoggedState.PREPARE_COMMIT, LoggedState.PREPARE_ABORT)
COMPLETED = (LoggedState.COMPLETE_COMMIT, LoggedState.COMPLETE_ABORT)


@dataclass(slots=True, eq=False)
class RecordedTransaction:
    """A transaction in the committed transaction log. `data` is the identity of its records; `markers` is that of its
    markers. `is_commit` is None until the outcome is decided. `number` is the number of transactions of all ids that
    were decided before this one."""

    transactional_id: str
    data: Identity
    enrolled: frozenset[TopicPartition]
    markers: Identity | None = None
    is_commit: bool | None = None
    is_complete: bool = False
    number: int = -1


@dataclass(slots=True)
class TransactionLedger:
    """The transactions that the committed transaction log has. `current` is the newest committed record of each
    transactional id."""

    current: dict[str, LoggedTransaction] = field(default_factory=dict)
    by_data: dict[Identity, RecordedTransaction] = field(default_factory=dict)
    by_markers: dict[Identity, list[RecordedTransaction]] = field(default_factory=dict)
    """Identity of markers → the decided transactions with such markers; a single one with transaction.version 2."""
    decided: int = 0
    _newest: dict[str, RecordedTransaction] = field(default_factory=dict)

    def add(self, value: LoggedTransaction) -> None:
        """Apply the next committed record of a transactional id."""
        before, name, state = self.current.get(value.transactional_id), value.transactional_id, value.state
        self.current[name] = value
        known = self._newest.get(name)
        if state == LoggedState.ONGOING:
            if known is None or before is None or before.state != LoggedState.ONGOING:
                data = (value.producer_id, value.epoch)
                self._newest[name] = self.by_data[data] = RecordedTransaction(name, data, value.partitions)
            else:
                known.enrolled = known.enrolled | value.partitions
        elif state in PREPARED:
            if known is None or before is None or before.state != LoggedState.ONGOING:
                data = (value.producer_id, -1 if before is None else before.epoch)
                known = self._newest[name] = RecordedTransaction(name, data, frozenset())
                self.by_data.setdefault(data, known)
            known.markers = (value.producer_id, value.epoch)
            known.is_commit = state == LoggedState.PREPARE_COMMIT
            known.number = self.decided
            self.decided += 1
            self.by_markers.setdefault(known.markers, []).append(known)
        elif state in COMPLETED and known is not None:
            known.is_complete = True

    def is_committed(self, data: Identity) -> bool:
        """Return whether the log decides to commit the transaction whose records have this identity."""
        found = self.by_data.get(data)
        return found is not None and bool(found.is_commit)

    def unfinished(self) -> Iterator[LoggedTransaction]:
        """Yield the newest record of each transactional id whose transaction is open, or decided and not complete."""
        for _, value in sorted(self.current.items()):
            if value.state in (LoggedState.ONGOING, *PREPARED):
                yield value

    @property
    def transactions(self) -> Iterator[RecordedTransaction]:
        return (found for _, found in sorted(self.by_data.items()))
