"""Dispatch: pass each framed request to its handler with a synchronous call. `continuations` completes requests that
are not answered in that call.

Invariants: each request is handled by exactly one handler, in the order of its connection. A request that the listener
does not serve never reaches a handler (the frame layer closes the connection). Invalid bytes of a peer affect only its
own connection. A broken invariant of the broker (InvariantError) stops the node. Source: Kafka's KafkaApis, KIP-35.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from kraft.broker.serving.connection_limits import ConnectionLimits
from kraft.broker.serving.session import ANONYMOUS, Session
from kraft.broker.serving.turns import Steps
from kraft.seam import CloseReason, HandleRevoked, InvariantError, Transport, WireError
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.framing import EMPTY
from kraft.wire.rpc import InternalKey
from kraft.wire.server import ApiTable, LongRequest, Request, ServerConnection, ServerLimits

if TYPE_CHECKING:
    from kraft.broker.api.context import Handler
    from kraft.broker.node.continuations import Continuations
    from kraft.config import NodeConfig
    from kraft.node.log_limit import LogLimit
    from kraft.wire.budget import MemoryBudget
    from kraft.wire.request_meter import RequestMeter

log = structlog.get_logger("kraft.broker.dispatch")

UNHELD_KEYS = frozenset({int(ApiKey.API_VERSIONS), int(InternalKey.IDENTIFY)})
"""API keys of the requests that are answered while the broker is not unfenced yet. All other requests wait unread
(docs/decisions/05-fast-fencing.md)."""

CLIENT_TABLE = ApiTable(BROKER_APIS)
INTER_BROKER_TABLE = ApiTable(BROKER_APIS, (InternalKey.IDENTIFY,))

STEPS_ENDED = object()
"""Sentinel that is returned instead of a step when the steps have ended."""
LONG_REQUEST_BYTES = 2 * 1024
"""Size in bytes above which a request is handled as a long one. Such a request names some hundred items or more. Long
requests are handled one after the other, whichever connection sent them."""


class Dispatcher:
    """Handles the requests of all connections to the broker's listeners."""

    def __init__(
        self,
        config: NodeConfig,
        handlers: Mapping[int, Handler],
        continuations: Continuations,
        connection_limits: ConnectionLimits,
        *,
        memory: MemoryBudget,
        requests: RequestMeter,
        log_limit: LogLimit,
        limits: ServerLimits,
    ) -> None:
        self.entry: Callable[[Request], None] = self.handle
        """Function that is called with each request: `handle`, or the fault injection that a test node places before
        it."""
        self._handlers = handlers
        self._continuations = continuations
        self._memory = memory
        self._requests = requests
        self._log_limit = log_limit
        self._limits = limits
        self.connection_closed: Callable[[int], None] = _ignore_connection
        """Function that is called with the number of each connection that has ended."""
        self._connections: dict[int, ServerConnection] = {}
        self._connection_limits = connection_limits
        self._holding = True
        self._inter_broker_listener = config.inter_broker_listener_name
        self._protocols = {listener.name: listener.security_protocol.name for listener in config.listeners}

    # connections

    def accept(self, transport: Transport) -> ServerConnection:
        """Return the connection for a stream that one of the broker's listeners has accepted."""
        is_inter_broker = transport.listener == self._inter_broker_listener
        connection = ServerConnection(
            transport,
            self.entry,
            limits=self._limits,
            budget=self._memory,
            on_closed=self._closed,
            table=INTER_BROKER_TABLE if is_inter_broker else CLIENT_TABLE,
            meter=self._requests,
        )
        connection.session = Session(
            listener=transport.listener,
            security_protocol=self._protocols[transport.listener],
            principal=_principal(transport),
            client_address=transport.peer_host,
        )
        connection.unheld_keys = UNHELD_KEYS
        connection.hold_requests = self._holding
        self._connections[connection.number] = connection
        self._connection_limits.accepted(connection)
        return connection

    def release_requests(self) -> None:
        """Read the requests that waited until the broker was unfenced."""
        self._holding = False
        for connection in list(self._connections.values()):
            connection.hold_requests = False

    def close_all(self) -> None:
        """Close every connection once its responses are sent. Called when the node stops."""
        for connection in list(self._connections.values()):
            connection.close(CloseReason.SHUTDOWN.value, CloseReason.SHUTDOWN, flush=True)

    def _closed(self, connection: ServerConnection, reason: CloseReason) -> None:
        self._connections.pop(connection.number, None)
        self._connection_limits.closed(connection)
        self.connection_closed(connection.number)
        if reason is CloseReason.BAD_BYTES:
            session: Any = connection.session
            self._log_limit.warning(
                log,
                "connection closed",
                client=session.client_address,
                why=connection.closed_because,
                listener=session.listener,
                client_address=session.client_address,
            )

    # requests

    def handle(self, request: Request) -> None:
        """Call the request's handler, in the order of its connection. A WireError ends the connection.

        If the handler returns steps, they continue in `Continuations.continue_in_steps`, and the connection is paused
        until they end. A long request continues in `_in_turns`."""
        key = request.api_key
        connection = request.connection
        session: Any = connection.session
        if request.client_id != session.client_id:
            session = replace(session, client_id=request.client_id)
            connection.session = session
        if isinstance(request, LongRequest):
            request.body = memoryview(bytearray(request.body))  # handlers may write to it
            self._memory.take(len(request.body))
            self._continuations.continue_in_steps(request, self._in_turns(request, session))
            return
        try:
            steps = self._handlers[key](request, session)
            if steps is not None and next(steps, STEPS_ENDED) is not STEPS_ENDED:
                connection.pause()
                self._continuations.continue_in_steps(request, _resuming(connection, steps))
        except (WireError, InvariantError, HandleRevoked):
            raise
        except Exception as error:  # noqa: BLE001 - one request's error must not end the others
            self._continuations.failed(request, error)

    def _in_turns(self, request: Request, session: Session) -> Steps:
        """Handle a long request in its own step, after the long requests that arrived before it. At most one long
        request is handled at a time, however many connections send them."""
        size = len(request.body)
        try:
            steps = self._handlers[request.api_key](request, session)
        finally:
            request.body = EMPTY
            self._memory.give(size)
        yield
        if steps is not None:
            yield from steps


def _resuming(connection: ServerConnection, steps: Steps) -> Steps:
    """Run `steps`, then resume reading from the connection, so that it has at most one pending request that runs in
    steps."""
    try:
        yield from steps
    except Exception:
        connection.resume()
        raise
    connection.resume()


def _principal(transport: Transport) -> str:
    name = transport.peer_principal
    return ANONYMOUS if name is None else f"User:{name}"


def _ignore_connection(number: int) -> None:
    """Do nothing: no part of the broker wants to know."""
