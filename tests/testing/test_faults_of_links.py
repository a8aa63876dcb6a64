"""Network partitions of each shape (which nodes reach which), and links degraded in one direction, on simulated and on
real clusters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
import trio

from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import FaultRun, faults_of_seed
from kraft.sim.nemesis.partition_shapes import Pair, bridge, clients_from, pairs_of
from kraft.sim.nemesis.plan import HANG, Fault
from kraft.sim.shapes import ClusterError
from kraft.sim.simulated_cluster import SimulatedCluster
from kraft.testing import KafkaCluster
from tests.testing.stage import SHAPE, Stage

SHAPES = [
    Fault(at_ms=0, kind=plan.HALVES, pick=2, duration_ms=300),
    Fault(at_ms=0, kind=plan.BRIDGE, node=2, duration_ms=300),
    Fault(at_ms=0, kind=plan.RING, pick=1, duration_ms=300),
    Fault(at_ms=0, kind=plan.CONTROLLERS_CUT, duration_ms=300),
]


def cut_links(cluster: BreakableCluster) -> set[tuple[int, int]]:
    """Return the links that the world blocks, or that were cut in the processes."""
    if isinstance(cluster, SimulatedCluster):
        nodes = cluster.node_ids
        return {(one, other) for one in nodes for other in nodes if cluster.is_cut(one, other)}
    assert isinstance(cluster, KafkaCluster)
    listed = {node: cluster._faults_of(node).listed()["links"] for node in cluster.node_ids}
    return {(node, link["node"]) for node, links in listed.items() for link in links if link["policy"] == HANG}


@pytest.mark.parametrize("fault", SHAPES, ids=lambda fault: fault.kind)
def test_a_network_partition_cuts_exactly_the_links_of_its_shape(
    stage: Stage, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = stage.cluster
    join, seen = cluster.join, list[set[tuple[int, int]]]()

    def look_and_join(pairs: Iterable[Pair]) -> None:
        seen.append(cut_links(cluster))
        join(pairs)

    monkeypatch.setattr(cluster, "join", look_and_join)

    async def story(stage: Stage) -> None:
        pairs = pairs_of(fault, cluster.shape)
        (done,) = await stage.carry_out([fault])
        assert done.endswith("for 300 ms")
        assert seen == [{*pairs, *((other, one) for one, other in pairs)}]
        assert not cut_links(cluster)
        await stage.write(1)

    stage.play(story)


def test_a_bridge_partition_keeps_half_of_the_brokers_in_sync(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader = await stage.write(1)
        pick = next(pick for pick in range(6) if bridge(cluster.node_ids, 101, pick)[0][0] != leader)
        pairs = bridge(cluster.node_ids, 101, pick)
        cluster.cut(pairs)
        async with stage.producer() as producer:
            await producer.send("orders", b"what one half has", partition=0)
        await stage.wait_until(lambda: cluster.isr("orders") == sorted(other for _, other in pairs))
        cluster.join(pairs)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


def test_clients_cut_off_from_all_nodes_wait_while_the_nodes_stay_connected() -> None:
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            await stage.write(1)
            cluster.cut(clients_from(cluster.node_ids))
            assert cluster.is_cut(0, 2)
            with trio.move_on_after(5) as waiting:
                await stage.write(1)
            assert waiting.cancelled_caught
            assert cluster.isr("orders") == [1, 2, 3]
            cluster.heal()
            await stage.write(1)

        Stage(cluster).play(story)


def test_cutting_off_clients_of_a_real_cluster_is_refused(real_cluster: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="clients cannot be cut off here"):
        real_cluster.cut(clients_from([1]))
    with pytest.raises(ClusterError, match="this cluster cannot have 'clients cut off'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.CLIENTS_CUT)])


BAD_LINKS = [
    Fault(at_ms=0, kind=plan.CUT_ONE_WAY, duration_ms=2_000),
    Fault(at_ms=0, kind=plan.LATENCY, amount=20_000, jitter_ms=10, duration_ms=2_000),
    Fault(at_ms=0, kind=plan.SLOW_LINK, amount=20, duration_ms=2_000),
    Fault(at_ms=0, kind=plan.BYTE_LIMIT, amount=20, duration_ms=2_000),
]


@pytest.mark.parametrize("to_leader", [True, False], ids=["from a follower", "to a follower"])
@pytest.mark.parametrize("bad", BAD_LINKS, ids=lambda fault: fault.kind)
def test_a_follower_falls_out_of_sync_while_its_link_is_degraded(stage: Stage, bad: Fault, to_leader: bool) -> None:
    """Fetch requests do not reach the leader, or the responses do not reach the follower."""

    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader, follower = await stage.write(1), stage.follower()
        source, target = (follower, leader) if to_leader else (leader, follower)
        others = sorted({1, 2, 3} - {follower})

        async def break_things() -> None:
            (done,) = await stage.carry_out([replace(bad, node=source, other=target)])
            assert f"{bad.kind} of node {source} to node {target}" in done

        async with trio.open_nursery() as nursery, stage.producer() as producer:
            nursery.start_soon(break_things)
            while cluster.isr("orders") != others:
                await producer.send("orders", b"what it misses", partition=0)
                await trio.sleep(0.1)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])
        assert not cluster._qualities
        if isinstance(cluster, SimulatedCluster):  # on a slow machine a leader's session may expire
            assert cluster.leader("orders") == leader

    stage.play(story)


def test_fault_plans_drawn_by_seed_include_degraded_links(real_cluster: KafkaCluster) -> None:
    found = [fault for seed in range(60) for fault in faults_of_seed(real_cluster, seed, 10_000)]
    late = [fault for fault in found if fault.kind == plan.LATENCY]
    assert any(fault.jitter_ms for fault in late)
    assert all(fault.amount > 0 and fault.node != fault.other for fault in found if fault.kind in plan.QUALITY_KINDS)


NEEDS_PROXIES = [
    (Fault(at_ms=0, kind=plan.SLICER, node=1, amount=10), "this cluster cannot have 'slicer'"),
    (Fault(at_ms=0, kind=plan.LATENCY, node=1, amount=10, toxicity_percent=50), "toxicity and streams are of clusters"),
    (Fault(at_ms=0, kind=plan.LATENCY, node=1, amount=10, stream="up"), "toxicity and streams are of clusters"),
]


@pytest.mark.parametrize(("fault", "says"), NEEDS_PROXIES, ids=["kind", "toxicity", "stream"])
def test_a_fault_that_needs_proxies_is_refused_without_them(
    real_cluster: KafkaCluster, fault: Fault, says: str
) -> None:
    for cluster in (real_cluster, SimulatedCluster(seed=1, **SHAPE)):
        with pytest.raises(ClusterError, match=says):
            FaultRun(cluster, [fault], lambda: 0)


def test_client_link_faults_in_a_plan_are_refused_on_real_clusters(real_cluster: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="there is no node -1"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.CUT, node=plan.ALL_CLIENTS, other=1)])


@pytest.mark.parametrize("kind", [plan.CUT, plan.CUT_ONE_WAY, plan.LATENCY, "reset", "stall"])
def test_a_client_link_fault_affects_one_broker_and_ends(kind: str) -> None:
    fault = Fault(at_ms=0, kind=kind, node=plan.ALL_CLIENTS, other=2, duration_ms=1_000, amount=500)
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            await stage.write(1)
            (done,) = await stage.carry_out([fault])
            assert ("clients are cut off from node 2" if kind == plan.CUT else f"{kind} of clients to node 2") in done
            assert not cluster._cuts
            assert not cluster._qualities
            await stage.write(1)

        Stage(cluster).play(story)
