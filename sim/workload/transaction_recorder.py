"""The history of a run's transactions: what the producers report, and what readers get.

A record or an offset that a reader gets is checked at once against the committed transaction log.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kraft.sim.check.observations import TopicPartition
from kraft.sim.check.transactions.histories import ClientTransaction, ReportedOutcome
from kraft.sim.check.transactions.ledger import TransactionLedger
from kraft.sim.cluster.cluster import SimCluster

TRANSFERS, COPIES, PIPELINED = "transfers", "copies", "pipelined"
PARTITIONS: Mapping[str, int] = MappingProxyType({TRANSFERS: 3, COPIES: 2, PIPELINED: 6})
"""Topic that the transactions write to → number of its partitions."""
INPUTS = tuple((TRANSFERS, index) for index in range(PARTITIONS[TRANSFERS]))
"""The partitions whose records the copying producer reads."""


class TransactionRecorder:
    """All transactions of a run, in the order in which they began."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.transactions: list[ClientTransaction] = []
        self.sources: dict[bytes, bytes] = {}
        """Value of a copy → value of the record that it was made of."""
        self.along: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        """Partition → (offset, value) of each record that the reader of the whole run got."""
        self.offsets_read = 0
        """Number of times that a group's offset was compared with the offsets of committed transactions."""
        self.pipelined = 0
        """Number of batches that were sent while the first one of their transaction and partition was in flight."""
        self._owners: dict[bytes, ClientTransaction] = {}

    @property
    def ledger(self) -> TransactionLedger:
        """The transactions in the committed transaction log."""
        return self.cluster.watch.suite.transactions.ledger

    @property
    def committed(self) -> int:
        """Number of transactions whose commit was reported."""
        return sum(each.outcome is ReportedOutcome.COMMITTED for each in self.transactions)

    @property
    def aborted(self) -> int:
        """Number of transactions whose abort was reported."""
        return sum(each.outcome is ReportedOutcome.ABORTED for each in self.transactions)

    def fail(self, check: str, text: str, place: TopicPartition | None = None, **evidence: Any) -> None:
        facts = evidence if place is None else {"partition": place, **evidence}
        self.cluster.report.fail(check, text, **facts)

    def sent_early(self) -> None:
        """Count a batch that was sent before the first one of its transaction was acknowledged."""
        self.pipelined += 1

    def begun(self, transactional_id: str, data: tuple[int, int]) -> ClientTransaction:
        """Record that a producer has begun a transaction. `data` is the producer id and epoch of its records."""
        found = ClientTransaction(transactional_id, data, len(self.transactions))
        self.transactions.append(found)
        return found

    def queued(self, transaction: ClientTransaction, value: bytes, place: TopicPartition) -> None:
        """Record that a producer has queued a record with this value. A record that the producer rejected is in no
        transaction. Call this before the next checkpoint, so that no reader gets the record earlier."""
        transaction.records.append((value, place))
        self._owners[value] = transaction

    def read_along(self, record: Any) -> None:
        """Record that the reader of the whole run got this record."""
        self.along.setdefault((record.topic, record.partition), []).append((record.offset, record.value))
        self._check_committed(record, "the reader")

    def copies(self, transaction: ClientTransaction, record: Any) -> bytes:
        """Return the value for a copy of this record. Check that the record's transaction is committed."""
        self._check_committed(record, "the copier")
        value = b"%d of %s" % (transaction.number, record.value)
        self.sources[value] = record.value
        return value

    def _check_committed(self, record: Any, reader: str) -> None:
        """Check that the transaction of a record that a read_committed reader got is committed (T6)."""
        owner = self._owners.get(record.value)
        if owner is None or not self.ledger.is_committed(owner.data):
            data = None if owner is None else owner.data
            text = f"{reader} of committed records got one whose commit is not decided"
            place = (record.topic, record.partition)
            self.fail("T6", text, place, offset=record.offset, value=record.value, data=data)

    def offset_floors(self) -> dict[TopicPartition, int]:
        """Return the minimum of the group's offset for each partition: the highest offset whose commit was reported."""
        known: dict[TopicPartition, int] = {}
        for each in self.transactions:
            if each.outcome is ReportedOutcome.COMMITTED:
                known.update({place: max(known.get(place, 0), end) for place, end in each.offsets.items()})
        return known

    def offsets_read_back(self, floors: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> None:
        """Check the group's offsets that a client received (T11). `floors` is the result of `offset_floors` from before
        the client's request."""
        due = {(place, end) for each in self.transactions for place, end in each.offsets.items()
               if self.ledger.is_committed(each.data)}  # fmt: skip
        for place, offset in sorted(found.items()):
            self.offsets_read += 1
            if offset < floors.get(place, 0):
                text = "a group's offset is below that of a committed transaction"
                self.fail("T11", text, place, offset=offset, floor=floors[place])
            if offset and (place, offset) not in due:
                self.fail("T11", "a group's offset is of no committed transaction", place, offset=offset)
