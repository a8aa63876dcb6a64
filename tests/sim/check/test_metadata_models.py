"""Models of metadata, and what requests add to a history: what each answer says, and what it does not."""

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
from kraft.sim.check.histories.metadata_models import Answer, Create, Delete, Grow, Read, Standing, TopicModel, Write
from kraft.wire.error_codes import ErrorCode

ONE, OTHER, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)
MODEL = TopicModel(frozenset({ONE, OTHER}))
ABSENT, THERE, UNTOLD = None, Standing(ONE, 2), Standing(None, 2)

EXISTS = Answer(ErrorCode.TOPIC_ALREADY_EXISTS)
NO_NAME, NO_ID = Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), Answer(ErrorCode.UNKNOWN_TOPIC_ID)
TOO_FEW = Answer(ErrorCode.INVALID_PARTITIONS)
DONE = Answer()
VALIDATE = Create(1, validate_only=True)
STEPS: list[tuple[Standing | None, Any, Answer | None, set[Standing | None]]] = [
    (ABSENT, Create(2), Answer(topic_id=ONE), {THERE}),
    (THERE, Create(2), Answer(topic_id=OTHER), set()),
    (ABSENT, Create(2), None, {ABSENT, UNTOLD}),
    (THERE, Create(2), None, {THERE}),
    (THERE, Create(2), EXISTS, {THERE}),
    (ABSENT, Create(2), EXISTS, set()),
    (ABSENT, VALIDATE, DONE, {ABSENT}),
    (THERE, VALIDATE, DONE, set()),
    (THERE, VALIDATE, EXISTS, {THERE}),
    (ABSENT, VALIDATE, None, {ABSENT}),
    (ABSENT, Create(2), Answer(ErrorCode.NOT_CONTROLLER), set()),
    (THERE, Delete(), Answer(topic_id=ONE), {ABSENT}),
    (THERE, Delete(), Answer(topic_id=OTHER), set()),
    (UNTOLD, Delete(), Answer(topic_id=THIRD), {ABSENT}),
    (UNTOLD, Delete(), Answer(topic_id=OTHER), set()),
    (ABSENT, Delete(), Answer(topic_id=ONE), set()),
    (THERE, Delete(), None, {THERE, ABSENT}),
    (ABSENT, Delete(), NO_NAME, {ABSENT}),
    (THERE, Delete(), NO_NAME, set()),
    (THERE, Delete(ONE), Answer(topic_id=ONE), {ABSENT}),
    (THERE, Delete(OTHER), Answer(topic_id=OTHER), set()),
    (THERE, Delete(OTHER), NO_ID, {THERE}),
    (THERE, Delete(ONE), NO_ID, set()),
    (THERE, Delete(OTHER), None, {THERE}),
    (UNTOLD, Delete(OTHER), NO_ID, {UNTOLD}),
    (UNTOLD, Delete(THIRD), NO_ID, {UNTOLD}),
    (THERE, Delete(), Answer(ErrorCode.NOT_CONTROLLER), set()),
    (THERE, Grow(3), DONE, {Standing(ONE, 3)}),
    (THERE, Grow(2), DONE, set()),
    (THERE, Grow(2), TOO_FEW, {THERE}),
    (THERE, Grow(3), TOO_FEW, set()),
    (ABSENT, Grow(3), TOO_FEW, set()),
    (ABSENT, Grow(3), NO_NAME, {ABSENT}),
    (THERE, Grow(3), NO_NAME, set()),
    (ABSENT, Grow(3), DONE, set()),
    (THERE, Grow(3), None, {THERE, Standing(ONE, 3)}),
    (ABSENT, Grow(3), None, {ABSENT}),
    (THERE, Grow(3, validate_only=True), DONE, {THERE}),
    (THERE, Grow(3, validate_only=True), None, {THERE}),
    (THERE, Grow(2, validate_only=True), DONE, set()),
]


@pytest.mark.parametrize(("state", "asked", "answer", "due"), STEPS)
def test_a_name_is_absent_or_a_topic_with_an_id_and_partitions(
    state: Standing | None, asked: Any, answer: Answer | None, due: set[Standing | None]
) -> None:
    assert set(MODEL.step(state, asked, answer)) == due


# what a request adds to a history

LEADER, OTHER_NODE = 101, 102


def added(
    asked: Any, answer: Answer | None, *handlers: int, is_open: bool = False, in_office: int | None = LEADER
) -> list[tuple[bool, Any]]:
    """(whether the call is open, its answer) of each call."""
    calls = calls_of_request("a", 1, None if is_open else 2, asked, answer, handlers, in_office)
    return [(call.is_open, call.answer) for call in calls]


