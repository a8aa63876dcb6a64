"""Tests of the broker failure detector, one for each of its rules."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.control import FenceTarget
from kraft.control.brokers.probing import (
    CONNECT_GRACE_MS,
    FIRST_ANSWER_RETRY_MS,
    GATHER_MS,
    PROBES_UNDER_WAY_MAX,
    REPROBE_MS_MAX,
    RESULTS_APART_MS,
    BecameActive,
    BecameStandby,
    BrokerForgotten,
    HeartbeatReceived,
    ProbeActions,
    ProbeAnswered,
    ProbeOutcome,
)
from tests.control.detector import CLOSED, OTHER, REFUSED, SAME, SILENT, Detector, crash, serving


@pytest.mark.parametrize("outcome", [REFUSED, CLOSED])
def test_dead_broker_is_fenced_after_two_bad_probe_results_50_ms_apart(outcome: ProbeOutcome) -> None:
    detector = serving(1, 2, 3)
    detector.run(5_000)
    lost_ms = detector.now_ms
    crash(detector, 1, outcome)
    detector.run(200)
    assert detector.fenced_ids == [1]
    assert RESULTS_APART_MS <= detector.fenced[0][0] - lost_ms <= RESULTS_APART_MS + 10


def test_refused_and_closed_probe_results_count_alike() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1, CLOSED)
    detector.run(5)
    detector.addresses[1] = REFUSED
    detector.run(100)
    assert detector.fenced_ids == [1]


def test_two_bad_probe_results_closer_than_50_ms_are_no_proof() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(RESULTS_APART_MS - 1)
    assert not detector.fenced
    assert sum(1 for _, broker_id in detector.probes if broker_id == 1) == 2  # the first answer, and one as a suspect


def test_heartbeat_between_two_bad_probe_results_clears_the_first() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.heartbeat(1, connection=2001)
    detector.run(500)
    assert not detector.fenced


def test_heartbeat_after_the_proof_and_before_the_fence_prevents_the_fence() -> None:
    detector = serving(1, 2)
    detector.run(100)
    crash(detector, 1)
    detector.run(RESULTS_APART_MS - 10)
    detector.delay_ms = 500
    crash(detector, 2)  # a suspect that keeps the plan open
    detector.run(15)
    assert not detector.fenced
    detector.heartbeat(1, connection=2001)
    detector.run(1_000)
    assert 1 not in detector.fenced_ids


@pytest.mark.parametrize("outcome", [REFUSED, CLOSED])
def test_bad_probe_results_of_an_address_that_never_answered_same_are_no_proof(outcome: ProbeOutcome) -> None:
    detector = serving(1, same=False)
    crash(detector, 1, outcome)
    detector.run(20_000)
    assert not detector.fenced


def test_same_answer_of_an_older_incarnation_does_not_count_for_the_new_one() -> None:
    detector = serving(1)
    detector.run(100)
    detector.addresses[1] = REFUSED
    detector.heartbeat(1, connection=2001, epoch=500)
    detector.broker(1, life=2, epoch=500)
    detector.run(50)
    detector.lose(1, connection=2001)
    detector.run(10_000)
    assert not detector.fenced


def test_identify_answer_from_another_incarnation_fences_at_once() -> None:
    detector = serving(1)
    detector.run(100)
    lost_ms = detector.now_ms
    crash(detector, 1, OTHER)
    detector.run(100)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] - lost_ms < 10


def test_identify_answer_from_another_incarnation_fences_even_without_an_earlier_same_answer() -> None:
    detector = serving(1, same=False)
    detector.run(100)
    crash(detector, 1, OTHER)
    detector.run(100)
    assert detector.fenced_ids == [1]


@pytest.mark.parametrize("outcome", [SAME, SILENT])
def test_suspect_that_answers_probes_or_is_silent_is_fenced_only_at_its_session_timeout(outcome: ProbeOutcome) -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1, outcome)
    detector.run(20_000)
    assert not detector.fenced


@pytest.mark.parametrize("outcome", [SAME, SILENT])
@pytest.mark.parametrize("ends_after_ms", [10, 300, 3_000])
def test_process_that_ends_after_its_connections_is_fenced_soon_after_its_end(
    outcome: ProbeOutcome, ends_after_ms: int
) -> None:
    """This happens when an exception ends a process: its listener answers until its last task has ended."""
    detector = serving(1)
    detector.run(100)
    crash(detector, 1, outcome)
    detector.run(ends_after_ms)
    assert not detector.fenced
    detector.addresses[1] = REFUSED
    ended_ms = detector.now_ms
    detector.run(3_000)
    assert detector.fenced_ids == [1]
    assert detector.fenced[0][0] - ended_ms <= min(2 * ends_after_ms, REPROBE_MS_MAX) + 2 * RESULTS_APART_MS


def test_live_suspect_is_probed_at_growing_intervals_until_it_is_connected() -> None:
    detector = serving(1)
    detector.run(100)
    detector.lose(1)
    before = len(detector.probes)
    detector.run(5_000)
    times = [at for at, _ in detector.probes[before - 1 :]]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert waits == sorted(waits)
    assert waits[-1] >= REPROBE_MS_MAX
    detector.heartbeat(1, connection=2001)
    before = len(detector.probes)
    detector.run(5_000)
    assert len(detector.probes) == before


def test_probe_without_a_response_after_a_refused_probe_is_no_proof_of_death() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(10)
    detector.addresses[1] = SILENT
    detector.run(5_000)
    assert not detector.fenced


def test_connection_closed_by_the_controller_starts_no_probe() -> None:
    detector = serving(1)
    detector.run(100)
    probes = len(detector.probes)
    detector.addresses[1] = REFUSED
    detector.lose(1, closed_by_us=True)
    detector.run(5_000)
    assert len(detector.probes) == probes
    assert not detector.fenced


def test_end_of_an_old_connection_does_not_make_a_reconnected_broker_a_suspect() -> None:
    detector = serving(1)
    detector.run(100)
    detector.heartbeat(1, connection=2001)
    probes = len(detector.probes)
    detector.addresses[1] = REFUSED
    detector.lose(1, connection=1001)
    detector.run(5_000)
    assert len(detector.probes) == probes


def test_fence_of_a_dead_broker_names_its_epoch_and_connection() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(200)
    assert detector.fenced[0][1] == (FenceTarget(1, 101, 1001),)


def test_fence_names_the_last_connection_even_if_it_ended_before_the_registration() -> None:
    detector = Detector()
    detector.addresses[1] = SAME
    detector.heartbeat(1, connection=33)
    detector.heartbeat(1, connection=22)
    detector.heartbeat(1, connection=11, epoch=100)
    detector.lose(1, connection=33)
    detector.lose(1, connection=22)
    detector.lose(1, connection=11)
    detector.broker(1)
    assert detector.machine.connection(1) == (22, False)
    detector.run(10)
    detector.tell(BecameActive())
    detector.addresses[1] = REFUSED
    detector.run(CONNECT_GRACE_MS + RESULTS_APART_MS + GATHER_MS)
    assert [targets for _, targets in detector.fenced] == [(FenceTarget(1, 101, 22),)]


def test_connection_of_a_removed_registration_is_forgotten() -> None:
    detector = serving(1)
    detector.lose(1)
    detector.tell(BrokerForgotten(1))
    detector.broker(1)
    assert detector.machine.connection(1) is None


def test_brokers_lost_within_20_ms_are_fenced_in_one_plan() -> None:
    detector = serving(1, 2, 3)
    detector.run(100)
    crash(detector, 1)
    detector.run(15)
    crash(detector, 2)
    detector.run(200)
    assert [[target.broker_id for target in targets] for _, targets in detector.fenced] == [[1, 2]]


def test_fence_waits_at_most_20_ms_for_another_suspect() -> None:
    detector = serving(1, 2)
    detector.run(100)
    crash(detector, 1)
    detector.run(40)
    lost_ms = detector.now_ms
    crash(detector, 2)
    detector.run(300)
    assert [target.broker_id for target in detector.fenced[0][1]] == [1]
    assert detector.fenced[0][0] <= lost_ms - 40 + RESULTS_APART_MS + 2 + GATHER_MS
    assert detector.fenced_ids == [1, 2]


def test_broker_proven_dead_is_fenced_once() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20_000)
    assert detector.fenced_ids == [1]


def test_new_active_controller_probes_unconnected_brokers_after_100_ms() -> None:
    detector = Detector()
    for broker_id in (1, 2):
        detector.addresses[broker_id] = SAME
        detector.broker(broker_id)
        detector.heartbeat(broker_id)
    detector.run(100)
    crash(detector, 1, SILENT)  # while it is a standby
    detector.run(1_000)
    detector.addresses[1] = REFUSED
    asked = len(detector.probes)
    detector.tell(BecameActive())
    detector.run(CONNECT_GRACE_MS - 1)
    assert len(detector.probes) == asked
    detector.run(CONNECT_GRACE_MS)
    assert detector.fenced_ids == [1]


def test_broker_that_connects_to_the_new_controller_in_time_is_not_probed() -> None:
    detector = Detector()
    detector.addresses[1] = SAME
    detector.broker(1)
    detector.run(100)
    asked = len(detector.probes)
    detector.tell(BecameActive())
    detector.run(CONNECT_GRACE_MS - 10)
    detector.heartbeat(1)
    detector.run(1_000)
    assert len(detector.probes) == asked


def test_failure_detector_does_not_suspect_a_fenced_broker() -> None:
    detector = serving(1)
    detector.run(100)
    detector.broker(1, fenced=True)
    crash(detector, 1)
    detector.run(5_000)
    assert not detector.fenced


def test_unregistered_suspect_is_not_fenced() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.tell(BrokerForgotten(1))
    detector.run(5_000)
    assert not detector.fenced


def test_new_registration_ends_the_suspicion_of_the_previous_incarnation() -> None:
    detector = serving(1)
    detector.run(100)
    crash(detector, 1)
    detector.run(20)
    detector.heartbeat(1, connection=2001, epoch=500)
    detector.broker(1, life=2, epoch=500, fenced=True)
    detector.run(5_000)
    assert not detector.fenced


def test_at_most_32_probes_are_in_flight_and_suspects_come_first() -> None:
    detector = Detector()
    detector.delay_ms = 10
    detector.tell(BecameActive())
    for broker_id in range(100):
        detector.heartbeat(broker_id)
        detector.broker(broker_id)
    assert len(detector.probes) == PROBES_UNDER_WAY_MAX
    detector.lose(99)
    detector.run(12)
    assert detector.probes[PROBES_UNDER_WAY_MAX][1] == 99


def test_unfenced_broker_that_never_answered_is_probed_three_times() -> None:
    detector = serving(1, same=False)
    detector.run(20 * FIRST_ANSWER_RETRY_MS)
    assert len(detector.probes) == 3


def test_probes_of_a_flapping_broker_are_at_least_50_ms_apart() -> None:
    detector = serving(1)
    for number in range(2_000, 2_100):
        detector.lose(1, connection=number - 1 if number > 2_000 else None)
        detector.heartbeat(1, connection=number)
        detector.lose(1, connection=number)
        detector.run(7)
    times = [at for at, _ in detector.probes]
    assert all(later - earlier >= RESULTS_APART_MS for earlier, later in itertools.pairwise(times))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 120)),
        st.tuples(st.just("heartbeat"), st.integers(1, 3)),
        st.tuples(st.just("lose"), st.integers(1, 3)),
        st.tuples(st.just("address"), st.sampled_from(ProbeOutcome)),
        st.tuples(st.just("active"), st.booleans()),
    ),
    max_size=30,
)


@given(steps=steps, first=st.sampled_from(ProbeOutcome))
def test_random_inputs_never_fence_a_broker_without_proof(steps: list[tuple[str, Any]], first: ProbeOutcome) -> None:
    """The test recomputes from the inputs of the state machine whether a death was proven (K1)."""
    detector = Detector()
    told: list[tuple[int, str, ProbeOutcome | None]] = []
    tell = detector.tell

    def remember(happened: Any) -> ProbeActions:
        if isinstance(happened, ProbeAnswered):
            told.append((detector.now_ms, "result", happened.outcome))
        elif isinstance(happened, HeartbeatReceived):
            told.append((detector.now_ms, "heartbeat", None))
        return tell(happened)

    detector.tell = remember  # type: ignore[method-assign]
    detector.addresses[1] = first
    detector.tell(BecameActive())
    detector.broker(1)
    connection = 1
    for kind, value in steps:
        if kind == "run":
            detector.run(value)
        elif kind == "heartbeat":
            connection += 1
            detector.heartbeat(1, connection=connection)
        elif kind == "lose":
            detector.lose(1, connection=connection)
        elif kind == "address":
            detector.addresses[1] = value
        else:
            detector.tell(BecameActive() if value else BecameStandby())
    for at_ms, _ in detector.fenced:
        before = [one for one in told if one[0] <= at_ms]
        last_heartbeat = max((index for index, one in enumerate(before) if one[1] == "heartbeat"), default=-1)
        since = before[last_heartbeat + 1 :]
        if any(one[2] is OTHER for one in since):
            continue
        bad = [one[0] for one in since if one[2] in (REFUSED, CLOSED)]
        assert any(one[2] is SAME for one in before)
        assert bad
        assert max(bad) - min(bad) >= RESULTS_APART_MS
