"""Fencing after the end of a broker's process. However the process ends, the controller fences the broker as soon as
after kill -9, not at its session timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kraft.seam import InvariantError
from kraft.sim.check.failure_detection import FENCE_MS_MAX
from kraft.sim.world import World
from tests.stages.world_cluster import WorldCluster

UNWINDING_MS = 150
"""Milliseconds that a process on a busy machine takes from its first cancelled task to its end."""

Way = Callable[[World, WorldCluster], Awaitable[None]]


async def kill(world: World, cluster: WorldCluster) -> None:
    world.kill("b3")


async def broken_invariant(world: World, cluster: WorldCluster) -> None:
    cluster.node(3).fail(InvariantError("planted"))


async def exception_in_a_task(world: World, cluster: WorldCluster) -> None:
    def raises() -> None:
        raise KeyError("planted")

    async def task() -> None:
        raises()

    cluster.node(3).broker.broker.start_task(task)  # type: ignore[union-attr]


async def exception_while_it_stops(world: World, cluster: WorldCluster) -> None:
    async def raises(**_: Any) -> None:
        raise BrokenPipeError("planted")

    node = cluster.node(3)
    node.broker.broker.lifecycle.controlled_shutdown = raises  # type: ignore[union-attr, method-assign]
    node.request_stop()


async def kill_while_it_stops(world: World, cluster: WorldCluster) -> None:
    cluster.node(3).request_stop()
    await world.sleep_ms(3)
    world.kill("b3")


async def second_signal_while_it_stops(world: World, cluster: WorldCluster) -> None:
    node = cluster.node(3)
    node.request_stop()
    await world.sleep_ms(3)
    node.fail(trio.ClosedResourceError())


WAYS = (
    kill,
    broken_invariant,
    exception_in_a_task,
    exception_while_it_stops,
    kill_while_it_stops,
    second_signal_while_it_stops,
)


async def linger(world: World) -> None:
    """Delay the end of the node; meanwhile its listeners answer."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await world.sleep_ms(UNWINDING_MS)


@pytest.mark.parametrize("unwinds_slowly", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_a_broker_is_fenced_soon_after_its_process_ends_however_the_process_ends(
    way: Way, unwinds_slowly: bool
) -> None:
    async def main(world: World) -> None:
        cluster = WorldCluster(world)
        cluster.start()
        await cluster.wait_ready()
        await world.sleep_ms(2_000)
        if unwinds_slowly:
            cluster.node(3).broker.broker.start_task(linger, world)  # type: ignore[union-attr]
            await world.sleep_ms(1)
        await way(world, cluster)
        await world.wait_ended("b3")
        ended_ns = world.now_ns
        while not cluster.node(1).publisher.image.brokers[3].fenced:
            await world.sleep_ms(1)
            assert (world.now_ns - ended_ns) / 1e6 < FENCE_MS_MAX + UNWINDING_MS

    World(1).run(main)
