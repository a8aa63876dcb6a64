"""Tests of the transactional producers of a run: what they do, and that checks catch each bug of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from kraft.broker.api.produce import general_produce
from kraft.broker.api.produce.waiting_batches import WaitingBatches
from kraft.broker.coordinator.marker_sender import CompletionAttempt
from kraft.broker.group import durable
from kraft.broker.group.durable import DurableState
from kraft.broker.txn import coordinator as transaction_coordinator
from kraft.broker.txn import ending, enrolment, identity
from kraft.broker.txn.coordinator import TransactionCoordinator
from kraft.broker.txn.ending import begin_completion
from kraft.broker.txn.requests import EndReply
from kraft.broker.txn.shard import TransactionShard
from kraft.broker.txn.step import Markers
from kraft.client import Consumer, DeliveryFailed, Producer
from kraft.client.core.fetched import FetchedBytes
from kraft.client.transactions import ProducerTransactions
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.cluster.sizes import PRODUCER_EPOCHS, SMALL
from kraft.sim.nemesis.drawn_transactions import KINDS, PRODUCERS
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    ABORT_TRANSACTION,
    COMMIT_TRANSACTION,
    DECIDED,
    DECIDING,
    KILL_PRODUCER,
    LATENCY,
    MOVE_COORDINATOR,
    OPEN,
    OPEN_LEADER,
    OUTLAST_TIMEOUT,
    OVERRIDES,
    RAISE_TRANSACTION_VERSION,
    REPLACE_PRODUCER,
    TRANSACTION_ROLES,
    TRANSACTION_VERBS,
    TRANSACTOR,
    Fault,
    Plan,
    PlannedOperation,
)
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.workload.transactional_producers import PIPELINER
from kraft.storage.log import Log
from kraft.storage.producers import producer_state
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.transactions.transaction_bugs import confirm_oldest_only

SHAPE = ClusterShape(controllers=1, overrides=OVERRIDES)
DURATION_MS = 6_000
COPIER = PRODUCERS - 1
FIRST = f"{TRANSACTOR}-0"
"""Transactional id of the first producer."""
T_CHECKS = {"T4b", "T5", "T6", "T7", "T8", "T9", "T10", "T11", "T12"}


def at(at_ms: int, verb: str, producer: int = 0, amount: int = 9) -> PlannedOperation:
    """Return an operation. By default it writes five records to three partitions."""
    return PlannedOperation(at_ms, verb, producer, amount)


USUAL = (
    at(500, COMMIT_TRANSACTION),
    at(700, COMMIT_TRANSACTION, 1),
    at(1_200, ABORT_TRANSACTION),
    at(1_500, COMMIT_TRANSACTION, COPIER),
    at(1_900, COMMIT_TRANSACTION),
    at(2_300, ABORT_TRANSACTION, COPIER),
    at(2_700, COMMIT_TRANSACTION, COPIER),
)
RARE = (
    at(2_900, MOVE_COORDINATOR, amount=1),
    at(3_000, REPLACE_PRODUCER),
    at(3_300, REPLACE_PRODUCER, COPIER),
    at(3_500, COMMIT_TRANSACTION),
    at(3_600, COMMIT_TRANSACTION, COPIER),
    at(3_700, OUTLAST_TIMEOUT, 1),
    at(4_000, KILL_PRODUCER),
    at(4_300, MOVE_COORDINATOR, amount=2),
    at(4_700, COMMIT_TRANSACTION),
)


def played(
    *work: PlannedOperation, faults: tuple[Fault, ...] = (), seed: int = 1, **settings: Any
) -> tuple[ClusterRun, set[str]]:
    """Carry out a run with this work and these fields of the plan. Return the run, and the codes of its findings."""
    plan = Plan(seed=seed, duration_ms=DURATION_MS, shape=SHAPE, faults=faults, work={TRANSACTOR: work}, **settings)
    run = ClusterRun(seed, RunSettings(plan=plan))
    return run, {finding.check for finding in run.run().findings}


def caught(planting: Callable[[], None], *work: PlannedOperation) -> set[str]:
    """Return the codes of the findings with the bug that `planting` plants. The same run without it has no findings."""
    assert not played(*work)[1]
    planting()
    return played(*work)[1]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_run_with_replaced_killed_and_timed_out_transactional_producers_has_no_findings(version: int) -> None:
    run, found = played(*USUAL, *RARE, transaction_version=version)
    assert not found
    work = run.transactions
    assert work.recorder.committed >= 5
    assert work.recorder.aborted >= 2
    seen = {check.id: check.seen for check in run.checks if check.id in T_CHECKS}
    assert {check for check, count in seen.items() if not count} == set()
    assert work.recorder.offsets_read
    assert work.recorder.sources
    fates = [
        work.recorder.ledger.by_data[each.data]
        for each in work.recorder.transactions
        if each.data in work.recorder.ledger.by_data
    ]
    assert {each.is_commit for each in fates} == {True, False}
    assert all(each.is_complete for each in fates)


def test_transactions_continue_while_the_transaction_version_is_raised() -> None:
    run, found = played(*USUAL, at(2_000, RAISE_TRANSACTION_VERSION), *RARE, transaction_version=0)
    assert not found
    assert run.transactions.recorder.committed >= 5
    transactions = [each for each in run.transactions.recorder.transactions if each.transactional_id == FIRST]
    assert len({each.data for each in transactions}) == len(transactions)


@pytest.mark.parametrize("version", [0, 2])
def test_producers_whose_epochs_are_used_up_continue_with_new_producer_ids(version: int) -> None:
    work = [at(300 + 150 * number, COMMIT_TRANSACTION, number % PRODUCERS) for number in range(30)]
    work = sorted([*work, *RARE], key=lambda operation: operation.at_ms)
    run, found = played(*work, transaction_version=version, small_sizes=(PRODUCER_EPOCHS,))
    assert not found
    used = {each.data for each in run.transactions.recorder.transactions if each.transactional_id == FIRST}
    assert len({producer_id for producer_id, _ in used}) >= 2
    assert max(epoch for _, epoch in used) == SMALL[PRODUCER_EPOCHS]["kraft.broker.txn.transaction:LAST_USABLE_EPOCH"]


PIPELINING = tuple(at(300 + 200 * number, COMMIT_TRANSACTION, PIPELINER, 2 * number) for number in range(26))


def test_a_producer_that_pipelines_sends_batches_before_the_first_one_is_acknowledged() -> None:
    run, found = played(*PIPELINING)
    assert not found
    assert run.transactions.recorder.pipelined >= 50
    assert run.transactions.recorder.committed >= 15


@pytest.mark.parametrize("role", [OPEN, DECIDING, DECIDED, OPEN_LEADER])
def test_pipelined_batches_keep_their_order_while_coordinators_die_and_links_are_slow(role: str) -> None:
    slow = [
        Fault(
            at_ms=400,
            kind=LATENCY,
            lane=node,
            node=node,
            other=1 + node % 3,
            duration_ms=5_000,
            amount=15,
            jitter_ms=10,
        )
        for node in (1, 2, 3)
    ]
    killed = [Fault(at_ms=at_ms, kind="kill", lane=9, role=role, back_ms=300) for at_ms in (900, 3_000)]
    run, found = played(*PIPELINING, faults=(*slow, *killed))
    assert not found
    assert run.transactions.recorder.pipelined >= 50


@pytest.mark.parametrize("role", TRANSACTION_ROLES)
def test_a_kill_with_a_role_in_a_transaction_waits_until_a_node_has_that_role(role: str) -> None:
    work = [at(300 + 60 * number, COMMIT_TRANSACTION, number % PRODUCERS) for number in range(60)]
    killed = Fault(at_ms=1_000, kind="kill", role=role, back_ms=400)
    run, found = played(*work, faults=(killed,))
    assert not found
    assert run.nemesis.moments == {role: 1}


def test_a_pause_with_a_role_in_a_transaction_waits_until_a_node_has_that_role() -> None:
    work = [at(300 + 60 * number, COMMIT_TRANSACTION, number % PRODUCERS) for number in range(60)]
    role = TRANSACTION_ROLES[2]
    run, found = played(*work, faults=(Fault(at_ms=1_000, kind="pause", role=role, duration_ms=2_000),))
    assert not found
    assert run.nemesis.moments == {role: 1}


def test_80_drawn_plans_contain_all_operations_of_transactions_and_faults_at_each_step() -> None:
    plans = [draw_plan(seed, FaultSettings(duration_ms=60_000)) for seed in range(1, 81)]
    drawn = [plan for plan in plans if TRANSACTOR in plan.work]
    assert 8 <= len(drawn) <= 30
    assert {each.verb for plan in drawn for each in plan.work[TRANSACTOR]} == set(TRANSACTION_VERBS)
    aimed = [fault for plan in drawn for fault in plan.faults if fault.role in TRANSACTION_ROLES]
    assert {fault.role for fault in aimed} == set(TRANSACTION_ROLES)
    assert {fault.kind for fault in aimed} == set(KINDS)
    others = [fault for plan in plans if plan not in drawn for fault in plan.faults]
    assert not [fault for fault in others if fault.role in TRANSACTION_ROLES]


def test_checks_accept_a_transaction_whose_only_record_the_producer_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its abort sends no request, so the next transaction has the same producer id and epoch."""
    original = Producer.enqueue
    rejected: list[bytes | None] = []

    async def reject_first(self: Producer, topic: str, value: bytes | None, **settings: Any) -> Any:
        if not rejected:
            rejected.append(value)
            raise DeliveryFailed(ErrorCode.REQUEST_TIMED_OUT, "no metadata", certain=True)
        return await original(self, topic, value, **settings)

    monkeypatch.setattr(Producer, "enqueue", reject_first)
    run, found = played(at(500, COMMIT_TRANSACTION), at(900, COMMIT_TRANSACTION))
    assert not found
    assert rejected
    empty, following = run.transactions.recorder.transactions[:2]
    assert empty.data == following.data


