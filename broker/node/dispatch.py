"""Dispatch: from a framed request to its handler, as plain calls, and from a handler's errors to their effect.

Invariants: a request is handled by exactly one handler, in the order of its connection. A request that the listener
does not serve never reaches a handler (the frame layer closes the connection). A peer's bad bytes affect only their own
connection. A broken invariant of ours (InvariantError) stops the node. Source: Kafka's KafkaApis, KIP-35.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from kraft.broker.node.request_partitions import request_partitions
from kraft.broker.serving.connection_limits import ConnectionLimits
from kraft.broker.serving.request_versions import answer_error
from kraft.broker.serving.session import ANONYMOUS, Session
from kraft.broker.serving.turns import Steps, Turns
from kraft.seam import CloseReason, HandleRevoked, InvariantError, Transport, WireError
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.framing import EMPTY
from kraft.wire.messages import CannotEncode
from kraft.wire.request_meter import request_name
from kraft.wire.rpc import InternalKey
from kraft.wire.server import ApiTable, LongRequest, Request, ServerConnection, ServerLimits

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker
    from kraft.node.reply_faults import ReplyFaults

log = structlog.get_logger("kraft.broker.dispatch")

Handler = Callable[["Broker", Request, Session], Steps | None]
"""Answers now or later. One with much to do on the loop gives its steps: some milliseconds each, at most."""

UNHELD_KEYS = frozenset({int(ApiKey.API_VERSIONS), int(InternalKey.IDENTIFY)})
"""The only requests answered before the broker is unfenced. Others wait unread (docs/decisions/05-fast-fencing.md)."""

CLIENT_TABLE = ApiTable(BROKER_APIS)
INTER_BROKER_TABLE = ApiTable(BROKER_APIS, (InternalKey.IDENTIFY,))


STEPS_ENDED = object()
"""In the place of a step."""
LONG_REQUEST_BYTES = 2 * 1024
"""A longer request names some hundred things or more. Those are handled one after the other, whoever sent them."""


class Dispatcher:
    """All connections to the broker's listeners."""

    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler],
        *,
        limits: ServerLimits,
        faults: ReplyFaults | None = None,
    ) -> None:
        self._broker = broker
        self._entry = self.handle if faults is None else faults.wrap(self.handle, partial(request_partitions, broker))
        self._handlers = handlers
        self._limits = limits
        self._connections: dict[int, ServerConnection] = {}
        self._connection_limits = ConnectionLimits(
            broker.config, broker.seam.clock, broker.log_limit, broker.start_task
        )
        broker.dynamic_configs.on_change(self._connection_limits.configure)
        self._turns = Turns(broker.seam.clock, broker.start_task, lambda: None)
        self._holding = True
        self._protocols = {listener.name: listener.security_protocol.name for listener in broker.config.listeners}

    # connections

    def accept(self, transport: Transport) -> ServerConnection:
        """The connection for a stream that came in on one of the broker's listeners."""
        is_inter_broker = transport.listener == self._broker.config.inter_broker_listener_name
        connection = ServerConnection(
            transport,
            self._entry,
            limits=self._limits,
            budget=self._broker.gates.memory,
            on_closed=self._closed,
            table=INTER_BROKER_TABLE if is_inter_broker else CLIENT_TABLE,
            meter=self._broker.requests,
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
        """The broker is unfenced: what waited is read now."""
        self._holding = False
        for connection in list(self._connections.values()):
            connection.hold_requests = False

    def close_all(self) -> None:
        """The node stops: end every connection, after what was answered has left."""
        for connection in list(self._connections.values()):
            connection.close(CloseReason.SHUTDOWN.value, CloseReason.SHUTDOWN, flush=True)

    def _closed(self, connection: ServerConnection, reason: CloseReason) -> None:
        self._connections.pop(connection.number, None)
        self._connection_limits.closed(connection)
        if reason is CloseReason.BAD_BYTES:
            session: Any = connection.session
            self._broker.log_limit.warning(
                log,
                "connection closed",
                client=session.client_address,
                why=connection.closed_because,
                listener=session.listener,
                client_address=session.client_address,
            )

    # requests

    def handle(self, request: Request) -> None:
        """One request, in its turn. A WireError goes on to the connection, which ends."""
        key = request.api_key
        connection = request.connection
        session: Any = connection.session
        if request.client_id != session.client_id:
            session = replace(session, client_id=request.client_id)
            connection.session = session
        if isinstance(request, LongRequest):
            request.body = memoryview(bytearray(request.body))  # a writable view, as ever
            self._broker.gates.memory.take(len(request.body))
            self.go_on(request, self._in_turns(request, session))
            return
        try:
            steps = self._handlers[key](self._broker, request, session)
            if steps is not None and next(steps, STEPS_ENDED) is not STEPS_ENDED:
                connection.pause()
                self.go_on(request, _resuming(connection, steps))
        except (WireError, InvariantError, HandleRevoked):
            raise
        except Exception as error:  # noqa: BLE001 - one request's trouble must not end the others
            self._failed(request, error)

    def _in_turns(self, request: Request, session: Session) -> Steps:
        """A handler's work on what may take it long: not in the connection's turn, but when no other such work is left
        from before. One of these is under way at a time, however many connections send them."""
        size = len(request.body)
        try:
            steps = self._handlers[request.api_key](self._broker, request, session)
        finally:
            request.body = EMPTY
            self._broker.gates.memory.give(size)
        yield
        if steps is not None:
            yield from steps

    def finish(self, request: Request, function: Callable[..., None], *arguments: Any) -> None:
        """Call the rest of a handler that waited for a callback; what it raises is the request's trouble."""
        try:
            function(*arguments)
        except (WireError, InvariantError, HandleRevoked):
            raise
        except Exception as error:  # noqa: BLE001 - one request's trouble must not end the others
            self._failed(request, error)

    def go_on(self, request: Request, steps: Steps) -> None:
        """The rest of a handler that has much to do on the loop: its steps, each of some milliseconds at most, behind
        those that others have begun before."""
        self._turns.add(partial(self.finish, request), self._each(request, steps))
        self._turns.start()

    def _each(self, request: Request, steps: Steps) -> Iterator[Callable[[], None]]:
        """`steps` as calls, until one is the last, or raises, or nobody waits for the answer any more. The first is
        always made: what was received whole is handled, though its connection may have ended meanwhile."""
        is_over = False

        def step() -> None:
            nonlocal is_over
            is_over = True
            try:
                next(steps)
            except StopIteration:
                return
            except WireError as error:  # who is under way may be another connection
                request.fail(str(error))
                return
            is_over = False

        while not is_over:
            yield step
            is_over = is_over or request.connection.is_closed
        steps.close()

    async def answer_later(self, request: Request, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """The rest of a handler that must wait: `await function(*arguments)` answers the request."""
        try:
            await function(*arguments)
        except (InvariantError, HandleRevoked):
            raise
        except Exception as error:  # noqa: BLE001 - one request's trouble must not end the others
            self._failed(request, error)

    def _failed(self, request: Request, error: Exception) -> None:
        """A handler's own error: logged, and told to the client where the answer has a place for it."""
        log.error(
            "request failed",
            api=request_name(request.api_key),
            version=request.api_version,
            client_id=request.client_id,
            error=repr(error),
            exc_info=None if isinstance(error, CannotEncode) else error,
        )
        if not request.is_answered and answer_error(request, ErrorCode.UNKNOWN_SERVER_ERROR):
            return
        self._broker.requests.count_error(request.api_key, ErrorCode.UNKNOWN_SERVER_ERROR)
        if not request.is_answered:
            request.fail(f"the handler failed: {error!r}", CloseReason.LOCAL)


def _resuming(connection: ServerConnection, steps: Steps) -> Steps:
    """`steps`, after which a paused connection goes on: what is begun and waits is one request of each."""
    try:
        yield from steps
    except Exception:
        connection.resume()
        raise
    connection.resume()


def _principal(transport: Transport) -> str:
    name = transport.peer_principal
    return ANONYMOUS if name is None else f"User:{name}"
