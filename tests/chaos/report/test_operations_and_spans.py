"""Tests of the input for the drawings of a report: operations paired from events, thinning of operations, their rates,
and the states between samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kraft.sim.chaos.history import Function, HistoryEvent, HistoryEventType
from kraft.sim.chaos.judge import Gap, RunVerdict
from kraft.sim.chaos.report.operations import POINTS_MAX, DrawnOperation, operations_of, rates, thinned
from kraft.sim.chaos.report.plot import LogScale
from kraft.sim.chaos.report.run_data import RunData
from kraft.sim.chaos.report.state_spans import LANES_MAX, STEPS_MAX, InSyncState, StateSpan, cluster_spans, spans_of
from kraft.sim.chaos.report.timeline import timeline_svg
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, PartitionSample
from tests.chaos.report.folders import valid_run

OK, FAIL, INFO = HistoryEventType.OK, HistoryEventType.FAIL, HistoryEventType.INFO


def event(index: int, at_ms: float, process: str, kind: HistoryEventType, f: Function = Function.SEND) -> HistoryEvent:
    return HistoryEvent(index, int(at_ms * 1e6), process, kind, f, "", {"place": ["chaos", 1]})


def operation(
    index: int, outcome: HistoryEventType = OK, latency_ms: float = 4.0, at_ms: float | None = None
) -> DrawnOperation:
    begin_ms = index * 10.0 if at_ms is None else at_ms
    end_ms = begin_ms + latency_ms
    return DrawnOperation("p", Function.SEND, outcome, begin_ms, end_ms, 2 * index, 2 * index + 1, "chaos-0", "")


def test_a_drawn_operation_pairs_an_invocation_with_the_next_completion_of_its_process() -> None:
    history = [
        event(0, 1, "a", HistoryEventType.INVOKE),
        event(1, 2, "b", HistoryEventType.INVOKE),
        event(2, 5, "b", FAIL),
        event(3, 9, "a", OK),
    ]
    first, second = operations_of(history, 100)
    assert (first.process, first.outcome, first.latency_ms, first.index, first.end_index) == ("a", OK, 8, 0, 3)
    assert (second.process, second.outcome, second.latency_ms, second.place) == ("b", FAIL, 3, "chaos-1")


def test_an_operation_without_completion_is_unknown_and_lasts_until_the_end_of_the_run() -> None:
    [found] = operations_of([event(0, 10, "a", HistoryEventType.INVOKE)], 250)
    assert (found.outcome, found.latency_ms, found.error, found.end_index) == (INFO, 240, "never completed", -1)


def test_a_report_draws_no_latency_for_successful_polls() -> None:
    history = [
        event(0, 0, "a", HistoryEventType.INVOKE, Function.POLL),
        event(1, 90, "a", OK, Function.POLL),
        event(2, 91, "a", HistoryEventType.INVOKE, Function.POLL),
        event(3, 95, "a", FAIL, Function.POLL),
    ]
    assert [each.has_latency for each in operations_of(history, 100)] == [False, True]


def test_thinning_operations_keeps_failures_unknowns_proofs_and_the_slowest() -> None:
    def made() -> Iterable[DrawnOperation]:
        for index in range(30_000):
            yield operation(index, {7: FAIL, 13: INFO}.get(index % 100, OK), 900.0 if index == 777 else 4.0)

    proof = 2 * 4_242 + 1
    found = list(thinned(made(), frozenset({proof})))
    assert sum(each.outcome is FAIL for each in found) == sum(each.outcome is INFO for each in found) == 300
    assert any(each.end_index == proof for each in found)
    assert max(each.latency_ms for each in found) == 900
    assert POINTS_MAX * 0.95 < len(found) <= POINTS_MAX
    assert found == list(thinned(made(), frozenset({proof})))
    assert [each.index for each in found] == sorted({each.index for each in found})


def test_thinning_operations_keeps_every_failure_even_beyond_the_maximum() -> None:
    found = thinned([operation(index, FAIL if index % 2 else OK) for index in range(4 * POINTS_MAX)])
    assert sum(each.outcome is FAIL for each in found) == 2 * POINTS_MAX
    assert sum(each.outcome is OK for each in found) == POINTS_MAX // 10


def test_few_operations_are_not_thinned() -> None:
    operations = [operation(index) for index in range(POINTS_MAX)]
    assert thinned(operations) == operations


def test_rates_count_operations_by_outcome_in_the_time_bin_in_which_they_ended() -> None:
    operations = [operation(0, at_ms=10), operation(1, at_ms=20), operation(2, FAIL, at_ms=30), operation(3, at_ms=120)]
    first, second, *others = rates(operations, 0, 1_000)
    assert (first.begin_ms, first.end_ms, first.ok, first.fail, first.info) == (0, 100, 20, 10, 0)
    assert (second.ok, second.fail) == (10, 0)
    assert not any(each.ok or each.fail for each in others)


def test_rates_count_successful_sends_and_all_unsuccessful_operations() -> None:
    def administration(index: int, outcome: HistoryEventType) -> DrawnOperation:
        return replace(operation(index, outcome, at_ms=50), f=Function.CREATE_TOPIC)

    operations = [operation(0, at_ms=40), administration(1, OK), administration(2, FAIL), administration(3, INFO)]
    first = rates(operations, 0, 1_000)[0]
    assert (first.ok, first.fail, first.info) == (10, 10, 10)


def test_rates_of_an_hour_have_a_limited_number_of_bins() -> None:
    assert len(rates([operation(0)], 0, 3_600_000)) <= 201


def test_a_state_span_lasts_until_another_state_and_a_missing_sample_is_a_hole() -> None:
    seen = [(0.0, "a"), (100.0, "a"), (200.0, "b"), (300.0, None), (400.0, "b"), (500.0, "b")]
    assert spans_of(seen, 510) == [StateSpan(0, 200, "a"), StateSpan(200, 300, "b"), StateSpan(400, 510, "b")]


def test_the_last_state_span_ends_shortly_after_its_sample() -> None:
    assert spans_of([(0.0, "a"), (100.0, "a")], 60_000) == [StateSpan(0, 1_100, "a")]


def test_a_timeline_lane_with_very_many_state_changes_has_a_limited_number_of_spans() -> None:
    steps = spans_of([(each * 100.0, each) for each in range(20_000)], 2_000_000)
    assert len(steps) <= 2 * STEPS_MAX + 1
    assert (steps[0].begin_ms, steps[-1].end_ms) == (0, 2_000_000)


def test_a_report_shows_partitions_that_changed_before_unchanged_ones() -> None:
    def sample(at_ms: float, isr: tuple[int, ...]) -> ClusterSample:
        partitions = tuple(
            PartitionSample(
                topic="t",
                partition=number,
                leader=1,
                leader_epoch=0,
                isr=isr if number == 39 else (1, 2),
                replicas=(1, 2),
            )
            for number in range(40)
        )
        return ClusterSample(time_ms=at_ms, partitions=partitions, controller=7, controller_epoch=2)

    found = cluster_spans([sample(0, (1, 2)), sample(100, (2,)), sample(200, (2, 1))], 300)
    assert len(found.isrs) == len(found.leaders) == LANES_MAX
    assert [step.state for step in found.isrs["t-39"]] == [
        InSyncState((1, 2), 2),
        InSyncState((2,), 2),
        InSyncState((1, 2), 2),
    ]
    assert found.left_out == 40 - LANES_MAX
    assert found.nodes == (1, 2, 7)


def test_a_log_scale_has_whole_decades_around_all_values() -> None:
    scale = LogScale.over([3.0, 40.0, 700.0], 100)
    assert scale.decades_ms == [1, 10, 100, 1000]
    assert (scale.y(1), scale.y(1_000), scale.y(0)) == (100, 0, 100)
    assert LogScale.over([], 100).decades_ms == [1, 10]


def test_a_drawn_gap_has_a_text_only_where_nothing_else_is_drawn() -> None:
    def fault(begin_ms: float) -> FaultRecord:
        return FaultRecord(kind="kill", text="", begin_ms=begin_ms, end_ms=begin_ms + 100)

    def gap(number: int, gap_ms: float, success_ms: float | None) -> Gap:
        return Gap(fault=number, f="send", gap_ms=gap_ms, first_success_ms=success_ms)

    gaps = (gap(0, 300, 400), gap(1, 500, 600), gap(2, 60, 60), gap(3, 900, 950), gap(4, 2_000, None))
    verdict = RunVerdict(verdict="valid", gaps=gaps)
    faults = [fault(each) for each in (1_000, 1_300, 3_000, 5_000, 9_000)]
    info = replace(valid_run().info, duration_ms=11_000, healed_ms=11_000, end_ms=11_000)
    spans = RunData(info, verdict, [], faults, [], []).gap_spans(0.06)
    assert [(span.fault, span.begin_ms, span.end_ms, span.has_room) for span in spans] == [
        (0, 1_100, 1_400, False),
        (1, 1_400, 1_900, True),
        (3, 5_050, 5_950, True),
        (4, 9_000, 11_000, False),
    ]


def test_a_drawn_gap_begins_at_the_last_success_of_its_partition() -> None:
    history = [
        event(0, 100, "a", HistoryEventType.INVOKE),
        event(1, 900, "a", OK),
        event(2, 950, "b", HistoryEventType.INVOKE, Function.COMMIT),
        event(3, 960, "b", OK, Function.COMMIT),
        event(4, 1_000, "a", HistoryEventType.INVOKE),
        event(5, 5_000, "a", OK),
    ]
    fault = FaultRecord(kind="kill", text="", begin_ms=1_000, end_ms=2_000)
    cut_short = Gap(fault=0, f="send", gap_ms=3_100, first_success_ms=4_000, places=("chaos-1",))
    info = replace(valid_run().info, duration_ms=8_000, end_ms=9_000)
    for gap, begin_ms in ((cut_short, 900), (replace(cut_short, gap_ms=3_000, first_success_ms=None), 5_000)):
        run = RunData(info, RunVerdict(verdict="valid", gaps=(gap,)), history, [fault], [], [])
        [span] = run.gap_spans(0.06)
        assert (span.begin_ms, span.end_ms) == (begin_ms, begin_ms + gap.gap_ms)


def test_many_concurrent_faults_are_drawn_in_separate_rows_with_numbers_instead_of_names() -> None:
    faults = [
        FaultRecord(kind="kill", text="", begin_ms=1_000.0 + each, end_ms=9_000, nodes=(each,)) for each in range(9)
    ]
    run = RunData(valid_run().info, RunVerdict(verdict="valid"), [], faults, [], [])
    svg = timeline_svg(run)
    assert svg.count('data-fault="') == 9
    assert ">9 kill 8<" not in svg
    assert len(set(re.findall(r'data-fault.*?<rect x="[\d.]+" y="([\d.]+)"', svg))) == 9
    assert ">5 kill 4<" in timeline_svg(replace(run, faults=faults[:5]))