# planted bugs


def test_checks_catch_a_last_stable_offset_that_includes_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Log.last_stable_offset.fget
    assert original is not None
    twin = property(lambda self: min(original(self) + 1, self.high_watermark))
    assert "T6" in caught(lambda: monkeypatch.setattr(Log, "last_stable_offset", twin), *USUAL)


def test_checks_catch_a_read_committed_consumer_that_returns_records_of_aborted_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = FetchedBytes.__init__

    def twin(self: FetchedBytes, *arguments: Any, **settings: Any) -> None:
        original(self, *arguments, **(settings | {"aborted": ()}))

    assert "T6" in caught(lambda: monkeypatch.setattr(FetchedBytes, "__init__", twin), *USUAL)


def test_checks_catch_markers_that_are_written_before_their_decision_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = TransactionCoordinator.handle

    def twin(self: TransactionCoordinator, request: Any, ticket: Any, now: Any) -> Any:
        step = original(self, request, ticket, now)
        early = []
        for entry in step.entries:
            value = entry.value
            if value is not None and value.state.is_prepared and value.partitions:
                is_commit = value.state is value.state.PREPARE_COMMIT
                named = (entry.transactional_id, 0, value.producer_id, value.producer_epoch)
                early.append(Markers(*named, is_commit, value.partitions, value.client_version))
        return step._replace(markers=(*step.markers, *early))

    assert "T8" in caught(lambda: monkeypatch.setattr(TransactionCoordinator, "handle", twin), *USUAL)


