"""Limits on connections of a broker: how many, from which addresses, and how fast.

- `max.connections.per.ip` (with overrides for named addresses): a connection above the limit is closed at once.
- `max.connections`: at the limit, new clients wait, unread, until another connection ends. The inter-broker listener
  always accepts. To make room, the oldest connection of another listener without a request in flight is closed.
- `max.connection.creation.rate`: connections above the rate wait, unread, until the rate allows them (not on the
  inter-broker listener). The rate is a token bucket of one second.

A waiting connection uses a socket but no further memory. At most socket.listen.backlog.size connections wait; more are
closed.
Source: KIP-308, KIP-402, KIP-612, docs/deviations.md.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import structlog

from kraft.seam import CloseReason
from kraft.wire.server import ServerConnection

if TYPE_CHECKING:
    from kraft.config import NodeConfig
    from kraft.node.log_limit import LogLimit
    from kraft.seam import Clock

log = structlog.get_logger("kraft.broker.connections")

UNLIMITED = 2**31 - 1


class ConnectionLimits:
    """Decides whether each connection of a broker is read, waits, or is closed. Called when a connection opens or
    closes. No public method is a coroutine."""

    def __init__(self, config: NodeConfig, clock: Clock, log_limit: LogLimit, start_task: Callable[..., None]) -> None:
        self._inter_broker = config.inter_broker_listener_name
        self._waiting_max = config.integer("socket.listen.backlog.size")
        self._clock = clock
        self._log_limit = log_limit
        self._start_task = start_task
        self._hosts: Counter[str] = Counter()
        self._serving: dict[ServerConnection, str] = {}
        """Connections that are read, oldest first, with their listeners."""
        self._waiting: deque[ServerConnection] = deque()
        self._known: dict[ServerConnection, str] = {}
        """Every counted connection, with the address of its host."""
        self._tokens = 1.0
        self._tokens_at_ms = clock.monotonic_ms()
        self._wakes_at_ms = 0.0
        """Time at which a task checks the queue again. A time in the past means that no such task is running."""
        self.configure(config)

    def configure(self, config: NodeConfig) -> None:
        """Apply changed limits to new connections. Existing connections stay."""
        self._max = config.integer("max.connections")
        self._per_host_max = config.integer("max.connections.per.ip")
        self._overrides = host_limits(config.list("max.connections.per.ip.overrides"))
        self._rate = config.integer("max.connection.creation.rate")
        self._tokens = min(self._tokens, float(max(1, self._rate)))
        self._serve_waiting()

    def accepted(self, connection: ServerConnection) -> None:
        """Read a new connection, let it wait, or close it."""
        transport = connection.transport
        host = transport.peer_host
        if self._hosts[host] >= self._overrides.get(host, self._per_host_max):
            self._refuse(connection, f"{host} has {self._hosts[host]} connections, which is all it may have")
            return
        self._known[connection] = host
        self._hosts[host] += 1
        if transport.listener == self._inter_broker:
            if len(self._serving) >= self._max:
                self._make_room()
            self._serving[connection] = transport.listener
        elif not self._waiting and self._may_serve():
            self._serve(connection)
        elif len(self._waiting) >= self._waiting_max:
            self._forget(connection)
            self._refuse(connection, f"{len(self._waiting)} connections wait to be read, which is all that may")
        else:
            connection.mute()
            self._waiting.append(connection)
            self._wake_in_time()

    def closed(self, connection: ServerConnection) -> None:
        """Handle the end of a connection: a waiting connection may now be read."""
        if self._forget(connection):
            self._serve_waiting()

    def _forget(self, connection: ServerConnection) -> bool:
        host = self._known.pop(connection, None)
        if host is None:
            return False
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        if self._serving.pop(connection, None) is None and connection in self._waiting:
            self._waiting.remove(connection)
        return True

    def _make_room(self) -> None:
        """Close the oldest idle connection of another listener. If all connections of other listeners are busy, close
        the oldest of them."""
        others = [one for one, listener in self._serving.items() if listener != self._inter_broker]
        victim = next((one for one in others if one.in_flight == 0), others[0] if others else None)
        if victim is not None:
            self._forget(victim)
            self._refuse(victim, "max.connections is reached, and a broker needs its place")

    def _refuse(self, connection: ServerConnection, why: str) -> None:
        host = connection.transport.peer_host
        self._log_limit.warning(log, "connection refused", client=host, client_address=host, why=why)
        connection.close(why, CloseReason.LOCAL)

    def _may_serve(self) -> bool:
        return len(self._serving) < self._max and self._has_token()

    def _serve(self, connection: ServerConnection) -> None:
        if self._rate < UNLIMITED:
            self._tokens -= 1.0
        self._serving[connection] = connection.transport.listener

    def _serve_waiting(self) -> None:
        while self._waiting and self._may_serve():
            connection = self._waiting.popleft()
            self._serve(connection)
            connection.unmute()
        if self._waiting:
            self._wake_in_time()

    # the rate

    def _has_token(self) -> bool:
        if self._rate >= UNLIMITED:
            return True
        now_ms = self._clock.monotonic_ms()
        gained = (now_ms - self._tokens_at_ms) * self._rate / 1000
        self._tokens = min(float(max(1, self._rate)), self._tokens + gained)
        self._tokens_at_ms = now_ms
        return self._tokens >= 1.0

    def _wake_in_time(self) -> None:
        """Check the queue again when the next token is available. A connection that waits for a free place is read when
        another connection ends."""
        now_ms = self._clock.monotonic_ms()
        if self._rate and now_ms >= self._wakes_at_ms and len(self._serving) < self._max:
            pause_ms = max(1.0, (1.0 - self._tokens) * 1000 / self._rate)
            self._wakes_at_ms = now_ms + pause_ms
            self._start_task(self._wake, pause_ms)

    async def _wake(self, pause_ms: float) -> None:
        await self._clock.sleep_ms(pause_ms)
        self._wakes_at_ms = 0.0
        self._serve_waiting()


def host_limits(entries: Iterable[str]) -> Mapping[str, int]:
    """Parse max.connections.per.ip.overrides: entries `host:count`; the host may be an IPv6 address. Raises ValueError
    for any other form."""
    limits: dict[str, int] = {}
    for entry in entries:
        host, _, count = entry.rpartition(":")
        if not host or not count.isdigit():
            raise ValueError(f"{entry!r} is not HOST:COUNT")
        limits[host.strip("[]")] = int(count)
    return limits
