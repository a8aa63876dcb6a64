"""One list of faults, as a plan has them, on a simulated cluster and on one of real processes."""

from __future__ import annotations

import pytest
import trio

from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import faults_of_seed
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError
from kraft.sim.simulated_cluster import SimulatedCluster
from kraft.testing import KafkaCluster
from tests.plugin.stage import SHAPE, Stage

BY_HAND = (
    Fault(at_ms=0, kind=plan.KILL, role=plan.A_LEADER, back_ms=300),
    Fault(at_ms=100, kind=plan.KILL, role=plan.SHRUNK_LEADER, pick=1, back_ms=200),
    Fault(at_ms=0, kind="pause", lane=1, node=101, duration_ms=200),
    Fault(at_ms=1_200, kind="cut", lane=1, node=2, other=3, duration_ms=700),
    Fault(at_ms=1_300, kind=plan.CLEAN_STOP, lane=2, role=plan.ACTIVE_CONTROLLER, back_ms=50),
    Fault(at_ms=2_500, kind="isolate", lane=2, node=1, duration_ms=300),
    Fault(at_ms=2_800, kind="stumble", lane=2, node=3, amount=2, back_ms=50, duration_ms=50),
)


def test_a_schedule_by_hand_happens_in_both_worlds_and_a_producer_loses_nothing(stage: Stage) -> None:
    written: list[bytes] = []

    async def write(is_over: trio.Event) -> None:
        async with stage.producer(delivery_timeout_ms=60_000) as producer:
            while not is_over.is_set():
                written.append(b"%d" % len(written))
                await producer.send("orders", written[-1], partition=0)
                await trio.sleep(0.01)

    async def story(stage: Stage) -> None:
        cluster, is_over = stage.cluster, trio.Event()
        await stage.write(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, is_over)
            history = await stage.carry_out(BY_HAND)
            is_over.set()
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])
        assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in cluster.node_ids)
        done = " ".join(history)
        assert done.count("kill of node") == 4, history
        assert "node 101 is frozen for 200 ms" in done
        assert "node 2 is cut off from [3] for 700 ms" in done
        assert "node 101 is asked to stop" in done
        assert "node 1 is cut off from [2, 3, 101] for 300 ms" in done
        assert await stage.values() == [b"0", *written]

    stage.play(story)
    assert len(written) > 50


def test_what_a_cluster_cannot_have_is_refused_before_anything_happens(stage: Stage) -> None:
    async def refused(**wrong: object) -> str:
        good = Fault(at_ms=0, kind=plan.KILL, node=1)
        with pytest.raises(ClusterError) as problem:
            await stage.carry_out([good, Fault(**{"at_ms": 1, "kind": "cut", "node": 1, "other": 2, **wrong})])
        return str(problem.value)

    async def story(stage: Stage) -> None:
        assert "this cluster cannot have 'empty disk': it can have kill, clean stop" in await refused(kind="empty disk")
        assert "nobody can tell here who is 'hero': roles are" in await refused(role="hero")
        assert "there is no node 9" in await refused(node=9)
        assert "names two nodes" in await refused(other=1)
        assert "names the node that it hits, or a role" in await refused(kind=plan.KILL, node=0)
        assert stage.cluster.is_running(1)

    stage.play(story)


def test_what_needs_another_world_is_refused_on_processes(real_cluster: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="cannot have 'power loss'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.POWER_LOSS, node=1)])
    with pytest.raises(ClusterError, match="nobody can tell here who is 'uncommitted controller'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.KILL, role=plan.UNCOMMITTED_CONTROLLER)])


def test_a_seed_draws_what_each_cluster_can_have(real_cluster: KafkaCluster) -> None:
    with SimulatedCluster(seed=1, **SHAPE) as simulated:
        for cluster in (simulated, real_cluster):
            found = [fault for seed in range(1, 60) for fault in faults_of_seed(cluster, seed, 10_000)]
            assert {fault.kind for fault in found} == set(cluster.fault_kinds)
            assert {fault.role for fault in found} == {"", *cluster.fault_roles}


def test_a_simulated_cluster_can_have_more() -> None:
    kinds = [kind for kind in SimulatedCluster.fault_kinds if kind != plan.KILL]
    faults = [
        Fault(at_ms=400 * number, kind=kind, node=2, other=3, duration_ms=200, back_ms=100, amount=1)
        for number, kind in enumerate(kinds)
    ]
    last = Fault(at_ms=6_000, kind=plan.KILL, role=plan.UNCOMMITTED_CONTROLLER, back_ms=50)
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            await stage.write(20)
            history: list[str] = []

            async def break_things() -> None:
                history.extend(await stage.carry_out([*faults, last]))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                await trio.sleep(6.5)
                await stage.write(1, topic="another")
            await cluster.wait_ready()
            assert len(await stage.values()) == 20
            assert len(history) == len(faults) + 1, history
            assert "kill of node 101" in history[-1]

        Stage(cluster).play(story)