def test_checks_catch_a_transaction_that_is_complete_before_its_markers_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twin(shard: TransactionShard, transaction: Any, builder: Any) -> None:
        begin_completion(shard, transaction, builder)
        if transaction.pending is None and transaction.completion is not None:
            transaction.completion.left.clear()
            ending.complete(shard, transaction, builder)

    planting = lambda: monkeypatch.setattr(transaction_coordinator, "begin_completion", twin)  # noqa: E731
    assert "T8" in caught(planting, *USUAL)


def test_checks_catch_a_transaction_with_different_markers_in_two_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CompletionAttempt.to_write.fget
    assert original is not None
    written: list[object] = []

    def twin(self: CompletionAttempt) -> Any:
        written.append(self)
        return original(self)._replace(is_commit=len(written) % 2 == 0)

    assert "T5" in caught(lambda: monkeypatch.setattr(CompletionAttempt, "to_write", property(twin)), *USUAL)


def test_checks_catch_a_write_to_a_partition_that_was_not_added_to_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planting = lambda: monkeypatch.setattr(general_produce, "begin_verification", _ask_nothing)  # noqa: E731
    assert "T12" in caught(planting, *USUAL)


def _ask_nothing(ports: Any, version: int, slot: Any, *_: Any) -> bool:
    slot.verification = NOT_VERIFYING
    return False


def test_checks_catch_a_producer_that_commits_the_transaction_and_reports_an_abort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = ProducerTransactions.abort

    async def twin(self: ProducerTransactions) -> None:
        if self.machine.error is not None:
            await original(self)
        else:
            await self.commit()

    assert "T9" in caught(lambda: monkeypatch.setattr(ProducerTransactions, "abort", twin), *USUAL)


