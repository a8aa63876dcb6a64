"""Tests of toxics on the links of a real cluster: each toxic begins, affects only the connections that it should, and
ends.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from kraft.sim.chaos.clusters.chaos_cluster import ChaosCluster, Link
from kraft.sim.chaos.clusters.link_probes import _LENGTH, REQUEST, _ask
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.scenarios.scenario import ScenarioCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import FaultRun, faults_of_seed
from kraft.sim.nemesis.partition_shapes import CLIENTS
from kraft.sim.nemesis.plan import ALL_CLIENTS, Fault
from kraft.sim.shapes import ClusterError

ENDING = (plan.TIMEOUT, plan.RESET_PEER)
CONNECTIONS = 40
"""Number of connections. With so many, a toxic with a toxicity of 50 % affects some and leaves others unaffected."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    wanted = ScenarioCluster(controllers=1, brokers=3)
    with Warden() as warden, ChaosCluster(wanted, tmp_path_factory.mktemp("chaos"), warden, ENDING) as opened:
        yield opened
    assert warden.leftovers == ()


@pytest.fixture(autouse=True)
def healed(cluster: ChaosCluster) -> Iterator[None]:
    yield
    cluster.mend()
    cluster.wait_until(cluster.is_whole)


def begin(cluster: ChaosCluster, kind: str, **fields: object) -> Callable[[], None]:
    end = cluster.begin_fault(Fault(**{"at_ms": 0, "kind": kind, **fields}))  # type: ignore[arg-type]
    assert end is not None
    return end


def answers(cluster: ChaosCluster, link: Link, timeout_s: float = 30.0) -> bool:
    """Return whether a new connection over this link is answered. If the connection hangs, the result is False after a
    timeout; if a toxic ends the connection, it is False at once."""
    try:
        _ask(cluster._proxies[0].address(link), timeout_s=timeout_s)
    except OSError:
        return False
    return True


def wait_fact(cluster: ChaosCluster, name: str, condition: Callable[[float], bool]) -> None:
    cluster.wait_until(lambda: condition(cluster.facts().get(name, -1.0)))


def test_a_slicer_with_pauses_lengthens_the_round_trip_until_it_ends(cluster: ChaosCluster) -> None:
    end = begin(cluster, plan.SLICER, node=2, other=1, amount=10, variation_bytes=5, delay_us=20_000)
    wait_fact(cluster, "added round trip ms 1->2", lambda took: took >= 200)
    wait_fact(cluster, "added round trip ms 2->1", lambda took: took >= 15)
    end()
    wait_fact(cluster, "added round trip ms 1->2", lambda took: 0 <= took < 200)


def test_a_slow_close_delays_only_the_end_of_a_connection(cluster: ChaosCluster) -> None:
    unanswered = cluster.facts().get("unanswered probes 0->1", 0)
    end = begin(cluster, plan.SLOW_CLOSE, node=ALL_CLIENTS, other=1, amount=700)
    wait_fact(cluster, "added close ms 0->1", lambda took: took >= 500)
    assert cluster.facts()["unanswered probes 0->1"] == unanswered
    end()
    wait_fact(cluster, "added close ms 0->1", lambda took: 0 <= took < 500)


def test_a_timeout_fault_drops_bytes_and_ends_connections(cluster: ChaosCluster) -> None:
    proxy = cluster._proxies[0].address((1, 2))
    with socket.create_connection((proxy.host, proxy.port), 30):
        ended = cluster.facts()["connections ended 1->2"]
        end = begin(cluster, plan.TIMEOUT, node=1, other=2, amount=200)
        wait_fact(cluster, "connections ended 1->2", lambda count: count > ended)
    assert not answers(cluster, (1, 2))
    wait_fact(cluster, "unanswered probes 1->2", lambda count: count > 0)
    end()
    assert answers(cluster, (1, 2))


def test_a_reset_peer_fault_ends_each_connection_some_time_after_its_next_bytes(cluster: ChaosCluster) -> None:
    proxy = cluster._proxies[0].address((CLIENTS, 1))
    with socket.create_connection((proxy.host, proxy.port), 30) as before:
        end = begin(cluster, plan.RESET_PEER, node=1, other=ALL_CLIENTS, amount=100)
        before.sendall(_LENGTH.pack(len(REQUEST)) + REQUEST)
        assert is_ended(before)
        with socket.create_connection((proxy.host, proxy.port), 30) as after:
            after.sendall(_LENGTH.pack(len(REQUEST)) + REQUEST)
            assert is_ended(after)
    end()
    assert answers(cluster, (CLIENTS, 1))


def is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_toxicity_below_100_percent_affects_only_some_connections(cluster: ChaosCluster) -> None:
    end = begin(cluster, plan.TIMEOUT, node=ALL_CLIENTS, other=1, amount=20, toxicity_percent=50)
    found = {answers(cluster, (CLIENTS, 1)) for _ in range(CONNECTIONS)}
    assert found == {True, False}
    end()
    assert {answers(cluster, (CLIENTS, 1)) for _ in range(CONNECTIONS)} == {True}


