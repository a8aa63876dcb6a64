"""Faults that only simulated clusters have: each has its effect, ends, and does not interfere with other faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio

from kraft.seam import LinkQuality
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault
from kraft.sim.simulated_cluster import APPLICATION, SimulatedCluster
from kraft.sim.world.endpoint import FakeEndpoint
from kraft.sim.world.host import Host
from tests.testing.stage import SHAPE, Stage

Look = Callable[[], object]


def host(cluster: SimulatedCluster, node: int) -> Host:
    return cluster._world.host(host_name(node))


def is_cut(cluster: SimulatedCluster, source: int, target: int) -> bool:
    return cluster._world.is_cut(host_name(source), host_name(target))


def quality(cluster: SimulatedCluster, source: int, target: int) -> LinkQuality | None:
    return cluster._world.link_quality(host_name(source), host_name(target))


def streams(cluster: SimulatedCluster) -> list[FakeEndpoint]:
    """Return the ends of connections on which node 2 sends to node 3."""
    found = list(cluster._world._fabric.endpoints)
    names = host_name(2), host_name(3)
    return [end for end in found if (end.outgoing.source.name, end.outgoing.target.name) == names and not end.ended]


def reset_links(cluster: SimulatedCluster) -> Look:
    before = streams(cluster)
    assert before
    return lambda: all(end.ended for end in before)


def stepped_clock(cluster: SimulatedCluster) -> Look:
    clock = host(cluster, 2).clock
    before = clock.wall_offset_ms
    return lambda: clock.wall_offset_ms == before + 5_000


def stalled_streams(cluster: SimulatedCluster) -> Look:
    """Look for connections on which nothing that is sent arrives before the fault is over."""
    return lambda: [end for end in streams(cluster) if end.outgoing._last_ns > cluster._world.now_ns + 100_000_000]


OBSERVED_EFFECTS: dict[str, Callable[[SimulatedCluster], Look]] = {
    plan.KILL: lambda cluster: lambda: not cluster.is_running(2),
    plan.CLEAN_STOP: lambda cluster: lambda: not cluster.is_running(2),
    "pause": lambda cluster: lambda: cluster.is_paused(2),
    "cut": lambda cluster: lambda: is_cut(cluster, 2, 3) and is_cut(cluster, 3, 2),
    "isolate": lambda cluster: lambda: all(is_cut(cluster, 2, node) for node in (1, 3, 101)),
    "stumble": lambda cluster: lambda: not cluster.is_running(2),
    plan.POWER_LOSS: lambda cluster: lambda: not host(cluster, 2).powered,
    "reset": reset_links,
    "clock": stepped_clock,
    "cut one way": lambda cluster: lambda: is_cut(cluster, 2, 3) and not is_cut(cluster, 3, 2),
    "stall": stalled_streams,
    "slow disk": lambda cluster: lambda: host(cluster, 2).disk_extra_ns,
    "full disk": lambda cluster: lambda: host(cluster, 2).disk_full,
    "failing sync": lambda cluster: lambda: host(cluster, 2).sync_fails,
    plan.EMPTY_DISK: lambda cluster: lambda: not cluster.is_running(2),
    plan.ROLLING: lambda cluster: lambda: not cluster.is_running(101),
    plan.LATENCY: lambda cluster: lambda: quality(cluster, 2, 3) == LinkQuality(latency_ms=5_000),
    plan.SLOW_LINK: lambda cluster: lambda: quality(cluster, 2, 3) == LinkQuality(bytes_per_second=5_000),
    plan.BYTE_LIMIT: lambda cluster: lambda: quality(cluster, 2, 3) == LinkQuality(bytes_max=5_000),
    plan.HALVES: lambda cluster: lambda: is_cut(cluster, 101, 2) and not is_cut(cluster, 2, 3),
    plan.BRIDGE: lambda cluster: lambda: is_cut(cluster, 101, 3) and not is_cut(cluster, 2, 3),
    plan.RING: lambda cluster: lambda: is_cut(cluster, 101, 2) and not is_cut(cluster, 2, 3),
    plan.CONTROLLERS_CUT: lambda cluster: lambda: all(is_cut(cluster, 101, node) for node in (1, 2, 3)),
    plan.CLIENTS_CUT: lambda cluster: lambda: cluster._world.is_cut(APPLICATION, host_name(2)),
}
"""Observable effect of each fault on node 2."""
FOR_GOOD = ("reset", "clock")


@pytest.mark.parametrize("kind", SimulatedCluster.fault_kinds)
def test_each_kind_of_simulated_fault_has_its_observable_effect_until_it_ends(kind: str) -> None:
    amount = 1 if kind == "stumble" else 5_000
    fault = Fault(at_ms=0, kind=kind, node=2, other=3, duration_ms=1_000, back_ms=1_000, amount=amount)
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            await stage.write(20)
            history: list[str] = []
            look = OBSERVED_EFFECTS[kind](cluster)
            assert not look()

            async def break_things() -> None:
                history.extend(await stage.carry_out([fault]))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                await trio.sleep(0.5)
                assert look()
            assert len(history) == (len(cluster.node_ids) if kind == plan.ROLLING else 1), history
            assert bool(look()) is (kind in FOR_GOOD)
            await cluster.wait_ready()
            assert len(await stage.values()) == 20

        Stage(cluster).play(story)


def test_simulated_fault_affects_a_controller_that_has_uncommitted_records() -> None:
    fault = Fault(at_ms=0, kind=plan.KILL, role=plan.UNCOMMITTED_CONTROLLER, back_ms=50)
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            history: list[str] = []

            async def break_things() -> None:
                history.extend(await stage.carry_out([fault]))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                await stage.write(1)
            await cluster.wait_ready()
            assert ["kill of node 101" in line for line in history] == [True], history

        Stage(cluster).play(story)


def play_one_way(faults: Sequence[Fault], watch: Callable[[SimulatedCluster], Awaitable[None]]) -> list[str]:
    """Run the faults on a simulated cluster beside an observer; return the history."""
    history: list[str] = []
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def break_things() -> None:
            history.extend(await cluster.carry_out(faults))

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                await watch(cluster)

        cluster.run(main)
    return history


@pytest.mark.parametrize(("source", "target"), [(1, 2), (2, 1)])
def test_a_link_cut_in_one_direction_stays_cut_when_other_faults_end(source: int, target: int) -> None:
    faults = [
        Fault(at_ms=0, kind="cut one way", node=source, other=target, duration_ms=2_000),
        Fault(at_ms=0, kind="pause", lane=1, node=3, duration_ms=100),
        Fault(at_ms=200, kind="cut", lane=1, node=3, other=101, duration_ms=100),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(1)
        assert is_cut(cluster, source, target)
        assert not is_cut(cluster, target, source)
        await trio.sleep(1.1)
        assert not is_cut(cluster, source, target)

    assert len(play_one_way(faults, watch)) == 3


@pytest.mark.parametrize(("source", "target"), [(1, 2), (2, 1)])
def test_heal_ends_a_link_cut_in_one_direction(source: int, target: int) -> None:
    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.1)
        assert is_cut(cluster, source, target)
        cluster.heal()
        assert not is_cut(cluster, source, target)

    play_one_way([Fault(at_ms=0, kind="cut one way", node=source, other=target, duration_ms=1_000)], watch)


def test_a_link_already_cut_is_not_cut_again_and_not_reported() -> None:
    faults = [
        Fault(at_ms=0, kind="cut one way", node=1, other=2, duration_ms=1_000),
        Fault(at_ms=100, kind="cut one way", lane=1, node=1, other=2, duration_ms=100),
        Fault(at_ms=100, kind="cut", lane=2, node=2, other=1, duration_ms=100),
        Fault(at_ms=100, kind="cut one way", lane=3, node=2, other=1, duration_ms=100),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.5)
        assert is_cut(cluster, 1, 2)
        assert not is_cut(cluster, 2, 1)

    assert play_one_way(faults, watch) == [
        "0 ms: cut one way of node 1 to node 2",
        "100 ms: cut one way of node 2 to node 1",
    ]


def test_a_fault_does_not_restart_a_node_stopped_by_another_user() -> None:
    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.2)
        cluster.kill(2)
        await trio.sleep(1)
        assert not cluster.is_running(2)

    play_one_way([Fault(at_ms=0, kind="slow disk", node=2, duration_ms=500)], watch)


def test_a_disk_slowed_by_one_fault_is_not_changed_by_another_fault() -> None:
    faults = [
        Fault(at_ms=0, kind="slow disk", node=2, duration_ms=1_000),
        Fault(at_ms=100, kind="slow disk", lane=1, node=2, duration_ms=100),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.5)
        assert host(cluster, 2).disk_extra_ns

    assert play_one_way(faults, watch) == ["0 ms: slow disk of node 2"]


def test_a_node_being_stopped_by_one_fault_is_not_changed_by_another_fault() -> None:
    faults = [
        Fault(at_ms=0, kind="pause", node=101, duration_ms=1_000),
        Fault(at_ms=100, kind=plan.CLEAN_STOP, lane=1, node=1, back_ms=500),
        Fault(at_ms=200, kind=plan.KILL, lane=2, node=1, back_ms=5_000),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await cluster.wait_until(lambda: not cluster.is_running(1))

    assert not any("kill of node" in line for line in play_one_way(faults, watch))