def test_checks_catch_a_producer_id_and_epoch_that_two_producers_receive(monkeypatch: pytest.MonkeyPatch) -> None:
    original = identity._write_identity

    def twin(shard: Any, transaction: Any, value: Any, last_epoch: int, *rest: Any) -> None:
        if value.producer_epoch:
            value = value._replace(producer_epoch=value.producer_epoch - 1)
        original(shard, transaction, value, last_epoch, *rest)

    assert "T10" in caught(lambda: monkeypatch.setattr(identity, "_write_identity", twin), *USUAL, *RARE)


def test_checks_catch_a_group_offset_that_an_aborted_transaction_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = durable.DurableState._with_end

    def twin(self: DurableState, end: Any) -> DurableState:
        return original(self, end._replace(is_commit=True))

    work = (at(500, COMMIT_TRANSACTION), at(1_500, ABORT_TRANSACTION, COPIER), at(2_300, KILL_PRODUCER, COPIER))
    assert "T11" in caught(lambda: monkeypatch.setattr(DurableState, "_with_end", twin), *work)


def test_checks_catch_a_transaction_that_stays_open_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    work = (at(500, OUTLAST_TIMEOUT), at(1_000, KILL_PRODUCER))
    monkeypatch.setattr("kraft.sim.workload.transactional_producers.ProducersOfOneId.run", _start_once)
    planting = lambda: monkeypatch.setattr(TransactionShard, "set_timeout", lambda *_: None)  # noqa: E731
    assert "T7" in caught(planting, *work)


async def _start_once(self: Any) -> None:
    """Start one producer only, so that no other producer with the id aborts its transaction."""
    self.start()


def test_checks_catch_a_write_by_a_fenced_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: neither the coordinator nor the leaders compare epochs."""
    original = enrolment._conflict

    def twin(transaction: Any, value: Any, request: Any) -> ErrorCode:
        return original(transaction, value, request._replace(producer_epoch=value.producer_epoch))

    def planting() -> None:
        monkeypatch.setattr(producer_state, "_check_epoch", lambda *_: None)
        monkeypatch.setattr(enrolment, "_conflict", twin)

    assert "T4b" in caught(planting, *USUAL, *RARE)


def test_checks_catch_a_coordinator_that_fences_each_producer_that_aborts_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next producer with the id aborts the transaction, so all outcomes are right."""
    original = ending._end_current

    def twin(shard: Any, transaction: Any, value: Any, request: Any, ticket: Any, builder: Any) -> None:
        if request.is_commit:
            original(shard, transaction, value, request, ticket, builder)
        else:
            builder.reply(ticket, EndReply(ErrorCode.PRODUCER_FENCED))

    assert "L7" in caught(lambda: monkeypatch.setattr(ending, "_end_current", twin), *USUAL)


def test_checks_catch_a_coordinator_that_fences_one_producer_in_its_second_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another producer with the id replaces it, and the last producers have no error."""
    original = ending._end_current
    ends: list[str] = []

    def twin(shard: Any, transaction: Any, *rest: Any) -> None:
        builder, ticket = rest[-1], rest[-2]
        ends.append(transaction.transactional_id)
        if ends.count(FIRST) == 2 and ends[-1] == FIRST:
            builder.reply(ticket, EndReply(ErrorCode.PRODUCER_FENCED))
        else:
            original(shard, transaction, *rest)

    assert "L7" in caught(lambda: monkeypatch.setattr(ending, "_end_current", twin), *USUAL)


def test_checks_catch_a_later_batch_that_is_checked_although_older_ones_still_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planting = lambda: monkeypatch.setattr(WaitingBatches, "confirm", confirm_oldest_only())  # noqa: E731
    assert "L7" in caught(planting, *PIPELINING)


def test_checks_catch_a_reader_of_committed_records_that_stops_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Consumer.poll
    polled: list[object] = []

    async def twin(self: Consumer, **settings: Any) -> Any:
        if self.config.group_id is not None:
            return await original(self, **settings)
        if len(polled) < 5:
            polled.extend(records := await original(self, **settings))
            return records
        await trio.sleep(settings["timeout_ms"] / 1000)
        return []

    assert {"L7", "C2"} <= caught(lambda: monkeypatch.setattr(Consumer, "poll", twin), *USUAL)