@pytest.mark.parametrize(
    ("stream", "hit", "spared"), [("up", (1, 2), (2, 1)), ("down", (2, 1), (1, 2))], ids=["up", "down"]
)
def test_a_toxic_stream_selects_connections_by_the_end_that_dialled(
    cluster: ChaosCluster, stream: str, hit: Link, spared: Link
) -> None:
    end = begin(cluster, plan.TIMEOUT, node=1, other=2, amount=100, stream=stream)
    assert not answers(cluster, hit)
    assert answers(cluster, spared)
    end()
    assert answers(cluster, hit)


@pytest.mark.parametrize(
    ("kind", "amount", "is_hit"),
    [(plan.LATENCY, 500, None), (plan.SLOW_LINK, 1_000, None), (plan.BYTE_LIMIT, 20, False)],
)
def test_a_link_quality_with_a_stream_becomes_a_toxic_of_that_stream(
    cluster: ChaosCluster, kind: str, amount: int, is_hit: bool | None
) -> None:
    end = begin(cluster, kind, node=2, other=1, amount=amount, stream="down")
    if is_hit is None:
        wait_fact(cluster, "added round trip ms 1->2", lambda took: took >= 100)
    else:
        assert answers(cluster, (1, 2)) is is_hit
    assert answers(cluster, (2, 1))
    end()
    assert answers(cluster, (1, 2))


def test_a_toxic_fault_without_another_end_affects_all_links_of_its_node(cluster: ChaosCluster) -> None:
    end = begin(cluster, plan.TIMEOUT, node=1, amount=100)
    links = [link for link in cluster._proxies[0].links if 101 not in link]
    assert {link for link in links if not answers(cluster, link)} == {link for link in links if 1 in link}
    end()
    assert all(answers(cluster, link) for link in links)


def test_a_toxic_fault_of_clients_does_not_affect_links_between_nodes(cluster: ChaosCluster) -> None:
    end = begin(cluster, plan.TIMEOUT, node=ALL_CLIENTS, amount=100)
    links = [link for link in cluster._proxies[0].links if 101 not in link]
    assert {link for link in links if not answers(cluster, link)} == {(CLIENTS, broker) for broker in (1, 2, 3)}
    end()
    assert all(answers(cluster, link) for link in links)


def test_toxic_faults_of_several_kinds_coexist_on_a_link_and_end_separately(cluster: ChaosCluster) -> None:
    slow = begin(cluster, plan.SLICER, node=1, other=2, amount=10, delay_us=1_000)
    lost = begin(cluster, plan.TIMEOUT, node=1, other=2, amount=100)
    assert cluster.begin_fault(Fault(at_ms=0, kind=plan.TIMEOUT, node=1, amount=5)) is None
    slow()
    assert not answers(cluster, (1, 2))
    lost()
    assert answers(cluster, (1, 2))


def test_a_heal_removes_all_toxics(cluster: ChaosCluster) -> None:
    end = begin(cluster, plan.TIMEOUT, node=ALL_CLIENTS, other=1, amount=100)
    cluster.heal()
    assert answers(cluster, (CLIENTS, 1))
    end()
    assert answers(cluster, (CLIENTS, 1))


def test_the_link_from_clients_to_a_broker_is_cut_while_the_fault_lasts(cluster: ChaosCluster) -> None:
    faults = [
        Fault(at_ms=0, kind=plan.CUT, node=ALL_CLIENTS, other=1, duration_ms=60_000, manner=plan.REFUSE),
        Fault(at_ms=0, kind=plan.CUT_ONE_WAY, lane=1, node=2, other=ALL_CLIENTS, duration_ms=60_000),
        Fault(at_ms=0, kind="reset", lane=2, node=ALL_CLIENTS, other=3),
    ]
    run = FaultRun(cluster, faults, lambda: 0)
    steps = run.steps()
    next(steps)
    assert [cluster.is_cut(CLIENTS, 1), cluster.is_cut(1, CLIENTS)] == [True, True]
    assert [cluster.is_cut(2, CLIENTS), cluster.is_cut(CLIENTS, 2)] == [True, False]
    hung = answers(cluster, (CLIENTS, 2), timeout_s=2.0)
    assert [answers(cluster, (CLIENTS, 1)), hung, answers(cluster, (CLIENTS, 3))] == [False, False, True]
    steps.close()
    assert [answers(cluster, (CLIENTS, broker)) for broker in (1, 2, 3)] == [True, True, True]
    assert [window.nodes for window in run.windows] == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"node": ALL_CLIENTS, "other": 101}, "clients have links to brokers only"),
        ({"node": ALL_CLIENTS, "other": 0, "kind": plan.CUT}, "names two nodes"),
        ({"role": plan.A_LEADER, "other": 2}, "names two nodes"),
        ({"node": ALL_CLIENTS, "kind": plan.KILL}, "there is no node -1"),
    ],
)
def test_a_toxic_fault_on_a_link_that_does_not_exist_is_rejected(
    cluster: ChaosCluster, fields: dict[str, object], says: str
) -> None:
    fault = Fault(**{"at_ms": 0, "kind": plan.TIMEOUT, "duration_ms": 1_000, **fields})  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=says):
        FaultRun(cluster, [fault], lambda: 0)


def test_faults_drawn_from_seeds_never_include_toxics(cluster: ChaosCluster) -> None:
    drawn = {fault.kind for seed in range(1, 40) for fault in faults_of_seed(cluster, seed, 10_000)}
    assert drawn
    assert not drawn & {*plan.TOXIC_KINDS}
