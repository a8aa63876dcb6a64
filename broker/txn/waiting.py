"""Additions of partitions that wait until their transactional id has no write in flight.

A producer that writes to partitions of several leaders begins its transaction with one addition from each leader, all
at once. The first is written. The others wait for that write and are then written together. An addition for the next
transaction waits while the last one is being completed, but only for a short time after its decision.

Without the wait each of them would get CONCURRENT_TRANSACTIONS, which costs 20 ms before the leader asks again. A
request of a leader holds additions of several ids, and waits for the slowest. So the time is bounded.
Source: KIP-890, docs/transactions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kraft.broker.txn.requests import AddRequest, ErrorReply, Ticket
from kraft.broker.txn.shard import TransactionShard, TransactionTimer, TransactionTimerKind
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.step import StepBuilder
from kraft.broker.txn.transaction import Transaction
from kraft.wire.error_codes import ErrorCode

WAITING_MAX = 100
"""Maximum number of additions that wait for one id."""
COMPLETION_WAIT_MS = 20
"""Time after the decision of a transaction for which additions wait for its completion; that of one repetition."""


class WaitingAddition(NamedTuple):
    """An addition of partitions, and where its reply goes."""

    request: AddRequest
    ticket: Ticket


def wait_if_short(
    shard: TransactionShard, transaction: Transaction, request: AddRequest, ticket: Ticket, builder: StepBuilder
) -> bool:
    """Let the addition wait if what is in its way will be over soon; else return False."""
    if len(transaction.waiting) >= WAITING_MAX:
        return False
    pending, completion = transaction.pending, transaction.completion
    if completion is not None:
        until_ms = completion.began_ms + COMPLETION_WAIT_MS
        if builder.now.monotonic_ms >= until_ms:
            return False
        shard.timers.set(TransactionTimer(TransactionTimerKind.WAIT, transaction.transactional_id), until_ms)
    elif pending is None or pending.value is None or pending.value.state is not TransactionState.ONGOING:
        return False
    elif pending.ticket is None:
        return False  # the reply of the write was due before it was committed, so it may take long
    transaction.waiting.append(WaitingAddition(request, ticket))
    return True


def take_waiting(shard: TransactionShard, transaction: Transaction) -> Sequence[WaitingAddition]:
    """Remove and return the additions that wait, with those of one identity combined into one."""
    shard.timers.cancel(TransactionTimer(TransactionTimerKind.WAIT, transaction.transactional_id))
    waiting, transaction.waiting = transaction.waiting, []
    by_identity: dict[tuple[int, int], list[WaitingAddition]] = {}
    for one in waiting:
        by_identity.setdefault((one.request.producer_id, one.request.producer_epoch), []).append(one)
    return [_combined(same) for same in by_identity.values()]


def refuse_waiting(shard: TransactionShard, transaction: Transaction, error: ErrorCode, builder: StepBuilder) -> None:
    """Reply with this error to the additions that wait."""
    for request, ticket in take_waiting(shard, transaction):
        builder.reply(ticket, request.refused(error))


def _combined(additions: Sequence[WaitingAddition]) -> WaitingAddition:
    if len(additions) == 1:
        return additions[0]
    partitions = frozenset[tuple[str, int]]().union(*(one.request.partitions for one in additions))
    tickets = tuple(one.ticket for one in additions)
    return WaitingAddition(additions[0].request._replace(partitions=partitions), partial(_answer_all, tickets))


def _answer_all(tickets: Sequence[Ticket], reply: ErrorReply) -> None:
    for ticket in tickets:
        ticket(reply)
