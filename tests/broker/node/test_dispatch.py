"""Dispatcher: requests that wait until the broker is unfenced, listeners, sessions, and errors of peers and of the
broker.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.broker.serving import turns
from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.seam import CloseReason, InvariantError, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.budget import MemoryBudget
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import InternalKey, decode_rpc, encode_rpc
from kraft.wire.rpc.controller_messages import IdentifyRequest, IdentifyResponse
from kraft.wire.server import Request, ServerLimits
from tests.broker.api.test_metadata import asked
from tests.stages.broker_harness import CLUSTER_ID, INCARNATION, BrokerHarness
from tests.stages.images import image_of, three_brokers

API_VERSIONS_BODY = b""
ALL_TOPICS_V1 = struct.pack(">i", -1)


def test_before_the_broker_is_unfenced_other_requests_wait_unread_and_are_answered_in_order() -> None:
    harness = BrokerHarness(image_of(*three_brokers()), held=True)
    client = harness.connect()
    client.send(ApiKey.API_VERSIONS, 0, API_VERSIONS_BODY)
    assert len(client.answers()) == 1
    client.send(ApiKey.METADATA, 1, ALL_TOPICS_V1)
    client.send(ApiKey.METADATA, 1, ALL_TOPICS_V1)
    assert client.answers() == []
    harness.broker.dispatcher.release_requests()
    assert client.transport.wakes > 0
    client.connection.space()
    assert len(client.answers()) >= 1


def test_identify_is_answered_before_registration_on_the_inter_broker_listener() -> None:
    client = BrokerHarness(held=True).connect("PLAINTEXT")
    client.send(InternalKey.IDENTIFY, 0, encode_rpc(IdentifyRequest()))
    (body,) = client.answers()
    assert decode_rpc(IdentifyResponse, 0, body) == IdentifyResponse(
        cluster_id=CLUSTER_ID, node_id=1, incarnation_id=INCARNATION
    )


@pytest.mark.parametrize("key", [InternalKey.IDENTIFY, InternalKey.VOTE, InternalKey.FORWARD])
def test_an_internal_request_on_a_client_listener_closes_the_connection(key: int) -> None:
    client = BrokerHarness().connect("OUTSIDE")
    client.send(key, 0, encode_rpc(IdentifyRequest()))
    assert client.received() == b""
    assert client.transport.closed_for is CloseReason.BAD_BYTES


@pytest.mark.parametrize(
    ("key", "version"),
    [(ApiKey.METADATA, 14), (ApiKey.PRODUCE, 2), (ApiKey.FETCH, 3), (ApiKey.CREATE_DELEGATION_TOKEN, 2), (999, 0)],
)
def test_a_request_with_an_unserved_api_or_version_closes_only_its_connection(key: int, version: int) -> None:
    harness = BrokerHarness()
    bad, good = harness.connect(), harness.connect()
    bad.send(key, version, b"\0" * 20)
    assert bad.transport.closed_for is CloseReason.BAD_BYTES
    good.send(ApiKey.API_VERSIONS, 0, API_VERSIONS_BODY)
    assert len(good.answers()) == 1


def test_a_body_that_does_not_parse_closes_the_connection_and_logs_the_reason() -> None:
    client = BrokerHarness().connect()
    client.send(ApiKey.METADATA, 1, struct.pack(">i", 1000))
    with capture_logs() as logs:
        client.connection.closed(client.transport.closed_for or CloseReason.LOCAL)
    assert client.transport.closed_for is CloseReason.BAD_BYTES
    assert "METADATA" in logs[0]["why"]
    assert logs[0]["client_address"] == "192.0.2.7"


def test_the_session_has_listener_principal_address_and_the_newest_client_id() -> None:
    seen: list[Session] = []

    def handler(request: Request, session: Session) -> None:
        seen.append(session)
        request.respond(b"")

    client = dispatching(handler).connect("OUTSIDE")
    client.send(ApiKey.METADATA, 1, b"", client_id="one")
    client.send(ApiKey.METADATA, 1, b"", client_id="two")
    assert [session.client_id for session in seen] == ["one", "two"]
    assert seen[0] == Session("OUTSIDE", "PLAINTEXT", "User:ANONYMOUS", "192.0.2.7", "one")


def test_a_handler_error_is_logged_and_answered_if_the_response_has_an_error_field() -> None:
    client = dispatching(failing).connect()
    with capture_logs() as logs:
        client.send(ApiKey.INIT_PRODUCER_ID, 1, b"")
        (body,) = client.answers()
    response = messages.decode_response(ApiKey.INIT_PRODUCER_ID, 1, body)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert logs[0]["log_level"] == "error"
    assert logs[0]["api"] == "InitProducerId"
    assert client.transport.closed_for is None


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.CREATE_TOPICS])
def test_a_handler_error_closes_the_connection_if_the_response_has_no_error_field(key: int) -> None:
    client = dispatching(failing).connect()
    client.send(key, 3, b"")
    assert client.transport.closed_for is CloseReason.LOCAL


def test_an_invariant_error_in_a_handler_is_not_caught() -> None:
    def handler(request: Request, session: Session) -> None:
        raise InvariantError("two leaders")

    client = dispatching(handler).connect()
    with pytest.raises(InvariantError, match="two leaders"):
        client.send(ApiKey.METADATA, 1, b"")


def _describing(topics: int) -> bytes:
    message = messages.build(messages.request_class(ApiKey.METADATA), topics=asked(*map(str, range(topics))))
    return messages.encode_request(ApiKey.METADATA, 4, message)


def test_long_requests_of_all_connections_are_handled_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_NS_MAX", -1)
    handled: list[str] = []

    def handler(request: Request, session: Session) -> Steps:
        assert messages.decode_request(ApiKey.METADATA, 4, request.body).topics

        def steps() -> Steps:
            handled.append(f"{session.client_id} begins")
            yield
            handled.append(f"{session.client_id} ends")
            request.respond(b"")

        return steps()

    stage = dispatching(handler, limits=ServerLimits(long_request_bytes=100))
    clients = [stage.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(ApiKey.METADATA, 4, _describing(topics=100), client_id=f"client {number}")
    assert not handled
    stage.run_tasks()
    assert handled == [word for number in (0, 1, 2) for word in (f"client {number} begins", f"client {number} ends")]
    assert [client.answers() for client in clients] == [[b""]] * 3


def test_an_error_in_a_long_request_is_answered_and_later_long_requests_are_handled() -> None:
    def handler(request: Request, session: Session) -> Steps:
        yield
        if session.client_id == "bad bytes":
            raise WireError("no such field")
        if session.client_id == "a bug":
            raise ValueError("a bug")
        request.respond(b"good")

    stage = dispatching(handler, limits=ServerLimits(long_request_bytes=100))
    clients = {name: stage.connect() for name in ("bad bytes", "a bug", "good")}
    for name, client in clients.items():
        client.send(ApiKey.METADATA, 4, _describing(topics=100), client_id=name)
    stage.run_tasks()
    assert clients["bad bytes"].transport.closed_for is CloseReason.BAD_BYTES
    assert clients["a bug"].transport.closed_for is CloseReason.LOCAL
    assert clients["good"].answers() == [b"good"]


def test_a_long_request_is_handled_even_if_its_connection_ends_before_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_NS_MAX", -1)
    handled: list[str] = []

    def handler(request: Request, session: Session) -> None:
        handled.append(session.client_id)
        request.respond(b"")

    stage = dispatching(handler, limits=ServerLimits(long_request_bytes=100))
    clients = [stage.connect() for _ in range(2)]
    for number, client in enumerate(clients):
        client.send(ApiKey.METADATA, 4, _describing(topics=100), client_id=f"client {number}")
    clients[1].connection.closed(CloseReason.PEER)
    stage.run_tasks()
    assert handled == ["client 0", "client 1"]


def test_the_body_of_a_long_request_is_charged_to_the_memory_budget_until_it_is_handled() -> None:
    waiting: list[Request] = []
    counted: list[int] = []

    def handler(request: Request, session: Session) -> None:
        waiting.append(request)
        counted.append(stage.memory.used_bytes)
        assert len(request.body) > 1_000

    stage = dispatching(handler, limits=ServerLimits(long_request_bytes=100))
    client = stage.connect()
    client.send(ApiKey.METADATA, 4, _describing(topics=1_000))
    stage.run_tasks()
    assert counted[0] > 1_000
    assert len(waiting[0].body) == 0
    client.connection.closed(CloseReason.PEER)
    assert stage.memory.used_bytes == 0


def test_the_dispatcher_counts_requests_and_connections() -> None:
    harness = BrokerHarness()
    client = harness.connect()
    client.send(ApiKey.API_VERSIONS, 0, API_VERSIONS_BODY)
    metrics = harness.metrics
    assert metrics.value("kafka.network", "RequestMetrics", "RequestsPerSec", request="ApiVersions", version="0") == 1
    assert metrics.value("kafka.server", "socket-server-metrics", "connection-count", listener="PLAINTEXT") == 1
    client.connection.closed(CloseReason.PEER)
    assert metrics.value("kafka.server", "socket-server-metrics", "connection-count", listener="PLAINTEXT") is None
    assert metrics.value("kafka.server", "socket-server-metrics", "connection-close-total", listener="PLAINTEXT") == 1
    assert (
        b'kafka_network_requestmetrics_requestspersec_total{request="ApiVersions",version="0"} 1.0'
        in metrics.exposition()
    )


def failing(request: Request, session: Session) -> None:
    raise ValueError("a bug")


class dispatching:  # noqa: N801 - reads as a verb in the tests
    """A broker with one given handler for every API."""

    def __init__(self, handler: Any, *, limits: ServerLimits | None = None) -> None:
        from kraft.broker.api.table import HANDLERS

        harness = BrokerHarness()
        self._tasks: list[Any] = []
        harness.broker._start_task = self._tasks.append
        self.memory: MemoryBudget = harness.broker.gates.memory
        self._dispatcher = harness.dispatcher(dict.fromkeys(HANDLERS, handler), limits=limits)
        self._dispatcher.release_requests()

    def run_tasks(self) -> None:
        """Run the broker's background tasks to their end."""
        while self._tasks:
            trio.run(self._tasks.pop(0))

    def connect(self, listener: str = "PLAINTEXT") -> Any:
        from tests.stages.broker_harness import WireClient

        return WireClient(self._dispatcher.accept, listener)
