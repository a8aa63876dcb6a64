"""The demo's accounts find what they are there to find."""

from __future__ import annotations

from tests.demo.ledger import Acknowledgement, Ledger


def ledger(times: list[float], read: list[int]) -> Ledger:
    acknowledged = [Acknowledgement(number, 0, number, time) for number, time in enumerate(times)]
    return Ledger(sent=len(times), acknowledged=acknowledged, read=[(0, number) for number in read])


def test_a_record_that_was_acknowledged_and_never_read_is_lost() -> None:
    accounts = ledger([0.0, 0.1, 0.2], [0, 2])
    assert accounts.lost() == [1]
    assert accounts.doubled() == []


def test_a_record_that_was_read_twice_is_doubled() -> None:
    accounts = ledger([0.0, 0.1], [0, 1, 1])
    assert accounts.lost() == []
    assert accounts.doubled() == [1]


def test_the_gap_is_the_longest_silence_after_the_kill() -> None:
    accounts = ledger([0.0, 1.0, 1.5, 1.6], [0, 1, 2, 3])
    assert accounts.gap_ms(1.1, 2.0, frozenset({0})) == 500
    assert accounts.gap_ms(1.1, 2.0, frozenset()) == 0


def test_a_partition_that_never_came_back_counts_to_the_end() -> None:
    assert ledger([0.0], [0]).gap_ms(1.0, 3.0, frozenset({0})) == 2000
