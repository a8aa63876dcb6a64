"""Tests of verdicts of complete runs: a run is valid only if each check has a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEvent, HistoryEventType
from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID, RunVerdict, anomalies, liveness
from kraft.sim.chaos.judge.verdict import decide_verdict, meaning_of, verdict_from_json, verdict_to_json
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, OutputLine
from tests.chaos.judge.histories import (
    HEALED_MS,
    KILLED,
    HistoryBuilder,
    fault_of,
    info_of,
    partition_of,
    samples_of,
    steady_history,
)

WHOLE = samples_of()
"""Samples of a cluster without any fault."""
HAS_FAULTS = 'title = "By hand"\n[[fault]]\nat_s = 4\n'


def run(
    told: HistoryBuilder | None = None,
    faults: Sequence[FaultRecord] = (),
    samples: Sequence[ClusterSample] = WHOLE,
    output: Sequence[OutputLine] = (),
    **values: Any,
) -> RunVerdict:
    history = steady_history() if told is None else told
    return decide_verdict(info_of(**values), history.events, faults, samples, output)


def test_a_run_with_a_proven_fault_and_without_losses_is_valid() -> None:
    verdict = run(steady_history(silent=[(4_000, 4_500)]), [fault_of()], samples_of(*KILLED), text=HAS_FAULTS)
    assert (verdict.verdict, verdict.reasons, verdict.anomalies) == (VALID, (), ())
    assert verdict.effects[0].is_seen
    assert verdict.checked["L7"] == 2
    assert verdict.counts["send"] == {"ok": verdict.checked["L10"]}


def test_a_run_whose_fault_did_not_take_effect_has_an_unknown_verdict_that_names_the_fault() -> None:
    verdict = run(faults=[fault_of()], samples=samples_of(), text=HAS_FAULTS)
    assert verdict.verdict == UNKNOWN
    [reason] = verdict.reasons
    assert reason.startswith("Fault 1 (kill of node 2) is not seen to have taken effect: searched for process")


def test_a_run_whose_fault_was_not_carried_out_has_an_unknown_verdict() -> None:
    verdict = run(faults=[fault_of(missed="there was no leader")], samples=samples_of(*KILLED), text=HAS_FAULTS)
    assert verdict.verdict == UNKNOWN
    assert "there was no leader" in verdict.reasons[0]


@pytest.mark.parametrize("text", [HAS_FAULTS, "random_faults = true\n"])
def test_a_run_without_the_faults_of_its_scenario_has_an_unknown_verdict(text: str) -> None:
    assert run(text=text).reasons == ("The scenario has faults, and none was carried out.",)
    assert run(text=f"# {text}".replace("\n", "\n# ")).verdict == VALID


def test_an_anomaly_makes_a_run_invalid_even_if_a_fault_has_no_proven_effect() -> None:
    told = steady_history()
    told.send("producer-0/lost", 10_000)
    told.final()
    assert run(told, [fault_of()], samples_of(), text=HAS_FAULTS).verdict == INVALID


def test_recorded_trouble_of_a_run_makes_its_verdict_unknown() -> None:
    assert run(trouble=("The disk of this machine was full.",)).reasons == ("The disk of this machine was full.",)


def test_an_operation_kind_without_a_success_makes_the_verdict_of_a_run_unknown() -> None:
    told = steady_history()
    told.end(told.begin("member-0", Function.COMMIT, group="group", offsets=[]), HistoryEventType.FAIL, "STALE")
    verdict = run(told)
    assert verdict.reasons == ("No operation 'commit' succeeded, of 1.",)
    assert verdict.errors == {"STALE": 1}


def test_a_run_without_operations_has_an_unknown_verdict() -> None:
    assert run(HistoryBuilder()).reasons == ("No client had any operation.",)


@pytest.mark.parametrize("drop", [0, 1])
def test_a_malformed_history_makes_the_verdict_of_a_run_unknown(drop: int) -> None:
    told = steady_history()
    events: list[HistoryEvent] = [*told.events[:10], *told.events[11 - drop :]]
    events = [*events[:20], *events[20 + drop * 2 - drop :]]
    verdict = decide_verdict(info_of(), events, [], [])
    assert verdict.verdict == UNKNOWN
    assert "malformed" in verdict.reasons[0]


def test_a_checker_that_raises_makes_the_verdict_unknown_and_the_other_checkers_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(anomalies, "judge", fail)
    verdict = run()
    assert verdict.verdict == UNKNOWN
    assert verdict.reasons == ("The check of sends and polls failed: RuntimeError: out of order.",)
    assert verdict.checked["L7"] == 2


def test_a_fault_that_names_nonexistent_evidence_makes_the_verdict_unknown() -> None:
    verdict = run(faults=[fault_of(evidence=("nonsense",))], samples=samples_of(*KILLED))
    assert verdict.verdict == UNKNOWN
    assert "'nonsense'" in verdict.reasons[0]


# after the heal


def history_after_heal(*sends: tuple[float, HistoryEventType], process: str = "producer-1.1") -> HistoryBuilder:
    """Return a history of two producers. One producer sends with success all the time. The other one sends with success
    before the heal, and has these sends after the heal."""
    told = steady_history(until_ms=9_000.0)
    records = [*told.events[-1].values["records"][0][2]]

    def send(at_ms: float, name: str, type: HistoryEventType) -> None:
        told.now_ms = max(told.now_ms, at_ms)
        is_ok = type is HistoryEventType.OK
        told.send(
            f"{name}/{at_ms}", len(records) if is_ok else None, type=type, error="" if is_ok else "X", process=name
        )
        if is_ok:
            records.append([len(records), f"{name}/{at_ms}"])

    send(9_000, "producer-1", HistoryEventType.OK)
    for at_ms in (11_000, 12_000):
        send(at_ms, "producer-0", HistoryEventType.OK)
    for at_ms, type in sends:
        send(at_ms, process, type)
    told.poll()
    told.assign(FINAL_READER)
    told.end(told.begin(FINAL_READER, Function.POLL), records=[["chaos", 0, records]])
    return told


def test_checks_catch_a_producer_without_a_success_after_the_heal() -> None:
    verdict = run(history_after_heal((13_000, HistoryEventType.FAIL), (14_000, HistoryEventType.INFO)))
    assert verdict.verdict == INVALID
    [found] = verdict.anomalies
    assert found.name == "unavailable after heal"
    assert found.text == "producer-1 had no success in the 10.0 s after the heal, of 2 sends (X)"


@pytest.mark.parametrize("process", ["producer-1", "producer-1.1", "producer-1.7"])
def test_a_producer_may_recover_under_a_later_process_name(process: str) -> None:
    told = history_after_heal((13_000, HistoryEventType.FAIL), (14_000, HistoryEventType.OK), process=process)
    assert run(told).verdict == VALID


def test_a_producer_that_sends_nothing_after_the_heal_makes_the_verdict_unknown() -> None:
    assert run(history_after_heal()).reasons == (
        "producer-1 sent nothing after the heal: whether it could is not known.",
    )


def test_a_heal_too_close_to_the_end_of_a_run_makes_its_verdict_unknown() -> None:
    verdict = run(history_after_heal((13_000, HistoryEventType.FAIL)), healed_ms=16_000.0)
    assert verdict.verdict == UNKNOWN
    assert "4.0 s after the heal" in verdict.reasons[0]


def test_checks_catch_a_gap_that_is_longer_than_the_scenario_allows() -> None:
    told, faults, samples = steady_history(silent=[(4_000, 4_800)]), [fault_of()], samples_of(*KILLED)
    verdict = run(told, faults, samples, gap_ms_max=700)
    assert verdict.verdict == INVALID
    assert verdict.anomalies[0].text.startswith("chaos-0 had no success for 8")
    assert run(told, faults, samples, gap_ms_max=1_000).verdict == VALID
    assert run(told, faults, samples).verdict == VALID


# the user's application


def test_an_application_that_fails_makes_a_run_invalid_and_shows_its_last_lines() -> None:
    lines = [OutputLine(time_ms=1.0, stream="stderr", text="no broker")]
    verdict = run(output=lines, application=("app",), application_exit=3)
    assert verdict.verdict == INVALID
    assert verdict.anomalies[0].evidence["last_lines"] == ["no broker"]


def test_an_application_that_did_not_end_makes_the_verdict_unknown() -> None:
    assert run(application=("app",)).reasons == ("app had not ended when the run did.",)


def test_a_run_of_an_application_that_exits_with_success_is_valid() -> None:
    assert run(HistoryBuilder(), application=("app",), application_exit=0).verdict == VALID


# the file


def test_a_verdict_read_from_its_file_is_equal() -> None:
    told = steady_history(silent=[(4_000, 4_800)])
    told.send("producer-0/lost", 10_000)
    told.topic(Function.CREATE_TOPIC)
    told.topic(Function.CREATE_TOPIC)
    told.final()
    verdict = run(told, [fault_of()], samples_of(*KILLED), gap_ms_max=700, trouble=("Something.",))
    assert {anomaly.name for anomaly in verdict.anomalies} >= {"unseen", "topic not linearizable", "gap too long"}
    assert verdict.gaps
    assert verdict.phases
    assert verdict_from_json(verdict_to_json(verdict)) == verdict
    assert all(meaning_of(anomaly.name) for anomaly in verdict.anomalies)


def sample_at(time_ms: float, **values: Any) -> ClusterSample:
    return ClusterSample(time_ms=time_ms, controller=101, partitions=(partition_of(**values),))


@pytest.mark.parametrize("values", [{"isr": (1, 3)}, {"leader": -1, "isr": (1, 2, 3)}])
def test_checks_catch_a_partition_with_replicas_out_of_sync_long_after_the_heal(values: dict[str, Any]) -> None:
    late = sample_at(HEALED_MS + liveness.WHOLE_MS_MAX, replicas=(1, 2, 3), **values)
    verdict = run(samples=[late])
    assert (verdict.verdict, dict(verdict.anomaly_counts)) == (INVALID, {"not whole after heal": 1})
    assert run(samples=[late], allowed=("not whole after heal",)).verdict == VALID


def test_a_partition_with_replicas_out_of_sync_soon_after_the_heal_makes_the_verdict_unknown() -> None:
    early = sample_at(HEALED_MS + 1_000, isr=(1, 3), replicas=(1, 2, 3))
    verdict = run(samples=[early])
    assert verdict.verdict == UNKNOWN
    assert "ISR 1,3 of replicas 1,2,3 1 s after the heal: that is too early to judge" in verdict.reasons[0]


def test_a_run_whose_partition_has_all_replicas_in_sync_again_is_valid() -> None:
    samples = [
        sample_at(HEALED_MS, isr=(1, 3), replicas=(1, 2, 3)),
        sample_at(HEALED_MS + 500, isr=(1, 2, 3), replicas=(1, 2, 3)),
    ]
    verdict = run(samples=samples)
    assert (verdict.verdict, verdict.checked["L5"]) == (VALID, 1)
