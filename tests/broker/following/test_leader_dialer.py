"""LeaderDialer and LeaderCheck without a broker: finding a broker's address, and whether the broker is alive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kraft.broker.following.leader_dialer import LeaderDialer
from kraft.broker.node.leader_check import LeaderCheck
from kraft.config import NodeConfig
from kraft.control.brokers.probing import ProbeOutcome
from kraft.seam import DialFailed, DialOutcome, Peer
from tests.stages.broker_harness import PROPERTIES
from tests.stages.images import image_of, three_brokers
from tests.stages.part_stage import PartStage, play

IMAGE = image_of(*three_brokers())


class FakeNetwork:
    """A network whose `connect` returns `connection`, or fails if it is None."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.connection: Any = SimpleNamespace(is_closed=False)

    async def dial(self, peer: Peer, make: Any, *, timeout_ms: int) -> Any:
        self.peers.append(peer)
        if self.connection is None:
            raise DialFailed(peer, DialOutcome.REFUSED)
        return self.connection


def test_the_leader_dialer_connects_to_the_inter_broker_listener_of_a_leader() -> None:
    async def test(stage: PartStage) -> None:
        network: Any = FakeNetwork()
        memory: Any = SimpleNamespace()
        leaders = LeaderDialer(NodeConfig.parse(PROPERTIES), network, lambda: IMAGE, memory)
        endpoint = leaders.endpoint(2)
        assert endpoint is not None
        assert (endpoint.host, leaders.incarnation(2)) == ("broker-2", UUID(int=2))
        assert (leaders.endpoint(9), leaders.incarnation(9)) == (None, None)
        connection = await leaders.dial(2, endpoint, "client", lambda *_: None)
        assert connection is network.connection
        (peer,) = network.peers
        assert (peer.node_id, peer.address.host) == (2, "broker-2")
        network.connection.is_closed = True
        assert await leaders.dial(2, endpoint, "client", lambda *_: None) is None
        network.connection = None
        assert await leaders.dial(2, endpoint, "client", lambda *_: None) is None

    play(test)


def test_the_leader_check_reports_only_brokers_whose_probe_connection_is_refused_as_gone() -> None:
    probes: dict[int, Any] = {}
    prober: Any = SimpleNamespace(
        endpoint_of=lambda registration: None,
        probe=lambda broker_id, incarnation, endpoint, then: probes.update({broker_id: then}),
    )
    gone: list[frozenset[int]] = []
    check = LeaderCheck(prober, lambda: IMAGE)
    check.check(frozenset({1, 2, 9}), gone.append)
    assert gone == []
    probes[1](ProbeOutcome.REFUSED)
    probes[2](ProbeOutcome.SAME)
    assert gone == [frozenset({1})]
    check.check(frozenset({9}), gone.append)
    assert gone[1:] == [frozenset()], "a broker that is not registered is not probed"
