"""The lifecycle of whole simulated nodes: they start, serve, survive failures of their controllers, and stop in
order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from kraft.broker.node.lifecycle import BrokerState
from kraft.client.producer import Producer
from kraft.control import RegisterBrokerCommand
from kraft.control.decide import COMMANDS
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.tables import replace_row
from tests.stages.world_cluster import FIRST_CONTROLLER, WorldCluster

Test = Callable[[World, WorldCluster], Awaitable[Any]]


def run(test: Test, *, seed: int = 1, **layout: Any) -> None:
    async def main(world: World) -> None:
        cluster = WorldCluster(world, **layout)
        cluster.start()
        await cluster.wait_ready()
        await test(world, cluster)
        if cluster.failures:
            raise cluster.failures[0][1]

    World(seed).run(main)


def topic(name: str, partitions: int = 1, factor: int = 1) -> Any:
    cls = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
    return messages.build(cls, name=name, num_partitions=partitions, replication_factor=factor)


def wanted(name: str) -> Any:
    return messages.build(messages.nested_class(messages.request_class(ApiKey.METADATA), "topics"), name=name)


async def create(cluster: WorldCluster, broker_id: int, seam: Any, *topics: Any) -> dict[str, int]:
    client = await cluster.connect(broker_id, seam)
    response = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=10_000)
    return {result.name: result.error_code for result in response.topics}


@pytest.mark.parametrize("layout", [{"combined": 1}, {"controllers": 1, "brokers": 1}, {}, {"combined": 3}])
def test_after_the_start_of_a_cluster_every_broker_lists_all_brokers(layout: dict[str, int]) -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("client")
        await world.sleep_ms(50)
        for broker_id in cluster.broker_ids:
            client = await cluster.connect(broker_id, seam)
            response = await client.ask(ApiKey.METADATA, 12, topics=[])
            assert [b.node_id for b in response.brokers] == cluster.broker_ids
            assert cluster.node(broker_id).broker.broker.lifecycle.state is BrokerState.RUNNING

    run(test, **layout)


def test_a_topic_created_through_one_broker_is_soon_known_with_its_leaders_on_every_broker() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("client")
        assert await create(cluster, 1, seam, topic("orders", 6, 3)) == {"orders": 0}
        await world.sleep_ms(100)
        for broker_id in cluster.broker_ids:
            client = await cluster.connect(broker_id, seam)
            (told,) = (await client.ask(ApiKey.METADATA, 12, topics=[wanted("orders")])).topics
            assert told.error_code == 0
            assert [p.error_code for p in told.partitions] == [0] * 6
            assert all(sorted(p.isr_nodes) == [1, 2, 3] for p in told.partitions)

    run(test)


def test_requests_received_before_a_broker_is_unfenced_are_answered_once_it_is_unfenced() -> None:
    async def main(world: World) -> None:
        cluster = WorldCluster(world, controllers=1, brokers=1)
        cluster.start(1)
        await world.sleep_ms(500)
        client = await cluster.connect(1, world.node("client"))
        versions = await client.ask(ApiKey.API_VERSIONS, 0)
        assert versions.error_code == 0
        assert not cluster.node(1).broker.broker.lifecycle.unfenced.is_set()
        cluster.start(FIRST_CONTROLLER)
        response = await client.ask(ApiKey.METADATA, 12, topics=[])
        assert [b.node_id for b in response.brokers] == [1]

    World(4).run(main)


def test_a_broker_repeats_its_registration_until_a_controller_survives_handling_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest, left = COMMANDS[RegisterBrokerCommand], [3]

    def twin(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise KeyError("planted")
        return honest(*arguments)

    replace_row(monkeypatch, COMMANDS, RegisterBrokerCommand, twin)

    async def test(world: World, cluster: WorldCluster) -> None:
        assert left == [0]

    run(test, controllers=1, brokers=1)


@pytest.mark.parametrize("seed", range(3))
def test_topics_can_be_created_soon_after_the_active_controller_died(seed: int) -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("client")
        active = cluster.active_controller()
        assert active is not None
        client = await cluster.connect(2, seam)
        world.kill(cluster.name(active))
        started_ns = world.now_ns
        response = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic("orders", 1, 3)], timeout=10_000)
        assert response.topics[0].error_code == 0
        assert (world.now_ns - started_ns) / 1e6 < 1_000

    run(test, seed=seed)


def test_a_broker_that_is_stopped_hands_over_its_leaderships_and_returns_without_error() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("client")
        await create(cluster, 1, seam, topic("orders", 6, 3))
        await world.sleep_ms(100)
        started_ns = world.now_ns
        cluster.node(1).request_stop()
        await world.wait_ended("b1")
        assert (world.now_ns - started_ns) / 1e6 < 1_000
        client = await cluster.connect(2, seam)
        await world.sleep_ms(100)
        (told,) = (await client.ask(ApiKey.METADATA, 12, topics=[wanted("orders")])).topics
        assert all(p.leader_id in (2, 3) and 1 not in p.isr_nodes for p in told.partitions)
        epoch = cluster.node(2).publisher.image.brokers[1].broker_epoch
        world.restart("b1")
        await world.sleep_ms(20)
        await cluster.wait_ready()
        assert cluster.node(1).broker.broker.replicas.previous_broker_epoch == epoch

    run(test)


def test_all_nodes_of_a_cluster_can_be_stopped_at_the_same_time() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        for node_id in (*cluster.controller_ids, *cluster.broker_ids):
            cluster.node(node_id).request_stop()
        for node_id in (*cluster.controller_ids, *cluster.broker_ids):
            await world.wait_ended(cluster.name(node_id))
        assert world.now_ns / 1e9 < 30

    run(test)


def test_a_killed_broker_gets_a_new_broker_epoch_when_it_is_restarted() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        before = cluster.node(1).broker.broker.lifecycle.broker_epoch
        world.kill("b1")
        world.restart("b1")
        await world.sleep_ms(20)
        await cluster.wait_ready()
        assert cluster.node(1).broker.broker.lifecycle.broker_epoch > before

    run(test)


def lagging(cluster: WorldCluster, witness: int) -> list[tuple[str, int]]:
    """Return the partitions that are not fully in sync, according to this broker."""
    topics = cluster.node(witness).publisher.image.topics
    return [(one.name, index) for one in topics for index, state in one.partitions() if len(state.isr) < 3]


@pytest.mark.parametrize("seed", range(4))
def test_a_restarted_broker_is_soon_in_sync_again_also_in_idle_partitions(seed: int) -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("client")
        await create(cluster, 1, seam, topic("orders", 3, 3), topic("idle", 6, 3))
        await world.sleep_ms(1_000)
        for victim, witness in ((1, 2), (2, 3), (3, 1)):
            world.kill(f"b{victim}")
            world.restart(f"b{victim}")
            await world.sleep_ms(1_500)
            assert lagging(cluster, witness) == []

    run(test, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_writes_continue_soon_after_a_leader_died_while_its_followers_were_in_a_long_poll(seed: int) -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("client")
        await create(cluster, 1, seam, topic("orders", 1, 3), topic("idle", 6, 3))
        await world.sleep_ms(1_000)
        addresses = [f"b{broker_id}:9092" for broker_id in cluster.broker_ids]
        async with Producer(bootstrap_servers=addresses, seam=seam) as producer:
            await producer.send("orders", b"before")
            orders = cluster.node(1).publisher.image.topics.get("orders")
            assert orders is not None
            world.kill(f"b{orders.partition(0).leader}")
            killed_ns = world.now_ns
            await producer.send("orders", b"after")
            assert (world.now_ns - killed_ns) / 1e6 < 400

    run(test, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_metadata_no_longer_names_a_leader_whose_process_has_just_died(seed: int) -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("client")
        await create(cluster, 1, seam, topic("orders", 6, 3))
        await world.sleep_ms(100)
        client = await cluster.connect(1, seam)
        world.kill("b2")
        (told,) = (await client.ask(ApiKey.METADATA, 12, topics=[wanted("orders")])).topics
        image = cluster.node(1).publisher.image.topics.get("orders")
        assert image is not None
        assert any(state.leader == 2 for _, state in image.partitions()), "the controller was faster than the client"
        assert all(p.leader_id != 2 for p in told.partitions)
        assert {p.error_code for p in told.partitions} == {0, ErrorCode.LEADER_NOT_AVAILABLE}

    run(test, seed=seed)


def test_a_second_process_with_the_id_of_a_live_broker_is_rejected() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        twin = cluster.config(1)
        failures: list[BaseException] = []

        async def imposter(seam: Any) -> None:
            from dataclasses import replace

            from kraft.broker.node.serve import serve

            listeners = tuple(replace(listener, host="x1") for listener in twin.listeners)
            changed = {**twin.values, "initial.broker.registration.timeout.ms": 3_000}
            config = replace(twin, listeners=listeners, advertised_listeners=listeners, values=changed)
            await serve(config, seam, cluster_id="In-memory-cluster-0001")

        world.start("x1", imposter, on_failure=lambda name, error: failures.append(error))
        await world.wait_ended("x1")
        assert "broker 1" in str(failures[0])
        assert (
            cluster.node(2).publisher.image.brokers[1].broker_epoch
            == cluster.node(1).broker.broker.lifecycle.broker_epoch
        )

    run(test)


def test_a_broker_with_another_cluster_id_is_rejected() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        failures: list[BaseException] = []

        async def stranger(seam: Any) -> None:
            from dataclasses import replace

            from kraft.broker.node.serve import serve

            config = cluster.config(1)
            listeners = tuple(replace(listener, host="x1") for listener in config.listeners)
            config = replace(config, node_id=9, listeners=listeners, advertised_listeners=listeners)
            await serve(config, seam, cluster_id="Another-cluster-000001")

        world.start("x1", stranger, on_failure=lambda name, error: failures.append(error))
        await world.wait_ended("x1")
        assert ErrorCode.INCONSISTENT_CLUSTER_ID.name in str(failures[0])

    run(test)


def test_an_unregistered_broker_logs_its_unregistration_once_and_stops_at_once_on_request() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        client = await cluster.connect(2, world.node("client"))
        with capture_logs() as logs:
            assert (await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)).error_code == ErrorCode.NONE
            await world.sleep_ms(10_000)
            assert [line["log_level"] for line in logs if "not registered any more" in line["event"]] == ["error"]
            started_ns = world.now_ns
            cluster.node(1).request_stop()
            await world.wait_ended("b1")
        assert (world.now_ns - started_ns) / 1e6 < 1_000

    run(test)
