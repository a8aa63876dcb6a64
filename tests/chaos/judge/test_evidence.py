"""Tests of signs, the evidence that a fault took effect. Each sign has one run in which it is found, and a similar run
in which it is not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kraft.sim.chaos.history import Function, HistoryEventType
from kraft.sim.chaos.judge import FaultEffect
from kraft.sim.chaos.judge.evidence import NEEDED, SIGNS, find_effects, is_evidence
from kraft.sim.chaos.judge.operations import paired
from kraft.sim.chaos.judge.signs import ObservedRun
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord
from kraft.sim.nemesis import plan
from tests.chaos.judge.histories import DURATION_MS, KILLED, HistoryBuilder, fault_of, samples_of, steady_history

QUIET = samples_of()


def effects(
    faults: Sequence[FaultRecord], samples: Sequence[ClusterSample] = QUIET, told: HistoryBuilder | None = None
) -> list[FaultEffect]:
    history = HistoryBuilder() if told is None else told
    return find_effects(ObservedRun(samples, paired(history.events), DURATION_MS), faults)


def effect(samples: Sequence[ClusterSample] = QUIET, told: HistoryBuilder | None = None, **fault: Any) -> FaultEffect:
    [found] = effects([fault_of(**fault)], samples, told)
    return found


def with_fact(name: str, *values: tuple[float, float]) -> list[ClusterSample]:
    """Return samples without a fault, with this measurement added. Each value applies from its time on."""
    return [
        replace(sample, facts={name: max((time, value) for time, value in values if time <= sample.time_ms)[1]})
        for sample in QUIET
    ]


# a kill


def test_a_kill_is_proven_by_the_stopped_process_and_a_reaction_of_the_cluster() -> None:
    found = effect(samples_of(*KILLED))
    assert found.is_seen
    assert found.evidence == "node 2 did not run after 0.10 s; ISR of chaos-0 went from 1,2,3 to 1,3 after 0.30 s"


def test_a_kill_without_any_sign_has_no_proven_effect() -> None:
    found = effect()
    assert not found.is_seen
    assert "process and (isr | leader | controller | fenced)" in found.evidence


@pytest.mark.parametrize("seen", [KILLED[:1], KILLED[1:2]])
def test_a_kill_with_only_one_of_its_two_required_signs_has_no_proven_effect(seen: Any) -> None:
    found = effect(samples_of(*seen))
    assert not found.is_seen
    assert "only this was seen" in found.evidence


def test_a_kill_between_two_samples_is_proven_by_the_increased_leader_epoch() -> None:
    samples = samples_of((4_300, {"partition": {"leader": 2, "leader_epoch": 7}}))
    assert effect(samples, begin_ms=4_010.0, end_ms=4_060.0).is_seen
    assert not effect(samples, begin_ms=4_010.0, end_ms=4_800.0).is_seen
    assert not effect(QUIET, begin_ms=4_010.0, end_ms=4_060.0).is_seen


def test_a_change_of_an_unaffected_node_is_no_sign_of_a_fault() -> None:
    assert not effect(samples_of(*KILLED), nodes=(1,)).is_seen


def test_effects_of_the_next_fault_are_not_signs_of_the_previous_one() -> None:
    first, second = fault_of(begin_ms=2_000.0, end_ms=3_000.0), fault_of()
    assert [each.is_seen for each in effects([first, second], samples_of(*KILLED))] == [False, True]


def test_a_late_fencing_is_a_sign_although_another_node_had_a_fault_in_between() -> None:
    killed = fault_of(evidence=("fenced",))
    samples = samples_of((15_000, {"brokers": (1, 3)}))
    found = effects([killed, fault_of(begin_ms=9_000.0, end_ms=9_500.0, nodes=(1,))], samples)
    assert found[0].evidence == "broker 2 was fenced after 11.00 s"
    again = effects([killed, fault_of(begin_ms=9_000.0, end_ms=9_500.0, nodes=(1, 2))], samples)
    assert not again[0].is_seen


def test_a_fault_of_a_controller_that_does_not_lead_is_proven_by_its_process_alone() -> None:
    down = samples_of((4_100, {"running": (1, 2, 3, 101, 102)}), (6_000, {"running": (1, 2, 3, 101, 102, 103)}))
    assert effect(down, nodes=(103,)).is_seen
    leads = [replace(sample, controller=103) for sample in down]
    assert not effect(leads, nodes=(103,)).is_seen


def test_a_fault_that_was_not_carried_out_has_no_proven_effect_and_shows_the_reason() -> None:
    found = effect(samples_of(*KILLED), missed="there was no running leader")
    assert (found.is_seen, found.evidence) == (False, "it did not happen: there was no running leader")


def test_a_rolling_restart_is_proven_only_if_each_of_its_nodes_stopped() -> None:
    one = (*KILLED[:3],)
    both = (*one, (8_000, {"running": (2, 3, 101, 102, 103)}), (8_500, {"running": (1, 2, 3, 101, 102, 103)}))
    fault = {"kind": plan.ROLLING, "nodes": (1, 2), "end_ms": 9_000.0}
    assert not effect(samples_of(*one), **fault).is_seen
    assert effect(samples_of(*both), **fault).is_seen


# each sign


def send_history(errors: Sequence[float]) -> HistoryBuilder:
    told = HistoryBuilder()
    for at in errors:
        told.now_ms = at
        told.send(f"producer-0/{at}", type=HistoryEventType.FAIL, error="NOT_ENOUGH_REPLICAS")
    return told


def slow_history(slow_ms: float) -> HistoryBuilder:
    told = HistoryBuilder()
    for number in range(400):
        told.now_ms = max(told.now_ms, number * 20.0)
        told.send(f"producer-0/{number}", number, took_ms=slow_ms if 4_000 <= told.now_ms < 6_000 else 2.0)
    return told


def told_at(f: Function, process: str, time_ms: float, **values: Any) -> HistoryBuilder:
    told = HistoryBuilder()
    told.commit("member-0", 1)
    told.now_ms = time_ms
    told.end(told.begin(process, f, **values))
    return told


def assigned(process: str, time_ms: float) -> HistoryBuilder:
    return told_at(Function.ASSIGN, process, time_ms, places=[])


def created(time_ms: float) -> HistoryBuilder:
    return told_at(Function.CREATE_TOPIC, "churn-0", time_ms, topic="t")


BYTES = "proxy bytes 2->3"
GROWING = [(time, time) for time in range(0, 20_000, 100)]
STOPPED = [(time, min(time, 4_100)) for time in range(0, 20_000, 100)]
FOLLOWER_ONLY = {"controller": 101, "voters": (101, 102)}

Seen = tuple[Sequence[ClusterSample], HistoryBuilder | None, dict[str, Any]]
SIGNS_SEEN: dict[str, tuple[Seen, Seen]] = {
    "isr": (
        (samples_of((4_500, {"partition": {"isr": (1, 3)}})), None, {}),
        (samples_of((4_500, {"partition": {"isr": (2, 3)}})), None, {}),
    ),
    "leader": (
        (samples_of((4_500, {"partition": {"leader_epoch": 6}})), None, {}),
        (samples_of((4_500, {"partition": {"leader_epoch": 6}})), None, {"nodes": (1,)}),
    ),
    "controller": (
        (samples_of((4_500, {"controller": 102, "controller_epoch": 4})), None, {"nodes": (101,)}),
        (samples_of((4_500, {"controller": -1, "controller_epoch": -1})), None, {"nodes": (101,)}),
    ),
    "elections": (
        (samples_of((4_500, {"controller_epoch": 4})), None, {"nodes": (1,)}),
        (samples_of((3_500, {"controller_epoch": 4})), None, {"nodes": (1,)}),
    ),
    "voters": (
        (samples_of((4_500, {"voters": (101, 102)})), None, {}),
        (samples_of((4_500, {"voters": ()})), None, {}),
    ),
    "fenced": (
        (samples_of((4_500, {"brokers": (1, 3)})), None, {}),
        (samples_of((4_500, {"brokers": ()})), None, {}),
    ),
    "process": (
        (samples_of((4_500, {"running": (1, 3)})), None, {}),
        ([replace(sample, running=()) for sample in QUIET], None, {}),
    ),
    "follower controller": ((QUIET, None, {"nodes": (102,)}), (QUIET, None, {"nodes": (101,)})),
    "between samples": (
        (QUIET, None, {"begin_ms": 4_010.0, "end_ms": 4_060.0}),
        (QUIET, None, {"begin_ms": 4_010.0, "end_ms": 4_160.0}),
    ),
    "refusals": (
        (QUIET, send_history([4_500, 4_600]), {}),
        (QUIET, send_history([2_000, 2_100, 4_500, 4_600]), {}),
    ),
    "slower": ((QUIET, slow_history(30), {}), (QUIET, slow_history(3), {})),
    "gap": (
        (QUIET, steady_history(silent=[(4_100, 4_600)]), {}),
        (QUIET, steady_history(silent=[(4_100, 4_200)]), {}),
    ),
    "rebalances": ((QUIET, assigned("member-0.1", 4_500), {}), (QUIET, assigned("member-0.1", 3_500), {})),
    "topics": ((QUIET, created(4_500), {}), (QUIET, created(3_500), {})),
    "silent": (
        (with_fact(BYTES, *STOPPED), None, {"kind": plan.CUT, "nodes": (2, 3)}),
        (with_fact(BYTES, *GROWING), None, {"kind": plan.CUT, "nodes": (2, 3)}),
    ),
    "fact:connections ended": (
        (with_fact("connections ended 2->3", (0, 4), (4_100, 5)), None, {}),
        (with_fact("connections ended 2->3", (0, 4), (3_900, 5)), None, {}),
    ),
    "fact:clock offset ms by 100": (
        (with_fact("clock offset ms 2", (0, 0), (4_100, -500)), None, {}),
        (with_fact("clock offset ms 2", (0, 0), (4_100, -50)), None, {}),
    ),
    "fact:free bytes under 10%": (
        (with_fact("free bytes 2", (0, 1e6), (4_100, 1e4)), None, {}),
        (with_fact("free bytes 3", (0, 1e6), (4_100, 1e4)), None, {}),
    ),
}
"""Name of a sign → a run in which the sign is found, and a similar run in which it is not found."""


def test_every_sign_of_a_fault_has_a_handwritten_run_in_which_it_is_found() -> None:
    assert SIGNS.keys() <= SIGNS_SEEN.keys()
    assert all(map(is_evidence, SIGNS_SEEN))
    assert not is_evidence("fact:")
    assert not is_evidence("isr or so")


@pytest.mark.parametrize("name", SIGNS_SEEN)
def test_a_fault_is_proven_by_the_evidence_that_its_scenario_names(name: str) -> None:
    samples, told, fault = SIGNS_SEEN[name][0]
    found = effect(samples, told, **{**fault, "evidence": (name,)})
    assert found.is_seen, found.evidence


@pytest.mark.parametrize("name", SIGNS_SEEN)
def test_a_fault_without_the_evidence_that_its_scenario_names_has_no_proven_effect(name: str) -> None:
    samples, told, fault = SIGNS_SEEN[name][1]
    found = effect(samples, told, **{**fault, "evidence": (name,)})
    assert not found.is_seen, found.evidence
    assert name in found.evidence


@pytest.mark.parametrize("name", [name for name in SIGNS if name not in ("follower controller", "between samples")])
def test_no_sign_of_a_fault_is_found_in_a_run_in_which_nothing_happens(name: str) -> None:
    assert not effect(QUIET, steady_history(), evidence=(name,)).is_seen
    assert not effect([], None, evidence=(name,)).is_seen


def refused_by(error: str) -> HistoryBuilder:
    told = HistoryBuilder()
    for at in (4_500, 4_600):
        told.now_ms = at
        told.send(f"producer-0/{at}", type=HistoryEventType.FAIL, error=error)
    return told


def test_rejected_sends_to_a_partition_of_an_unaffected_leader_are_no_sign() -> None:
    timed_out = refused_by("REQUEST_TIMED_OUT")
    assert effect(QUIET, timed_out, evidence=("refusals",)).is_seen
    assert not effect(QUIET, timed_out, nodes=(1,), evidence=("refusals",)).is_seen


def test_rejected_sends_by_an_affected_leader_elected_in_the_window_are_a_sign() -> None:
    samples = samples_of((4_400, {"partition": {"leader": 1, "leader_epoch": 6}}))
    assert effect(samples, refused_by("REQUEST_TIMED_OUT"), nodes=(1,), evidence=("refusals",)).is_seen


def test_rejections_for_too_few_replicas_are_a_sign_if_a_replica_was_affected() -> None:
    refused = refused_by("NOT_ENOUGH_REPLICAS")
    assert effect(QUIET, refused, nodes=(1,), evidence=("refusals",)).is_seen
    assert not effect(QUIET, refused, nodes=(4,), evidence=("refusals",)).is_seen


def test_rejected_sends_are_compared_with_their_rate_before_the_fault() -> None:
    times = {"begin_ms": 1_000.0, "end_ms": 3_000.0, "evidence": ("refusals",)}
    assert not effect(QUIET, send_history([900, 950, 5_000, 6_000, 7_000]), **times).is_seen
    assert effect(QUIET, send_history([5_000]), **times).is_seen


def test_a_gap_is_a_sign_of_a_fault_of_a_follower_only_if_it_lasts_half_the_fault() -> None:
    short, long = (steady_history(silent=[(4_100, end_ms)]) for end_ms in (4_700, 5_500))
    assert not effect(QUIET, short, nodes=(1,), evidence=("gap",)).is_seen
    assert effect(QUIET, long, nodes=(1,), evidence=("gap",)).is_seen
    assert not effect(QUIET, long, nodes=(4,), evidence=("gap",)).is_seen
    assert not effect(QUIET, long, kind=plan.CUT, nodes=(1, 3), evidence=("gap",)).is_seen
    assert effect(QUIET, long, nodes=(), evidence=("gap",)).is_seen


def test_a_gap_of_topic_creations_is_a_sign_of_faults_of_controllers() -> None:
    told = HistoryBuilder()
    for number in range(100):
        told.now_ms = max(told.now_ms, number * 100.0)
        begun = told.begin("churn-0", Function.CREATE_TOPIC, topic=f"t-{number}")
        told.now_ms += 2_000 if number == 41 else 1
        told.end(begun)
    assert effect(QUIET, told, nodes=(102,), evidence=("gap",)).is_seen
    assert not effect(QUIET, told, nodes=(2,), evidence=("gap",)).is_seen


@pytest.mark.parametrize(
    ("kind", "is_seen"), [(plan.LATENCY, False), (plan.SLOW_LINK, False), (plan.SLICER, False), (plan.BYTE_LIMIT, True)]
)
def test_ended_connections_are_a_sign_of_a_byte_limit_but_not_of_slower_links(kind: str, is_seen: bool) -> None:
    ended = with_fact("connections ended 2->3", (0, 4), (4_100, 5))
    assert effect(ended, kind=kind, nodes=(2, 3)).is_seen is is_seen


def test_one_of_several_signs_named_as_evidence_of_a_fault_is_sufficient() -> None:
    samples = samples_of((4_500, {"partition": {"isr": (1, 3)}}))
    assert effect(samples, evidence=("voters", "isr")).is_seen


def test_evidence_of_a_fault_with_an_unknown_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="'epoch'"):
        effect(evidence=("epoch",))


@pytest.mark.parametrize("kind", [*plan.FAULT_KINDS, *plan.TOXIC_KINDS])
def test_the_evidence_defined_for_each_fault_kind_names_existing_signs(kind: str) -> None:
    names = [name for groups in NEEDED[kind] for group in groups for name in group]
    assert names
    assert all(map(is_evidence, names))
    assert not effect(QUIET, steady_history(), kind=kind).is_seen


def test_a_fault_kind_without_defined_evidence_has_no_proven_effect() -> None:
    assert "'earthquake'" in effect(kind="earthquake").evidence
