"""Each check of groups has failed once, and passes what is no fault."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.group.durable import EMPTY_STATE
from kraft.broker.group.records import Entry, OffsetKey, OffsetValue
from kraft.sim.check.groups import (
    AssignmentTold,
    CommitBegun,
    CommitEnded,
    CoordinatorSeen,
    GroupAtRest,
    OffsetRead,
    group_checks,
)

P = ("orders", 0)
STATE = EMPTY_STATE.with_entry(Entry(OffsetKey("g", "orders", 0), OffsetValue(1, -1, "", 1)))


def commit(offset: int, outcome: bool | None, *, generation: int = 1, newest: int = 1) -> list[Any]:
    return [CommitBegun("g", P, generation, offset), CommitEnded("g", P, generation, offset, outcome, newest)]


GOOD: list[list[Any]] = [
    [AssignmentTold("g", "a", 1, "plan", "a"), AssignmentTold("g", "b", 1, "plan", "b")],
    [AssignmentTold("g", "a", 1, "plan", "a"), AssignmentTold("g", "b", 1, None, None)],
    [AssignmentTold("g", "a", 1, "plan", "a"), AssignmentTold("g", "a", 2, "other", "a")],
    [AssignmentTold("g", "a", 2, "plan", "a"), AssignmentTold("g", "b", 1, "other", "b")],
    [*commit(5, True), OffsetRead("g", P, 5, 5)],
    [*commit(5, True), OffsetRead("g", P, 7, 5)],
    [*commit(4, None), *commit(5, True), OffsetRead("g", P, 4, 5)],
    [CommitBegun("g", P, 1, 4), *commit(5, True), OffsetRead("g", P, 4, 5)],
    [*commit(5, False, generation=1, newest=2)],
    [*commit(5, True, generation=2, newest=2)],
    [CoordinatorSeen(1, 0, STATE, STATE, True)],
    [GroupAtRest("g", {P: ("a",)}, frozenset({3}))],
]
BAD: list[tuple[str, list[Any]]] = [
    ("G5", [AssignmentTold("g", "a", 1, "plan", "a"), AssignmentTold("g", "b", 1, "other", "b")]),
    ("G5", [AssignmentTold("g", "a", 1, "plan", "b")]),
    ("G1", [AssignmentTold("g", "a", 5, "plan", "a"), AssignmentTold("g", "a", 2, "other", "a")]),
    ("G3", [*commit(5, True), OffsetRead("g", P, -1, 5)]),
    ("G3", [*commit(4, True), *commit(5, True), OffsetRead("g", P, 4, 5)]),
    ("G3", [*commit(4, False), *commit(5, True), OffsetRead("g", P, 4, 5)]),
    ("G4", commit(5, True, generation=1, newest=2)),
    ("G7", [CoordinatorSeen(1, 0, EMPTY_STATE, STATE, True)]),
    ("G6", [CoordinatorSeen(1, 0, STATE, STATE, False)]),
    ("G9", [GroupAtRest("g", {P: ()}, frozenset({3}))]),
    ("G9", [GroupAtRest("g", {P: ("a", "b")}, frozenset({3}))]),
    ("G9", [GroupAtRest("g", {P: ("a",)}, frozenset({3, 4}))]),
    ("G9", [GroupAtRest("g", {P: ("a",)}, frozenset({None}))]),
]


@pytest.mark.parametrize("story", GOOD, ids=range(len(GOOD)))
def test_what_may_happen_is_no_finding(story: list[Any]) -> None:
    checks = group_checks()
    for observation in story:
        checks.observe(observation, 0)
    assert not checks.findings


@pytest.mark.parametrize(("check", "story"), BAD)
def test_what_may_not_happen_is_found(check: str, story: list[Any]) -> None:
    checks = group_checks()
    for observation in story:
        checks.observe(observation, 0)
    assert {finding.check for finding in checks.findings} == {check}
    assert check not in checks.unseen()
