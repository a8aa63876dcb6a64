"""ControllerChannel with simulated scripted controllers: it finds the active controller, follows it, and fails requests
at their deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from kraft.broker.serving import controller_channel
from kraft.broker.serving.controller_channel import ControllerChannel, ForwardRefused
from kraft.broker.serving.session import Session
from kraft.config import NodeConfig
from kraft.node.peers import CallOutcome, PeerRequestFailed, Peers
from kraft.seam import Address, Binding, Seam, Transport
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import decode_rpc_request, encode_rpc
from kraft.wire.rpc.controller_messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    ForwardRequest,
    ForwardResponse,
)
from kraft.wire.server import CONTROLLER_TABLE, Request, ServerConnection, ServerLimits
from tests.stages.broker_harness import PROPERTIES

VOTERS = "101@c1:9192,102@c2:9192,103@c3:9192"
MESSAGE = AllocateProducerIdsRequest(broker_id=1, broker_epoch=5)
SESSION = Session("OUTSIDE", "PLAINTEXT", "User:alice", "192.0.2.9", "app")

Script = Callable[[Request, Any], None]


class ScriptedController:
    """A controller's listener with responses that the test scripts."""

    def __init__(self, node_id: int, script: Script) -> None:
        self.node_id = node_id
        self.script = script
        self.seen: list[Any] = []
        self.connections: list[ServerConnection] = []

    async def serve(self, seam: Seam) -> None:
        seam.network.serve(Binding("CONTROLLER", Address(f"c{self.node_id - 100}", 9192)), self._accept)
        await trio.sleep_forever()

    def _accept(self, transport: Transport) -> ServerConnection:
        connection = ServerConnection(
            transport, self._handle, limits=ServerLimits(), budget=None, table=CONTROLLER_TABLE
        )
        self.connections.append(connection)
        return connection

    def _handle(self, request: Request) -> None:
        message = decode_rpc_request(request.api_key, request.api_version, request.body)
        self.seen.append(message)
        self.script(request, message)


def active(first: int = 1000) -> Script:
    """Script of the active controller: answer with producer ids."""

    def script(request: Request, message: Any) -> None:
        if isinstance(message, ForwardRequest):
            request.respond(encode_rpc(ForwardResponse(body=b"done " + message.body)))
        else:
            request.respond(encode_rpc(AllocateProducerIdsResponse(first_producer_id=first, count=10)))

    return script


def standby(leader_id: int = -1) -> Script:
    def script(request: Request, message: Any) -> None:
        error = int(ErrorCode.NOT_CONTROLLER)
        answer = ForwardResponse if isinstance(message, ForwardRequest) else AllocateProducerIdsResponse
        request.respond(encode_rpc(answer(error_code=error, leader_id=leader_id)))

    return script


def silent(request: Request, message: Any) -> None:
    """Script that never answers."""


Test = Callable[[World, ControllerChannel, list[ScriptedController]], Any]


def run(test: Test, *scripts: Script) -> None:
    """Run a test in virtual time with three controllers that follow these scripts, and a broker's ControllerChannel."""
    controllers = [ScriptedController(101 + index, script) for index, script in enumerate(scripts)]

    async def main(world: World) -> None:
        for controller in controllers:
            world.start(f"c{controller.node_id - 100}", controller.serve)
        await world.sleep_ms(1)
        seam = world.node("b1")
        config = NodeConfig.parse({**PROPERTIES, "controller.quorum.voters": VOTERS})
        async with trio.open_nursery() as nursery:
            peers = Peers(seam, client_id="b1")
            await nursery.start(peers.run)
            quorum: Any = SimpleNamespace(describe=lambda: SimpleNamespace(endpoints=()))
            await test(world, ControllerChannel(config, seam, quorum, peers), controllers)
            nursery.cancel_scope.cancel()

    World(seed=1).run(main)


def test_a_request_is_sent_at_once_and_only_to_the_controller_known_as_the_leader() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(102, 4)
        answer = await channel.request(MESSAGE)
        assert answer.first_producer_id == 1000
        assert [len(controller.seen) for controller in controllers] == [0, 1, 0]

    run(test, standby(), active(), standby())


def test_an_unknown_active_controller_is_found_by_trial_and_by_the_hints_of_others() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        assert (await channel.request(MESSAGE)).first_producer_id == 1000
        assert len(controllers[2].seen) == 1

    run(test, standby(103), standby(103), active())


def test_a_request_on_a_dead_controllers_connection_goes_to_the_new_leader_at_once() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 4)
        async with trio.open_nursery() as nursery:

            async def fail_over() -> None:
                await world.sleep_ms(50)
                world.kill("c1")
                await world.sleep_ms(30)
                channel.on_leader(102, 5)

            nursery.start_soon(fail_over)
            started_ns = world.now_ns
            assert (await channel.request(MESSAGE)).first_producer_id == 1000
        assert (world.now_ns - started_ns) / 1e6 < 100

    run(test, silent, active(), standby())


