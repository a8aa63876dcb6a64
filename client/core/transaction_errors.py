"""Exceptions of a transactional producer, and its reaction to each error in a coordinator's response.

After an abortable error the transaction must be aborted, and the producer can then begin another one. After a fatal
error the producer can only be closed.
Source: Kafka's TransactionManager, KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from kraft.client.core.records import KafkaError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode


class ProducerFenced(KafkaError):
    """Another producer with the same transactional id has started, or, below transaction.version 2, the coordinator has
    aborted the transaction because of its timeout. This producer can only be closed. If a commit raises this error, the
    transaction may be committed or aborted."""


class AbortableTransactionError(KafkaError):
    """Something in the transaction failed, so the application must abort it. The producer can then begin another
    transaction."""


class TransactionAborted(KafkaError):
    """A transaction that was to be committed was aborted instead, because something in it failed. Consumers with
    read_committed see none of its records. The producer can begin another transaction."""


class CommitOutcomeUnknown(KafkaError):
    """A commit did not finish in time, so the transaction may be committed or aborted. The producer still tries to
    commit it. Calling `commit_transaction` again waits for the outcome; until then no other call is allowed."""


class CoordinatorReaction(Enum):
    DONE = "the request succeeded"
    RETRY = "retry after a backoff"
    RETRY_SOON = "retry after a short, constant pause: the previous transaction is still ending"
    FIND_COORDINATOR = "find the coordinator again, then retry"
    ABORT = "the transaction must be aborted"
    FATAL = "the producer can only be closed"


FENCED_CODES = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Errors with which a coordinator fences a producer."""

FATAL_PRODUCE_ERRORS = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors of a batch after which the producer can only be closed. After any other error of a batch, only its transaction
must be aborted."""

IN_DOUBT = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which the coordinator may have carried out the request, or may still carry it out. The coordinator may
have moved to another broker."""

REFUSED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Errors of an addition to a transaction that the coordinator has not carried out. An open transaction repeats it, an
abort does not: the partition may be deleted."""

_Reactions = Mapping[ErrorCode, CoordinatorReaction]
_COMMON: _Reactions = MappingProxyType(
    {
        ErrorCode.NONE: CoordinatorReaction.DONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorReaction.RETRY,
        ErrorCode.CONCURRENT_TRANSACTIONS: CoordinatorReaction.RETRY,
        ErrorCode.TRANSACTION_ABORTABLE: CoordinatorReaction.ABORT,
        **dict.fromkeys(IN_DOUBT, CoordinatorReaction.FIND_COORDINATOR),
    }
)
_SOON: _Reactions = MappingProxyType({ErrorCode.CONCURRENT_TRANSACTIONS: CoordinatorReaction.RETRY_SOON})

REACTIONS: Mapping[ApiKey, _Reactions] = MappingProxyType(
    {
        ApiKey.FIND_COORDINATOR: MappingProxyType(
            {
                ErrorCode.NONE: CoordinatorReaction.DONE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorReaction.RETRY,
                ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorReaction.RETRY,
                ErrorCode.NOT_COORDINATOR: CoordinatorReaction.RETRY,
                ErrorCode.REQUEST_TIMED_OUT: CoordinatorReaction.RETRY,
                ErrorCode.NETWORK_EXCEPTION: CoordinatorReaction.RETRY,
                ErrorCode.GROUP_AUTHORIZATION_FAILED: CoordinatorReaction.ABORT,
            }
        ),
        ApiKey.INIT_PRODUCER_ID: MappingProxyType(
            {**_COMMON, ErrorCode.TRANSACTION_ABORTABLE: CoordinatorReaction.FATAL}
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: MappingProxyType(
            {
                **_COMMON,
                **_SOON,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorReaction.RETRY,
                ErrorCode.OPERATION_NOT_ATTEMPTED: CoordinatorReaction.RETRY,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED: CoordinatorReaction.ABORT,
                ErrorCode.INVALID_TOPIC_EXCEPTION: CoordinatorReaction.ABORT,
            }
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: MappingProxyType(
            {
                **_COMMON,
                **_SOON,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorReaction.RETRY,
                ErrorCode.GROUP_AUTHORIZATION_FAILED: CoordinatorReaction.ABORT,
            }
        ),
        ApiKey.TXN_OFFSET_COMMIT: MappingProxyType(
            {
                **_COMMON,
                **_SOON,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CoordinatorReaction.RETRY,
                ErrorCode.NOT_ENOUGH_REPLICAS: CoordinatorReaction.RETRY,
                ErrorCode.GROUP_AUTHORIZATION_FAILED: CoordinatorReaction.ABORT,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED: CoordinatorReaction.ABORT,
                ErrorCode.FENCED_INSTANCE_ID: CoordinatorReaction.ABORT,
                ErrorCode.ILLEGAL_GENERATION: CoordinatorReaction.ABORT,
                ErrorCode.UNKNOWN_MEMBER_ID: CoordinatorReaction.ABORT,
                ErrorCode.STALE_MEMBER_EPOCH: CoordinatorReaction.ABORT,
                ErrorCode.FENCED_MEMBER_EPOCH: CoordinatorReaction.ABORT,
                ErrorCode.REBALANCE_IN_PROGRESS: CoordinatorReaction.ABORT,
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE: CoordinatorReaction.ABORT,
                ErrorCode.OFFSET_METADATA_TOO_LARGE: CoordinatorReaction.ABORT,
            }
        ),
        ApiKey.END_TXN: _COMMON,
    }
)
"""Reaction to each error, by the API of the request. The reaction to every error without an entry is FATAL."""


def reaction_to(key: ApiKey, code: ErrorCode) -> CoordinatorReaction:
    return REACTIONS[key].get(code, CoordinatorReaction.FATAL)


def fatal_error(code: ErrorCode, message: str) -> KafkaError:
    """Return the exception for a fatal error: ProducerFenced if the error fences this producer, else KafkaError."""
    return ProducerFenced(code, message) if code in FENCED_CODES else KafkaError(code, message)
