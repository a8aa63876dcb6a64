"""Tests that each check of groups reports a bad history and accepts correct behaviour."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.group.durable import EMPTY_STATE
from kraft.broker.group.records import GroupLogEntry, OffsetKey, OffsetValue
from kraft.sim.check.groups import (
    AssignmentReceived,
    CommitEnded,
    CommitStarted,
    CoordinatorSeen,
    GroupSettled,
    OffsetRead,
    group_checks,
)

P = ("orders", 0)
STATE = EMPTY_STATE.with_entry(GroupLogEntry(OffsetKey("g", "orders", 0), OffsetValue(1, -1, "", 1)))


def commit(offset: int, outcome: bool | None, *, generation: int = 1, newest: int = 1) -> list[Any]:
    return [CommitStarted("g", P, generation, offset), CommitEnded("g", P, generation, offset, outcome, newest)]


GOOD: list[list[Any]] = [
    [AssignmentReceived("g", "a", 1, "plan", "a"), AssignmentReceived("g", "b", 1, "plan", "b")],
    [AssignmentReceived("g", "a", 1, "plan", "a"), AssignmentReceived("g", "b", 1, None, None)],
    [AssignmentReceived("g", "a", 1, "plan", "a"), AssignmentReceived("g", "a", 2, "other", "a")],
    [AssignmentReceived("g", "a", 2, "plan", "a"), AssignmentReceived("g", "b", 1, "other", "b")],
    [*commit(5, True), OffsetRead("g", P, 5, 5)],
    [*commit(5, True), OffsetRead("g", P, 7, 5)],
    [*commit(4, None), *commit(5, True), OffsetRead("g", P, 4, 5)],
    [CommitStarted("g", P, 1, 4), *commit(5, True), OffsetRead("g", P, 4, 5)],
    [*commit(5, False, generation=1, newest=2)],
    [*commit(5, True, generation=2, newest=2)],
    [CoordinatorSeen(1, 0, STATE, STATE, True)],
    [GroupSettled("g", {P: ("a",)}, frozenset({3}))],
]
BAD: list[tuple[str, list[Any]]] = [
    ("G5", [AssignmentReceived("g", "a", 1, "plan", "a"), AssignmentReceived("g", "b", 1, "other", "b")]),
    ("G5", [AssignmentReceived("g", "a", 1, "plan", "b")]),
    ("G1", [AssignmentReceived("g", "a", 5, "plan", "a"), AssignmentReceived("g", "a", 2, "other", "a")]),
    ("G3", [*commit(5, True), OffsetRead("g", P, -1, 5)]),
    ("G3", [*commit(4, True), *commit(5, True), OffsetRead("g", P, 4, 5)]),
    ("G3", [*commit(4, False), *commit(5, True), OffsetRead("g", P, 4, 5)]),
    ("G4", commit(5, True, generation=1, newest=2)),
    ("G7", [CoordinatorSeen(1, 0, EMPTY_STATE, STATE, True)]),
    ("G6", [CoordinatorSeen(1, 0, STATE, STATE, False)]),
    ("G9", [GroupSettled("g", {P: ()}, frozenset({3}))]),
    ("G9", [GroupSettled("g", {P: ("a", "b")}, frozenset({3}))]),
    ("G9", [GroupSettled("g", {P: ("a",)}, frozenset({3, 4}))]),
    ("G9", [GroupSettled("g", {P: ("a",)}, frozenset({None}))]),
]


@pytest.mark.parametrize("story", GOOD, ids=range(len(GOOD)))
def test_checks_accept_correct_group_histories(story: list[Any]) -> None:
    checks = group_checks()
    for observation in story:
        checks.observe(observation, 0)
    assert not checks.findings


@pytest.mark.parametrize(("check", "story"), BAD)
def test_checks_catch_each_bad_group_history(check: str, story: list[Any]) -> None:
    checks = group_checks()
    for observation in story:
        checks.observe(observation, 0)
    assert {finding.check for finding in checks.findings} == {check}
    assert check not in checks.unseen()
