"""Tests that a run can reduce size limits that only a large cluster reaches, and then exceeds them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import pytest

from kraft.broker.serving import turns
from kraft.sim.cluster.sizes import RECEIVE_BUFFERS, SMALL, TURNS, small_sizes
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import COMMIT_TRANSACTION, TRANSACTOR, Fault, PlannedOperation
from kraft.sim.nemesis.plan_rules import problems_of
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import run_plan
from kraft.wire import framing

CALM = draw_plan(4, FaultSettings(duration_ms=4_000, crashes=0, network_faults=0))
TRANSACTIONS = tuple(PlannedOperation(at_ms, COMMIT_TRANSACTION, 0, 9) for at_ms in range(200, 4_000, 200))
"""More transactions of one producer than a producer id has epochs."""
PLAN = replace(  # a broker that restarts from nothing gets a snapshot, and every log; indexes have many entries
    CALM,
    work={**CALM.work, TRANSACTOR: TRANSACTIONS},
    topic_configs={"index.interval.bytes": "200"},
    shape=replace(
        CALM.shape,
        overrides={
            **CALM.shape.overrides,
            "metadata.log.max.record.bytes.between.snapshots": "1000",
            "internal.metadata.log.segment.bytes": "1000",
            "metadata.max.retention.bytes": "3000",
        },
    ),
    faults=(Fault(at_ms=2_000, kind="empty disk", node=3, back_ms=200),),
)


@pytest.mark.parametrize("place", [place for group in SMALL.values() for place in group])
def test_each_reduced_size_limit_names_a_constant_of_a_module_and_is_smaller_than_the_constant(place: str) -> None:
    (small,) = (group[place] for group in SMALL.values() if place in group)
    module, _, name = place.partition(":")
    assert 0 <= small < getattr(import_module(module), name)


def test_reduced_size_limits_are_restored_after_a_failed_run() -> None:
    before = turns.TURN_NS_MAX, framing.FIRST_STEP_BYTES
    with pytest.raises(ZeroDivisionError), small_sizes([TURNS, RECEIVE_BUFFERS]):
        assert (turns.TURN_NS_MAX, framing.FIRST_STEP_BYTES) == (0, 1024)
        raise ZeroDivisionError
    assert before == (turns.TURN_NS_MAX, framing.FIRST_STEP_BYTES)


def test_reduced_size_limits_are_restored_even_if_their_group_is_named_twice() -> None:
    before = turns.TURN_NS_MAX
    with small_sizes([TURNS, TURNS]):
        assert turns.TURN_NS_MAX == 0
    assert before == turns.TURN_NS_MAX


def test_a_module_imported_during_a_run_does_not_copy_a_reduced_size_limit() -> None:
    program = (
        "from kraft.sim.cluster.sizes import SLICES, small_sizes\n"
        "with small_sizes([SLICES]): pass\n"
        "from kraft.control import decision\n"
        "from kraft.control.topics import create_delete, grow\n"
        "assert grow.EVENTS_PER_SLICE == create_delete.EVENTS_PER_SLICE == decision.EVENTS_PER_SLICE > 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_run_with_reduced_size_limits_keeps_all_invariants_and_has_another_trace(name: str, plain_trace: str) -> None:
    result = run_plan(replace(PLAN, small_sizes=(name,)))
    assert not result.findings, result.findings
    assert result.counters["acknowledged"] > 0
    assert result.trace_hash != plain_trace


@pytest.fixture(scope="module")
def plain_trace() -> str:
    return run_plan(PLAN).trace_hash


@pytest.mark.slow
def test_checks_catch_a_receive_buffer_bug_only_with_reduced_size_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a new receive buffer is smaller than the content of the last one. Without reduced sizes only frames of 1 to
    2 MiB show it."""

    def first_step(_: framing.FramedConnection, capacity: int) -> int:
        return capacity if capacity <= framing.LARGE_BYTES else min(capacity, framing.FIRST_STEP_BYTES)

    monkeypatch.setattr(framing.FramedConnection, "_first_step", first_step)
    plans = [draw_plan(seed, FaultSettings(duration_ms=8_000, crashes=1)) for seed in (1, 2, 3)]
    found = [run_plan(replace(plan, small_sizes=(RECEIVE_BUFFERS,))).findings for plan in plans]
    assert any(found)
    assert not any(run_plan(replace(plan, small_sizes=())).findings for plan in plans[:2])


def test_an_unknown_group_of_size_limits_is_rejected() -> None:
    (problem,) = problems_of(replace(PLAN, small_sizes=("hopes",)))
    assert problem.startswith("small_sizes: 'hopes' is not one of receive buffers, turns")
