"""What a standby has seen of brokers, and what that is worth when it becomes active."""

from __future__ import annotations

import pytest

from kraft.control.brokers.probing import (
    CONNECT_GRACE_MS,
    DOUBT_MS,
    RESULTS_APART_MS,
    BecameActive,
    BecameStandby,
    ProbeOutcome,
)
from tests.control.detector import CLOSED, OTHER, REFUSED, SAME, crash, serving, standby


def test_a_standby_looks_once_when_a_connection_ends_and_fences_nobody() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(20_000)
    assert len(detector.probes) == 2
    assert not detector.fenced


@pytest.mark.parametrize("outcome", [REFUSED, CLOSED, OTHER])
def test_what_a_standby_saw_just_now_spares_it_the_grace(outcome: ProbeOutcome) -> None:
    detector = standby()
    crash(detector, 1, outcome)
    detector.run(300)
    active_ms = detector.now_ms
    detector.tell(BecameActive())
    detector.run(500)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] <= active_ms + 5


def test_also_then_the_two_results_are_50_ms_apart() -> None:
    detector = standby()
    lost_ms = detector.now_ms
    crash(detector, 1)
    detector.run(10)
    detector.tell(BecameActive())
    detector.run(500)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] >= lost_ms + RESULTS_APART_MS


def test_what_a_standby_saw_alone_fences_nobody() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(300)
    detector.addresses[1] = SAME
    detector.tell(BecameActive())
    detector.run(5_000)
    assert not detector.fenced


def test_what_a_standby_saw_is_void_when_the_broker_connects_again() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(20)
    detector.heartbeat(1, connection=2001)
    detector.run(20)
    asked = len(detector.probes)
    detector.tell(BecameActive())
    detector.run(5_000)
    assert len(detector.probes) == asked
    assert not detector.fenced


def test_what_a_standby_saw_long_ago_does_not_count() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(DOUBT_MS + 100)
    active_ms = detector.now_ms
    detector.tell(BecameActive())
    detector.run(1_000)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] >= active_ms + CONNECT_GRACE_MS + RESULTS_APART_MS


def test_losing_leadership_ends_all_suspicion() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.tell(BecameStandby())
    detector.run(5_000)
    assert not detector.fenced
