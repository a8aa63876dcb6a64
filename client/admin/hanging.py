"""Hanging transactions: open in a partition, but unknown to the coordinator that could end them.

Readers of committed records cannot pass the start of a hanging transaction. A transaction is hanging if these three
answers, obtained one after the other, agree:

1. The leader of the partition, or a given broker with a replica of it, reports the transaction as open.
2. No coordinator has a transaction of its producer id with this partition. Coordinators are asked twice, because a
   transactional id that moves between brokers may be missing from one list of all brokers.
3. The leader reports it as open, now or still.

A partition is part of a transaction at the coordinator before its first record is written, and until its marker is
committed. So a transaction that ends meanwhile is not open in the third answer.
Source: KIP-664, Kafka's TransactionsCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.client.admin.transactions import AbortMarker, TransactionDescription
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.client.admin.admin import Admin
    from kraft.client.admin.values import ProducerState

PARTITIONS_PER_REQUEST = 500
TRANSACTION_STATE = "__transaction_state"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in one partition. `coordinated` is the coordinator's description of it; None if no
    coordinator has it, so that it is hanging."""

    partition: TopicPartition
    producer: ProducerState
    coordinated: TransactionDescription | None = None

    @property
    def marker(self) -> AbortMarker:
        """The marker that ends it."""
        producer = self.producer
        return AbortMarker(self.partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch)


@dataclass(frozen=True, slots=True)
class HangingSearch:
    """Result of a search for hanging transactions: those `found`, and those `undecided`. An undecided one may belong to
    a transactional id in a partition of `__transaction_state` that has no leader; `unled` are these partitions."""

    found: tuple[OpenTransaction, ...]
    undecided: tuple[OpenTransaction, ...] = ()
    unled: tuple[int, ...] = ()


async def find_hanging(
    admin: Admin,
    partitions: Iterable[TopicPartition],
    *,
    now_ms: int,
    older_than_ms: int = 0,
    broker: int | None = None,
) -> HangingSearch:
    """Find the hanging transactions in these partitions whose last record is older than `older_than_ms`, by partition
    and start. Ages are those of the records' timestamps; with 0 they do not matter. With `broker`, only transactions
    that are also open in this broker's replicas; it must have one of each partition."""
    found: list[OpenTransaction] = []
    undecided: list[OpenTransaction] = []
    unled: set[int] = set()
    wanted = sorted(set(partitions))
    for first in range(0, len(wanted), PARTITIONS_PER_REQUEST):
        old = [
            one
            for one in await find_open(admin, wanted[first : first + PARTITIONS_PER_REQUEST], broker=broker)
            if older_than_ms <= 0 or now_ms - one.producer.last_timestamp_ms > older_than_ms
        ]
        opened, lost = await _with_coordinators(admin, old)
        unknown = [one for one in opened if one.coordinated is None]
        if lost:
            undecided += unknown
            unled.update(lost)
        else:
            found += unknown
    return HangingSearch(tuple(found), tuple(undecided), tuple(sorted(unled)))


async def find_open(
    admin: Admin, partitions: Sequence[TopicPartition], *, broker: int | None = None
) -> list[OpenTransaction]:
    """Return all transactions that are open in these partitions according to their leaders, or to this broker."""
    states = await admin.partitions.producers(partitions, broker=broker)
    found = [
        OpenTransaction(partition, producer)
        for partition, producers in states.items()
        for producer in producers
        if producer.transaction_start is not None
    ]
    return sorted(found, key=_place)


async def with_coordinators(admin: Admin, opened: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Return those of the transactions that are still open, with what their coordinators have. Raise KafkaError
    COORDINATOR_NOT_AVAILABLE if a coordinator that may have one of them cannot be asked."""
    left, unled = await _with_coordinators(admin, opened)
    if unled:
        raise _unled_error(unled)
    return left


async def _with_coordinators(
    admin: Admin, opened: Sequence[OpenTransaction]
) -> tuple[list[OpenTransaction], tuple[int, ...]]:
    """Return those of the transactions that are still open, with what their coordinators have. If one seems to have no
    coordinator, also return the partitions of `__transaction_state` whose coordinators could not be asked."""
    if not opened:
        return [], ()
    unled: tuple[int, ...] = ()
    described = await _describe_producers(admin, opened)
    if suspects := [one for one in opened if _coordinated(one, described) is None]:
        unled = await _unled_partitions(admin)
        described |= await _describe_producers(admin, suspects)
    left = {_place(one) for one in await find_open(admin, sorted({one.partition for one in opened}))}
    found = [
        OpenTransaction(one.partition, one.producer, _coordinated(one, described))
        for one in opened
        if _place(one) in left
    ]
    return found, unled


async def _unled_partitions(admin: Admin) -> tuple[int, ...]:
    """Return the partitions of `__transaction_state` without a leader: no broker lists their transactional ids."""
    topics = await admin.topics.describe([TRANSACTION_STATE], skip_unknown=True)
    return tuple(part.index for topic in topics for part in topic.partitions if part.leader is None)


def _unled_error(unled: Sequence[int]) -> KafkaError:
    lost = ", ".join(map(str, unled))
    text = f"partitions of {TRANSACTION_STATE} without a leader: {lost}; their transactions may seem to hang"
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)


async def _describe_producers(admin: Admin, opened: Sequence[OpenTransaction]) -> dict[int, TransactionDescription]:
    """Return what coordinators have of the producers of these transactions, by producer id."""
    listed = await admin.transactions.list(producer_ids=sorted({one.producer.producer_id for one in opened}))
    return {one.producer_id: one for one in await admin.transactions.describe(listed)}


def _coordinated(
    one: OpenTransaction, described: Mapping[int, TransactionDescription]
) -> TransactionDescription | None:
    found = described.get(one.producer.producer_id)
    return found if found is not None and one.partition in found.partitions else None


def _place(one: OpenTransaction) -> tuple[TopicPartition, int, int]:
    start = one.producer.transaction_start
    return one.partition, -1 if start is None else start, one.producer.producer_id