def test_a_change_that_one_controller_handled_is_one_call() -> None:
    made = Answer(topic_id=ONE)
    assert added(Create(1), made, LEADER) == [(False, made)]
    assert added(Create(1), made, OTHER_NODE, in_office=None) == [(False, made)]
    assert added(Create(1), None, LEADER, is_open=True) == [(True, None)]


def test_a_change_that_was_handled_again_may_have_been_done_again() -> None:
    made = Answer(topic_id=ONE)
    assert added(Create(1), made, LEADER, OTHER_NODE) == [(False, made), (True, None)]
    assert added(Create(1), None, LEADER, OTHER_NODE, is_open=True) == [(True, None), (True, None)]
    assert added(Create(1), EXISTS, LEADER, OTHER_NODE) == [(True, None)]


def test_what_no_controller_handled_was_not_done() -> None:
    assert added(Create(1), None, is_open=True) == []
    assert added(Create(1), None) == []


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(Create(1), EXISTS), (VALIDATE, DONE), (Delete(), NO_NAME), (Grow(3, validate_only=True), DONE)],
)
def test_a_reading_counts_if_the_one_controller_that_handled_it_was_in_office_all_the_time(
    asked: Any, answer: Answer
) -> None:
    assert added(asked, answer, LEADER) == [(False, answer)]
    assert added(asked, answer, OTHER_NODE) == []
    assert added(asked, answer, LEADER, in_office=None) == []
    assert (False, answer) not in added(asked, answer, LEADER, LEADER)


def test_an_error_that_tells_nothing_is_no_call() -> None:
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
CREATED = call(Create(2), Answer(topic_id=ONE), 1)
GOOD_TOPIC = (CREATED, call(VALIDATE, EXISTS, 3), call(Delete(ONE), Answer(topic_id=ONE), 5), call(VALIDATE, DONE, 7))
SETTING = (2, "t", "retention.bytes")
GOOD_SETTING = (call(Write("5"), True, 3), call(Read(), "5", 5))
GOOD_OFFSET = (call(Read(), -1, 1), call(Write(5), True, 3), call(Read(), 5, 5))


def test_good_histories_are_seen_and_nothing_is_found() -> None:
    checks = judged(
        TopicHistory("t", GOOD_TOPIC), OffsetHistory("g", PLACE, GOOD_OFFSET), SettingHistory(SETTING, GOOD_SETTING)
    )
    assert checks.verdict() == "valid"
    assert [check.seen for check in checks.checks] == [3, 2, 1]
    assert judged(TopicHistory("t", GOOD_TOPIC)).unseen() == ["G3b", "M11"]


def test_a_history_without_a_reading_proves_nothing() -> None:
    unpromised = (Call("a", 1, None, Write("5")), GOOD_SETTING[1])
    checks = judged(
        TopicHistory("t", (CREATED,)),
        OffsetHistory("g", PLACE, (GOOD_OFFSET[1], GOOD_OFFSET[1])),
        SettingHistory(SETTING, unpromised),
    )
    assert checks.unseen() == ["R20", "G3b", "M11"]
    assert checks.verdict() == "unknown"


def test_a_topic_that_was_made_and_is_not_there_is_found_at_the_time_of_the_reading() -> None:
    checks = judged(TopicHistory("t", (CREATED, call(VALIDATE, DONE, 3))))
    (finding,) = checks.findings
    assert (finding.check, finding.at_ms) == ("R20", 4)
    assert "validate_only=True" in finding.evidence["could_not_follow"]
    assert finding.evidence["after"] == [str(CREATED)]


def test_two_topics_with_one_id_are_found() -> None:
    checks = judged(TopicHistory("t", (CREATED,)), TopicHistory("other", (CREATED,)))
    assert [finding.text for finding in checks.findings] == ["two topics have one id"]


def test_an_offset_that_was_committed_and_is_gone_is_found() -> None:
    checks = judged(OffsetHistory("g", PLACE, (*GOOD_OFFSET, call(Read(), -1, 7))))
    assert [(finding.check, finding.at_ms) for finding in checks.findings] == [("G3b", 8)]


@pytest.mark.parametrize(("value", "found"), [("5", []), (NO_VALUE, ["M11"]), ("6", ["M11"])])
def test_a_setting_that_was_acknowledged_must_stand(value: str, found: list[str]) -> None:
    checks = judged(SettingHistory(SETTING, (*GOOD_SETTING, call(Read(), value, 9))))
    assert [finding.check for finding in checks.findings] == found


def test_a_history_that_takes_too_long_is_undecided_and_not_seen() -> None:
    writes = tuple(Call("a", 0, 100, Write(number), True) for number in range(1, 40))
    checks = judged(OffsetHistory("g", PLACE, (*writes, call(Read(), 99, 1))))
    assert checks.undecided == 1
    assert checks.unseen() == ["R20", "G3b", "M11"]
    assert checks.verdict() == "unknown"
