"""Tests of the availability figures of a run: the longest gap without a successful operation, phases, and
throughput."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.sim.chaos.history import Function, HistoryEventType
from kraft.sim.chaos.judge import Gap
from kraft.sim.chaos.judge.availability import find_gaps, find_phases, phases_of, quantile, throughput_of
from kraft.sim.chaos.judge.operations import paired
from kraft.sim.chaos.run.run_folder import FaultRecord
from tests.chaos.judge.histories import HistoryBuilder, P, fault_of, info_of, steady_history


def send_gap(told: HistoryBuilder, *faults: FaultRecord, number: int = 0, **values: Any) -> Gap:
    gaps = find_gaps(info_of(**values), paired(told.events), faults or [fault_of()])
    [found] = [gap for gap in gaps if (gap.fault, gap.f) == (number, "send")]
    return found


def acknowledged(*times: float, place: Any = P, told: HistoryBuilder | None = None) -> HistoryBuilder:
    """Return sends that are acknowledged at these times (ms)."""
    told = HistoryBuilder() if told is None else told
    for time_ms in times:
        told.now_ms = time_ms - 2
        told.send(f"{place}/{time_ms}", int(time_ms), place=place)
    return told


def test_a_gap_is_the_longest_time_between_two_successes() -> None:
    found = send_gap(acknowledged(3_900, 4_100, 4_900, 5_000, 5_300))
    assert (found.gap_ms, found.first_success_ms, found.places) == (800, 900, ("chaos-0",))


def test_a_gap_begins_with_the_last_success_before_the_fault() -> None:
    assert send_gap(acknowledged(3_000, 3_700, 4_500, 5_000)).gap_ms == 800


def test_a_gap_that_begins_long_after_a_fault_does_not_belong_to_it() -> None:
    found = send_gap(acknowledged(3_990, 4_010, *range(4_020, 8_000, 20), 9_500, 9_520))
    assert found.gap_ms < 50


def test_gaps_outside_the_time_of_a_fault_do_not_count() -> None:
    assert send_gap(acknowledged(1_000, 3_900, 4_100, 4_200), fault_of(end_ms=4_150.0)).gap_ms == 200


def test_the_longest_gap_of_all_partitions_is_reported_with_its_partition() -> None:
    other = P._replace(partition=1)
    told = acknowledged(3_900, 4_100, 4_200)
    told = acknowledged(4_300, 5_500, place=other, told=told)
    found = send_gap(told)
    assert (found.gap_ms, found.places) == (1_200, ("chaos-1",))


def test_a_gap_across_the_begin_of_the_next_fault_belongs_completely_to_that_fault() -> None:
    told = acknowledged(3_900, 4_100, 9_500, 12_000, 12_100)
    faults = fault_of(), fault_of(begin_ms=10_000.0, end_ms=11_000.0)
    assert send_gap(told, *faults).gap_ms == 5_400
    assert send_gap(told, *faults, number=1).gap_ms == 2_500


def test_a_gap_without_a_later_success_lasts_as_long_as_clients_try() -> None:
    told = acknowledged(3_900, 4_100)
    told.now_ms = 4_200
    told.send("x", type=HistoryEventType.INFO, took_ms=5_000)
    found = send_gap(told)
    assert (found.gap_ms, found.first_success_ms) == (5_101, None)


def test_clients_that_stop_sending_cause_no_gap() -> None:
    assert send_gap(acknowledged(3_900, 4_100)).gap_ms == 200


def test_a_send_that_never_completes_is_a_gap_up_to_the_end_of_the_work() -> None:
    told = acknowledged(3_900, 4_100)
    told.begin("producer-0", Function.SEND, place=list(P), value="x")
    assert send_gap(told).gap_ms == 20_000 - 4_100


def test_a_fault_that_was_not_carried_out_has_no_gap() -> None:
    assert find_gaps(info_of(), paired(acknowledged(3_900, 4_100).events), [fault_of(missed="no leader")]) == []


def test_polls_count_as_successes_only_if_they_return_records() -> None:
    told = HistoryBuilder()
    for time_ms, records in ((3_900, [(0, "a")]), (4_200, []), (4_800, [(1, "b")])):
        told.now_ms = time_ms - 2
        told.poll(*records)
    told.now_ms = 5_900
    told.final((0, "a"), (1, "b"))
    [found] = find_gaps(info_of(), paired(told.events), [fault_of()])
    assert (found.f, found.gap_ms, found.places) == ("poll", 900, ("chaos-0",))


def test_phases_cover_the_run_before_during_between_and_after_faults() -> None:
    faults = [fault_of(), fault_of(begin_ms=5_000.0, end_ms=7_000.0), fault_of(begin_ms=8_000.0, end_ms=9_000.0)]
    assert phases_of(info_of(), faults) == {
        "before faults": [(0.0, 4_000.0)],
        "fault 1": [(4_000.0, 6_000.0)],
        "fault 2": [(5_000.0, 7_000.0)],
        "fault 3": [(8_000.0, 9_000.0)],
        "between faults": [(7_000.0, 8_000.0), (9_000.0, 10_000.0)],
        "after heal": [(10_000.0, 20_000.0)],
    }
    assert phases_of(info_of(), []) == {"whole run": [(0.0, 20_000.0)]}


def test_a_phase_counts_outcomes_and_measures_successes() -> None:
    told = steady_history(silent=[(4_000, 4_500)])
    told.now_ms = 4_700
    phases = {(each.phase, each.f): each for each in find_phases(info_of(), paired(told.events), [fault_of()])}
    before, during = phases["before faults", "send"], phases["fault 1", "send"]
    assert (before.p50_ms, before.max_ms, before.fail, before.info) == (1, 1, 0, 0)
    assert during.max_ms is not None
    assert during.max_ms > 400
    assert during.p50_ms == 1


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.95, 10), (0.99, 10), (0.0, 1), (1.0, 10), (0.9, 9)])
def test_a_quantile_is_the_smallest_value_not_exceeded_by_its_share_of_values(share: float, value: float) -> None:
    assert quantile([float(number) for number in range(1, 11)], share) == value
    assert quantile([], share) is None


def test_throughput_has_every_second_including_those_without_a_success() -> None:
    told = acknowledged(100, 200, 2_500)
    found = throughput_of(info_of(duration_ms=3_500.0), paired(told.events))
    assert found == ((0.0, 2.0), (1_000.0, 0.0), (2_000.0, 1.0), (3_000.0, 0.0))
