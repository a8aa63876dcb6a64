"""Orders of topic operations, and committed offsets that go back."""

from __future__ import annotations

import pytest

from kraft.sim.chaos.history import FINAL_READER, EventType, Function
from kraft.sim.chaos.judge.group_positions import find_stale_positions
from kraft.sim.chaos.judge.operations import paired
from kraft.sim.chaos.judge.topics import find_topic_anomalies
from tests.chaos.judge.histories import Told

CREATE, DELETE = Function.CREATE_TOPIC, Function.DELETE_TOPIC
INFO, FAIL = EventType.INFO, EventType.FAIL
ONE, OTHER = "0" * 31 + "1", "0" * 31 + "2"


def topic_anomalies(told: Told) -> list[tuple[str, tuple[int, ...]]]:
    found = find_topic_anomalies(paired(told.events))
    assert found.reasons == []
    return [(anomaly.name, anomaly.operations) for anomaly in found.anomalies]


def test_checks_catch_a_topic_that_is_created_twice() -> None:
    told = Told()
    told.topic(CREATE, topic_id=ONE)
    second = told.topic(CREATE, topic_id=OTHER, process="churn-1")
    [(name, operations)] = topic_anomalies(told)
    assert name == "topic not linearizable"
    assert second.index in operations


def test_checks_catch_a_deletion_of_a_topic_that_is_not_there() -> None:
    told = Told()
    told.topic(CREATE)
    told.topic(DELETE)
    told.topic(DELETE)
    assert [name for name, _ in topic_anomalies(told)] == ["topic not linearizable"]


def test_two_topics_are_judged_apart() -> None:
    told = Told()
    told.topic(CREATE, "a", topic_id=ONE)
    told.topic(CREATE, "b", topic_id=OTHER)
    assert topic_anomalies(told) == []


def test_checks_catch_an_id_that_two_topics_have() -> None:
    told = Told()
    first, second = told.topic(CREATE, "a", topic_id=ONE), told.topic(CREATE, "b", topic_id=ONE)
    assert topic_anomalies(told) == [("topic id twice", (first.index, second.index))]


def test_an_unknown_deletion_explains_a_second_creation() -> None:
    told = Told()
    told.topic(CREATE)
    told.topic(DELETE, type=INFO)
    told.topic(CREATE, process="churn-0.1")
    assert topic_anomalies(told) == []


def test_a_failed_deletion_explains_nothing() -> None:
    told = Told()
    told.topic(CREATE)
    told.topic(DELETE, type=FAIL)
    told.topic(CREATE)
    assert [name for name, _ in topic_anomalies(told)] == ["topic not linearizable"]


@pytest.mark.parametrize(("f", "error"), [(CREATE, "TOPIC_ALREADY_EXISTS"), (DELETE, "UNKNOWN_TOPIC_OR_PARTITION")])
def test_a_refusal_that_may_answer_a_second_attempt_explains_what_its_first_did(f: Function, error: str) -> None:
    told = Told()
    if f is DELETE:
        told.topic(CREATE)
    told.end(told.begin("churn-0", f, topic="t"), FAIL, error)
    told.topic(DELETE if f is CREATE else CREATE)
    assert topic_anomalies(told) == []


@pytest.mark.parametrize("type", [INFO, FAIL])
@pytest.mark.parametrize(("error", "is_explained"), [("TOPIC_ALREADY_EXISTS", False), ("REQUEST_TIMED_OUT", True)])
def test_an_answer_that_may_be_to_a_second_attempt_explains_nothing_that_comes_after_it(
    type: EventType, error: str, is_explained: bool
) -> None:
    told = Told()
    told.topic(CREATE)
    told.end(told.begin("churn-1", CREATE, topic="t"), type, error)
    told.topic(DELETE)
    told.topic(DELETE)
    assert (topic_anomalies(told) == []) is (is_explained and type is INFO)


def test_an_operation_that_took_long_may_have_been_carried_out_twice() -> None:
    told = Told()
    begun = told.begin("churn-0", CREATE, topic="t")
    told.now_ms += 2_000
    told.end(begun)
    told.topic(DELETE)
    told.topic(DELETE)
    assert topic_anomalies(told) == []


def test_a_search_that_is_given_up_is_a_reason_and_no_anomaly() -> None:
    told = Told()
    told.topic(CREATE)
    told.topic(DELETE)
    found = find_topic_anomalies(paired(told.events), steps_max=1)
    assert found.anomalies == []
    assert "was not found out in 1 steps" in found.reasons[0]


# groups


def group(
    second: int = 2, between: tuple[int, EventType, float] | None = None, assigned_before: bool = False
) -> list[tuple[int, int]]:
    """member-0 commits 5; then member-1, which has been there before, is assigned the partition, reads and commits
    `second`. The commits of which one went back: (before, offset)."""
    told = Told()
    told.poll(process="member-1")
    told.poll(process="member-1")
    if assigned_before:
        told.assign("member-1")
    told.assign("member-0")
    told.poll((3, "c"), (4, "d"), process="member-0")
    if between is not None:
        told.commit("member-2", between[0], between[1], between[2])
    told.commit("member-0", 5)
    told.poll(process="member-1")
    told.poll(process="member-1")
    if not assigned_before:
        told.assign("member-1")
    told.poll((second - 1, "x"), process="member-1")
    told.commit("member-1", second)
    told.final()
    found, compared = find_stale_positions(paired(told.events), ())
    assert compared > 0
    return [(anomaly.evidence["before"], anomaly.evidence["offset"]) for anomaly in found]


def test_checks_catch_a_member_that_was_told_of_an_older_committed_offset() -> None:
    assert group(second=2) == [(5, 2)]


@pytest.mark.parametrize("second", [5, 6])
def test_a_group_that_goes_on_where_it_was_is_sound(second: int) -> None:
    assert group(second=second) == []


def test_a_member_that_may_have_asked_before_the_commit_is_not_judged() -> None:
    assert group(second=2, assigned_before=True) == []


@pytest.mark.parametrize("between", [(2, INFO, 1.0), (1, EventType.OK, 2_000.0)])
def test_an_earlier_commit_that_may_be_carried_out_late_explains_a_step_back(
    between: tuple[int, EventType, float],
) -> None:
    assert group(second=2, between=between) == []


def test_an_earlier_commit_that_was_carried_out_at_once_explains_nothing() -> None:
    assert group(second=2, between=(2, EventType.OK, 1.0)) == [(5, 2)]


def test_a_partition_whose_log_went_back_is_not_judged() -> None:
    told = Told()
    told.assign("member-0")
    told.poll((4, "d"), process="member-0")
    told.commit("member-0", 5)
    for _ in range(3):
        told.poll(process="member-1")
    told.assign("member-1")
    told.poll((1, "x"), process="member-1")
    told.commit("member-1", 2)
    told.final()
    assert told.events[-1].process == FINAL_READER
    assert len(find_stale_positions(paired(told.events), ())[0]) == 1
    assert find_stale_positions(paired(told.events), {"chaos-0"}) == ([], 0)
