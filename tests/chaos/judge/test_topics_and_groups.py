"""Tests of two checks: some sequential order explains all topic operations, and committed offsets do not decrease."""

from __future__ import annotations

import pytest

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEventType
from kraft.sim.chaos.judge.group_positions import find_stale_positions
from kraft.sim.chaos.judge.operations import paired
from kraft.sim.chaos.judge.topics import find_topic_anomalies
from tests.chaos.judge.histories import HistoryBuilder

CREATE, DELETE = Function.CREATE_TOPIC, Function.DELETE_TOPIC
INFO, FAIL = HistoryEventType.INFO, HistoryEventType.FAIL
ONE, OTHER = "0" * 31 + "1", "0" * 31 + "2"


def topic_anomalies(told: HistoryBuilder) -> list[tuple[str, tuple[int, ...]]]:
    found = find_topic_anomalies(paired(told.events))
    assert found.reasons == []
    return [(anomaly.name, anomaly.operations) for anomaly in found.anomalies]


def test_checks_catch_a_topic_that_is_created_twice() -> None:
    told = HistoryBuilder()
    told.topic(CREATE, topic_id=ONE)
    second = told.topic(CREATE, topic_id=OTHER, process="churn-1")
    [(name, operations)] = topic_anomalies(told)
    assert name == "topic not linearizable"
    assert second.index in operations


def test_checks_catch_a_deletion_of_a_topic_that_does_not_exist() -> None:
    told = HistoryBuilder()
    told.topic(CREATE)
    told.topic(DELETE)
    told.topic(DELETE)
    assert [name for name, _ in topic_anomalies(told)] == ["topic not linearizable"]


def test_operations_of_two_topics_are_judged_separately() -> None:
    told = HistoryBuilder()
    told.topic(CREATE, "a", topic_id=ONE)
    told.topic(CREATE, "b", topic_id=OTHER)
    assert topic_anomalies(told) == []


def test_checks_catch_two_topics_with_the_same_id() -> None:
    told = HistoryBuilder()
    first, second = told.topic(CREATE, "a", topic_id=ONE), told.topic(CREATE, "b", topic_id=ONE)
    assert topic_anomalies(told) == [("topic id twice", (first.index, second.index))]


def test_a_deletion_with_unknown_outcome_explains_a_second_creation() -> None:
    told = HistoryBuilder()
    told.topic(CREATE)
    told.topic(DELETE, type=INFO)
    told.topic(CREATE, process="churn-0.1")
    assert topic_anomalies(told) == []


def test_a_failed_deletion_does_not_explain_a_second_creation() -> None:
    told = HistoryBuilder()
    told.topic(CREATE)
    told.topic(DELETE, type=FAIL)
    told.topic(CREATE)
    assert [name for name, _ in topic_anomalies(told)] == ["topic not linearizable"]


@pytest.mark.parametrize(("f", "error"), [(CREATE, "TOPIC_ALREADY_EXISTS"), (DELETE, "UNKNOWN_TOPIC_OR_PARTITION")])
def test_a_failed_topic_operation_may_have_taken_effect_if_its_error_could_answer_a_retry(
    f: Function, error: str
) -> None:
    told = HistoryBuilder()
    if f is DELETE:
        told.topic(CREATE)
    told.end(told.begin("churn-0", f, topic="t"), FAIL, error)
    told.topic(DELETE if f is CREATE else CREATE)
    assert topic_anomalies(told) == []


@pytest.mark.parametrize("type", [INFO, FAIL])
@pytest.mark.parametrize(("error", "is_explained"), [("TOPIC_ALREADY_EXISTS", False), ("REQUEST_TIMED_OUT", True)])
def test_an_error_of_a_topic_operation_explains_no_effect_after_its_response(
    type: HistoryEventType, error: str, is_explained: bool
) -> None:
    told = HistoryBuilder()
    told.topic(CREATE)
    told.end(told.begin("churn-1", CREATE, topic="t"), type, error)
    told.topic(DELETE)
    told.topic(DELETE)
    assert (topic_anomalies(told) == []) is (is_explained and type is INFO)


def test_a_long_topic_operation_may_have_been_carried_out_twice() -> None:
    told = HistoryBuilder()
    begun = told.begin("churn-0", CREATE, topic="t")
    told.now_ms += 2_000
    told.end(begun)
    told.topic(DELETE)
    told.topic(DELETE)
    assert topic_anomalies(told) == []


def test_a_linearizability_search_out_of_steps_makes_the_verdict_unknown_and_is_no_anomaly() -> None:
    told = HistoryBuilder()
    told.topic(CREATE)
    told.topic(DELETE)
    found = find_topic_anomalies(paired(told.events), steps_max=1)
    assert found.anomalies == []
    assert "was not determined in 1 steps" in found.reasons[0]


# groups


def group(
    second: int = 2, between: tuple[int, HistoryEventType, float] | None = None, assigned_before: bool = False
) -> list[tuple[int, int]]:
    """Run a history of a group. member-0 commits 5. Then member-1, which was a member before, is assigned the
    partition, reads and commits `second`. Return the commits that decreased the offset, as (before, offset)."""
    told = HistoryBuilder()
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


def test_checks_catch_a_member_that_received_an_older_committed_offset() -> None:
    assert group(second=2) == [(5, 2)]


@pytest.mark.parametrize("second", [5, 6])
def test_a_group_that_continues_at_its_committed_offset_is_no_anomaly(second: int) -> None:
    assert group(second=second) == []


def test_a_member_that_may_have_fetched_offsets_before_the_commit_is_not_judged() -> None:
    assert group(second=2, assigned_before=True) == []


@pytest.mark.parametrize("between", [(2, INFO, 1.0), (1, HistoryEventType.OK, 2_000.0)])
def test_an_earlier_commit_that_may_be_applied_late_explains_an_older_offset(
    between: tuple[int, HistoryEventType, float],
) -> None:
    assert group(second=2, between=between) == []


def test_an_earlier_commit_that_was_applied_at_once_does_not_explain_an_older_offset() -> None:
    assert group(second=2, between=(2, HistoryEventType.OK, 1.0)) == [(5, 2)]


def test_committed_offsets_of_a_partition_that_lost_records_are_not_judged() -> None:
    told = HistoryBuilder()
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
