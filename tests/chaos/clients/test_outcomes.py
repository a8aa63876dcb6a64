from __future__ import annotations

import pytest

from kraft.sim.chaos.clients.outcomes import reason_of, send_failed, topic_change_failed, unknown
from kraft.sim.chaos.history import HistoryEventType
from kraft.wire.error_codes import ErrorCode

FAIL, INFO = HistoryEventType.FAIL, HistoryEventType.INFO

SENDS = {
    "MESSAGE_TOO_LARGE": FAIL,
    "RECORD_LIST_TOO_LARGE": FAIL,
    "INVALID_RECORD": FAIL,
    "INVALID_TIMESTAMP": FAIL,
    "INVALID_TOPIC_EXCEPTION": FAIL,
    "INVALID_REQUIRED_ACKS": FAIL,
    "TOPIC_AUTHORIZATION_FAILED": FAIL,
    "UNSUPPORTED_COMPRESSION_TYPE": FAIL,
    "NOT_LEADER_OR_FOLLOWER": INFO,
    "NOT_ENOUGH_REPLICAS": INFO,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": INFO,
    "REQUEST_TIMED_OUT": INFO,
    "NETWORK_EXCEPTION": INFO,
    "UNKNOWN_SERVER_ERROR": INFO,
    "UNKNOWN_TOPIC_OR_PARTITION": INFO,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": INFO,
    "INVALID_PRODUCER_EPOCH": INFO,
    "_MSG_TIMED_OUT": INFO,
    "_FATAL": INFO,
    "SASL_AUTHENTICATION_FAILED": INFO,
    "KafkaTimeoutError: too late": INFO,
}
TOPIC_CHANGES = {
    "INVALID_TOPIC_EXCEPTION": FAIL,
    "INVALID_PARTITIONS": FAIL,
    "INVALID_CONFIG": FAIL,
    "POLICY_VIOLATION": FAIL,
    "TOPIC_AUTHORIZATION_FAILED": FAIL,
    "TOPIC_ALREADY_EXISTS": INFO,
    "UNKNOWN_TOPIC_OR_PARTITION": INFO,
    "INVALID_REPLICATION_FACTOR": INFO,
    "NOT_CONTROLLER": INFO,
    "SASL_AUTHENTICATION_FAILED": INFO,
    "REQUEST_TIMED_OUT": INFO,
    "ClusterUnreachable: no broker answered": INFO,
}


@pytest.mark.parametrize(("error", "expected"), SENDS.items())
def test_a_send_is_recorded_as_failed_only_if_no_attempt_can_have_appended_it(
    error: str, expected: HistoryEventType
) -> None:
    failed = send_failed(error)
    assert (failed.type, failed.error) == (expected, error)


@pytest.mark.parametrize("error", SENDS)
def test_a_send_that_the_library_knows_was_not_appended_is_recorded_as_failed_for_any_error(error: str) -> None:
    assert send_failed(error, is_certain=True).type is FAIL


@pytest.mark.parametrize(("error", "expected"), TOPIC_CHANGES.items())
def test_a_topic_change_is_recorded_as_failed_only_if_every_attempt_is_rejected(
    error: str, expected: HistoryEventType
) -> None:
    assert topic_change_failed(error).type is expected


def test_errors_of_operations_other_than_sends_and_topic_changes_are_recorded_as_unknown() -> None:
    assert unknown("TOPIC_AUTHORIZATION_FAILED").type is INFO


def test_the_recorded_reason_of_an_exception_is_one_line_with_its_name() -> None:
    assert reason_of(RuntimeError("one\n  two")) == "RuntimeError: one two"
    assert reason_of(TimeoutError()) == "TimeoutError"
    assert len(reason_of(RuntimeError("x" * 10_000))) < 300


def test_every_error_name_in_the_outcome_tables_exists_in_kafka() -> None:
    names = {code.name for code in ErrorCode}
    assert {error for error in [*SENDS, *TOPIC_CHANGES] if error.isupper() and not error.startswith("_")} <= names
