"""BrokerConnections: send requests of Kafka's protocol to the inter-broker listeners of other brokers.

There is one connection per broker. It is closed at once when the newest image no longer names the broker, names it as
fenced, or names another incarnation of it. The process may have lost power, and then nothing else ends the connection.
Invariant: each request has one outcome, its response or None, which is never reported inside `send`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import trio

from kraft.broker.serving.purgatory import Parked
from kraft.seam import CloseReason, WireError
from kraft.wire import messages
from kraft.wire.client import ClientConnection

if TYPE_CHECKING:
    from kraft.broker.following.leader_dialer import LeaderDialer
    from kraft.broker.serving.loop import Loop
    from kraft.image import MetadataImage

OnOutcome = Callable[[Any], None]


class BrokerCall(Parked):
    """A request without an outcome yet. `finish` reports the outcome once."""

    __slots__ = ("_connections", "_on_outcome", "body", "key", "link", "version")

    def __init__(
        self, connections: BrokerConnections, link: BrokerLink, key: int, version: int, body: bytes, on: OnOutcome
    ) -> None:
        self.bucket = -1
        self.link = link
        self.key = key
        self.version = version
        self.body = body
        self._connections = connections
        self._on_outcome: OnOutcome | None = on

    @property
    def is_done(self) -> bool:
        return self._on_outcome is None

    def finish(self, response: Any) -> None:
        """Report the response, or None if there will be none."""
        report, self._on_outcome = self._on_outcome, None
        if report is not None:
            self._connections.loop.deadlines.remove(self)
            report(response)

    def expire(self) -> None:
        """Close the connection: responses come in order, so all requests behind this one would wait as well."""
        self.link.close("a request was not answered in time")
        self.finish(None)


class BrokerLink:
    """The connection to one broker, and the calls that wait for it."""

    __slots__ = ("broker_id", "connection", "incarnation", "is_dialling", "waiting")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.connection: ClientConnection | None = None
        self.incarnation: UUID | None = None
        self.is_dialling = False
        self.waiting: list[BrokerCall] = []

    def close(self, why: str) -> None:
        if self.connection is not None:
            self.connection.close(why, CloseReason.LOCAL)


class BrokerConnections:
    """The connections of one purpose, one per broker. No method is a coroutine; connecting runs in a task."""

    def __init__(self, loop: Loop, dialer: LeaderDialer, client_id: str) -> None:
        """`client_id` is in the header of every request."""
        self.loop = loop
        self._dialer = dialer
        self._client_id = client_id
        self._links: dict[int, BrokerLink] = {}

    def send(
        self, broker_id: int, key: int, version: int, message: Any, on_outcome: OnOutcome, *, timeout_ms: int
    ) -> None:
        """Send a request, built with the newest message class, in this version. `on_outcome` gets the response, or None
        if none came in time."""
        link = self._links.setdefault(broker_id, BrokerLink(broker_id))
        call = BrokerCall(self, link, key, version, messages.encode_request(key, version, message), on_outcome)
        self.loop.deadlines.add(call, self.loop.clock.monotonic_ms() + timeout_ms)
        if link.connection is not None and not link.connection.is_closed:
            self._put(link.connection, call)
            return
        link.waiting.append(call)
        if not link.is_dialling:
            link.is_dialling = True
            self.loop.start_task(self._dial, link)

    def metadata_published(self, new: MetadataImage) -> None:
        """Close the connection to each process that is not alive (registered and unfenced) in the newest image."""
        for link in self._links.values():
            registration = new.brokers.get(link.broker_id)
            is_gone = registration is None or registration.fenced or registration.incarnation_id != link.incarnation
            if is_gone and link.connection is not None:
                link.close("the broker is fenced, or its process is another one")

    async def _dial(self, link: BrokerLink) -> None:
        connection = None
        try:
            endpoint = self._dialer.endpoint(link.broker_id)
            link.incarnation = self._dialer.incarnation(link.broker_id)
            if endpoint is None:
                await trio.lowlevel.checkpoint()
            else:
                connection = await self._dialer.dial(link.broker_id, endpoint, self._client_id, _ignore_end)
        finally:
            link.is_dialling = False
        # no checkpoint from here on: waiting calls are sent, or fail, in one step
        waiting, link.waiting = link.waiting, []
        link.connection = connection
        for call in waiting:
            if connection is None:
                call.finish(None)
            elif not call.is_done:
                self._put(connection, call)
        self.loop.request_pass()

    def _put(self, connection: ClientConnection, call: BrokerCall) -> None:
        def on_reply(body: memoryview | None) -> None:
            if body is None:
                call.finish(None)
                return
            try:
                response = messages.decode_response(call.key, call.version, body)
            except WireError:
                call.finish(None)
                raise
            call.finish(response)

        connection.send(call.key, call.version, [call.body], on_reply)


def _ignore_end(connection: ClientConnection, reason: CloseReason) -> None:
    """Do nothing: the connection itself ends its pending calls."""
