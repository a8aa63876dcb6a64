"""How the error of an operation is recorded: FAIL only if the operation certainly did not happen, otherwise INFO.

A client library retries by itself, and then reports the error of its last attempt. An earlier attempt may have been
carried out although its response was lost. So an error proves something only in two cases:

- The library reports that no attempt was carried out. Our client does so (`DeliveryFailed.certain`): it remembers each
  attempt of a batch. librdkafka knows it too (RD_KAFKA_MSG_STATUS_NOT_PERSISTED), but its Python package does not
  expose it. kafka-python does not know it.
- The operation is rejected for its own contents, which every attempt shares: a record that is too large, an invalid
  topic name, a missing permission.

All other errors are INFO: timeouts, lost connections, NOT_ENOUGH_REPLICAS_AFTER_APPEND. NOT_LEADER_OR_FOLLOWER is INFO
because the record may be replicated already (KAFKA-13574). SASL_AUTHENTICATION_FAILED is INFO because it concerns a
connection: an earlier attempt may have used another one. Where the library does not report its number of attempts,
errors that prove something about one attempt only are INFO too: NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE_NUMBER,
UNKNOWN_TOPIC_OR_PARTITION.

Topic changes: brokers, pykraft's and Kafka's, forward them to the controller, and send them again when they lose the
connection to the controller. So even if the client sends its request once, TOPIC_ALREADY_EXISTS may be the response to
the client's own success, and UNKNOWN_TOPIC_OR_PARTITION the response to its own deletion. Both errors are INFO. Errors
of offset commits are INFO as well: the commit that a coordinator rejects may be the second attempt of a commit that it
accepted.
Source: Jepsen Redpanda, Kafka's Errors.
"""

from __future__ import annotations

from kraft.sim.chaos.clients import OperationFailed
from kraft.sim.chaos.history import HistoryEventType
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
"""Errors that reject a record for its own contents."""
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
"""Errors that reject the creation or deletion of a topic for its own contents. INVALID_REPLICATION_FACTOR is not among
them: it depends on which brokers are alive."""
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
"""Errors after which an idempotent producer is unusable, although they may be FAIL. Those with an underscore are
librdkafka's own."""


def send_failed(error: str, *, is_certain: bool = False) -> OperationFailed:
    """Return the outcome of a send with this error. `is_certain`: the library knows that no attempt can have appended
    the record."""
    return _failed(is_certain or error in SEND_REFUSED, error)


def topic_change_failed(error: str) -> OperationFailed:
    """Return the outcome of a topic creation or deletion with this error."""
    return _failed(error in TOPIC_CHANGE_REFUSED, error)


def unknown(error: str) -> OperationFailed:
    """Return the outcome of any other operation with this error: INFO, because its effect is unknown."""
    return _failed(False, error)


def reason_of(problem: BaseException) -> str:
    """Return name and text of an exception that is not a Kafka error, on one line."""
    text = " ".join(str(problem).split())[:REASON_CHARACTERS_MAX]
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _failed(is_definite: bool, error: str) -> OperationFailed:
    return OperationFailed(HistoryEventType.FAIL if is_definite else HistoryEventType.INFO, error)
