"""Connections to other nodes: distinct outcomes, one connection per purpose, responses and timeouts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from kraft.node.peers import CallOutcome, Failed, PeerRequestFailed, Peers
from kraft.seam import Address, Binding, CloseReason, Peer, Seam, Transport
from kraft.sim.world import World, WorldOptions
from kraft.wire.rpc import encode_rpc
from kraft.wire.rpc.quorum_messages import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraft.wire.server import Request, ServerConnection, ServerLimits

SERVER = Peer(7, "CONTROLLER", Address("server", 9000))
ASK = EndQuorumEpochRequest(epoch=5)


class Server:
    """A server that answers, stays silent, closes, or sends garbage, as configured."""

    def __init__(self) -> None:
        self.behaviour = "answer"
        self.connections: list[ServerConnection] = []
        self.silent: list[Request] = []

    async def main(self, seam: Seam) -> None:
        def accept(transport: Transport) -> ServerConnection:
            connection = ServerConnection(transport, self._handle, limits=ServerLimits(), budget=None)
            self.connections.append(connection)
            return connection

        seam.network.serve(Binding("CONTROLLER", Address("server", 9000)), accept)
        await trio.sleep_forever()

    def _handle(self, request: Request) -> None:
        if self.behaviour == "answer":
            request.respond(encode_rpc(EndQuorumEpochResponse(epoch=6)))
        elif self.behaviour == "close":
            request.fail("told to close", CloseReason.LOCAL)
        elif self.behaviour == "rubbish":
            request.respond(b"\xc1\xc1")
        else:
            self.silent.append(request)


def with_server(body: Callable[[World, Server, Peers], Awaitable[None]], *, start: bool = True) -> None:
    async def main(world: World) -> None:
        server = Server()
        if start:
            world.start("server", server.main)
            await world.sleep_ms(1)
        peers = Peers(world.node("client"), client_id="test")
        async with trio.open_nursery() as nursery:
            await nursery.start(peers.run)
            await body(world, server, peers)
            nursery.cancel_scope.cancel()

    World(1).run(main)


def test_peer_request_is_answered_and_its_connection_is_reused() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        for _ in range(3):
            answer = await peers.request(SERVER, ASK, timeout_ms=1000)
            assert answer == EndQuorumEpochResponse(epoch=6)
        assert len(server.connections) == 1
        assert peers.is_connected(SERVER, "")

    with_server(body)


def test_each_purpose_has_its_own_connection_so_that_a_long_poll_blocks_no_other() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        server.behaviour = "silent"
        answers: list[object] = []
        peers.send(SERVER, ASK, answers.append, timeout_ms=60_000, purpose="poll")
        await world.sleep_ms(50)
        server.behaviour = "answer"
        await peers.request(SERVER, ASK, timeout_ms=1000, purpose="vote")
        assert not answers
        server.silent[0].respond(encode_rpc(EndQuorumEpochResponse(epoch=9)))
        await world.sleep_ms(50)
        assert answers == [EndQuorumEpochResponse(epoch=9)]

    with_server(body)


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [("close", CallOutcome.CLOSED), ("silent", CallOutcome.TIMED_OUT), ("rubbish", CallOutcome.BAD_ANSWER)],
)
def test_peer_request_failures_have_distinct_outcomes(behaviour: str, outcome: CallOutcome) -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        server.behaviour = behaviour
        with pytest.raises(PeerRequestFailed) as caught:
            await peers.request(SERVER, ASK, timeout_ms=300)
        assert caught.value.outcome is outcome
        server.behaviour = "answer"
        await world.sleep_ms(20)
        assert not peers.is_connected(SERVER, "")
        await peers.request(SERVER, ASK, timeout_ms=1000)
        assert len(server.connections) == 2

    with_server(body)


def test_peer_request_queued_behind_one_that_timed_out_is_abandoned() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        server.behaviour = "silent"
        answers: list[object] = []
        peers.send(SERVER, ASK, answers.append, timeout_ms=300)
        await world.sleep_ms(200)
        peers.send(SERVER, ASK, answers.append, timeout_ms=300)
        await world.sleep_ms(200)
        assert answers == [Failed(CallOutcome.TIMED_OUT), Failed(CallOutcome.ABANDONED)]

    with_server(body)


async def idle(seam: Seam) -> None:
    await trio.sleep_forever()


def test_connection_to_a_host_without_listener_is_refused() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        world.start("server", idle)
        with pytest.raises(PeerRequestFailed) as caught:
            await peers.request(SERVER, ASK, timeout_ms=1000)
        assert caught.value.outcome is CallOutcome.REFUSED
        results: list[object] = []
        peers.connect(SERVER, results.append)
        await world.sleep_ms(100)
        assert results == [CallOutcome.REFUSED]

    with_server(body, start=False)


def test_connection_attempt_without_response_times_out() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        world.isolate("server")
        with pytest.raises(PeerRequestFailed) as caught:
            await peers.request(SERVER, ASK, timeout_ms=500)
        assert caught.value.outcome is CallOutcome.TIMED_OUT

    with_server(body)


def test_connection_end_is_reported_for_idle_and_busy_connections() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        ended: list[int | None] = []
        answers: list[object] = []
        peers.on_connection_end(SERVER, "", lambda peer: ended.append(peer.node_id))
        results: list[object] = []
        peers.connect(SERVER, results.append)
        await world.sleep_ms(50)
        assert results == [None]
        peers.connect(SERVER, results.append)
        await world.sleep_ms(50)
        assert results == [None]
        world.kill("server")
        await world.sleep_ms(50)
        assert ended == [7]
        world.restart("server")
        await world.sleep_ms(5)
        server.behaviour = "silent"
        peers.send(SERVER, ASK, answers.append, timeout_ms=60_000)
        await world.sleep_ms(50)
        peers.disconnect(SERVER, "")
        await world.sleep_ms(50)
        assert answers == [Failed(CallOutcome.ABANDONED)]
        assert ended == [7, 7]

    with_server(body)


def test_calls_that_wait_for_one_connection_attempt_share_its_outcome() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        answers: list[object] = []
        for _ in range(3):
            peers.send(SERVER, ASK, answers.append, timeout_ms=1000)
        assert not answers
        await world.sleep_ms(100)
        assert answers == [EndQuorumEpochResponse(epoch=6)] * 3
        assert len(server.connections) == 1

    with_server(body)


def test_peers_without_connection_calls_or_watchers_are_forgotten() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        for number in range(50):
            gone = Peer(number, "CONTROLLER", Address("server", 10_000 + number))
            with pytest.raises(PeerRequestFailed):
                await peers.request(gone, ASK, timeout_ms=1000)
        await peers.request(SERVER, ASK, timeout_ms=1000)
        assert peers.known_peers == [SERVER]
        peers.disconnect(SERVER, "")
        await world.sleep_ms(10)
        assert peers.known_peers == []

    with_server(body)


def test_watched_peer_is_kept_until_forget_is_called() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        ended: list[int | None] = []
        peers.on_connection_end(SERVER, "", lambda peer: ended.append(peer.node_id))
        await peers.request(SERVER, ASK, timeout_ms=1000)
        peers.disconnect(SERVER, "")
        await world.sleep_ms(10)
        assert (ended, peers.known_peers) == ([7], [SERVER])
        await peers.request(SERVER, ASK, timeout_ms=1000)
        peers.forget(SERVER, "")
        await world.sleep_ms(10)
        assert (ended, peers.known_peers) == ([7], [])

    with_server(body)


def test_peer_forgotten_during_its_connection_attempt_is_not_kept() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        with pytest.raises(PeerRequestFailed):
            await peers.request(SERVER, ASK, timeout_ms=0)
        peers.forget(SERVER, "")
        await world.sleep_ms(100)
        assert peers.known_peers == []
        assert [connection.is_closed for connection in server.connections] == [True]

    with_server(body)


def test_forgotten_peer_requested_again_before_its_connection_attempt_ends_is_kept() -> None:
    async def body(world: World, server: Server, peers: Peers) -> None:
        with pytest.raises(PeerRequestFailed):
            await peers.request(SERVER, ASK, timeout_ms=0)
        peers.forget(SERVER, "")
        assert await peers.request(SERVER, ASK, timeout_ms=1000) == EndQuorumEpochResponse(epoch=6)
        await world.sleep_ms(100)
        assert peers.is_connected(SERVER, "")
        assert len(server.connections) == 1

    with_server(body)


@pytest.mark.parametrize("seed", range(4))
def test_peer_request_timeouts_run_on_the_nodes_clock(seed: int) -> None:
    async def main(world: World) -> None:
        server = Server()
        server.behaviour = "silent"
        world.start("server", server.main)
        await world.sleep_ms(1)
        seam = world.node("client")
        peers = Peers(seam, client_id="test")
        async with trio.open_nursery() as nursery:
            await nursery.start(peers.run)
            began_ms = seam.clock.monotonic_ms()
            with pytest.raises(PeerRequestFailed):
                await peers.request(SERVER, ASK, timeout_ms=1000)
            assert 1000 <= seam.clock.monotonic_ms() - began_ms <= 1001
            nursery.cancel_scope.cancel()

    World(seed, WorldOptions(drift_ppm_max=400_000)).run(main)
