"""Fault rules as the clients of a broker see them: errors, missing responses, delays and closed connections."""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from kraft.broker.api.fetch.sessions import FetchSessionCache
from kraft.broker.node.request_partitions import request_partitions
from kraft.broker.serving.session import Session
from kraft.node.reply_faults import ReplyFaults
from kraft.seam import CloseReason, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyPolicy, rule_from
from kraft.wire.server import Request
from tests.stages.broker_harness import BrokerHarness, WireClient
from tests.stages.images import image_of, three_brokers

ALL_TOPICS_V1 = struct.pack(">i", -1)
VERSIONS = ApiKey.API_VERSIONS
NO_RANDOM: Any = None


class SlowClock:
    """A clock whose sleeping tasks wait until the test wakes them."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.gate = trio.Event()

    async def sleep_ms(self, duration_ms: float) -> None:
        self.asked.append(duration_ms)
        await self.gate.wait()


class FaultyBroker:
    """A broker that has one handler for every API, and a reply policy that requests pass before the handler."""

    def __init__(self, *rules: dict[str, Any], handler: Any = None) -> None:
        self.policy = ReplyPolicy()
        for rule in rules:
            self.policy.add(rule_from(rule))
        self.handled: list[bytes] = []
        self.clock = SlowClock()
        self.faults = ReplyFaults(self.policy, self.clock)  # type: ignore[arg-type]
        harness = BrokerHarness(image_of(*three_brokers()))
        from kraft.broker.api.table import HANDLERS

        self.dispatcher = harness.dispatcher(dict.fromkeys(HANDLERS, handler or self._handle))
        named = partial(request_partitions, lambda: harness.holder.image, FetchSessionCache(0, NO_RANDOM))
        self.dispatcher.entry = self.faults.wrap(self.dispatcher.handle, named)
        self.dispatcher.release_requests()

    def _handle(self, request: Request, session: Session) -> None:
        self.handled.append(bytes(request.body))
        request.respond(b"answer to " + bytes(request.body))

    def connect(self) -> WireClient:
        return WireClient(self.dispatcher.accept, "PLAINTEXT")


def send_together(client: WireClient, *bodies: bytes) -> None:
    """Send requests that arrive together, in one piece."""
    frames: list[bytes] = []
    for body in bodies:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "send_bytes", frames.append)
            client.send(VERSIONS, 0, body)
    client.send_bytes(b"".join(frames))


def test_a_request_that_matches_no_fault_rule_is_handled() -> None:
    broker = FaultyBroker({"api": "Produce", "action": "drop"})
    client = broker.connect()
    client.send(VERSIONS, 0, b"a")
    assert client.answers() == [b"answer to a"]


def test_an_error_rule_answers_the_request_without_handling_it() -> None:
    broker = FaultyBroker({"api": "InitProducerId", "action": "error", "error": "REQUEST_TIMED_OUT", "times": 1})
    client = broker.connect()
    response = client.ask(ApiKey.INIT_PRODUCER_ID, 4)
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not broker.handled
    client.send(ApiKey.INIT_PRODUCER_ID, 4, b"b")
    assert client.answers() == [b"answer to b"]


def test_an_error_rule_for_handled_requests_replaces_the_response_of_a_handled_request() -> None:
    rule = {"api": "InitProducerId", "action": "error", "error": "REQUEST_TIMED_OUT", "after": True}
    broker = FaultyBroker(rule)
    response = broker.connect().ask(ApiKey.INIT_PRODUCER_ID, 4)
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(broker.handled) == 1


@pytest.mark.parametrize("after", [False, True])
def test_a_dropped_request_is_never_answered_and_blocks_later_requests_of_its_connection(after: bool) -> None:
    broker = FaultyBroker({"action": "drop", "times": 1, "after": after})
    client = broker.connect()
    client.send(VERSIONS, 0, b"a")
    client.send(VERSIONS, 0, b"b")
    assert client.received() == b""
    assert broker.handled == ([b"a", b"b"] if after else [b"b"])
    assert client.transport.closed_for is None
    other = broker.connect()
    other.send(VERSIONS, 0, b"c")
    assert other.answers() == [b"answer to c"]


@pytest.mark.parametrize("after", [False, True])
def test_a_close_rule_closes_only_the_connection_of_the_matching_request(after: bool) -> None:
    broker = FaultyBroker({"client_id": "victim", "action": "close", "after": after})
    client, other = broker.connect(), broker.connect()
    client.send(VERSIONS, 0, b"a", client_id="victim")
    assert client.transport.closed_for is CloseReason.LOCAL
    assert bool(broker.handled) is after
    other.send(VERSIONS, 0, b"b")
    assert other.answers() == [b"answer to b"]


async def test_a_delayed_request_also_delays_later_requests_of_its_connection() -> None:
    broker = FaultyBroker({"action": "delay", "delay_ms": 250, "times": 1})
    client = broker.connect()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.faults.run)
        send_together(client, b"a", b"b")
        await trio.testing.wait_all_tasks_blocked()
        assert broker.handled == []
        assert broker.clock.asked == [250]
        broker.clock.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        client.connection.space()
        assert client.answers() == [b"answer to a", b"answer to b"]
        nursery.cancel_scope.cancel()


async def test_a_delayed_request_that_does_not_parse_closes_only_its_own_connection() -> None:
    def refuse(request: Request, session: Session) -> None:
        raise WireError("nonsense")

    broker = FaultyBroker({"action": "delay", "delay_ms": 1, "times": 1}, handler=refuse)
    client = broker.connect()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.faults.run)
        client.send(VERSIONS, 0, b"a")
        broker.clock.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert client.transport.closed_for is CloseReason.BAD_BYTES
        nursery.cancel_scope.cancel()


async def test_a_rule_that_delays_the_response_lets_the_request_be_handled_at_once() -> None:
    broker = FaultyBroker({"action": "delay", "delay_ms": 40, "times": 1, "after": True})
    client = broker.connect()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.faults.run)
        client.send(VERSIONS, 0, b"a")
        client.send(VERSIONS, 0, b"b")
        await trio.testing.wait_all_tasks_blocked()
        assert broker.handled == [b"a", b"b"]
        assert client.received() == b""
        broker.clock.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert client.answers() == [b"answer to a", b"answer to b"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("after", [False, True])
async def test_a_request_received_while_its_node_stops_is_answered_without_the_delay_of_a_rule(after: bool) -> None:
    """The request arrives after the nursery's last task (a delay) has ended and before the nursery itself has. The
    nursery rejects new tasks in that time."""
    broker = FaultyBroker({"action": "delay", "delay_ms": 40, "after": after})
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.faults.run)
        for _ in range(20):
            broker.connect().send(VERSIONS, 0, b"early")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            for _ in range(20):
                broker.connect().send(VERSIONS, 0, b"late")
                await trio.lowlevel.checkpoint()
            client = broker.connect()
            client.send(VERSIONS, 0, b"last")
    assert client.answers() == [b"answer to last"]


def test_a_fault_rule_for_a_topic_does_not_affect_requests_for_other_topics() -> None:
    policy = ReplyPolicy()
    policy.add(rule_from({"api": "ListOffsets", "topic": "orders", "action": "error", "error": "FENCED_LEADER_EPOCH"}))
    broker = FaultyBroker()
    broker.policy.add(policy.rules[1])
    client = broker.connect()
    request = messages.build(
        messages.request_class(ApiKey.LIST_OFFSETS), topics=[{"name": "others", "partitions": [{"partition_index": 0}]}]
    )
    client.send(ApiKey.LIST_OFFSETS, 7, messages.encode_request(ApiKey.LIST_OFFSETS, 7, request))
    assert len(broker.handled) == 1
    client.received()
    client = broker.connect()
    topics = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
    (topic,) = client.ask(ApiKey.LIST_OFFSETS, 7, topics=topics).topics
    assert topic.partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert len(broker.handled) == 1


def test_a_dispatcher_without_fault_rules_calls_its_handlers_directly() -> None:
    harness = BrokerHarness()
    connection = harness.connect().connection
    assert connection._on_request == harness.broker.dispatcher.handle
