"""Requests to a transaction coordinator, and their replies, without the versions of Kafka's messages.

A handler maps PRODUCER_FENCED to INVALID_PRODUCER_EPOCH for the versions of clients that do not know it.
Source: KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kraft.broker.txn.records import NO_PRODUCER_ID, TopicPartition, TransactionValue
from kraft.wire.error_codes import ErrorCode

NO_EPOCH = -1


class ErrorReply(NamedTuple):
    """Reply to AddPartitionsToTxn."""

    error: ErrorCode


class InitReply(NamedTuple):
    """Reply to InitProducerId: the producer id and epoch for the producer's next transactions."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class EndReply(NamedTuple):
    """Reply to EndTxn. With transaction.version 2 it has the producer id and epoch for the next transaction; otherwise
    -1."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class VerifyReply(NamedTuple):
    """Reply to VerifyRequest. `missing` has the partitions that are not part of the producer's open transaction."""

    error: ErrorCode
    missing: frozenset[TopicPartition] = frozenset()


class DescribeTransactionReply(NamedTuple):
    error: ErrorCode
    value: TransactionValue | None = None


class ListTransactionsReply(NamedTuple):
    """Reply to ListTransactions: all transactional ids of a partition, with their last values in the log."""

    error: ErrorCode
    transactions: tuple[tuple[str, TransactionValue], ...] = ()


Reply = ErrorReply | InitReply | EndReply | VerifyReply | DescribeTransactionReply | ListTransactionsReply
Ticket = Callable[[Any], None]
"""Function that takes the reply to one request. It is called exactly once."""


class InitRequest(NamedTuple):
    """InitProducerId. `producer_id` and `producer_epoch` are those that the producer had before, or -1 (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH

    def refused(self, error: ErrorCode) -> InitReply:
        return InitReply(error)


class AddRequest(NamedTuple):
    """Add partitions to the open transaction, or begin a transaction with them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]

    def refused(self, error: ErrorCode) -> ErrorReply:
        return ErrorReply(error)


class VerifyRequest(NamedTuple):
    """Ask whether these partitions are part of the producer's open transaction (KIP-890, part 1)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]

    def refused(self, error: ErrorCode) -> VerifyReply:
        return VerifyReply(error)


class EndRequest(NamedTuple):
    """EndTxn: commit or abort. `bumps_epoch` is True for EndTxn 5 or newer, whose client uses transaction.version 2."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    bumps_epoch: bool

    def refused(self, error: ErrorCode) -> EndReply:
        return EndReply(error)


class DescribeTransactionRequest(NamedTuple):
    transactional_id: str

    def refused(self, error: ErrorCode) -> DescribeTransactionReply:
        return DescribeTransactionReply(error)


class ListTransactionsRequest(NamedTuple):
    transactional_id: str = ""

    def refused(self, error: ErrorCode) -> ListTransactionsReply:
        return ListTransactionsReply(error)


Request = InitRequest | AddRequest | VerifyRequest | EndRequest | DescribeTransactionRequest | ListTransactionsRequest