def test_a_request_moves_from_a_silent_controller_to_a_new_leader() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 4)
        async with trio.open_nursery() as nursery:

            async def fail_over() -> None:
                await world.sleep_ms(3_000)
                channel.on_leader(103, 5)

            nursery.start_soon(fail_over)
            assert (await channel.request(MESSAGE)).first_producer_id == 1000
        assert world.now_ns / 1e6 < 3_100
        assert [len(controller.seen) for controller in controllers] == [1, 0, 1]

    run(test, silent, standby(), active())


def test_a_leader_of_an_older_epoch_does_not_redirect_the_controller_channel() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(102, 5)
        channel.on_leader(101, 4)
        channel.on_leader(None, 5)
        assert channel.active_controller == 102
        await channel.request(MESSAGE)
        assert [len(controller.seen) for controller in controllers] == [0, 1, 0]

    run(test, standby(), active(), standby())


@pytest.mark.parametrize("script", [silent, standby(), standby(102)])
def test_a_controller_request_fails_at_its_deadline_after_a_bounded_number_of_tries(script: Script) -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 4)
        started_ns = world.now_ns
        with pytest.raises(PeerRequestFailed):
            await channel.request(MESSAGE, timeout_ms=2_000)
        assert 1_950 <= (world.now_ns - started_ns) / 1e6 <= 2_050
        assert sum(len(controller.seen) for controller in controllers) <= 60

    run(test, script, script, script)


def test_a_request_without_any_reachable_controller_fails_as_unreachable() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        for name in ("c1", "c2", "c3"):
            world.kill(name)
        with pytest.raises(PeerRequestFailed) as failure:
            await channel.request(MESSAGE, timeout_ms=500)
        assert failure.value.outcome is CallOutcome.REFUSED

    run(test, silent, silent, silent)


def test_a_forwarded_request_carries_the_principal_and_returns_the_response_body() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 1)
        assert await channel.forward(SESSION, ApiKey.CREATE_TOPICS, b"body") == b"done body"
        (seen,) = controllers[0].seen
        assert (seen.principal, seen.client_address, seen.client_id) == ("User:alice", "192.0.2.9", "app")
        assert (seen.forwarded_key, seen.forwarded_version) == (19, 7)

    run(test, active(), standby(), standby())


def test_a_forwarded_request_whose_envelope_is_rejected_is_not_retried() -> None:
    def script(request: Request, message: Any) -> None:
        request.respond(encode_rpc(ForwardResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))))

    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 1)
        with pytest.raises(ForwardRefused, match="CLUSTER_AUTHORIZATION_FAILED"):
            await channel.forward(SESSION, ApiKey.CREATE_TOPICS, b"")
        assert len(controllers[0].seen) == 1

    run(test, script, standby(), standby())


def test_every_controller_gets_a_greeting_again_after_its_connection_ended() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.keep_connected, lambda: MESSAGE)
            await world.sleep_ms(100)
            assert [len(controller.seen) for controller in controllers] == [1, 1, 1]
            controllers[1].connections[-1].close("a test closes it")
            await world.sleep_ms(100)
            assert [len(controller.seen) for controller in controllers] == [1, 2, 1]
            world.kill("c3")
            await world.sleep_ms(1_000)
            world.restart("c3")
            await world.sleep_ms(1_500)
            assert [len(controller.seen) for controller in controllers] == [1, 2, 2]
            nursery.cancel_scope.cancel()

    run(test, active(), standby(101), standby(101))


def test_a_request_is_forwarded_to_an_older_controller_in_an_older_version() -> None:
    version = messages.newest_version(ApiKey.CREATE_TOPICS)
    topic = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
    request = messages.build(
        messages.request_class(ApiKey.CREATE_TOPICS),
        topics=[messages.build(topic, name="orders", num_partitions=2, replication_factor=1)],
        timeout=1000,
    )

    def older(asked: Request, message: Any) -> None:
        if message.forwarded_version > version - 2:
            refusal = ForwardResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, newest_version=version - 2)
            asked.respond(encode_rpc(refusal))
            return
        read = messages.decode_request(ApiKey.CREATE_TOPICS, message.forwarded_version, message.body)
        result = messages.nested_class(messages.response_class(ApiKey.CREATE_TOPICS), "topics")
        topics = [messages.build(result, name=one.name, num_partitions=one.num_partitions) for one in read.topics]
        answer = messages.build(messages.response_class(ApiKey.CREATE_TOPICS), topics=topics)
        body = messages.encode_response(ApiKey.CREATE_TOPICS, message.forwarded_version, answer)
        asked.respond(encode_rpc(ForwardResponse(body=body)))

    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 1)
        body = messages.encode_request(ApiKey.CREATE_TOPICS, version, request)
        answer = await channel.forward(SESSION, ApiKey.CREATE_TOPICS, body)
        read = messages.decode_response(ApiKey.CREATE_TOPICS, version, answer)
        assert [one.name for one in read.topics] == ["orders"]
        assert [one.forwarded_version for one in controllers[0].seen] == [version, version - 2]
        assert controllers[0].seen[1].principal == SESSION.principal

    run(test, older, silent, silent)


