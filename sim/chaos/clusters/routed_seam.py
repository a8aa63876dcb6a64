"""A seam whose dials go where a map says: so proxies can stand between our client and brokers that somebody else runs.

A client dials the addresses that brokers advertise. Each of these is replaced by its proxy's, also where it is a
bootstrap address. Invariant: an address without a proxy is not dialled at all, so nothing by-passes the proxies.
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
    """A Network that dials `routes[address]` instead of a peer's address. DialFailed for a peer that has no route."""

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
            raise DialFailed(peer, DialOutcome.UNREACHABLE, f"no proxy stands before it; there are some before {known}")
        return await self._network.dial(replace(peer, address=route), make_connection, timeout_ms=timeout_ms)

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        self._network.at_end_of_pass(callback)

    def request_pass(self) -> None:
        self._network.request_pass()


@asynccontextmanager
async def routed_seam(routes: Mapping[Address, Address], *, node_name: str = "client") -> AsyncIterator[Seam]:
    """A real seam for clients whose connections take these routes: advertised address → proxy. Certificates cannot be
    checked by host name this way."""
    async with open_seam(node_name=node_name) as seam:
        yield replace(seam, network=RoutedNetwork(seam.network, routes))
