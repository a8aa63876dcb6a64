"""Tests of processes that end by an exception: their listeners answer for a while after their connections
have ended."""

from __future__ import annotations

import pytest

from kraft.control.brokers.probing import Probing
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import KILL, Fault, Plan
from kraft.sim.run.run import ClusterRun, RunSettings
from tests.stages.checked_cluster import checks_of, play


async def end_broker_3(cluster: SimCluster) -> None:
    await cluster.world.sleep_ms(1_000)
    await cluster.end_by_error(3, 300)
    assert not cluster.is_running(3)
    cluster.crash(3, lose_power=False, is_noticed=True)
    await cluster.world.sleep_ms(2_000)


def test_a_broker_ended_by_an_exception_is_fenced_in_time() -> None:
    assert play(end_broker_3) == []


def test_checks_catch_a_controller_that_trusts_the_answer_of_an_ending_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Probing, "_schedule_next_probe", lambda machine, watch, now_ms: watch.clear_suspicion())
    assert "K6" in checks_of(play(end_broker_3))


def test_a_kill_with_a_duration_in_a_plan_ends_the_process_by_an_exception() -> None:
    faults = (Fault(at_ms=500, kind=KILL, node=2, duration_ms=200, back_ms=500),)
    run = ClusterRun(1, RunSettings(plan=Plan(duration_ms=3_000, faults=faults)))
    result = run.run()
    assert result.findings == ()
    (window,) = run.chronicle.windows
    assert window.text == "end by an error in 200 ms of node 2, back after 500 ms"
