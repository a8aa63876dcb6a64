"""Tests of a rolling restart in a run: nodes restart one at a time, the next only when all replicas are in sync."""

from __future__ import annotations

import trio

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.disturbances import Disturbances
from kraft.sim.nemesis.faults import Nemesis
from kraft.sim.nemesis.plan import ROLLING, Fault
from tests.stages.checked_cluster import play, produce, wait_whole

ROLL = Fault(at_ms=0, kind=ROLLING, back_ms=100)


def test_a_rolling_restart_stops_each_node_while_all_others_are_in_sync() -> None:
    stopped: list[int] = []

    async def story(cluster: SimCluster) -> None:
        stop = cluster.stop

        async def watched(node: int, *, timeout_ms: int) -> bool:
            assert not cluster.loss()
            stopped.append(node)
            return await stop(node, timeout_ms=timeout_ms)

        cluster.stop = watched  # type: ignore[method-assign]
        disturbances = Disturbances(Nemesis(cluster), [ROLL])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disturbances.run)
            assert await produce(cluster, 200, timeout_ms=20_000) == 200
        assert disturbances.met == {ROLLING: 1}
        assert stopped == list(cluster.shape.node_ids)
        await wait_whole(cluster)

    assert not play(story)


def test_a_rolling_restart_is_abandoned_if_the_cluster_does_not_recover() -> None:
    async def story(cluster: SimCluster) -> None:
        nemesis = Nemesis(cluster)
        cluster.crash(2, lose_power=False, is_noticed=False)
        assert await nemesis.roll(ROLL) == ""
        assert cluster.down == [2]
        cluster.start(2)
        await wait_whole(cluster)
        assert not nemesis.history

    assert not play(story)
