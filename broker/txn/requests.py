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
    """The reply of AddPartitionsToTxn."""

    error: ErrorCode


class InitReply(NamedTuple):
    """The identity of the producer for its next transactions."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class EndReply(NamedTuple):
    """With transaction.version 2 the identity for the next transaction; else ids are -1."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class VerifyReply(NamedTuple):
    """`missing`: partitions that are not part of the producer's open transaction."""

    error: ErrorCode
    missing: frozenset[TopicPartition] = frozenset()


class DescribeTransactionReply(NamedTuple):
    error: ErrorCode
    value: TransactionValue | None = None


class ListTransactionsReply(NamedTuple):
    """All transactional ids of a partition, with what the log says of them."""

    error: ErrorCode
    transactions: tuple[tuple[str, TransactionValue], ...] = ()


Reply = ErrorReply | InitReply | EndReply | VerifyReply | DescribeTransactionReply | ListTransactionsReply
Ticket = Callable[[Any], None]
"""Takes the reply to one request, exactly once."""


class InitRequest(NamedTuple):
    """`producer_id` and `producer_epoch` are the identity that the producer had, or -1 (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH

    def refused(self, error: ErrorCode) -> InitReply:
        return InitReply(error)


class AddRequest(NamedTuple):
    """Add partitions to the open transaction, or begin one with them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]

    def refused(self, error: ErrorCode) -> ErrorReply:
        return ErrorReply(error)


class VerifyRequest(NamedTuple):
    """Are these partitions part of the producer's open transaction? (KIP-890, part 1)"""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]

    def refused(self, error: ErrorCode) -> VerifyReply:
        return VerifyReply(error)


class EndRequest(NamedTuple):
    """Commit or abort. `bumps_epoch`: EndTxn 5 or newer, from a client of transaction.version 2."""

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
