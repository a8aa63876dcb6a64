"""Tests of the models of metadata, and of the calls that a request adds to a history: which answers reveal state, and
which do not.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.sim.check.histories.linearizability import Call
from kraft.sim.check.histories.metadata_histories import (
    HistoryChecks,
    OffsetHistory,
    SettingHistory,
    TopicHistory,
    calls_of_request,
)
from kraft.sim.check.histories.metadata_models import ABSENT as NO_VALUE
from kraft.sim.check.histories.metadata_models import (
    ControllerAnswer,
    Create,
    Delete,
    ExistingTopic,
    Grow,
    ReadRegister,
    TopicModel,
    WriteRegister,
)
from kraft.wire.error_codes import ErrorCode

ONE, OTHER, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)
MODEL = TopicModel(frozenset({ONE, OTHER}))
ABSENT, THERE, UNTOLD = None, ExistingTopic(ONE, 2), ExistingTopic(None, 2)

EXISTS = ControllerAnswer(ErrorCode.TOPIC_ALREADY_EXISTS)
NO_NAME, NO_ID = ControllerAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ControllerAnswer(ErrorCode.UNKNOWN_TOPIC_ID)
TOO_FEW = ControllerAnswer(ErrorCode.INVALID_PARTITIONS)
DONE = ControllerAnswer()
VALIDATE = Create(1, validate_only=True)
STEPS: list[tuple[ExistingTopic | None, Any, ControllerAnswer | None, set[ExistingTopic | None]]] = [
    (ABSENT, Create(2), ControllerAnswer(topic_id=ONE), {THERE}),
    (THERE, Create(2), ControllerAnswer(topic_id=OTHER), set()),
    (ABSENT, Create(2), None, {ABSENT, UNTOLD}),
    (THERE, Create(2), None, {THERE}),
    (THERE, Create(2), EXISTS, {THERE}),
    (ABSENT, Create(2), EXISTS, set()),
    (ABSENT, VALIDATE, DONE, {ABSENT}),
    (THERE, VALIDATE, DONE, set()),
    (THERE, VALIDATE, EXISTS, {THERE}),
    (ABSENT, VALIDATE, None, {ABSENT}),
    (ABSENT, Create(2), ControllerAnswer(ErrorCode.NOT_CONTROLLER), set()),
    (THERE, Delete(), ControllerAnswer(topic_id=ONE), {ABSENT}),
    (THERE, Delete(), ControllerAnswer(topic_id=OTHER), set()),
    (UNTOLD, Delete(), ControllerAnswer(topic_id=THIRD), {ABSENT}),
    (UNTOLD, Delete(), ControllerAnswer(topic_id=OTHER), set()),
    (ABSENT, Delete(), ControllerAnswer(topic_id=ONE), set()),
    (THERE, Delete(), None, {THERE, ABSENT}),
    (ABSENT, Delete(), NO_NAME, {ABSENT}),
    (THERE, Delete(), NO_NAME, set()),
    (THERE, Delete(ONE), ControllerAnswer(topic_id=ONE), {ABSENT}),
    (THERE, Delete(OTHER), ControllerAnswer(topic_id=OTHER), set()),
    (THERE, Delete(OTHER), NO_ID, {THERE}),
    (THERE, Delete(ONE), NO_ID, set()),
    (THERE, Delete(OTHER), None, {THERE}),
    (UNTOLD, Delete(OTHER), NO_ID, {UNTOLD}),
    (UNTOLD, Delete(THIRD), NO_ID, {UNTOLD}),
    (THERE, Delete(), ControllerAnswer(ErrorCode.NOT_CONTROLLER), set()),
    (THERE, Grow(3), DONE, {ExistingTopic(ONE, 3)}),
    (THERE, Grow(2), DONE, set()),
    (THERE, Grow(2), TOO_FEW, {THERE}),
    (THERE, Grow(3), TOO_FEW, set()),
    (ABSENT, Grow(3), TOO_FEW, set()),
    (ABSENT, Grow(3), NO_NAME, {ABSENT}),
    (THERE, Grow(3), NO_NAME, set()),
    (ABSENT, Grow(3), DONE, set()),
    (THERE, Grow(3), None, {THERE, ExistingTopic(ONE, 3)}),
    (ABSENT, Grow(3), None, {ABSENT}),
    (THERE, Grow(3, validate_only=True), DONE, {THERE}),
    (THERE, Grow(3, validate_only=True), None, {THERE}),
    (THERE, Grow(2, validate_only=True), DONE, set()),
]


@pytest.mark.parametrize(("state", "asked", "answer", "due"), STEPS)
def test_the_topic_model_allows_an_absent_name_or_a_topic_with_id_and_partitions(
    state: ExistingTopic | None, asked: Any, answer: ControllerAnswer | None, due: set[ExistingTopic | None]
) -> None:
    assert set(MODEL.step(state, asked, answer)) == due


# calls that a request adds to a history

LEADER, OTHER_NODE = 101, 102


def added(
    asked: Any,
    answer: ControllerAnswer | None,
    *handlers: int,
    is_open: bool = False,
    steady_leader: int | None = LEADER,
) -> list[tuple[bool, Any]]:
    """Return (whether the call is open, its answer) for each call that a request adds."""
    calls = calls_of_request("a", 1, None if is_open else 2, asked, answer, handlers, steady_leader)
    return [(call.is_open, call.answer) for call in calls]


def test_a_metadata_change_that_one_controller_handled_adds_one_call_to_the_history() -> None:
    made = ControllerAnswer(topic_id=ONE)
    assert added(Create(1), made, LEADER) == [(False, made)]
    assert added(Create(1), made, OTHER_NODE, steady_leader=None) == [(False, made)]
    assert added(Create(1), None, LEADER, is_open=True) == [(True, None)]


def test_a_metadata_change_that_was_handled_twice_adds_an_open_call_to_the_history() -> None:
    made = ControllerAnswer(topic_id=ONE)
    assert added(Create(1), made, LEADER, OTHER_NODE) == [(False, made), (True, None)]
    assert added(Create(1), None, LEADER, OTHER_NODE, is_open=True) == [(True, None), (True, None)]
    assert added(Create(1), EXISTS, LEADER, OTHER_NODE) == [(True, None)]


def test_a_metadata_change_that_no_controller_handled_adds_no_call_to_the_history() -> None:
    assert added(Create(1), None, is_open=True) == []
    assert added(Create(1), None) == []


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(Create(1), EXISTS), (VALIDATE, DONE), (Delete(), NO_NAME), (Grow(3, validate_only=True), DONE)],
)
def test_a_metadata_read_counts_only_if_its_controller_was_active_from_call_to_return(
    asked: Any, answer: ControllerAnswer
) -> None:
    assert added(asked, answer, LEADER) == [(False, answer)]
    assert added(asked, answer, OTHER_NODE) == []
    assert added(asked, answer, LEADER, steady_leader=None) == []
    assert (False, answer) not in added(asked, answer, LEADER, LEADER)


def test_an_error_that_reveals_no_state_adds_no_call_to_the_history() -> None:
    assert added(Create(1), None, LEADER) == []


# the checks


def call(asked: Any, answer: Any, at_ms: int) -> Call:
    return Call("a", at_ms * 1_000_000, (at_ms + 1) * 1_000_000, asked, answer)


def judged(*histories: TopicHistory | OffsetHistory) -> HistoryChecks:
    checks = HistoryChecks()
    for history in histories:
        checks.observe(history, 999)
    return checks


PLACE = ("orders", 0)
CREATED = call(Create(2), ControllerAnswer(topic_id=ONE), 1)
GOOD_TOPIC = (
    CREATED,
    call(VALIDATE, EXISTS, 3),
    call(Delete(ONE), ControllerAnswer(topic_id=ONE), 5),
    call(VALIDATE, DONE, 7),
)
SETTING = (2, "t", "retention.bytes")
GOOD_SETTING = (call(WriteRegister("5"), True, 3), call(ReadRegister(), "5", 5))
GOOD_OFFSET = (call(ReadRegister(), -1, 1), call(WriteRegister(5), True, 3), call(ReadRegister(), 5, 5))


def test_checks_accept_linearizable_metadata_histories_and_count_their_answers() -> None:
    checks = judged(
        TopicHistory("t", GOOD_TOPIC), OffsetHistory("g", PLACE, GOOD_OFFSET), SettingHistory(SETTING, GOOD_SETTING)
    )
    assert checks.verdict() == "valid"
    assert [check.seen for check in checks.checks] == [3, 2, 1]
    assert judged(TopicHistory("t", GOOD_TOPIC)).unseen() == ["G3b", "M11"]


def test_a_metadata_history_without_an_answer_that_reveals_state_counts_as_no_input() -> None:
    unpromised = (Call("a", 1, None, WriteRegister("5")), GOOD_SETTING[1])
    checks = judged(
        TopicHistory("t", (CREATED,)),
        OffsetHistory("g", PLACE, (GOOD_OFFSET[1], GOOD_OFFSET[1])),
        SettingHistory(SETTING, unpromised),
    )
    assert checks.unseen() == ["R20", "G3b", "M11"]
    assert checks.verdict() == "unknown"


def test_checks_catch_a_created_topic_missing_at_a_later_read() -> None:
    checks = judged(TopicHistory("t", (CREATED, call(VALIDATE, DONE, 3))))
    (finding,) = checks.findings
    assert (finding.check, finding.at_ms) == ("R20", 4)
    assert "validate_only=True" in finding.evidence["could_not_follow"]
    assert finding.evidence["after"] == [str(CREATED)]


def test_checks_catch_two_topic_creations_with_the_same_id() -> None:
    checks = judged(TopicHistory("t", (CREATED,)), TopicHistory("other", (CREATED,)))
    assert [finding.text for finding in checks.findings] == ["two topics have one id"]


def test_checks_catch_a_lost_committed_offset() -> None:
    checks = judged(OffsetHistory("g", PLACE, (*GOOD_OFFSET, call(ReadRegister(), -1, 7))))
    assert [(finding.check, finding.at_ms) for finding in checks.findings] == [("G3b", 8)]


@pytest.mark.parametrize(("value", "found"), [("5", []), (NO_VALUE, ["M11"]), ("6", ["M11"])])
def test_checks_catch_a_lost_acknowledged_setting(value: str, found: list[str]) -> None:
    checks = judged(SettingHistory(SETTING, (*GOOD_SETTING, call(ReadRegister(), value, 9))))
    assert [finding.check for finding in checks.findings] == found


def test_a_metadata_history_whose_check_takes_too_long_is_undecided_and_not_counted() -> None:
    writes = tuple(Call("a", 0, 100, WriteRegister(number), True) for number in range(1, 40))
    checks = judged(OffsetHistory("g", PLACE, (*writes, call(ReadRegister(), 99, 1))))
    assert checks.undecided == 1
    assert checks.unseen() == ["R20", "G3b", "M11"]
    assert checks.verdict() == "unknown"
