"""Step: the work that one call of the transaction coordinator returns to its driver.

1. `entries` are appended to the log as one atomic batch (nothing if it is empty).
2. `replies` are sent at once: they promise nothing that is not committed.
3. `markers` are sent at once: their Prepare record is committed.
4. When the high watermark has passed the batch, each of `after` is given to `stored`. When the append fails or the
   partition moves, it is given to `failed` with the error. Each exactly once; both return a Step.

Source: KIP-98, Kafka's TransactionStateManager.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.broker.shard.now import Now
from kraft.broker.txn.records import TopicPartition, TransactionLogEntry
from kraft.broker.txn.requests import Reply, Ticket


class Written(NamedTuple):
    """The write with this number of this transactional id is in the batch of the step."""

    transactional_id: str
    number: int


class Markers(NamedTuple):
    """Markers to write to these partitions. `attempt` distinguishes this completion from earlier and later ones of the
    same transactional id. `client_version` is the transaction.version of the transaction (KIP-1228)."""

    transactional_id: str
    attempt: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]
    client_version: int


class Step(NamedTuple):
    """See the module."""

    entries: tuple[TransactionLogEntry, ...] = ()
    replies: tuple[tuple[Ticket, Reply], ...] = ()
    after: tuple[Written, ...] = ()
    markers: tuple[Markers, ...] = ()


class StepBuilder:
    """The step of one call, while it is being made."""

    __slots__ = ("after", "entries", "markers", "now", "replies")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.entries: list[TransactionLogEntry] = []
        self.replies: list[tuple[Ticket, Reply]] = []
        self.after: list[Written] = []
        self.markers: list[Markers] = []

    def reply(self, ticket: Ticket, reply: Reply) -> None:
        """Reply at once."""
        self.replies.append((ticket, reply))

    def step(self) -> Step:
        return Step(tuple(self.entries), tuple(self.replies), tuple(self.after), tuple(self.markers))
