"""Tests with handwritten histories for the checks of the consumer group whose members use pykraft's consumer."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.sim.check.group_members import (
    CommitSent,
    FinalEndSeen,
    GroupResponseSent,
    MemberEnded,
    MemberJoined,
    MembershipRequested,
    PartitionsAssigned,
    PartitionsRevoked,
    ProcessedRecords,
    RecordsGiven,
    RecordsProcessed,
    member_checks,
)
from kraft.wire.error_codes import ErrorCode

TP, OTHER = ("orders", 0), ("orders", 1)
SESSION_MS = 6_000


def found(*history: Any) -> list[str]:
    checks = member_checks(ProcessedRecords(), SESSION_MS)
    for number, observation in enumerate(history):
        checks.observe(observation, number)
    return [finding.check for finding in checks.findings]


def held(member: str = "a", generation: int = 1) -> tuple[Any, ...]:
    return MemberJoined(member, generation), PartitionsAssigned(member, frozenset({TP}))


def dealt(*offsets: int, member: str = "a") -> tuple[Any, ...]:
    return RecordsGiven(member, TP, offsets), RecordsProcessed(member)


def commit(offset: int, member: str = "a", generation: int = 1, partition: tuple[str, int] = TP) -> CommitSent:
    return CommitSent(member, generation, {partition: offset})


LET_GO = PartitionsRevoked("a", frozenset({TP}))


@pytest.mark.parametrize(
    "history",
    [
        (*held(), commit(0), *dealt(0, 1), commit(2)),
        (*held(), *dealt(0, 1), RecordsGiven("a", TP, (2,)), commit(2)),  # processing 2
        (
            *held(),
            RecordsGiven("a", TP, (0, 1)),
            MemberEnded("a"),
            *held("b", 2),
            *dealt(0, 1, member="b"),
        ),  # read once more
        (*held(), *dealt(0, 1), LET_GO, commit(2)),  # late, with the generation in which it owned the partition
        (*held(), *dealt(0, 1), LET_GO, *held("b", 2), commit(2, "b", 2), *dealt(2, member="b"), FinalEndSeen(TP, 3)),
        (*held(), *dealt(0, 1), LET_GO, MemberJoined("a", 2), *held("a", 3)[1:], *dealt(1, 2), commit(3, generation=3)),
    ],
)
def test_checks_accept_correct_consumer_group_members(history: tuple[Any, ...]) -> None:
    assert found(*history) == []


@pytest.mark.parametrize(
    ("code", "history"),
    [
        ("C5", (*held(), *dealt(0, 1), RecordsGiven("a", TP, (2, 3)), commit(3))),
        ("C5", (*held(), RecordsGiven("a", TP, (0,)), commit(1))),
        ("C5", (*held(), RecordsGiven("a", TP, (0, 1)), MemberEnded("a"), *held("b", 2), commit(2, "b", 2))),
        ("C2", (*held(), *dealt(0), *dealt(2))),
        (
            "C2",
            (*held(), *dealt(0, 1), RecordsGiven("a", TP, (2,)), LET_GO, *held("b", 2), RecordsGiven("b", TP, (3,))),
        ),
        ("G2", (*held(), commit(0, partition=OTHER))),
        ("G2", (*held(), *dealt(0), LET_GO, MemberJoined("a", 2), commit(1, generation=2))),
        ("G2", (*held(), *dealt(0), commit(1, generation=-1))),
        ("G2", (*held(), *dealt(0, 1), LET_GO, *held("a", 2), *dealt(1, 2), commit(0, generation=2))),
        ("L8", (*held(), *dealt(0, 1), FinalEndSeen(TP, 3))),
    ],
)
def test_checks_catch_each_violation_by_a_consumer_group_member(code: str, history: tuple[Any, ...]) -> None:
    assert found(*history) == [code]


def answer(
    at_ms: int,
    error: ErrorCode = ErrorCode.NONE,
    leadership: int = 1,
    is_heartbeat: bool = True,
    asked_ms: int | None = None,
) -> GroupResponseSent:
    return GroupResponseSent("a", is_heartbeat, error, leadership, at_ms if asked_ms is None else asked_ms, at_ms)


EXPIRED = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("history", "is_found"),
    [
        ((answer(1_000), answer(5_000, EXPIRED)), True),
        ((answer(1_000), answer(5_000, EXPIRED, is_heartbeat=False)), True),
        ((answer(1_000), answer(7_000, EXPIRED)), False),
        ((answer(3_000, asked_ms=1_000), answer(7_000, EXPIRED)), False),
        ((answer(1_000), answer(5_000, EXPIRED, leadership=2)), False),
        ((answer(1_000), MembershipRequested("a"), answer(5_000, EXPIRED)), False),
        ((answer(1_000), MemberEnded("a"), answer(5_000, EXPIRED)), False),
        ((answer(1_000), answer(2_000, ErrorCode.REBALANCE_IN_PROGRESS), answer(5_000, EXPIRED)), False),
        ((answer(1_000, is_heartbeat=False), answer(5_000, EXPIRED)), False),
    ],
)
def test_checks_catch_a_coordinator_that_expires_a_member_within_its_session_timeout(
    history: tuple[Any, ...], is_found: bool
) -> None:
    assert found(*history) == ["G8"] * is_found
