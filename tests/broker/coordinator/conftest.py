"""Fixtures that run whole simulated clusters with consumer groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from tests.broker.coordinator.member import Member
from tests.stages.world_cluster import WorldCluster

Test = Callable[[World, WorldCluster, Member], Awaitable[Any]]
Run = Callable[..., None]


def _run(test: Test, *, seed: int = 1, topics: tuple[str, ...] = ("orders",), **layout: Any) -> None:
    """Run a test with three controllers, three brokers, these topics (two partitions, three replicas each), and one
    group member."""

    async def main(world: World) -> None:
        cluster = WorldCluster(world, **{"group_initial_rebalance_delay_ms": "0", **layout})
        cluster.start()
        await cluster.wait_ready()
        member = Member(world, cluster, world.node("client"))
        creatable = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
        client = await cluster.connect(cluster.broker_ids[0], member.seam)
        rows = [messages.build(creatable, name=name, num_partitions=2, replication_factor=3) for name in topics]
        created = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=rows, timeout=10_000)
        assert [row.error_code for row in created.topics] == [0] * len(topics)
        await world.sleep_ms(100)
        await test(world, cluster, member)
        if cluster.failures:
            raise cluster.failures[0][1]

    World(seed).run(main)


@pytest.fixture
def run() -> Run:
    return _run
