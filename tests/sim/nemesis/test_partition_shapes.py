"""Tests of partition shapes: which nodes reach each other, as pairs and on the links of a simulated cluster."""

from __future__ import annotations

import pytest
import trio

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import ClusterShape, host_name
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.disturbances import Disturbances
from kraft.sim.nemesis.faults import FaultSettings, Nemesis
from kraft.sim.nemesis.partition_shapes import (
    CLIENTS,
    Pair,
    between,
    bridge,
    clients_from,
    halves,
    pairs_of,
    ring,
    words_of,
)
from kraft.sim.nemesis.plan import Fault, Plan, allows
from kraft.sim.nemesis.plan_rules import problems_of
from kraft.sim.nemesis.swarm import draw_plan
from tests.stages.checked_cluster import play

THREE_AND_THREE = ClusterShape()


def cut_from(node: int, pairs: tuple[Pair, ...]) -> set[int]:
    """Return the nodes that this node cannot reach; fail if a pair of nodes is listed twice."""
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    return {other for pair in pairs if node in pair for other in pair if other != node}


@pytest.mark.parametrize("pick", [0, 1, 7, 999])
@pytest.mark.parametrize("count", [2, 3, 6, 8])
def test_in_a_halves_partition_nodes_reach_only_nodes_of_their_half(count: int, pick: int) -> None:
    nodes = range(1, count + 1)
    unseen = {node: cut_from(node, halves(nodes, pick)) for node in nodes}
    sides = {frozenset(set(nodes) - cut) for cut in unseen.values()}
    assert sorted(map(len, sides)) == [count // 2, count - count // 2] if count % 2 else [count // 2] * 2
    assert len(sides) == 2
    assert set.union(*map(set, sides)) == set(nodes)


@pytest.mark.parametrize("pick", [0, 5, 999])
def test_in_a_bridge_partition_only_the_bridge_node_reaches_both_halves(pick: int) -> None:
    pairs = bridge(range(1, 8), 4, pick)
    assert not cut_from(4, pairs)
    assert {len(cut_from(node, pairs)) for node in (1, 2, 3, 5, 6, 7)} == {3}


@pytest.mark.parametrize("pick", [0, 5, 999])
@pytest.mark.parametrize("count", [4, 5, 6, 8])
def test_in_a_ring_partition_each_node_reaches_its_two_neighbours(count: int, pick: int) -> None:
    nodes = set(range(1, count + 1))
    pairs = ring(nodes, pick)
    sees = {node: nodes - {node} - cut_from(node, pairs) for node in nodes}
    assert {len(seen) for seen in sees.values()} == {2}
    reached = {1}
    for _ in nodes:
        reached |= set.union(*(sees[node] for node in reached))
    assert reached == nodes


def test_different_values_of_pick_give_different_network_partitions_of_a_shape() -> None:
    assert len({frozenset(map(frozenset, halves(range(6), pick))) for pick in range(1_000)}) == 10
    assert len({frozenset(map(frozenset, ring(range(6), pick))) for pick in range(1_000)}) == 60


def test_nodes_of_a_partition_group_reach_only_their_group_and_clients_may_be_a_group() -> None:
    assert set(between([1], [2, 3], [4])) == {(1, 2), (1, 3), (1, 4), (2, 4), (3, 4)}
    assert clients_from([1, 2]) == ((CLIENTS, 1), (CLIENTS, 2))


def test_partition_shapes_require_a_minimum_cluster_size() -> None:
    one, three = ClusterShape(combined=1), ClusterShape(combined=3)
    assert [kind for kind in plan.SHAPE_KINDS if allows(one, kind)] == [plan.CLIENTS_CUT]
    assert [kind for kind in plan.SHAPE_KINDS if allows(three, kind)] == [plan.HALVES, plan.BRIDGE, plan.CLIENTS_CUT]
    assert all(allows(THREE_AND_THREE, kind) for kind in plan.SHAPE_KINDS)
    for fault, says in (
        (Fault(at_ms=0, kind=plan.RING), "(ring) is not for this cluster"),
        (Fault(at_ms=0, kind=plan.BRIDGE), "(bridge) must name the nodes"),
    ):
        assert says in next(problems_of(Plan(shape=three, faults=(fault,))))


def test_partition_shapes_drawn_by_seeds_can_be_carried_out() -> None:
    drawn = [draw_plan(seed, FaultSettings()) for seed in range(1, 80)]
    found = [fault for each in drawn for fault in each.faults if fault.kind in plan.SHAPE_KINDS]
    assert {fault.kind for fault in found} == set(plan.SHAPE_KINDS)
    assert {bool(fault.node) for fault in found if fault.kind == plan.CLIENTS_CUT} == {True, False}
    assert not [problem for each in drawn for problem in problems_of(each)]
    assert not any(fault.kind in plan.SHAPE_KINDS for each in drawn if not each.seed % 4 for fault in each.faults)


def cuts_while(fault: Fault) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the ordered links of hosts that are cut during the fault, and the links that are cut after it."""
    seen: list[set[tuple[str, str]]] = []

    async def story(cluster: SimCluster) -> None:
        world = cluster.world
        names = [*map(host_name, cluster.shape.node_ids), *plan.CLIENT_HOSTS]
        for name in plan.CLIENT_HOSTS:
            world.host(name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Disturbances(Nemesis(cluster), [fault]).run)
            for _ in range(2):
                await world.sleep_ms(100)
                seen.append({(a, b) for a in names for b in names if a != b and world.is_cut(a, b)})

    assert not play(story)
    return seen[0], seen[1]


@pytest.mark.parametrize("kind", plan.SHAPE_KINDS)
def test_a_network_partition_of_each_shape_cuts_its_links_both_ways_until_the_fault_ends(kind: str) -> None:
    fault = Fault(at_ms=0, kind=kind, node=2, pick=9, duration_ms=150)
    during, after = cuts_while(fault)
    wanted = {
        (name, host_name(other))
        for one, other in pairs_of(fault, THREE_AND_THREE)
        for name in (plan.CLIENT_HOSTS if one == CLIENTS else (host_name(one),))
    }
    assert during == wanted | {(target, source) for source, target in wanted}
    assert not after
    assert words_of(fault, THREE_AND_THREE)


def test_a_client_partition_without_a_named_node_cuts_all_nodes() -> None:
    during, _ = cuts_while(Fault(at_ms=0, kind=plan.CLIENTS_CUT, duration_ms=150))
    assert len(during) == 2 * 6 * len(plan.CLIENT_HOSTS)
