"""Tests with handwritten client histories: each anomaly is found, and a similar history without it is accepted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraft.sim.check.histories.client_histories import (
    ABORTED_READ,
    ANOMALIES,
    DUPLICATE,
    INCONSISTENT_OFFSETS,
    INT_NONMONOTONIC_POLL,
    INT_POLL_SKIP,
    LOST_WRITE,
    MISPLACED,
    NONMONOTONIC_POLL,
    NONMONOTONIC_SEND,
    POLL_SKIP,
    UNSEEN,
    UNSENT,
    VANISHED,
    Dropped,
    HistoryJudgement,
    Poll,
    Reading,
    SendOutcome,
    SentValue,
    judge,
)

P = ("orders", 0)
OTHER = ("orders", 1)
A, B, C, D = b"a", b"b", b"c", b"d"
READER, FINAL = "reader", "final"


def acked(value: bytes, offset: int, *, is_awaited: bool = True, is_once: bool = True) -> SentValue:
    return SentValue("p", P, value, SendOutcome.ACKNOWLEDGED, offset, is_awaited, is_once)


def ended(value: bytes, outcome: SendOutcome) -> SentValue:
    return SentValue("p", P, value, outcome)


def poll(*records: tuple[int, bytes]) -> Poll:
    return Poll(P, records)


ALL = [acked(A, 0), acked(B, 1), acked(C, 2)]
WHOLE = [poll((0, A), (1, B), (2, C))]
WITH_D = [poll((0, A), (1, B), (2, C), (3, D))]
AWAY = Dropped([P])


def judged(
    sends: Sequence[SentValue] = ALL, final: Sequence[Reading] = WHOLE, reader: Sequence[Reading] = ()
) -> HistoryJudgement:
    return judge(sends, {READER: reader, FINAL: final}, FINAL)


History = tuple[Sequence[SentValue], Sequence[Reading], Sequence[Reading]]
"""(sends, records that the final reader got, records that another reader got)."""

FOUND: dict[str, tuple[str, History]] = {
    "two readers, two values": (INCONSISTENT_OFFSETS, (ALL, WHOLE, [poll((0, A), (1, D))])),
    "an offset that was used again": (INCONSISTENT_OFFSETS, ([*ALL, acked(D, 2)], WHOLE, [poll((2, D))])),
    "read, and then cut away": (VANISHED, (ALL[:2], [poll((0, A))], [poll((0, A), (1, B))])),
    "a doubled record": (DUPLICATE, (ALL, [poll((0, A), (1, B), (2, C), (3, A))], [])),
    "a hole before what was read": (LOST_WRITE, (ALL, [poll((0, A), (2, C))], [])),
    "the end is gone": (UNSEEN, (ALL, [poll((0, A), (1, B))], [])),
    "nothing is there": (UNSEEN, (ALL, [], [])),
    "at another offset than told": (MISPLACED, (ALL[:2], [poll((0, A), (3, B))], [])),
    "it failed, and was read": (ABORTED_READ, ([*ALL, ended(D, SendOutcome.FAILED)], WITH_D, [])),
    "it failed, and was read once": (ABORTED_READ, ([*ALL, ended(D, SendOutcome.FAILED)], WHOLE, [poll((3, D))])),
    "out of nowhere": (UNSENT, (ALL, WITH_D, [])),
    "later sent, earlier in the log": (NONMONOTONIC_SEND, ([acked(B, 1), acked(A, 0)], [poll((0, A), (1, B))], [])),
    "told the same offset twice": (NONMONOTONIC_SEND, ([acked(A, 0), acked(B, 0)], [poll((0, A))], [])),
    "left out between polls": (POLL_SKIP, (ALL, WHOLE, [poll((0, A)), poll((2, C))])),
    "left out in a poll": (INT_POLL_SKIP, (ALL, WHOLE, [poll((0, A), (2, C))])),
    "back between polls": (NONMONOTONIC_POLL, (ALL, WHOLE, [poll((0, A), (1, B)), poll((0, A))])),
    "the same twice": (NONMONOTONIC_POLL, (ALL, WHOLE, [poll((0, A)), poll((0, A))])),
    "back in a poll": (INT_NONMONOTONIC_POLL, (ALL, WHOLE, [poll((1, B), (0, A))])),
}  # fmt: skip

GOOD: dict[str, History] = {
    "all is well": (ALL, WHOLE, [poll((0, A)), poll((1, B), (2, C))]),
    "nobody was promised it (acks=1)": ([*ALL, acked(D, 3, is_awaited=False)], WHOLE, []),
    "doubled, by who may": ([acked(A, 0, is_once=False)], [poll((0, A), (1, A))], []),
    "it timed out, and is there": ([*ALL, ended(D, SendOutcome.UNKNOWN)], WITH_D, []),
    "it timed out, and is not there": ([*ALL, ended(D, SendOutcome.UNKNOWN)], WHOLE, []),
    "it failed, and is not there": ([*ALL, ended(D, SendOutcome.FAILED)], WHOLE, []),
    "polls that gave nothing": ((), [poll()], [poll(), poll()]),
    "a reader that came late": (ALL, WHOLE, [poll((1, B), (2, C))]),
    "a reader that was elsewhere in between": (ALL, WHOLE, [poll((0, A)), AWAY, poll((2, C)), AWAY, poll((0, A))]),
    "holes that no record was in": ([acked(A, 0), acked(C, 7)], [poll((0, A), (7, C))], [poll((0, A)), poll((7, C))]),
    "out of order, by who may": ([acked(B, 1, is_once=False), acked(A, 0, is_once=False)], [poll((0, A), (1, B))], []),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_checks_catch_each_anomaly_of_a_client_history(case: str) -> None:
    name, history = FOUND[case]
    assert name in {anomaly.name for anomaly in judged(*history).anomalies}


@pytest.mark.parametrize("case", GOOD)
def test_checks_accept_client_histories_without_an_anomaly(case: str) -> None:
    assert judged(*GOOD[case]).anomalies == []


def test_each_anomaly_has_a_handwritten_history_without_unrelated_anomalies() -> None:
    assert {name for name, _ in FOUND.values()} == set(ANOMALIES)
    for case, (name, history) in FOUND.items():
        others = {anomaly.name for anomaly in judged(*history).anomalies} - {name}
        allowed = {
            "two readers, two values": {UNSENT},
            "an offset that was used again": {UNSEEN, NONMONOTONIC_SEND, POLL_SKIP},
            "read, and then cut away": {UNSEEN},
            "it failed, and was read once": {VANISHED},
            "told the same offset twice": {LOST_WRITE},
        }
        assert others <= allowed.get(case, set()), (case, others)


def test_the_check_of_a_client_history_treats_each_partition_and_each_reader_separately() -> None:
    sends = [acked(A, 0), SentValue("p", OTHER, B, SendOutcome.ACKNOWLEDGED, 0)]
    final = [poll((0, A)), Poll(OTHER, [(0, B)])]
    assert judged(sends, final).anomalies == []
    [anomaly] = judged(sends, final[:1]).anomalies
    assert (anomaly.name, anomaly.place, anomaly.check) == (UNSEEN, OTHER, "L10")


def test_the_check_of_a_client_history_counts_the_values_that_could_have_violated_each_invariant() -> None:
    assert not judged((), ()).seen
    seen = judged([*ALL, ended(D, SendOutcome.FAILED)], WHOLE, [poll((0, A))]).seen
    assert dict(seen) == {"L10": 3, "C1": 3, "C7": 1, "T1": 3, "D10": 3, "D14": 3, "C2": 2}
