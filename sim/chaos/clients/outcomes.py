"""How the error of an operation is recorded: FAIL only if it certainly did not happen, else INFO.

A client library retries by itself, and then reports the error of its last attempt. An earlier attempt may have been
carried out although its answer was lost. So an error proves something only in two cases:

- The library says so. Ours does (`DeliveryFailed.certain`): it remembers each attempt of a batch. librdkafka keeps the
  same knowledge (RD_KAFKA_MSG_STATUS_NOT_PERSISTED), but its Python package does not expose it; kafka-python has none.
- The operation is refused for its own contents, which every attempt shares: a record that is too large, a topic's name
  that is invalid, a missing permission.

All other errors are INFO: timeouts, lost connections, NOT_LEADER_OR_FOLLOWER (KAFKA-13574: the record may be replicated
already), NOT_ENOUGH_REPLICAS_AFTER_APPEND, SASL_AUTHENTICATION_FAILED (of a connection: an earlier attempt may have had
another one), and, where the library does not say how often it has tried, also those that prove something of one attempt
alone: NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_TOPIC_OR_PARTITION.

Changes of topics: brokers forward them to the controller, and send them again when they lose its connection, ours as
Kafka's. TOPIC_ALREADY_EXISTS may then be the answer to one's own success, and UNKNOWN_TOPIC_OR_PARTITION that to one's
own deletion, also where the client has sent its request once. Both are INFO. So are the errors of commits of offsets:
the commit that a coordinator rejects may be the second attempt of one that it took.
Source: Jepsen Redpanda, Kafka's Errors.
"""

from __future__ import annotations

from kraft.sim.chaos.clients import OperationFailed
from kraft.sim.chaos.history import EventType
from kraft.wire.error_codes import ErrorCode

REASON_CHARACTERS_MAX = 200

_PERMISSIONS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
SEND_REFUSED = frozenset(
    code.name
    for code in (
        *_PERMISSIONS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )
)
"""Errors that refuse a record for its own contents."""
TOPIC_CHANGE_REFUSED = frozenset(
    code.name
    for code in (
        *_PERMISSIONS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
"""The same for the creation or deletion of a topic. INVALID_REPLICATION_FACTOR is not among them: it depends on which
brokers are alive."""
ENDS_PRODUCER = frozenset(
    {
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "PRODUCER_FENCED",
        "_FATAL",
        "_FENCED",
    }
)
"""Errors after which an idempotent producer is of no use, although they may be FAIL. Those with an underscore are
librdkafka's own."""


def send_failed(error: str, *, is_certain: bool = False) -> OperationFailed:
    """A send that ended with this error. `is_certain`: the library says that no attempt can have appended it."""
    return _failed(is_certain or error in SEND_REFUSED, error)


def topic_change_failed(error: str) -> OperationFailed:
    """A creation or deletion of a topic that ended with this error."""
    return _failed(error in TOPIC_CHANGE_REFUSED, error)


def unknown(error: str) -> OperationFailed:
    """Any other operation that ended with this error: nothing is known of what it did."""
    return _failed(False, error)


def reason_of(problem: BaseException) -> str:
    """The name and the text of an exception that is no error of Kafka, on one line."""
    text = " ".join(str(problem).split())[:REASON_CHARACTERS_MAX]
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _failed(is_definite: bool, error: str) -> OperationFailed:
    return OperationFailed(EventType.FAIL if is_definite else EventType.INFO, error)
