"""Tests of the checks of a whole history of transactions: handwritten histories to accept, and one of each anomaly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraft.sim.check.observations import LoggedTransaction
from kraft.sim.check.transactions.histories import (
    ClientTransaction,
    ReportedOutcome,
    TransactionHistory,
    judge_transactions,
)
from kraft.sim.check.transactions.ledger import LoggedState, TransactionLedger

ONE, TWO, COPIES = ("transfers", 0), ("transfers", 1), ("copies", 0)
COMMITTED, ABORTED, UNKNOWN = ReportedOutcome.COMMITTED, ReportedOutcome.ABORTED, ReportedOutcome.UNKNOWN
S = LoggedState


def ledger_of(**decisions: bool | None) -> TransactionLedger:
    """Return a transaction log with one transaction of producer id 7 for each epoch. `e0=True` is a committed
    transaction of epoch 0; False is an aborted and None an open one."""
    ledger = TransactionLedger()
    for name, is_commit in decisions.items():
        epoch = int(name.removeprefix("e"))
        states: list[tuple[int, int]] = [(S.ONGOING, epoch)]
        if is_commit is not None:
            ends = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if is_commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
            states += [(end, epoch + 1) for end in ends]
        for state, at_epoch in states:
            ledger.add(LoggedTransaction("payments", state, 7, at_epoch, frozenset({ONE}), -1))
    return ledger


def transaction(epoch: int, outcome: ReportedOutcome, *records: tuple[bytes, Any], **rest: Any) -> ClientTransaction:
    requests_commit = rest.pop("requests_commit", outcome is not ABORTED)
    return ClientTransaction("payments", (7, epoch), epoch, requests_commit, outcome, list(records), **rest)


FIRST = transaction(0, COMMITTED, (b"a", ONE), (b"b", TWO))
SECOND = transaction(1, ABORTED, (b"c", ONE))
COPY = transaction(2, COMMITTED, (b"copy of a", COPIES), offsets={ONE: 1})
LEDGER = ledger_of(e0=True, e1=False, e2=True)
GOOD = TransactionHistory(
    transactions=[FIRST, SECOND, COPY],
    along={ONE: [(0, b"a")], TWO: [(0, b"b")], COPIES: [(0, b"copy of a")]},
    committed={ONE: [(0, b"a")], TWO: [(0, b"b")], COPIES: [(0, b"copy of a")]},
    everything={ONE: [(0, b"a"), (2, b"c")], TWO: [(0, b"b")], COPIES: [(0, b"copy of a")]},
    offsets={ONE: 1, TWO: None},
    inputs=frozenset({ONE}),
    sources={b"copy of a": b"a"},
)


def found_in(history: TransactionHistory, ledger: TransactionLedger = LEDGER) -> set[str]:
    return {anomaly.check for anomaly in judge_transactions(history, ledger)}


def test_checks_accept_a_history_with_a_commit_an_abort_and_a_copy() -> None:
    assert found_in(GOOD) == set()


def test_checks_accept_either_outcome_of_a_commit_without_a_response() -> None:
    unsure = transaction(1, UNKNOWN, (b"c", ONE))
    assert found_in(replace(GOOD, transactions=[FIRST, unsure, COPY])) == set()
    both = {ONE: [(0, b"a"), (2, b"c")], TWO: [(0, b"b")], COPIES: [(0, b"copy of a")]}
    committed = replace(GOOD, transactions=[FIRST, unsure, COPY], along=both, committed=both, inputs=frozenset())
    assert found_in(committed, ledger_of(e0=True, e1=True, e2=True)) == set()


def test_checks_accept_an_empty_transaction_with_the_producer_epoch_of_the_next_transaction() -> None:
    empty = transaction(0, ABORTED)
    assert found_in(replace(GOOD, transactions=[empty, FIRST, SECOND, COPY])) == set()


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("T6", {"committed": GOOD.committed | {ONE: [(0, b"a"), (2, b"c")]}}),
        ("T1", {"committed": GOOD.committed | {ONE: [(0, b"a"), (4, b"a")]}}),
        ("T1", {"everything": GOOD.everything | {ONE: [(0, b"a"), (2, b"c"), (3, b"c")]}}),
        ("D14", {"committed": GOOD.committed | {TWO: [(0, b"b"), (1, b"x")]}}),
        ("D14", {"everything": GOOD.everything | {TWO: [(0, b"b"), (1, b"x")]}}),
        ("T5", {"committed": GOOD.committed | {TWO: []}}),
        ("L10", {"committed": GOOD.committed | {COPIES: []}}),
        ("D10", {"everything": GOOD.everything | {TWO: []}}),
        ("C2", {"along": GOOD.along | {ONE: [(2, b"c")]}}),
        ("C2", {"along": GOOD.along | {ONE: []}}),
        ("C2", {"along": {ONE: [(0, b"a")]}}),
        ("C2", {"along": GOOD.along | {ONE: [(0, b"a"), (2, b"c")]}}),
        ("T11", {"sources": {}}),
        ("T11", {"offsets": {ONE: 0, TWO: None}}),
        ("T11", {"offsets": {ONE: 1, TWO: 1}}),
        ("C1", {"committed": GOOD.committed | {TWO: [], ONE: [(0, b"a"), (1, b"b")]}}),
        ("T9", {"transactions": [transaction(0, ABORTED, *FIRST.records), SECOND, COPY]}),
        ("T9", {"transactions": [FIRST, transaction(1, COMMITTED, *SECOND.records), COPY]}),
        ("T9", {"transactions": [transaction(0, UNKNOWN, *FIRST.records, requests_commit=False), SECOND, COPY]}),
    ],
)
def test_checks_catch_each_anomaly_in_a_history_of_transactions(check: str, changes: dict[str, Any]) -> None:
    assert check in found_in(replace(GOOD, **changes))


def test_checks_catch_a_record_with_two_committed_copies() -> None:
    again = transaction(3, COMMITTED, (b"again a", COPIES), offsets={ONE: 1})
    history = replace(
        GOOD,
        transactions=[FIRST, SECOND, COPY, again],
        along=GOOD.along | {COPIES: [(0, b"copy of a"), (2, b"again a")]},
        committed=GOOD.committed | {COPIES: [(0, b"copy of a"), (2, b"again a")]},
        everything=GOOD.everything | {COPIES: [(0, b"copy of a"), (2, b"again a")]},
        sources={b"copy of a": b"a", b"again a": b"a"},
    )
    assert found_in(history, ledger_of(e0=True, e1=False, e2=True, e3=True)) == {"T11"}


def test_checks_catch_a_committed_read_of_a_record_of_an_open_transaction() -> None:
    still_open = transaction(1, UNKNOWN, (b"c", ONE))
    committed = GOOD.committed | {ONE: [(0, b"a"), (2, b"c")]}
    history = replace(GOOD, transactions=[FIRST, still_open, COPY], committed=committed)
    assert "T6" in found_in(history, ledger_of(e0=True, e2=True, e1=None))
