"""Tests of the check of topics and committed offsets in a run, for two clients that compete for the same names (the
registrars). A run without a bug passes and has input for the check. Bugs are caught that answer before the commit, or
without a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC
from kraft.broker.coordinator.shard_driver import CoordinatorShard
from kraft.broker.group import coordinator
from kraft.broker.group.requests import CommitReply, CommitRequest, PartitionError
from kraft.broker.shard.placement import partition_of
from kraft.control.decide import ADMIN
from kraft.control.topics import create_delete as topics
from kraft.control.topics import grow
from kraft.controller.command_queue import CommandQueue
from kraft.sim.nemesis.drawing import PlanChoices, draw_work
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import ACTIVE_CONTROLLER, COMMIT, CREATE, FETCH, REGISTRARS, Fault, Plan, PlannedOperation
from kraft.sim.run.run import ClusterRun, RunResult, RunSettings, Signature, run_plan
from kraft.sim.run.shrink import Shrinker
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.originals import plant
from tests.stages.tables import replace_row

Bug = Callable[[pytest.MonkeyPatch], None]
DURATION_MS, CUT_MS = 10_000, 3_000
SEEDS = (1, 2, 3)


def plan_of(seed: int, *faults: Fault) -> Plan:
    """Return a plan with only the clients that compete for topics and offsets, whose operations the seed draws."""
    work = draw_work(seed, PlanChoices(registers=True), FaultSettings(duration_ms=DURATION_MS))
    return Plan(
        seed=seed,
        duration_ms=DURATION_MS,
        faults=faults,
        work={name: work[name] for name in REGISTRARS},
        ends_early=True,
    )


FLAPS = tuple(Fault(at_ms=at_ms, kind="flap", role=ACTIVE_CONTROLLER, back_ms=100) for at_ms in range(500, 2_500, 600))
"""Faults that kill the active controller between an append and its commit."""


def cut_off(*nodes: int) -> tuple[Fault, ...]:
    """Faults that cut each of the three controllers in turn off from the other two, but not from other nodes."""
    return tuple(
        Fault(at_ms=500 + number * CUT_MS, kind="cut", lane=lane, node=node, other=other, duration_ms=CUT_MS - 100)
        for number, node in enumerate(nodes)
        for lane, other in enumerate(other for other in nodes if other != node)
    )


CONTROLLERS_CUT_OFF, BROKERS_CUT_OFF = cut_off(101, 102, 103), cut_off(1, 2, 3)


def test_a_run_without_a_bug_has_topic_and_offset_histories_that_are_all_checked() -> None:
    result = run_plan(plan_of(1, *FLAPS))
    assert not result.findings, result.findings[0]
    assert result.counters["R20"] > 10
    assert result.counters["G3b"] > 10
    assert result.counters["undecided"] == 0


def test_a_run_without_clients_that_compete_for_topics_has_no_metadata_histories() -> None:
    result = run_plan(Plan(duration_ms=100, ends_early=True))
    assert {"R20", "G3b"} <= set(result.unseen)


def test_clients_that_compete_for_topics_and_offsets_read_all_values_again_after_recovery() -> None:
    work = {REGISTRARS[0]: (PlannedOperation(0, CREATE, 0), PlannedOperation(10, COMMIT, 1))}
    result = run_plan(Plan(duration_ms=1_000, work=work))
    assert not result.findings, result.findings[0]
    assert (result.counters["R20"], result.counters["G3b"]) == (2, 1), "the first call, and a commit, tell nothing"


# planted bugs


def deletions_are_answered_and_not_done(patch: pytest.MonkeyPatch) -> None:
    original = topics.decide_delete_topics

    def twin(*arguments: Any) -> Any:
        return replace(original(*arguments), events=())

    plant(patch, topics, "decide_delete_topics", twin)
    replace_row(patch, ADMIN, ApiKey.DELETE_TOPICS, twin)


def growth_is_answered_and_not_done(patch: pytest.MonkeyPatch) -> None:
    original = grow.decide_create_partitions

    def twin(*arguments: Any) -> Any:
        return replace(original(*arguments), events=())

    plant(patch, grow, "decide_create_partitions", twin)
    replace_row(patch, ADMIN, ApiKey.CREATE_PARTITIONS, twin)


def a_reply_leaves_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def twin(self: CommandQueue, parked: Any) -> None:
        parked.asked.waiter.reply(parked.reply)

    plant(patch, CommandQueue, "_park", twin)


def a_commit_is_answered_before_it_is_replicated(patch: pytest.MonkeyPatch) -> None:
    original = CoordinatorShard._take

    def twin(self: CoordinatorShard[Any], machine: Any, step: Any) -> None:
        original(self, machine, step._replace(after=()))
        for after in step.after:
            self._take(machine, machine.stored(after, self._now()))

    plant(patch, CoordinatorShard, "_take", twin)


def a_commit_is_answered_and_not_written(patch: pytest.MonkeyPatch) -> None:
    def twin(shard: Any, request: Any, ticket: Any, turn: Any) -> None:
        rows = tuple(PartitionError(row.topic, row.partition, ErrorCode.NONE) for row in request.offsets)
        turn.reply(ticket, CommitReply(rows))

    plant(patch, coordinator, "commit", twin)
    replace_row(patch, coordinator.HANDLERS, CommitRequest, twin)


def caught(bug: Bug, check: str, faults: tuple[Fault, ...]) -> RunResult | None:
    """Return the first run that finds the planted bug, among the runs that pass without the bug."""
    for seed in SEEDS:
        plan = plan_of(seed, *faults)
        clean = run_plan(plan)
        assert not clean.findings, clean.findings[0]
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            result = run_plan(plan)
        if check in {finding.check for finding in result.findings}:
            return result
    return None


@pytest.mark.parametrize(
    ("bug", "check", "faults"),
    [
        (deletions_are_answered_and_not_done, "R20", ()),
        (growth_is_answered_and_not_done, "R20", ()),
        (a_reply_leaves_before_it_is_committed, "R20", CONTROLLERS_CUT_OFF),
        (a_commit_is_answered_before_it_is_replicated, "G3b", BROKERS_CUT_OFF),
        (a_commit_is_answered_and_not_written, "G3b", ()),
    ],
)
def test_checks_catch_a_planted_metadata_history_bug_within_three_seeds(
    bug: Bug, check: str, faults: tuple[Fault, ...]
) -> None:
    assert caught(bug, check, faults) is not None


@pytest.mark.slow
def test_a_failing_metadata_history_shrinks_to_few_calls() -> None:
    with pytest.MonkeyPatch.context() as patch:
        a_commit_is_answered_and_not_written(patch)
        plan = plan_of(1)
        found = next(finding for finding in run_plan(plan).findings if finding.check == "G3b")
        shrinker = Shrinker(plan, Signature.of(found), runs_max=60)
        list(shrinker.steps())
    left = [operation.verb for work in shrinker.smallest.work.values() for operation in work]
    assert left == [COMMIT, FETCH]
    assert shrinker.smallest.duration_ms < DURATION_MS / 2


# reads from replaced coordinators


def coordinator_of_the_first_ledger(run: ClusterRun) -> int:
    topic = run.cluster.image.topics.get(OFFSETS_TOPIC)
    assert topic is not None
    return topic.partition(partition_of("ledger-0", topic.partition_count)).leader


def test_offset_reads_answered_by_a_replaced_coordinator_do_not_count_as_input_of_the_check() -> None:
    """The coordinator is cut off from all nodes, and clients reach it. As in Apache Kafka, no quorum is contacted for a
    read."""
    first, other = REGISTRARS
    work = {
        first: (PlannedOperation(0, COMMIT), PlannedOperation(15_000, FETCH)),
        other: (PlannedOperation(14_000, COMMIT), PlannedOperation(14_500, FETCH)),
    }
    plan = Plan(duration_ms=1_000, work={first: work[first][:1]}, ends_early=True)
    run = ClusterRun(plan.seed, RunSettings(plan=plan))
    run.run()
    old = coordinator_of_the_first_ledger(run)
    cuts = tuple(
        Fault(at_ms=1_000, kind="cut", lane=lane, node=old, other=node, duration_ms=15_000)
        for lane, node in enumerate(node for node in plan.shape.node_ids if node != old)
    )
    plan = replace(plan, duration_ms=16_500, work=work, faults=cuts)
    run = ClusterRun(plan.seed, RunSettings(plan=plan))
    result = run.run()
    assert not result.findings, result.findings[0]
    assert coordinator_of_the_first_ledger(run) != old
    notes = run.registrars.offset_notes
    assert [(note.client, note.answer, note.leadership is None) for note in notes] == [
        (first, True, False),
        (other, True, False),
        (other, 2, False),
        (first, 1, True),
    ]
    notes[-1].leadership = notes[-2].leadership
    run.registrars.judge()
    assert [finding.check for finding in run.registrars.checks.findings] == ["G3b"]
