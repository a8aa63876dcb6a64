"""Nodes of different releases: a request is sent in a version that both nodes support, or the log reports that there is
none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest
import structlog
import trio

from kraft.node.peers import CallOutcome, PeerRequestFailed, Peers
from kraft.seam import Address, Binding, Peer, Seam, WireError
from kraft.sim.world import World
from kraft.wire.rpc import (
    InternalKey,
    RpcMessage,
    decode_rpc,
    encode_rpc,
    refused_range,
    request_classes,
    response_classes,
    version_refusal,
)
from kraft.wire.rpc import controller_messages as rpc_cluster
from kraft.wire.rpc.quorum_messages import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    MetadataFetchRequest,
    VoteRequest,
)
from kraft.wire.server import Request, ServerConnection, ServerLimits

from .cluster import Member
from .test_quorum_in_world import Cluster

SERVER = Peer(7, "CONTROLLER", Address("server", 9000))
ASK = EndQuorumEpochRequest(epoch=5)


class Older:
    """A peer that supports versions `low` to `high` of every message, and answers EndQuorumEpoch."""

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.versions: list[int] = []

    async def main(self, seam: Seam) -> None:
        def accept(transport: object) -> ServerConnection:
            return ServerConnection(transport, self._handle, limits=ServerLimits(), budget=None)  # type: ignore[arg-type]

        seam.network.serve(Binding("CONTROLLER", Address("server", 9000)), accept)
        await trio.sleep_forever()

    def _handle(self, request: Request) -> None:
        self.versions.append(request.api_version)
        if self.low <= request.api_version <= self.high:
            request.respond(encode_rpc(EndQuorumEpochResponse(epoch=6), request.api_version))
        else:
            request.respond(msgpack.packb((None, self.low, self.high)))


def newer(monkeypatch: pytest.MonkeyPatch, low: int, high: int, *classes: type[RpcMessage]) -> None:
    """Make this node a later release, which supports versions `low` to `high` of these messages."""
    for cls in classes:
        for one in (cls, response_classes()[cls.api_key]):
            monkeypatch.setattr(one, "min_version", low)
            monkeypatch.setattr(one, "max_version", high)


def with_peer(server: Older, body: Callable[[World, Peers], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        world.start("server", server.main)
        await world.sleep_ms(1)
        peers = Peers(world.node("client"), client_id="test")
        async with trio.open_nursery() as nursery:
            await nursery.start(peers.run)
            await body(world, peers)
            nursery.cancel_scope.cancel()

    World(1).run(main)


def test_request_to_an_older_peer_is_repeated_in_the_peers_newest_version_which_later_requests_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newer(monkeypatch, 0, 3, EndQuorumEpochRequest)
    server = Older(0, 1)

    async def body(world: World, peers: Peers) -> None:
        for _ in range(3):
            assert await peers.request(SERVER, ASK, timeout_ms=1000) == EndQuorumEpochResponse(epoch=6)
        assert server.versions == [3, 1, 1, 1]
        peers.disconnect(SERVER, "")
        await world.sleep_ms(10)
        # The peer may have been replaced by a newer release: a new connection starts with our newest version.
        await peers.request(SERVER, ASK, timeout_ms=1000)
        assert server.versions == [3, 1, 1, 1, 3, 1]

    with_peer(server, body)


def test_request_to_a_peer_without_a_common_version_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    newer(monkeypatch, 2, 3, EndQuorumEpochRequest)

    async def body(world: World, peers: Peers) -> None:
        with structlog.testing.capture_logs() as logs, pytest.raises(PeerRequestFailed) as caught:
            await peers.request(SERVER, ASK, timeout_ms=1000)
        assert caught.value.outcome is CallOutcome.NO_COMMON_VERSION
        (line,) = logs
        assert line["log_level"] == "error"
        assert (line["request"], line["spoken_there"], line["spoken_here"]) == (
            "EndQuorumEpochRequest",
            "0 to 1",
            "2 to 3",
        )
        assert peers.is_connected(SERVER, "")

    with_peer(Older(0, 1), body)


def test_peer_that_rejects_its_own_advertised_version_is_not_retried_endlessly() -> None:
    class Liar(Older):
        def _handle(self, request: Request) -> None:
            self.versions.append(request.api_version)
            request.respond(msgpack.packb((None, 0, 0)))

    server = Liar(0, 0)

    async def body(world: World, peers: Peers) -> None:
        with pytest.raises(PeerRequestFailed) as caught:
            await peers.request(SERVER, ASK, timeout_ms=1000)
        assert caught.value.outcome is CallOutcome.NO_COMMON_VERSION
        assert server.versions == [0]

    with_peer(server, body)


def own_requests() -> list[tuple[InternalKey, Any]]:
    """Return keys and request classes of the project, without those defined by tests."""
    return [(key, request_classes()[key]) for key in InternalKey]


def test_unsupported_version_is_rejected_in_bytes_that_parse_as_no_message() -> None:
    for key, cls in own_requests():
        assert version_refusal(key, cls.max_version) is None
        refusal = version_refusal(key, cls.max_version + 1)
        assert refusal is not None
        assert refused_range(refusal) == (cls.min_version, cls.max_version)
        answer = response_classes()[key]
        with pytest.raises(WireError):
            decode_rpc(answer, answer.max_version, refusal)
    assert version_refusal(10_999, 0) is None
    assert refused_range(encode_rpc(EndQuorumEpochResponse())) is None
    for damaged in (b"\x93\xc0", b"\x93\xc0\x01", msgpack.packb((None, 2, 1)), msgpack.packb((None, "a", 1))):
        with pytest.raises(WireError):
            refused_range(damaged)


def test_request_and_response_of_an_internal_key_have_the_same_versions() -> None:
    assert rpc_cluster
    for key, cls in own_requests():
        answer = response_classes()[key]
        assert (cls.min_version, cls.max_version) == (answer.min_version, answer.max_version)


@pytest.mark.parametrize("old", [(1,), (1, 2), (1, 2, 3)])
def test_quorum_of_nodes_of_two_releases_elects_a_leader_and_commits(
    monkeypatch: pytest.MonkeyPatch, old: tuple[int, ...]
) -> None:
    newer(monkeypatch, 0, 1, VoteRequest, MetadataFetchRequest, EndQuorumEpochRequest)
    refused: list[int] = []

    def handle(member: Member, request: Request) -> None:
        if request.api_version > 0 and member.config.node_id in old:
            refused.append(member.config.node_id)
            request.respond(msgpack.packb((None, 0, 0)))
        else:
            assert member.quorum is not None
            assert member.quorum.handle(request)

    async def main(world: World) -> None:
        cluster = Cluster(world)
        for member in cluster.members.values():
            member.handle = handle
        cluster.start()
        await cluster.write(b"a")
        leader = await cluster.elect()
        cluster.kill(leader.config.node_id)
        await cluster.write(b"b")
        cluster.restart(leader.config.node_id)
        await cluster.wait(lambda: leader.quorum is not None and cluster.have(b"a", b"b"))
        assert set(refused) == set(old)

    World(3).run(main)
