"""Checks of the data of transactions: enrolment (T12), and fencing by a newer epoch (T4).

A batch is judged by what held when its leader appended it, and reported when it is committed: a leader that was
replaced may append what no client is ever shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import ProducedBy, TopicPartition
from kraft.sim.check.transactions.feed import (
    BatchName,
    MarkerCommitted,
    TransactionalDataCommitted,
    TransactionalDataWritten,
)
from kraft.sim.check.transactions.ledger import Identity, TransactionLedger


class _JudgedWhenWritten(Check):
    """Base of checks that judge a batch when it is written, and report it when it is committed."""

    text: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self._wrong: dict[BatchName, dict[str, object]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {TransactionalDataWritten: self.written, TransactionalDataCommitted: self.committed}

    def written(self, seen: TransactionalDataWritten) -> None:
        facts = self.judge(seen, seen.producer)
        if facts is not None:
            self._wrong[seen.batch] = {"node": seen.node, **facts}

    def judge(self, seen: TransactionalDataWritten, producer: ProducedBy) -> dict[str, object] | None:
        """Return the evidence against this batch; None if it may be written."""
        raise AssertionError(f"{type(self).__name__} judges nothing")

    def committed(self, seen: TransactionalDataCommitted) -> None:
        self.count()
        facts = self._wrong.get(seen.batch) or self.judge_committed(seen)
        if facts is not None:
            place, offset, _ = seen.batch
            producer = (seen.producer.producer_id, seen.producer.epoch)
            self.fail(self.text, partition=place, offset=offset, producer=producer, **facts)

    def judge_committed(self, seen: TransactionalDataCommitted) -> dict[str, object] | None:
        """Return the evidence against this batch from the committed log alone; None if there is none."""
        return None


class DataIsEnrolled(_JudgedWhenWritten):
    id: ClassVar[str] = "T12"
    statement: ClassVar[str] = "A transaction writes only to partitions that are enrolled in it, before its end."
    text: ClassVar[str] = "a transaction wrote to a partition that is not enrolled in it"

    def __init__(self, ledger: TransactionLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._marked: dict[tuple[TopicPartition, Identity], int] = {}
        """(partition, identity of a marker) → lowest offset of a committed marker with it. A marker that is not
        committed may be lost with its leader, and the next leader may append data of the transaction."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {**super().readers(), MarkerCommitted: self.marker_committed}

    def marker_committed(self, seen: MarkerCommitted) -> None:
        self._marked.setdefault((seen.topic_partition, (seen.marker.producer_id, seen.marker.epoch)), seen.offset)

    def judge_committed(self, seen: TransactionalDataCommitted) -> dict[str, object] | None:
        place, offset, _ = seen.batch
        found = self._ledger.by_data.get((seen.producer.producer_id, seen.producer.epoch))
        if found is None or found.markers is None:
            return None
        marker = self._marked.get((place, found.markers), offset)
        return {"why": "the transaction has its marker", "marker": marker} if marker < offset else None

    def judge(self, seen: TransactionalDataWritten, producer: ProducedBy) -> dict[str, object] | None:
        found = self._ledger.by_data.get((producer.producer_id, producer.epoch))
        if found is None:
            return {"why": "no such transaction has begun"}
        if found.is_complete:
            return {"why": "the transaction is complete", "transactional_id": found.transactional_id}
        if seen.batch[0] not in found.enrolled:
            return {"why": "it is not enrolled", "enrolled": sorted(found.enrolled)}
        return None


class FencedProducersWriteNothing(_JudgedWhenWritten):
    id: ClassVar[str] = "T4b"
    statement: ClassVar[str] = (
        "After a transactional producer was sent its epoch, no record of a lower epoch of its producer id is appended."
    )
    text: ClassVar[str] = "a fenced producer wrote to a partition"

    def judge(self, seen: TransactionalDataWritten, producer: ProducedBy) -> dict[str, object] | None:
        return {"known_epoch": seen.known_epoch} if producer.epoch < seen.known_epoch else None
