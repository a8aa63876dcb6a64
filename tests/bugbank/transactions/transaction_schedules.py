"""Schedules for transactions: the coordinator with its log in memory, one partition's log, and runs of the simulator
whose clients are transactional producers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import LAST_USABLE_EPOCH
from kraft.sim.nemesis.drawn_transactions import draw_transaction_faults, draw_transactions
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import COMMIT_TRANSACTION, TRANSACTION_VERSION_MAX, TRANSACTOR, PlannedOperation
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import run_plan
from kraft.sim.workload.transactional_producers import PIPELINER
from kraft.sim.world.chance import NamedRandom
from kraft.storage.append import AppendOrigin, AppendRefused
from kraft.storage.log import Log, LogConfig
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.produce.test_verification import Producing, producing
from tests.broker.txn.coordinating import ID, ORDERS, Coordinating
from tests.bugbank.campaign import slow
from tests.bugbank.mutation import require
from tests.stages.batches import NOW_MS, batch, lead, marker, open_log
from tests.stages.machine import Machine
from tests.stages.part_stage import PartStage

DURATION_MS = 10_000
LANE = 90
"""A lane that no drawn fault has."""
PRODUCER = 7
BUMPING = 2
PIPELINE_PERIOD_MS = 100


@slow
def transactions(seed: int) -> list[str]:
    """Run the drawn cluster and the drawn faults of a seed, with transactional producers only."""
    plan = draw_plan(seed, FaultSettings(duration_ms=DURATION_MS))
    aimed = draw_transaction_faults(NamedRandom(seed, "transaction faults"), DURATION_MS, LANE)
    work = {TRANSACTOR: draw_transactions(NamedRandom(seed, TRANSACTOR), DURATION_MS)}
    findings = run_plan(replace(plan, work=work, faults=(*plan.faults, *aimed))).findings
    return [finding.check for finding in sorted(findings, key=lambda finding: finding.at_ms)]


@slow
def pipelining(seed: int) -> list[str]:
    """Run the drawn cluster of a seed without faults, with a transactional producer that pipelines."""
    times = range(0, DURATION_MS, PIPELINE_PERIOD_MS)
    work = tuple(
        PlannedOperation(at_ms, COMMIT_TRANSACTION, PIPELINER, 2 * number) for number, at_ms in enumerate(times)
    )
    plan = replace(draw_plan(seed, FaultSettings(duration_ms=DURATION_MS)), faults=(), work={TRANSACTOR: work})
    found = run_plan(replace(plan, transaction_version=TRANSACTION_VERSION_MAX)).findings
    return [finding.check for finding in sorted(found, key=lambda finding: finding.at_ms)]


# the coordinator


def _begun(one: Coordinating) -> Any:
    """Begin a transaction of a new producer. Return its identity."""
    given = one.init()
    one.add(given.producer_id, given.producer_epoch)
    return given


def a_late_end(seed: int) -> None:
    """Deliver a second copy of an EndTxn request when the next transaction of the producer is open."""
    one = Coordinating(version=BUMPING)
    first = _begun(one)
    following = one.end(first.producer_id, first.producer_epoch, commit=True, bumps=True)
    one.confirm_markers()
    one.add(following.producer_id, following.producer_epoch)
    one.end(first.producer_id, first.producer_epoch, commit=True, bumps=True)
    state = one.value.state
    require("T9", state is TransactionState.ONGOING, f"a request of the last transaction has ended this one: {state}")


def a_late_report(seed: int) -> None:
    """Report the markers of a transaction as written once more, while those of the next transaction are written."""
    one = Coordinating(version=BUMPING)
    first = _begun(one)
    following = one.end(first.producer_id, first.producer_epoch, commit=True, bumps=True)
    (markers,) = one.markers
    one.confirm_markers()
    one.add(following.producer_id, following.producer_epoch)
    one.end(following.producer_id, following.producer_epoch, commit=True, bumps=True)
    for partition in sorted(ORDERS):
        one.confirm(markers, partition)
    state = one.value.state
    require("T8", state is TransactionState.PREPARE_COMMIT, f"complete without its own markers: {state}")


def failed_writes(seed: int) -> None:
    """Let the writes of a coordinator fail while a producer repeats InitProducerId."""
    one = Coordinating()
    known = one.init()
    one.commits = False
    for _ in range(3):
        one.init()
        one.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    one.commits = True
    again = one.init()
    due = known.producer_epoch + 1
    require("T10", again.producer_epoch == due, f"epoch {again.producer_epoch} after {known.producer_epoch}")


def the_next_producer_id_is_used_at_once(seed: int) -> None:
    """Let a producer whose epochs are used up abort its next transaction before the last one is complete."""
    value = TransactionValue(PRODUCER, LAST_USABLE_EPOCH, 60_000, TransactionState.ONGOING, ORDERS, start_ms=0)
    one = Coordinating({ID: value}, version=BUMPING)
    following = one.end(PRODUCER, LAST_USABLE_EPOCH, commit=True, bumps=True)
    error = one.end(following.producer_id, following.producer_epoch, commit=False, bumps=True).error
    require("L7", error is ErrorCode.CONCURRENT_TRANSACTIONS, f"the producer cannot abort: {error.name}")


# one log


def _log() -> Log:
    return open_log(Machine(), LogConfig(segment_bytes=1 << 20))


def _data(log: Log, epoch: int, sequence: int = 0) -> int:
    record = batch(1, producer=(PRODUCER, epoch, sequence), transactional=True)
    return lead(log, record).base_offset


def _end(log: Log, epoch: int, version: int) -> None:
    log.producers.check_marker(PRODUCER, epoch, 0, version)
    lead(log, marker(PRODUCER, epoch, commit=True), origin=AppendOrigin.COORDINATOR)


def a_log_changes_while_the_coordinator_is_asked(seed: int) -> None:
    """Truncate a log, and let a copy take its place, while the first batch of a transaction waits."""
    log, copy = _log(), _log()
    for one in (log, log, copy):
        lead(one, batch(1))
    held = log.producers.begin_verification(PRODUCER, 0, 0, adds=True, now_ms=NOW_MS)
    log.truncate_to(1, NOW_MS)
    copy.copy_state_of(log)
    record = batch(1, producer=(PRODUCER, 0, 0), transactional=True)
    for one in (log, copy):
        try:
            lead(one, record, verification=held)
        except AppendRefused as refused:
            require("L7", False, str(refused))


def an_open_transaction_at_the_end(seed: int) -> None:
    """Read up to the last stable offset while a transaction is open at the end of the log."""
    log = _log()
    lead(log, batch(3))
    first = _data(log, 0)
    log.update_high_watermark(log.log_end_offset)
    require("T6", log.last_stable_offset <= first, f"{log.last_stable_offset} includes the open one at {first}")


def data_after_the_marker(seed: int) -> None:
    """Hold a batch whose enrolment is verified until its transaction has ended, then append it."""
    log = _log()
    verified = log.producers.begin_verification(PRODUCER, 0, 0, adds=False, now_ms=NOW_MS)
    _end(log, 0, version=0)
    late = batch(1, producer=(PRODUCER, 0, 0), transactional=True)
    try:
        lead(log, late, verification=verified)
    except AppendRefused:
        return
    require("T12", False, "data was appended behind the marker of its transaction")


def a_repeated_marker(seed: int) -> None:
    """Write a marker a second time, because the response to the first was lost."""
    log = _log()
    _data(log, 0)
    _end(log, 1, version=BUMPING)
    try:
        _end(log, 1, version=BUMPING)
    except AppendRefused as refused:
        require("T7", False, f"the transaction stays decided for ever: {refused}")


# a partition leader


def a_later_batch(seed: int) -> None:
    """Send a batch when the first one of its transaction is appended and older ones have no answer of their own."""
    errors: list[ErrorCode] = []

    async def test(stage: PartStage, client: Producing) -> None:
        for sequence in range(3):
            client.send(sequence)
        client.answer()
        client.send(3)
        while client.questions:
            client.answer()
        errors.extend(client.errors())

    producing(test)
    is_in_order = errors == [ErrorCode.NONE] * 4
    require("L7", is_in_order, f"the producer sent its batches in order and was answered {errors}")
