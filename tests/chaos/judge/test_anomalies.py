"""Tests that the judge finds each anomaly in a handwritten history, with the operations that prove it, and that a
similar sound history is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEvent, HistoryEventType
from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID, FoundAnomaly, RunVerdict
from kraft.sim.chaos.judge.anomalies import EVIDENCE_MAX
from kraft.sim.chaos.judge.verdict import decide_verdict
from kraft.sim.check.histories.client_histories import ANOMALIES
from tests.chaos.judge.histories import HistoryBuilder, P, info_of, samples_of

A, B, C, D = "producer-0/0", "producer-0/1", "producer-0/2", "producer-0/3"
WHOLE = ((0, A), (1, B), (2, C))
OTHER = P._replace(partition=1)
INFO, FAIL = HistoryEventType.INFO, HistoryEventType.FAIL


@dataclass
class AnomalyCase:
    """Two histories for one anomaly. `bad` writes a history with the anomaly and returns the events that prove it;
    `good` writes a similar one without the anomaly."""

    bad: Callable[[HistoryBuilder], Sequence[HistoryEvent]]
    good: Callable[[HistoryBuilder], object]
    words: str
    others: tuple[str, ...] = field(default=())
    """Other anomalies that the bad history has as well, unavoidably."""


def sent(told: HistoryBuilder, count: int = 3) -> list[HistoryEvent]:
    return [told.send(value, offset) for offset, value in enumerate((A, B, C, D)[:count])]


def lost(told: HistoryBuilder) -> Sequence[HistoryEvent]:
    a, b = told.send(A, 0), told.send(B, 1)
    final = told.final((1, B))
    assert b.values["offset"] == 1
    return [a, final]


def aborted(told: HistoryBuilder, type: HistoryEventType) -> Sequence[HistoryEvent]:
    send = told.send(A, type=type, error="MESSAGE_TOO_LARGE")
    return [send, told.final((0, A))]


def duplicate(told: HistoryBuilder, idempotent: bool) -> Sequence[HistoryEvent]:
    marks = {} if idempotent else {"idempotent": False}
    send = told.send(A, 0, **marks)
    told.send(B, 2, **marks)
    return [send, told.final((0, A), (1, A), (2, B))]


def nonmonotonic_send(told: HistoryBuilder, second: str) -> Sequence[HistoryEvent]:
    sends = [told.send(A, 1), told.send(B, 0, process=second)]
    told.final((0, B), (1, A))
    return sends


def reader(told: HistoryBuilder, *polls: Sequence[tuple[int, str]]) -> Sequence[HistoryEvent]:
    sent(told)
    told.assign()
    read = [told.poll(*poll) for poll in polls]
    told.final(*WHOLE)
    return read


CASES = {
    "inconsistent offsets": AnomalyCase(
        lambda t: [*sent(t, 2), t.poll((0, A), (1, D)), t.final((0, A), (1, B))][2:],
        lambda t: [sent(t, 2), t.poll((0, A), (1, B)), t.final((0, A), (1, B))],
        f"chaos-0@1 is {D} for reader-0 and {B} for final-reader",
        ("unsent",),
    ),
    "vanished": AnomalyCase(
        lambda t: [t.send(A, 0), t.send(B, type=INFO), t.poll((0, A), (1, B)), t.final((0, A))][1:3],
        lambda t: [t.send(A, 0), t.send(B, type=INFO), t.poll((0, A)), t.final((0, A))],
        f"reader-0 read {B} at chaos-0@1, which the final reader did not receive",
    ),
    "duplicate": AnomalyCase(
        lambda t: duplicate(t, True), lambda t: duplicate(t, False), f"record {A} of an idempotent"
    ),
    "lost write": AnomalyCase(
        lost,
        lambda t: [t.send(A, type=INFO), t.send(B, 1), t.final((1, B))],
        f"record {A} was acknowledged at chaos-0@0 and never read, though offset 1 was",
    ),
    "unseen": AnomalyCase(
        lambda t: [*sent(t, 3)[2:], t.final((0, A), (1, B))][:1],
        lambda t: [*sent(t, 2), t.send(C, 2, acks="0"), t.final((0, A), (1, B))],
        f"record {C} was acknowledged at chaos-0@2, and the final reader did not receive it",
    ),
    "misplaced": AnomalyCase(
        lambda t: [t.send(A, 0), t.send(B, 5), t.final((0, A), (1, B))][1:2],
        lambda t: [t.send(A, 0), t.send(B, 1), t.final((0, A), (1, B))],
        f"record {B} was acknowledged at chaos-0@5, where the final reader found nothing",
    ),
    "aborted read": AnomalyCase(
        lambda t: aborted(t, FAIL),
        lambda t: aborted(t, INFO),
        f"the send of {A} failed (MESSAGE_TOO_LARGE), and it was read at chaos-0@0",
    ),
    "unsent": AnomalyCase(
        lambda t: [*sent(t, 1), t.final((0, A), (1, D))][1:],
        lambda t: [*sent(t, 1), t.send(D, type=INFO), t.final((0, A), (1, D))],
        f"{D} was read at chaos-0@1, and no client sent it",
    ),
    "nonmonotonic send": AnomalyCase(
        lambda t: nonmonotonic_send(t, "producer-0"),
        lambda t: nonmonotonic_send(t, "producer-0.1"),
        f"producer-0 sent {B} after the record at chaos-0@1, and it was acknowledged at offset 0",
    ),
    "poll skip": AnomalyCase(
        lambda t: reader(t, [(0, A)], [(2, C)]),
        lambda t: reader(t, [(0, A)], [], [(1, B), (2, C)]),
        "reader-0 received chaos-0@2 directly after offset 0, though there are records between them",
    ),
    "nonmonotonic poll": AnomalyCase(
        lambda t: reader(t, [(0, A), (1, B)], [(0, A)])[:2],
        lambda t: [reader(t, [(0, A), (1, B)]), t.poll((0, A), process="reader-0.1")],
        "reader-0 went back: it received chaos-0@0 after offset 1",
    ),
    "int poll skip": AnomalyCase(
        lambda t: reader(t, [(0, A), (2, C)]),
        lambda t: reader(t, [(0, A), (1, B), (2, C)]),
        "records between them, within one poll",
    ),
    "int nonmonotonic poll": AnomalyCase(
        lambda t: reader(t, [(0, A), (1, B), (0, A)]),
        lambda t: reader(t, [(0, A), (1, B)], [(2, C)]),
        "it received chaos-0@0 after offset 1, within one poll",
    ),
}


def judged(told: HistoryBuilder, *, is_whole: bool = True, **values: object) -> RunVerdict:
    """Judge a history of a run that has no faults. With `is_whole`, the producer also has a success in another
    partition, and the final reader received that record and reached the end."""
    if is_whole:
        told.send("producer-0/besides", 0, place=OTHER)
        told.final((0, "producer-0/besides"), place=OTHER)
    return decide_verdict(info_of(**{"healed_ms": 0.0, **values}), told.events, [], samples_of())


def test_every_log_anomaly_has_a_handwritten_history() -> None:
    assert CASES.keys() == ANOMALIES.keys()


@pytest.mark.parametrize("name", ANOMALIES)
def test_checks_catch_each_anomaly_and_name_the_operations_that_prove_it(name: str) -> None:
    told = HistoryBuilder()
    proofs = CASES[name].bad(told)
    verdict = judged(told)
    assert verdict.verdict == INVALID
    assert {anomaly.name for anomaly in verdict.anomalies} == {name, *CASES[name].others}
    [found] = [anomaly for anomaly in verdict.anomalies if anomaly.name == name]
    assert CASES[name].words in found.text
    assert found.place == "chaos-0"
    assert {event.index for event in proofs} <= {*found.operations}
    assert verdict.anomaly_counts[name] == 1


@pytest.mark.parametrize("name", ANOMALIES)
def test_a_sound_history_similar_to_each_anomaly_is_valid(name: str) -> None:
    told = HistoryBuilder()
    CASES[name].good(told)
    verdict = judged(told)
    assert (verdict.verdict, verdict.reasons, verdict.anomalies) == (VALID, (), ())


@pytest.mark.parametrize("name", ANOMALIES)
def test_an_allowed_anomaly_is_counted_and_shown_and_the_run_is_valid(name: str) -> None:
    told = HistoryBuilder()
    CASES[name].bad(told)
    allowed = judged(told, allowed=(name, *CASES[name].others))
    assert allowed.anomaly_counts[name] == 1
    assert all(anomaly.is_allowed for anomaly in allowed.anomalies)
    assert allowed.verdict == VALID


def test_a_run_without_the_anomaly_that_its_scenario_must_show_has_an_unknown_verdict() -> None:
    told = HistoryBuilder()
    sent(told)
    told.final(*WHOLE)
    verdict = judged(told, allowed=("lost write",), must_find=("lost write",))
    assert verdict.verdict == UNKNOWN
    assert "'lost write'" in verdict.reasons[0]


def test_a_run_without_a_final_reader_has_an_unknown_verdict() -> None:
    told = HistoryBuilder()
    sent(told)
    verdict = judged(told, is_whole=False)
    assert (verdict.verdict, verdict.anomalies) == (UNKNOWN, ())
    assert "final reader" in verdict.reasons[0]


def test_a_final_reader_that_stopped_early_proves_losses_only_before_its_last_offset() -> None:
    told = HistoryBuilder()
    sent(told, 4)
    told.final((0, A), (2, C))
    told.end(told.begin(FINAL_READER, Function.POLL), INFO, "given up at the end")
    verdict = judged(told, is_whole=False)
    assert [(anomaly.name, anomaly.evidence["value"]) for anomaly in verdict.anomalies] == [("lost write", B)]
    assert "stopped in chaos-0 at offset 2, and offset 3 is known" in verdict.reasons[0]


def test_a_restarted_final_reader_after_a_failed_attempt_is_no_anomaly() -> None:
    told = HistoryBuilder()
    sent(told)
    told.assign(FINAL_READER)
    told.final((0, A), (1, B))
    told.end(told.begin(FINAL_READER, Function.POLL), FAIL, "TimeoutError")
    told.assign(FINAL_READER)
    told.final(*WHOLE)
    assert judged(told).verdict == VALID


def test_a_group_member_may_skip_records_after_an_assignment() -> None:
    def history(with_assign: bool) -> HistoryBuilder:
        told = HistoryBuilder()
        sent(told)
        told.assign("member-0")
        told.poll((0, A), process="member-0")
        told.commit("member-0", 1)
        told.poll(process="member-0")
        if with_assign:
            told.assign("member-0")
        told.poll((2, C), process="member-0")
        told.final(*WHOLE)
        return told

    assert judged(history(True)).verdict == VALID
    assert judged(history(False)).anomaly_counts == {"poll skip": 1}


def test_a_group_members_poll_with_a_rebalance_in_it_need_not_continue_earlier_reads() -> None:
    told = HistoryBuilder()
    sent(told)
    told.commit("member-0", 0)
    told.poll((2, C), process="member-0")
    told.poll((0, A), (2, C), (1, B), process="member-0")
    told.assign("member-0")
    told.final(*WHOLE)
    assert judged(told).verdict == VALID


def test_an_acknowledgement_without_an_offset_guarantees_the_record_but_not_its_offset() -> None:
    told = HistoryBuilder()
    told.send(A, 0)
    told.send(B)
    told.final((0, A), (4, B))
    assert judged(told).verdict == VALID
    lost = HistoryBuilder()
    lost.send(A, -1)
    lost.send(B, 1)
    lost.final((1, B))
    assert judged(lost).anomaly_counts == {"unseen": 1}


def test_records_without_a_known_sender_are_allowed_with_a_users_application() -> None:
    def history(with_send: bool) -> HistoryBuilder:
        told = HistoryBuilder()
        if with_send:
            told.send(A, 0)
        told.poll((0, A), (1, "of the application"))
        told.final((0, A), (1, "of the application"))
        return told

    as_application = {"application": ("app",), "application_exit": 0}
    assert judged(history(False), is_whole=False, **as_application).verdict == VALID
    assert judged(history(True), **as_application).anomaly_counts == {"unsent": 1}
    assert judged(history(False)).anomaly_counts == {"unsent": 2}


def test_only_the_smallest_of_many_anomalies_are_kept_but_all_are_counted() -> None:
    told = HistoryBuilder()
    for number in range(100):
        told.send(f"producer-0/{number}", number)
    told.send("producer-0/last", 100)
    told.final((100, "producer-0/last"))
    verdict = judged(told)
    assert verdict.anomaly_counts == {"lost write": 100}
    kept: list[FoundAnomaly] = [*verdict.anomalies]
    assert [anomaly.evidence["offset"] for anomaly in kept] == [*range(EVIDENCE_MAX)]


def test_a_history_of_fifty_thousand_operations_with_a_tenth_lost_is_judged_in_time() -> None:
    """Fifty thousand operations are judged before the test's timeout. A checker whose work grows quadratically with the
    number of operations would exceed it."""
    told, count = HistoryBuilder(), 50_000
    for number in range(count):
        told.send(f"producer-{number % 3}/{number}", number, process=f"producer-{number % 3}")
    records = [(number, f"producer-{number % 3}/{number}") for number in range(count) if number % 10]
    for begin in range(0, count, 100):
        told.poll(*records[begin : begin + 100])
    told.final(*records)
    assert judged(told).anomaly_counts == {"lost write": count // 10}


def test_partitions_with_the_same_number_in_different_topics_are_judged_separately() -> None:
    told = HistoryBuilder()
    told.send(A, 0)
    told.send(B, 0, place=P._replace(partition=2))
    told.final((0, A))
    told.final((0, B), place=P._replace(partition=2))
    assert judged(told).verdict == VALID
