"""Tests of a cluster of pykraft's nodes behind proxies: no traffic bypasses the proxies, and cut links stay cut."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from confluent_kafka import KafkaException

from kraft.sim.chaos.clusters.chaos_cluster import ChaosCluster
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.scenarios.scenario import ScenarioCluster
from kraft.sim.nemesis.partition_shapes import CLIENTS
from kraft.sim.nemesis.plan import REFUSE, RESET
from kraft.sim.shapes import ClusterError
from tests.chaos.sending import TOPIC, send


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with Warden() as warden, ChaosCluster(ScenarioCluster(), tmp_path_factory.mktemp("chaos"), warden) as opened:
        yield opened
    assert warden.leftovers == ()


@pytest.fixture(autouse=True)
def healed(cluster: ChaosCluster) -> Iterator[None]:
    yield
    cluster.mend()
    cluster.wait_until(cluster.is_whole)


def node_connections(cluster: ChaosCluster) -> Iterator[tuple[int, psutil._common.pconn]]:
    for node in cluster.node_ids:
        for connection in psutil.Process(cluster.pid(node)).net_connections("tcp"):
            if connection.status == psutil.CONN_ESTABLISHED:
                yield node, connection


def cut_everything(cluster: ChaosCluster) -> None:
    pairs = [*itertools.combinations(cluster.node_ids, 2), *((CLIENTS, broker) for broker in cluster.broker_ids)]
    cluster.cut(pairs)


def proxied_ports(cluster: ChaosCluster) -> set[tuple[int, int]]:
    """Return (port of the proxy, port at the other end) of each connection of the proxy."""
    return {
        (connection.laddr.port, connection.raddr.port)
        for connection in psutil.Process(cluster.proxy_pid).net_connections("tcp")
        if connection.status == psutil.CONN_ESTABLISHED
    }


def unproxied(cluster: ChaosCluster) -> list[tuple[int, psutil._common.pconn]]:
    """Return the connections whose peer is not the proxy. Connections of the observer are omitted, because it is not a
    node and connects to the direct addresses."""
    before = proxied_ports(cluster)
    connections = list(node_connections(cluster))
    proxied = before | proxied_ports(cluster)  # a connection may have been opened between the two readings
    direct = {int(address.rpartition(":")[2]) for address in cluster.direct_servers.split(",")}
    ports = {one.laddr.port for node in cluster.node_ids for one in psutil.Process(cluster.pid(node)).net_connections()}
    return [
        (node, one)
        for node, one in connections
        if (one.raddr.port, one.laddr.port) not in proxied and (one.laddr.port not in direct or one.raddr.port in ports)
    ]


def test_every_connection_of_a_chaos_cluster_node_ends_at_a_proxy(cluster: ChaosCluster) -> None:
    send(cluster.bootstrap_servers)
    assert len(list(node_connections(cluster))) > len(cluster.node_ids)
    found = unproxied(cluster)

    def none_is_left() -> bool:
        found[:] = unproxied(cluster)
        return not found

    # a short connection may appear in one reading only; connections between nodes last long
    with suppress(ClusterError):
        cluster.wait_until(none_is_left)
    assert found == []
    assert len({cluster.pid(node) for node in cluster.node_ids}) == len(cluster.node_ids)


def passed_bytes(cluster: ChaosCluster) -> int:
    """Return the number of bytes that toxiproxy has written so far to connections and to its interface, but not to its
    log."""
    return psutil.Process(cluster.proxy_pid).io_counters().write_chars - cluster.proxy_log.stat().st_size


def passes_nothing(cluster: ChaosCluster) -> bool:
    before = passed_bytes(cluster)
    time.sleep(0.3)
    return passed_bytes(cluster) - before <= INTERFACE_BYTES_MAX / 10


def test_no_byte_passes_between_nodes_when_every_proxy_is_cut(cluster: ChaosCluster) -> None:
    offset = send(cluster.bootstrap_servers)
    before = passed_bytes(cluster)
    # the connection is idle
    cluster.wait_until(lambda: passed_bytes(cluster) - before > 4 * INTERFACE_BYTES_MAX, timeout_s=5)
    cut_everything(cluster)
    cluster.wait_until(lambda: passes_nothing(cluster), timeout_s=10)  # bytes in flight at the cut have arrived
    before = passed_bytes(cluster)
    with pytest.raises(KafkaException):
        send(cluster.bootstrap_servers, timeout_ms=5_000)
    assert passed_bytes(cluster) - before <= INTERFACE_BYTES_MAX
    cluster.heal()
    assert send(cluster.bootstrap_servers) > offset


INTERFACE_BYTES_MAX = 1_000
"""Maximum number of bytes that toxiproxy's HTTP interface sends during the test. An idle cluster passes six times as
many bytes in four seconds."""


@pytest.mark.parametrize("manner", [REFUSE, RESET])
def test_clients_cut_off_by_refuse_or_reset_fail_and_recover(cluster: ChaosCluster, manner: str) -> None:
    offset = send(cluster.bootstrap_servers)
    cluster.cut([(CLIENTS, broker) for broker in cluster.broker_ids], manner=manner)
    with pytest.raises(KafkaException):
        send(cluster.bootstrap_servers, timeout_ms=2_000)
    cluster.wait_until(cluster.is_whole)
    cluster.heal()
    assert send(cluster.bootstrap_servers) > offset


def test_an_isolated_leader_behind_proxies_loses_its_leadership(cluster: ChaosCluster) -> None:
    send(cluster.bootstrap_servers)
    leader = cluster.leader(TOPIC)
    assert leader is not None
    cluster.partition(leader, set(cluster.node_ids) - {leader})
    cluster.wait_until(lambda: cluster.leader(TOPIC) not in (leader, None))


def test_a_one_way_proxy_cut_stops_one_direction_only(cluster: ChaosCluster) -> None:
    send(cluster.bootstrap_servers)
    leader, controller = cluster.leader(TOPIC), cluster.active_controller()
    assert leader is not None
    assert controller is not None
    cluster.cut_one_way(leader, controller)  # the node's heartbeats do not arrive
    cluster.wait_until(lambda: cluster.leader(TOPIC) not in (leader, None))
    cluster.heal()
