"""A seam whose network redirects dials by a map, so that proxies can be put between pykraft's client and brokers of
another operator.

A client dials the addresses that brokers advertise. The network dials the proxy's address instead of each of them,
including bootstrap addresses. Invariant: an address without a proxy is never dialled, so no traffic bypasses the
proxies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from kraft.runtime import open_seam
from kraft.seam import (
    Address,
    Binding,
    BoundListener,
    Connection,
    DialFailed,
    DialOutcome,
    Network,
    NetworkStats,
    Peer,
    Seam,
    Transport,
)

C = TypeVar("C", bound=Connection)


class RoutedNetwork:
    """A Network that dials `routes[address]` instead of a peer's address. Raises DialFailed for a peer without a
    route."""

    def __init__(self, network: Network, routes: Mapping[Address, Address]) -> None:
        self._network = network
        self._routes = routes

    @property
    def stats(self) -> NetworkStats:
        return self._network.stats

    def serve(self, binding: Binding, make_connection: Callable[[Transport], Connection]) -> BoundListener:
        return self._network.serve(binding, make_connection)

    async def dial(self, peer: Peer, make_connection: Callable[[Transport], C], *, timeout_ms: int) -> C:
        route = self._routes.get(peer.address)
        if route is None:
            known = ", ".join(map(str, self._routes))
            raise DialFailed(peer, DialOutcome.UNREACHABLE, f"it has no proxy; proxies exist for {known}")
        return await self._network.dial(replace(peer, address=route), make_connection, timeout_ms=timeout_ms)

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        self._network.at_end_of_pass(callback)

    def request_pass(self) -> None:
        self._network.request_pass()


@asynccontextmanager
async def routed_seam(routes: Mapping[Address, Address], *, node_name: str = "client") -> AsyncIterator[Seam]:
    """Open a real seam for clients whose connections take these routes: advertised address → proxy. TLS certificates
    cannot be verified by host name this way."""
    async with open_seam(node_name=node_name) as seam:
        yield replace(seam, network=RoutedNetwork(seam.network, routes))
