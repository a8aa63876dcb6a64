"""Tests of the workloads in a simulated world: with faults, and twice with one seed."""

from __future__ import annotations

import random

import trio

from kraft.sim.chaos.clients.libraries import library_of
from kraft.sim.chaos.history import Function, HistoryEventType, HistoryRecorder, line_of
from kraft.sim.chaos.scenarios.scenario import Scenario, ScenarioTopic, ScenarioWorkload
from kraft.sim.chaos.workloads import ClientWorkload
from kraft.sim.nemesis.plan import Fault
from kraft.sim.simulated_cluster import SimulatedCluster
from tests.chaos.workloads.facts import acknowledged, completed, read_by, require_well_formed

SCENARIO = Scenario(
    name="test",
    title="Test",
    topic=ScenarioTopic(partitions=2),
    workload=ScenarioWorkload(
        producers=2, rate=10, readers=1, group_members=2, group_churn_s=2.0, topic_churn=1, value_bytes=50
    ),
)
SETTINGS = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}


def simulated(seed: int) -> HistoryRecorder:
    """Run a workload while the leader is killed and restarted; return the history of its operations."""
    with SimulatedCluster(seed=seed, controllers=1, brokers=3, settings=SETTINGS) as cluster:
        history = HistoryRecorder(lambda: int(cluster.now_s * 1e9))

        async def main() -> None:
            workload = ClientWorkload(
                library_of("kraft"), cluster.bootstrap_servers, SCENARIO, history, random.Random(seed), lambda _: None
            )
            await workload.prepare()
            until = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(workload.run, until)
                await cluster.carry_out([Fault(at_ms=2_000, kind="kill", role="leader", back_ms=3_000)])
                assert await workload.settle(30)
                await trio.sleep(2)
                until.set()
            assert await workload.read_everything(60)

        cluster.run(main)
    return history


def test_a_workload_with_the_same_seed_has_the_same_history() -> None:
    first, second, other = (simulated(seed) for seed in (3, 3, 4))
    assert [line_of(event) for event in first.events] == [line_of(event) for event in second.events]
    assert [line_of(event) for event in first.events] != [line_of(event) for event in other.events]


def test_a_workload_in_virtual_time_survives_the_kill_of_a_leader() -> None:
    history = simulated(5)
    require_well_formed(history.events)
    sent, read = acknowledged(history.events), read_by(history.events)
    assert len(sent) > 50
    assert sent.items() <= read.items()
    for f in (Function.COMMIT, Function.CREATE_TOPIC, Function.DELETE_TOPIC):
        assert completed(history.events, f, HistoryEventType.OK)
