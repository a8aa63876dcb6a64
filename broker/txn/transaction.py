"""One transactional id in memory: what is committed, what is being written, and the markers still to be written.

Invariant: at most one write per id is in flight. Until it is committed, every other request that would write gets
CONCURRENT_TRANSACTIONS, and `value` is what it was: a failed write changes nothing, and no epoch is used up by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kraft.broker.txn.records import NO_PRODUCER_ID, TopicPartition, TransactionValue
from kraft.broker.txn.requests import NO_EPOCH, Reply, Request, Ticket

EPOCH_MAX = 32_767
LAST_USABLE_EPOCH = EPOCH_MAX - 1
"""A producer id whose epoch has come this far is replaced by another one; EPOCH_MAX itself can only fence."""


@dataclass(slots=True)
class UncommittedWrite:
    """A write that is not committed yet; `value` None removes the id. `reply` is sent when it is committed; `ticket` is
    None if no request waits for that."""

    number: int
    value: TransactionValue | None
    last_epoch: int
    ticket: Ticket | None = None
    request: Request | None = None
    reply: Reply | None = None


@dataclass(slots=True)
class UnconfirmedMarkers:
    """Markers that are being written. `left`: partitions whose leaders have not confirmed theirs."""

    attempt: int
    left: set[TopicPartition] = field(default_factory=set)


class Transaction:
    """`value` is None until the first write is committed. `last_epoch` is the epoch before the last bump, which lets a
    producer retry whose reply was lost. It is not stored, so after a failover it is -1 and such a retry is fenced, as
    in Kafka; where the producer id changed, it follows from the stored previous id."""

    __slots__ = ("completion", "last_epoch", "pending", "transactional_id", "value")

    def __init__(self, transactional_id: str, value: TransactionValue | None = None) -> None:
        self.transactional_id = transactional_id
        self.value = value
        is_new_id = value is not None and value.previous_producer_id != NO_PRODUCER_ID and value.producer_epoch == 0
        self.last_epoch = LAST_USABLE_EPOCH if is_new_id else NO_EPOCH
        self.pending: UncommittedWrite | None = None
        self.completion: UnconfirmedMarkers | None = None

    @property
    def is_exhausted(self) -> bool:
        """The next bump needs another producer id."""
        return self.value is not None and self.value.producer_epoch >= LAST_USABLE_EPOCH

    def has_identity(self, producer_id: int, epoch: int) -> bool:
        return self.value is not None and (self.value.producer_id, self.value.producer_epoch) == (producer_id, epoch)
