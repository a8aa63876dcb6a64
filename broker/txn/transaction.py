"""One transactional id in memory: its committed value, its write in flight, and its unconfirmed markers.

Invariant: at most one write per id is in flight. Until it is committed, `value` is the previous value. Additions of
partitions wait for it (see `waiting`), and every other request that would write gets CONCURRENT_TRANSACTIONS. So a
failed write changes nothing and uses up no epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraft.broker.txn.records import NO_PRODUCER_ID, TopicPartition, TransactionValue
from kraft.broker.txn.requests import NO_EPOCH, Reply, Request, Ticket

if TYPE_CHECKING:
    from kraft.broker.txn.waiting import WaitingAddition

EPOCH_MAX = 32_767
LAST_USABLE_EPOCH = EPOCH_MAX - 1
"""Highest epoch that a producer gets. A producer id at this epoch is replaced by a new one; EPOCH_MAX is used only to
fence."""


@dataclass(slots=True)
class UncommittedWrite:
    """A write that is not committed yet. If `value` is None, the write removes the id. `reply` is sent when the write
    is committed; `ticket` is None if no request waits for it."""

    number: int
    value: TransactionValue | None
    last_epoch: int
    ticket: Ticket | None = None
    request: Request | None = None
    reply: Reply | None = None


@dataclass(slots=True)
class UnconfirmedMarkers:
    """Markers that are being written since `began_ms`. `left` has the partitions whose leaders have not confirmed their
    marker."""

    attempt: int
    began_ms: int
    left: set[TopicPartition] = field(default_factory=set)


class Transaction:
    """One transactional id. `value` is None until the first write is committed.

    `last_epoch` is the epoch before the last increment: a producer that retries with it has lost its reply, and is not
    fenced. `last_epoch` is not stored, so after a failover it is -1 and such a retry is fenced, as in Kafka. If the
    increment also changed the producer id, `last_epoch` follows from the stored previous id."""

    __slots__ = ("completion", "last_epoch", "pending", "transactional_id", "value", "waiting")

    def __init__(self, transactional_id: str, value: TransactionValue | None = None) -> None:
        self.transactional_id = transactional_id
        self.value = value
        is_new_id = value is not None and value.previous_producer_id != NO_PRODUCER_ID and value.producer_epoch == 0
        self.last_epoch = LAST_USABLE_EPOCH if is_new_id else NO_EPOCH
        self.pending: UncommittedWrite | None = None
        self.completion: UnconfirmedMarkers | None = None
        self.waiting: list[WaitingAddition] = []

    @property
    def is_exhausted(self) -> bool:
        """Whether the next increment of the epoch needs another producer id."""
        return self.value is not None and self.value.producer_epoch >= LAST_USABLE_EPOCH

    def is_next_id(self, producer_id: int) -> bool:
        """Return whether a producer has this id after the transaction that is being completed. The reply to its EndTxn
        names the id when the decision is committed, so requests with it may arrive before the completion."""
        return self.value is not None and self.value.next_producer_id == producer_id != NO_PRODUCER_ID

    def has_id(self, producer_id: int) -> bool:
        """Return whether this is the producer id, or the next one."""
        return self.value is not None and (self.value.producer_id == producer_id or self.is_next_id(producer_id))

    def has_identity(self, producer_id: int, epoch: int) -> bool:
        return self.value is not None and (self.value.producer_id, self.value.producer_epoch) == (producer_id, epoch)
