"""Requests that only the active controller can decide, sent to a broker: feature updates, and removal of dead
brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kraft.sim.world import World
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_requests import feature_update
from tests.stages.world_cluster import AskingClient, WorldCluster

Test = Callable[[World, WorldCluster, AskingClient], Awaitable[None]]


def run(test: Test) -> None:
    async def main(world: World) -> None:
        cluster = WorldCluster(world, controllers=3, brokers=2)
        cluster.start()
        await cluster.wait_ready()
        await test(world, cluster, await cluster.connect(1, world.node("client")))

    World(1).run(main)


@pytest.mark.parametrize("version", [1, 2])
def test_features_are_updated_through_a_broker(version: int) -> None:
    async def test(world: World, cluster: WorldCluster, client: AskingClient) -> None:
        updates = [feature_update("metadata.version", 26, 2)]
        answer = await client.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=updates, timeout=5_000)
        assert answer.error_code == ErrorCode.NONE
        image = cluster.node(cluster.controller_ids[0]).publisher.image
        while image.metadata_version != 26:
            await world.sleep_ms(1)
            image = cluster.node(cluster.controller_ids[0]).publisher.image
        updates = [feature_update("metadata.version", 99, 1)]
        answer = await client.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=updates, timeout=5_000)
        assert answer.error_code != ErrorCode.NONE or any(row.error_code for row in answer.results)

    run(test)


def test_dead_broker_is_unregistered_through_another_broker() -> None:
    async def test(world: World, cluster: WorldCluster, client: AskingClient) -> None:
        world.kill("b2")
        publisher = cluster.node(1).publisher
        while not publisher.image.brokers[2].fenced:
            await world.sleep_ms(10)
        assert (await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)).error_code == ErrorCode.NONE
        while 2 in publisher.image.brokers:
            await world.sleep_ms(1)
        again = await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)
        assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    run(test)


def test_broker_answers_an_error_if_no_controller_answers() -> None:
    async def test(world: World, cluster: WorldCluster, client: AskingClient) -> None:
        for node_id in cluster.controller_ids:
            world.kill(cluster.name(node_id))
        updates = [feature_update("metadata.version", 26, 2)]
        answer = await client.ask(ApiKey.UPDATE_FEATURES, 2, feature_updates=updates, timeout=1_000)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        answer = await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(test)
