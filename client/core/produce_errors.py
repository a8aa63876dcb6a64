"""The producer's reaction to each error of a Produce response. Source: ProduceResponse, Kafka's Sender,
TransactionManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from kraft.wire.error_codes import ErrorCode


class Verdict(Enum):
    DONE = "the broker has the batch"
    RETRY = "retry after a backoff"
    RETRY_ELSEWHERE = "retry once metadata names the leader again"
    SPLIT = "send its records in smaller batches"
    SEQUENCE = "an earlier batch is missing: wait for it, or start a new sequence"
    IDENTITY = "fail, and continue with a new producer id"
    FAIL = "fail"


_VERDICTS = MappingProxyType(
    {
        Verdict.DONE: (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        Verdict.RETRY: (
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
        Verdict.RETRY_ELSEWHERE: (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.LISTENER_NOT_FOUND,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.OFFSET_NOT_AVAILABLE,
        ),
        Verdict.SPLIT: (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
        Verdict.SEQUENCE: (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID),
        Verdict.IDENTITY: (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.PRODUCER_FENCED,
        ),
    }
)
VERDICTS: Mapping[ErrorCode, Verdict] = MappingProxyType(
    {code: verdict for verdict, codes in _VERDICTS.items() for code in codes}
)
"""Verdict for each error of a Produce response. The verdict for all other errors is FAIL."""

CERTAINLY_NOT_WRITTEN = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Errors which prove that this attempt wrote nothing to the log."""