def test_a_request_that_an_older_version_cannot_express_is_rejected_for_an_older_controller() -> None:
    def older(asked: Request, message: Any) -> None:
        refusal = ForwardResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, newest_version=2)
        asked.respond(encode_rpc(refusal))

    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 1)
        key = ApiKey.DELETE_TOPICS
        topic = messages.nested_class(messages.request_class(key), "topics")
        by_id = [messages.build(topic, name=None, topic_id=UUID(int=7))]
        request = messages.build(messages.request_class(key), topics=by_id, timeout=1000)
        with pytest.raises(ForwardRefused) as caught:
            await channel.forward(SESSION, key, messages.encode_request(key, messages.newest_version(key), request))
        assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION

    run(test, older, silent, silent)


def test_a_request_that_is_too_large_to_be_forwarded_is_rejected_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "FORWARD_BODY_BYTES_MAX", 100)

    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 1)
        with pytest.raises(ForwardRefused) as caught:
            await channel.forward(SESSION, ApiKey.CREATE_TOPICS, bytes(101))
        assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
        assert not controllers[0].seen

    run(test, silent, silent, silent)


def test_a_silent_controller_connection_is_closed_before_the_broker_session_expires() -> None:
    """When a controller loses power, no peer learns that its connections are dead."""

    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 4)
        started_ns = world.now_ns
        with pytest.raises(PeerRequestFailed):
            await channel.request(MESSAGE, timeout_ms=4_500)
        assert (await channel.request(MESSAGE, timeout_ms=4_500)).first_producer_id == 1000
        assert len(controllers[0].connections) == 2
        assert (world.now_ns - started_ns) // 1_000_000 < 5_000

    used: set[int] = set()

    def silent_at_first(request: Request, message: Any) -> None:
        used.add(request.connection.number)
        if len(used) > 1:
            active()(request, message)

    run(test, silent_at_first, standby(), standby())


def refusing(error: ErrorCode, times: int) -> Script:
    """Script of the active controller that answers this many requests with an error."""
    left = [times]

    def script(request: Request, message: Any) -> None:
        if left[0] == 0:
            active()(request, message)
            return
        left[0] -= 1
        request.respond(encode_rpc(AllocateProducerIdsResponse(error_code=error)))

    return script


def test_a_request_to_a_busy_controller_is_retried_a_little_later_at_the_same_controller() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(102, 4)
        started_ns = world.now_ns
        assert (await channel.request(MESSAGE)).first_producer_id == 1000
        assert (world.now_ns - started_ns) / 1e6 >= 3 * 20
        assert [len(controller.seen) for controller in controllers] == [0, 4, 0]

    run(test, standby(), refusing(ErrorCode.REQUEST_TIMED_OUT, 3), standby())


def test_a_controller_that_stays_busy_until_the_deadline_counts_as_not_answering() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(102, 4)
        with pytest.raises(PeerRequestFailed) as failure:
            await channel.request(MESSAGE, timeout_ms=2_000)
        assert failure.value.outcome is CallOutcome.TIMED_OUT
        assert len(controllers[1].seen) <= 60

    run(test, standby(), refusing(ErrorCode.REQUEST_TIMED_OUT, 1_000), standby())


def test_a_controller_that_failed_one_request_still_gets_the_next_request() -> None:
    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(102, 4)
        assert (await channel.request(MESSAGE)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await channel.request(MESSAGE)).first_producer_id == 1000
        assert [len(controller.seen) for controller in controllers] == [0, 2, 0]

    run(test, standby(), refusing(ErrorCode.UNKNOWN_SERVER_ERROR, 1), standby())


def test_a_request_to_an_earlier_term_of_a_leader_is_sent_again_to_its_next_term() -> None:
    """The node lost power between the two terms, and nothing reports the end of its connections."""

    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        channel.on_leader(101, 4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.request, MESSAGE)
            await world.sleep_ms(50)
            world.power_off("c1")
            controllers[0].script = active()
            world.start("c1", controllers[0].serve)
            await world.sleep_ms(50)
            started_ns = world.now_ns
            channel.on_leader(101, 5)
        assert world.now_ns - started_ns < 1_000_000_000
        assert len(controllers[0].seen) == 2

    run(test, silent)


def test_a_request_already_sent_to_a_guessed_leader_is_not_sent_again_when_it_is_confirmed() -> None:
    held: list[Request] = []

    def hold(request: Request, message: Any) -> None:
        held.append(request)

    async def test(world: World, channel: ControllerChannel, controllers: list[ScriptedController]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.request, MESSAGE)
            await world.sleep_ms(50)
            (asked,) = [node for node, controller in enumerate(controllers, 101) if controller.seen]
            channel.on_leader(asked, 5)
            await world.sleep_ms(50)
            active()(held[0], MESSAGE)
        assert sum(len(controller.seen) for controller in controllers) == 1

    run(test, hold, hold, hold)
