"""Tests of a cluster of pykraft's nodes, each in a separate network namespace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.sim.chaos.clusters.namespace_cluster import NamespaceCluster
from kraft.sim.chaos.hosts.network_commands import can_use_namespaces
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.scenarios.scenario import ScenarioCluster
from kraft.sim.nemesis.plan import BYTE_LIMIT, REFUSE, Fault
from kraft.sim.shapes import ClusterError
from tests.chaos.sending import TOPIC, send

pytestmark = pytest.mark.skipif(bool(can_use_namespaces()), reason=f"no namespaces: {can_use_namespaces()}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[NamespaceCluster]:
    with Warden() as warden, NamespaceCluster(ScenarioCluster(controllers=1), warden) as opened:
        yield opened
    assert warden.leftovers == ()


def test_a_leader_cut_off_in_its_namespace_is_replaced_and_returns_to_the_isr(cluster: NamespaceCluster) -> None:
    send(cluster.bootstrap_servers)
    leader = cluster.leader(TOPIC)
    assert leader is not None
    cluster.partition(leader, set(cluster.node_ids) - {leader})
    cluster.wait_until(lambda: cluster.leader(TOPIC) not in (leader, None))
    cluster.wait_until(
        lambda: any(count > 0 for name, count in cluster.facts().items() if name.startswith("packets into a cut"))
    )
    cluster.heal()
    cluster.wait_until(cluster.is_whole)


def test_a_killed_node_restarts_in_its_namespace(cluster: NamespaceCluster) -> None:
    offset = send(cluster.bootstrap_servers)
    leader = cluster.leader(TOPIC)
    assert leader is not None
    cluster.kill(leader)
    cluster.start(leader)
    cluster.wait_until(cluster.is_whole)
    assert send(cluster.bootstrap_servers) > offset


def test_faults_that_namespaces_cannot_produce_are_rejected(cluster: NamespaceCluster) -> None:
    with pytest.raises(ClusterError, match="cannot have 'byte limit'"):
        cluster.carry_out([Fault(at_ms=0, kind=BYTE_LIMIT, node=1, other=2, amount=10, duration_ms=10)])
    with pytest.raises(ClusterError, match="links cannot be cut by 'refuse' here"):
        cluster.cut([(1, 2)], manner=REFUSE)


def test_a_namespace_cluster_rejects_dynamic_voters() -> None:
    with Warden() as warden, pytest.raises(ClusterError, match="dynamic voters are not possible"):
        NamespaceCluster(ScenarioCluster(dynamic_voters=True), warden)
