"""Limits on connections by address, in total and by rate: which connections wait, which are closed, and which are
always accepted.
"""

from __future__ import annotations

import pytest

from kraft.broker.serving.connection_limits import host_limits
from kraft.config import ConfigError, NodeConfig
from kraft.seam import Address, CloseReason, Peer, Transport
from kraft.sim.world import World
from kraft.wire.api_keys import ApiKey
from kraft.wire.client import ClientConnection
from tests.stages.broker_harness import BrokerHarness, WireClient
from tests.stages.world_cluster import AskingClient, WorldCluster

VERSIONS = ApiKey.API_VERSIONS


def harness(**limits: str) -> BrokerHarness:
    return BrokerHarness(properties={key.replace("_", "."): value for key, value in limits.items()})


def is_read(client: WireClient) -> bool:
    """Return whether the broker handles requests from this connection. While a connection waits, its bytes stay unread
    in the socket."""
    client.send(VERSIONS, 0, b"")
    return bool(client.received())


def end(client: WireClient) -> None:
    client.connection.closed(CloseReason.PEER)


def clients(broker: BrokerHarness, count: int, listener: str = "OUTSIDE") -> list[WireClient]:
    return [broker.connect(listener) for _ in range(count)]


def test_without_limits_every_connection_is_read() -> None:
    assert all(is_read(client) for client in clients(harness(), 20))


def test_a_connection_above_the_per_ip_limit_is_closed_until_another_ends() -> None:
    broker = harness(max_connections_per_ip="2")
    first, second, third = clients(broker, 3)
    assert (is_read(first), is_read(second)) == (True, True)
    assert third.transport.closed_for is CloseReason.LOCAL
    end(third)
    end(first)
    assert is_read(*clients(broker, 1))


def test_an_address_with_an_override_has_its_own_connection_limit() -> None:
    broker = harness(max_connections_per_ip="1", max_connections_per_ip_overrides="192.0.2.7:3,10.0.0.1:9")
    closed = [client.transport.closed_for for client in clients(broker, 4)]
    assert closed == [None, None, None, CloseReason.LOCAL]


def test_at_max_connections_new_clients_wait_unread_in_order_until_other_connections_end() -> None:
    broker = harness(max_connections="2")
    first, second, third, fourth = clients(broker, 4)
    assert [is_read(client) for client in (first, second, third, fourth)] == [True, True, False, False]
    end(first)
    assert (is_read(third), is_read(fourth)) == (True, False)
    end(fourth)
    end(second)
    assert is_read(*clients(broker, 1))


def test_connections_above_the_limit_of_waiting_connections_are_closed() -> None:
    broker = harness(max_connections="1", socket_listen_backlog_size="2")
    found = [client.transport.closed_for for client in clients(broker, 5)]
    assert found == [None, None, None, CloseReason.LOCAL, CloseReason.LOCAL]


def test_an_inter_broker_connection_is_always_accepted_and_closes_the_oldest_idle_client() -> None:
    broker = harness(max_connections="2")
    broker.broker.dispatcher._holding = True  # requests are held, so the first client has a request in flight
    busy, idle = clients(broker, 2)
    busy.connection._slots.append(object())  # type: ignore[arg-type]
    peer = broker.connect("PLAINTEXT")
    assert is_read(peer)
    assert busy.transport.closed_for is None
    assert idle.transport.closed_for is CloseReason.LOCAL
    waiting = broker.connect("OUTSIDE")
    assert not is_read(waiting)
    another = broker.connect("PLAINTEXT")
    assert is_read(another)
    assert busy.transport.closed_for is CloseReason.LOCAL
    assert is_read(broker.connect("PLAINTEXT")), "brokers never close each other"


def test_connection_limits_can_be_changed_while_the_broker_runs() -> None:
    broker = harness()
    early = clients(broker, 2)
    limits = broker.broker.dispatcher._connection_limits
    limits.configure(broker.broker.config.overlay({"max.connections.per.ip": "2"}))
    (late,) = clients(broker, 1)
    assert late.transport.closed_for is CloseReason.LOCAL
    assert all(is_read(client) for client in early)
    end(early[0])
    assert is_read(*clients(broker, 1))


def test_waiting_connections_are_read_when_the_limit_is_raised() -> None:
    broker = harness(max_connections="1")
    first, second = clients(broker, 2)
    assert (is_read(first), is_read(second)) == (True, False)
    broker.broker.dispatcher._connection_limits.configure(broker.broker.config.overlay({"max.connections": "2"}))
    assert is_read(second)


class TwoListeners(WorldCluster):
    """A cluster whose brokers have a listener for clients in addition to the inter-broker listener."""

    def config(self, node_id: int) -> NodeConfig:
        config = super().config(node_id)
        if node_id not in self.broker_ids:
            return config
        more = {
            "listeners": f"PLAINTEXT://b{node_id}:9092,OUTSIDE://b{node_id}:9094",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        return NodeConfig.parse({**config.properties, **more})


def _client(transport: Transport) -> ClientConnection:
    return ClientConnection(transport, client_id="test")


def test_connections_above_the_creation_rate_wait_until_the_rate_allows_them() -> None:
    async def main(world: World) -> None:
        cluster = TwoListeners(world, controllers=1, brokers=1, max_connection_creation_rate="10")
        cluster.start()
        await cluster.wait_ready()
        await world.sleep_ms(2_000)
        seam = world.node("client")
        peer = Peer(None, "OUTSIDE", Address("b1", 9094))
        began_ns = world.now_ns
        for _ in range(31):
            connection = await seam.network.dial(peer, _client, timeout_ms=1_000)
            await AskingClient(connection).ask_bytes(VERSIONS, 0, b"")
        elapsed_ms = (world.now_ns - began_ns) / 1e6
        assert 1_900 <= elapsed_ms <= 2_300, "a bucket of one second, then ten per second"

    World(1).run(main)


def test_per_ip_connection_overrides_accept_host_names_and_ipv4_and_ipv6_addresses() -> None:
    assert host_limits(["a.example:2", "10.0.0.7:0", "[::1]:9"]) == {"a.example": 2, "10.0.0.7": 0, "::1": 9}


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:many", ":5"])
def test_invalid_per_ip_connection_overrides_are_rejected_at_start(text: str) -> None:
    with pytest.raises(ConfigError, match="host:count"):
        harness(max_connections_per_ip_overrides=text)
