"""Probe results of a standby, and their value when it becomes active."""

from __future__ import annotations

import pytest

from kraft.control.brokers.probing import (
    CONNECT_GRACE_MS,
    RESULTS_APART_MS,
    STANDBY_RESULT_MS_MAX,
    BecameActive,
    BecameStandby,
    ProbeOutcome,
)
from tests.control.detector import CLOSED, OTHER, REFUSED, SAME, crash, serving, standby


def test_standby_probes_once_when_a_connection_ends_and_does_not_fence() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(20_000)
    assert len(detector.probes) == 2
    assert not detector.fenced


@pytest.mark.parametrize("outcome", [REFUSED, CLOSED, OTHER])
def test_new_active_controller_suspects_a_broker_at_once_after_its_own_recent_bad_probe_as_standby(
    outcome: ProbeOutcome,
) -> None:
    detector = standby()
    crash(detector, 1, outcome)
    detector.run(300)
    active_ms = detector.now_ms
    detector.tell(BecameActive())
    detector.run(500)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] <= active_ms + 5


def test_second_bad_result_counts_only_50_ms_after_the_first_even_if_a_standby_found_the_first() -> None:
    detector = standby()
    lost_ms = detector.now_ms
    crash(detector, 1)
    detector.run(10)
    detector.tell(BecameActive())
    detector.run(500)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] >= lost_ms + RESULTS_APART_MS


def test_bad_result_of_a_standby_alone_does_not_fence() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(300)
    detector.addresses[1] = SAME
    detector.tell(BecameActive())
    detector.run(5_000)
    assert not detector.fenced


def test_bad_result_of_a_standby_is_cleared_when_the_broker_reconnects() -> None:
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


def test_bad_probe_result_of_a_standby_does_not_count_if_it_is_too_old_when_it_becomes_active() -> None:
    detector = standby()
    crash(detector, 1)
    detector.run(STANDBY_RESULT_MS_MAX + 100)
    active_ms = detector.now_ms
    detector.tell(BecameActive())
    detector.run(1_000)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] >= active_ms + CONNECT_GRACE_MS + RESULTS_APART_MS


def test_losing_leadership_clears_all_suspicion() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.tell(BecameStandby())
    detector.run(5_000)
    assert not detector.fenced
