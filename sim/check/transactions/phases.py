"""Checks of two-phase commit: the order of decision, markers and completion (T8), and one outcome everywhere (T5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import LoggedTransaction, TopicPartition
from kraft.sim.check.transactions.feed import EndWritten, MarkerCommitted, MarkerWritten, TransactionLogged
from kraft.sim.check.transactions.ledger import COMPLETED, Identity, LoggedState, TransactionLedger

S = LoggedState
IDLE = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
PREDECESSORS: Mapping[int, tuple[int | None, ...]] = MappingProxyType(
    {
        S.EMPTY: (None, *IDLE),
        S.ONGOING: (S.ONGOING, *IDLE),
        S.PREPARE_COMMIT: (S.ONGOING,),
        S.PREPARE_ABORT: (S.ONGOING, *IDLE),
        S.COMPLETE_COMMIT: (S.PREPARE_COMMIT,),
        S.COMPLETE_ABORT: (S.PREPARE_ABORT,),
        S.DEAD: IDLE,
    }
)
"""State → the states that it may follow in the log. PREPARE_ABORT follows an idle state if a transaction without
    records is aborted."""


class TwoPhaseOrder(Check):
    id: ClassVar[str] = "T8"
    statement: ClassVar[str] = (
        "A marker is written only after the decision is committed, and a transaction is complete only after all its "
        "markers are committed; each state may follow the one before it; coordinator epochs never decrease."
    )

    def __init__(self, ledger: TransactionLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._marked: set[tuple[TopicPartition, Identity]] = set()
        """(partition, identity) of all committed markers."""
        self._epochs: dict[tuple[TopicPartition, int], int] = {}
        """(partition, producer id) → highest coordinator epoch of a committed marker."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            TransactionLogged: self.logged,
            EndWritten: self.end_written,
            MarkerWritten: self.marker_written,
            MarkerCommitted: self.marker_committed,
        }

    def logged(self, seen: TransactionLogged) -> None:
        before = None if seen.before is None else seen.before.state
        if before not in PREDECESSORS[seen.value.state]:
            was = None if before is None else S(before).name
            self._fail_of(seen.value, "a transaction entered a state that may not follow its last one", before=was)

    def end_written(self, seen: EndWritten) -> None:
        if seen.value.state not in COMPLETED:
            return
        self.count()
        last = self._ledger.current.get(seen.value.transactional_id)
        if last is None or last.state not in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            return  # a coordinator that was replaced wrote it again; if it is committed, `logged` checks its state
        identity = (last.producer_id, last.epoch)
        missing = sorted(place for place in last.partitions if (place, identity) not in self._marked)
        if missing:
            text = "a transaction was called complete although a marker was not committed"
            self._fail_of(seen.value, text, node=seen.node, missing=missing)

    def marker_written(self, seen: MarkerWritten) -> None:
        self.count()
        marker = seen.marker
        decided = self._ledger.by_markers.get((marker.producer_id, marker.epoch), [])
        if not any(seen.topic_partition in found.enrolled for found in decided):
            self.fail(
                "a marker was written whose decision is not committed",
                partition=seen.topic_partition,
                offset=seen.offset,
                node=seen.node,
                producer_id=marker.producer_id,
                epoch=marker.epoch,
            )

    def marker_committed(self, seen: MarkerCommitted) -> None:
        marker, place = seen.marker, seen.topic_partition
        self._marked.add((place, (marker.producer_id, marker.epoch)))
        known = self._epochs.get((place, marker.producer_id), -1)
        if marker.coordinator_epoch < known:
            self.fail(
                "a marker has the epoch of a coordinator that was replaced",
                partition=place,
                offset=seen.offset,
                producer_id=marker.producer_id,
                coordinator_epoch=marker.coordinator_epoch,
                known=known,
            )
        self._epochs[place, marker.producer_id] = max(known, marker.coordinator_epoch)

    def _fail_of(self, value: LoggedTransaction, text: str, **facts: object) -> None:
        self.fail(
            text,
            transactional_id=value.transactional_id,
            state=S(value.state).name,
            producer_id=value.producer_id,
            epoch=value.epoch,
            **facts,
        )


class OneOutcome(Check):
    id: ClassVar[str] = "T5"
    statement: ClassVar[str] = (
        "The markers of a transaction have one outcome in all partitions: the one that was decided."
    )

    def __init__(self, ledger: TransactionLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._first: dict[Identity, tuple[bool, TopicPartition]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {MarkerCommitted: self.committed}

    def committed(self, seen: MarkerCommitted) -> None:
        self.count()
        marker, place = seen.marker, seen.topic_partition
        identity = (marker.producer_id, marker.epoch)
        is_commit, where = self._first.setdefault(identity, (marker.is_commit, place))
        if is_commit != marker.is_commit:
            self.fail("two partitions have different markers", identity=identity, first=where, second=place)
        decided = self._ledger.by_markers.get(identity, [])
        if decided and all(found.is_commit != marker.is_commit for found in decided):
            self.fail(
                "a marker is not that of the decision",
                identity=identity,
                partition=place,
                offset=seen.offset,
                is_commit=marker.is_commit,
            )
