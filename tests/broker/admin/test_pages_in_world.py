"""The pages of the admin listener, on whole simulated nodes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.broker.admin.listener import ABOVE_IDLE_MS, ABOVE_MAX, LOOK_MS
from kraft.broker.serving.metrics.text import LINES_PER_STEP
from kraft.seam import Address
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from tests.broker.admin.http_peer import connect, get
from tests.stages.world_cluster import FIRST_CONTROLLER, WorldCluster

Test = Callable[[World, WorldCluster], Awaitable[Any]]
PORT = 9404


def at(cluster: WorldCluster, node_id: int) -> Address:
    return Address(cluster.name(node_id), PORT)


def run(test: Test, *, controllers: int = 1, **settings: Any) -> None:
    async def main(world: World) -> None:
        given = {"kraft_admin_listener": f"0.0.0.0:{PORT}", "kraft_admin_anonymous": "true", **settings}
        cluster = WorldCluster(world, controllers=controllers, brokers=1, **given)
        cluster.start()
        await cluster.wait_ready()
        await test(world, cluster)
        if cluster.failures:
            raise cluster.failures[0][1]

    World(3).run(main)


def test_each_page_of_a_broker_and_of_a_controller_is_served() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("probe")
        broker, controller = at(cluster, 1), at(cluster, FIRST_CONTROLLER)
        for address in (broker, controller):
            assert (await get(seam, address, "/live"))[0] == 200
            assert (await get(seam, address, "/ready")) == (200, '{"ready": true}\n')
            assert (await get(seam, address, "/v1/ready")) == (204, "")
            assert (await get(seam, address, "/secret"))[0] == 404
        assert json.loads((await get(seam, broker, "/v1/broker-state"))[1]) == {"brokerState": 3}
        assert (await get(seam, controller, "/v1/broker-state"))[0] == 404
        told = json.loads((await get(seam, broker, "/info"))[1])
        assert (told["node"], told["roles"], told["cluster"]) == (1, ["broker"], "In-memory-cluster-0001")

    run(test)


def test_the_metrics_page_uses_the_metric_names_that_the_request_selects() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("probe")

        async def text(query: str) -> str:
            status, body = await get(seam, at(cluster, 1), f"/metrics{query}")
            assert status == 200
            return body

        assert "\nkafka_server_brokertopicmetrics_messagesinpersec_total 0.0\n" in await text("")
        assert "\nkafka_server_brokertopicmetrics_messagesin_total 0.0\n" in await text("?names=strimzi")
        assert "\nkafka_server_brokertopicmetrics_messagesinpersec 0.0\n" in await text("?names=confluent")
        assert (await get(seam, at(cluster, 1), "/metrics?names=other"))[0] == 400

    run(test)


def test_an_admin_listener_with_a_token_answers_only_probes_without_it() -> None:
    token = "0123456789abcdef"

    async def test(world: World, cluster: WorldCluster) -> None:
        seam, broker = world.node("probe"), at(cluster, 1)
        for path in ("/live", "/ready", "/v1/ready"):
            assert (await get(seam, broker, path))[0] in (200, 204)
        wrong = ("", f"Authorization: Basic {token}", "Authorization: Bearer x", f"Authorization: Bearer {token}x")
        for number, header in enumerate(wrong):
            for path in ("/metrics", "/info", "/v1/broker-state", "/secret"):
                status, body = await get(seam, broker, path, *filter(None, [header]))
                assert (status, "kraft.admin.token" in body, "kafka_" in body) == (401, True, False)
            failed = cluster.node(1).metrics.value(
                "kafka.server", "socket-server-metrics", "failed-authentication-total", listener="ADMIN"
            )
            assert failed == 4 * (number + 1)
        for scheme in ("Bearer", "bearer"):
            status, body = await get(seam, broker, "/metrics", f"Authorization: {scheme} {token}")
            assert (status, token in body) == (200, False)
            assert "kafka_server_brokertopicmetrics_messagesinpersec_total" in body

    run(test, kraft_admin_token=token)


def test_a_broker_that_loses_its_controllers_stays_ready() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        world.kill(cluster.name(FIRST_CONTROLLER))
        await world.sleep_ms(20_000)
        assert (await get(world.node("probe"), at(cluster, 1), "/ready"))[0] == 200

    run(test)


def test_a_broker_without_a_controller_is_live_but_not_ready() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("probe")
        world.kill(cluster.name(FIRST_CONTROLLER))
        world.kill(cluster.name(1))
        world.restart(cluster.name(1))
        await world.sleep_ms(2_000)
        assert (await get(seam, at(cluster, 1), "/live"))[0] == 200
        status, body = await get(seam, at(cluster, 1), "/ready")
        assert (status, json.loads(body)) == (503, {"ready": False, "reason": "the broker's state is STARTING"})
        assert (await get(seam, at(cluster, 1), "/v1/ready"))[0] == 503

    run(test)


def test_a_controller_without_a_majority_is_live_but_not_ready() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("probe")
        for controller_id in (FIRST_CONTROLLER, FIRST_CONTROLLER + 1):
            world.kill(cluster.name(controller_id))
        await world.sleep_ms(20_000)
        address = at(cluster, FIRST_CONTROLLER + 2)
        assert (await get(seam, address, "/live"))[0] == 200
        status, body = await get(seam, address, "/ready")
        assert status == 503
        assert json.loads(body)["reason"].endswith("does not answer")

    run(test, controllers=3)


def test_an_admin_connection_above_the_maximum_gets_503_except_for_probes() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam, address = world.node("probe"), at(cluster, 1)
        held = [await connect(seam, address) for _ in range(2)]
        await world.sleep_ms(10)
        status, body = await get(seam, address, "/info")
        assert status == 503
        assert "kraft.admin.connections.max=2" in body
        assert (await get(seam, address, "/metrics"))[0] == 503
        for path, wanted in (("/live", 200), ("/ready", 200), ("/v1/ready", 204)):
            assert (await get(seam, address, path))[0] == wanted
        held[0].transport.close()
        await world.sleep_ms(10)
        assert (await get(seam, address, "/info"))[0] == 200

    run(test, kraft_admin_connections_max="2")


def test_idle_admin_connections_above_the_maximum_are_closed_so_that_a_probe_is_answered() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam, address = world.node("probe"), at(cluster, 1)
        held = [await connect(seam, address) for _ in range(1 + ABOVE_MAX)]
        await world.sleep_ms(ABOVE_IDLE_MS + 2 * LOOK_MS)
        assert not held[0].ended.is_set()
        assert all(client.ended.is_set() for client in held[1:])
        assert (await get(seam, address, "/live"))[0] == 200

    run(test, kraft_admin_connections_max="1")


@pytest.mark.parametrize("trickle", [(), (b"GET /live HTTP/1.1\r\nX: ", b"y", b"y", b"y")])
def test_an_admin_connection_without_a_complete_request_is_closed_after_the_idle_time(
    trickle: tuple[bytes, ...],
) -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        client = await connect(world.node("probe"), at(cluster, 1))
        for data in trickle:  # the connection is closed after the response
            client.send(data)
            await world.sleep_ms(250)
            assert not client.ended.is_set()
        await world.sleep_ms(2_500)
        assert client.ended.is_set()
        assert client.text == b""

    run(test, kraft_admin_idle_ms="1500")


def test_a_metric_that_cannot_be_read_does_not_end_the_node() -> None:
    def refuse() -> float:
        raise OSError("too many open files")

    async def test(world: World, cluster: WorldCluster) -> None:
        cluster.node(1).metrics.gauge("kafka.server", "KafkaServer", "linux-disk-read-bytes", refuse)
        seam, address = world.node("probe"), at(cluster, 1)
        assert not (await get(seam, address, "/metrics"))[1].endswith("0\r\n\r\n")
        assert (await get(seam, address, "/ready"))[0] == 200

    run(test)


def test_the_metrics_page_contains_partition_metrics_only_when_requested() -> None:
    async def test(world: World, cluster: WorldCluster) -> None:
        seam = world.node("probe")
        client = await cluster.connect(1, seam)
        cls = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
        count = 2 * LINES_PER_STEP + 1  # in more than one piece
        topic = messages.build(cls, name="orders", num_partitions=count, replication_factor=1)
        assert (await client.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=10_000)).topics[0].error_code == 0
        await world.sleep_ms(500)
        name = '\nkafka_cluster_partition_insyncreplicascount{partition="'
        assert (await get(seam, at(cluster, 1), "/metrics"))[1].count(name) == 0
        text = (await get(seam, at(cluster, 1), "/metrics?partitions=1"))[1]
        assert text.count("\nkafka_cluster_partition_insyncreplicascount{") >= count - 2
        assert text.count("# TYPE kafka_cluster_partition_insyncreplicascount gauge") == 1

    run(test)
