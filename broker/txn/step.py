"""Step: the work that one call of the transaction coordinator returns to its driver.

1. `entries` are appended to the log as one atomic batch (nothing if it is empty).
2. `replies` are sent at once: they promise nothing that is not committed.
3. `markers` are sent at once: their Prepare record is committed.
4. When the high watermark has passed the batch, `stored` is called for each item of `after`. When the append fails or
the partition moves, `failed` is called for each item, with the error. Each item gets one of these calls, which returns
another Step.

Source: KIP-98, Kafka's TransactionStateManager.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.broker.shard.now import Now
from kraft.broker.txn.records import TopicPartition, TransactionLogEntry
from kraft.broker.txn.requests import Reply, Ticket


class Written(NamedTuple):
    """A write that is in the batch of the step, by its transactional id and number."""

    transactional_id: str
    number: int


class Markers(NamedTuple):
    """Markers of one transaction, to be written to these partitions. `attempt` tells this completion from earlier and
    later completions of the same transactional id. `client_version` is the transaction.version of the transaction
    (KIP-1228)."""

    transactional_id: str
    attempt: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]
    client_version: int


class Step(NamedTuple):
    """The work that one call returns; the module docstring explains the fields."""

    entries: tuple[TransactionLogEntry, ...] = ()
    replies: tuple[tuple[Ticket, Reply], ...] = ()
    after: tuple[Written, ...] = ()
    markers: tuple[Markers, ...] = ()


class StepBuilder:
    """Collects the work of one call, and makes a Step from it."""

    __slots__ = ("after", "entries", "markers", "now", "replies")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.entries: list[TransactionLogEntry] = []
        self.replies: list[tuple[Ticket, Reply]] = []
        self.after: list[Written] = []
        self.markers: list[Markers] = []

    def reply(self, ticket: Ticket, reply: Reply) -> None:
        """Add a reply that is sent at once."""
        self.replies.append((ticket, reply))

    def step(self) -> Step:
        return Step(tuple(self.entries), tuple(self.replies), tuple(self.after), tuple(self.markers))
