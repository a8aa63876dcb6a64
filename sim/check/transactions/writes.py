"""Checks of the records of transactions: that their partition is part of the transaction (T12), and that their producer
is not fenced by a newer epoch (T4b).

A batch is compared with the state at the time when its leader appended it. It is reported only when it is committed,
because a leader that was replaced may append batches that no client ever gets.
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


class _CheckedWhenWritten(Check):
    """Base class of checks that examine a batch when it is written, and report it when it is committed."""

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
        """Return the evidence that this batch may not be written; None if it may."""
        raise AssertionError(f"{type(self).__name__} does not define judge()")

    def committed(self, seen: TransactionalDataCommitted) -> None:
        self.count()
        facts = self._wrong.get(seen.batch) or self.judge_committed(seen)
        if facts is not None:
            place, offset, _ = seen.batch
            producer = (seen.producer.producer_id, seen.producer.epoch)
            self.fail(self.text, partition=place, offset=offset, producer=producer, **facts)

    def judge_committed(self, seen: TransactionalDataCommitted) -> dict[str, object] | None:
        """Return the evidence in the committed log that this batch may not be there; None if it may."""
        return None


class DataIsEnrolled(_CheckedWhenWritten):
    id: ClassVar[str] = "T12"
    statement: ClassVar[str] = (
        "A transaction writes only to partitions that were added to it, and only before its marker there."
    )
    text: ClassVar[str] = "a transaction wrote to a partition that is not part of it, or not any more"

    def __init__(self, ledger: TransactionLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._marked: dict[tuple[TopicPartition, Identity], int] = {}
        """(partition, identity of a marker) → lowest offset of such a marker that is committed. A marker that is not
        committed may be lost with its leader. The next leader may then append records of the transaction."""

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
            return {"why": "the partition was not added", "added": sorted(found.enrolled)}
        return None


class FencedProducersWriteNothing(_CheckedWhenWritten):
    id: ClassVar[str] = "T4b"
    statement: ClassVar[str] = (
        "After a transactional producer was sent its identity, no record of a lower epoch of its producer id, or of an "
        "earlier producer id, is appended."
    )
    text: ClassVar[str] = "a fenced producer wrote to a partition"

    def judge(self, seen: TransactionalDataWritten, producer: ProducedBy) -> dict[str, object] | None:
        return {"known_epoch": seen.known_epoch} if producer.epoch < seen.known_epoch else None
