"""The simulated network: implements kraft.seam.Network for one incarnation of a node."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraft.seam import (
    Address,
    AddressInUse,
    Binding,
    BoundListener,
    Connection,
    DialFailed,
    DialMap,
    DialOutcome,
    LinkPolicy,
    ListenerStats,
    NetworkStats,
    Peer,
    Transport,
)
from kraft.seam.network import C
from kraft.sim.world.driver import FakeDriver
from kraft.sim.world.endpoint import FakeEndpoint
from kraft.sim.world.fabric import Fabric
from kraft.sim.world.host import Host
from kraft.sim.world.incarnation import Incarnation
from kraft.sim.world.streams import Stream

WILDCARDS = ("", "0.0.0.0", "::")
LOOPBACKS = ("localhost", "127.0.0.1", "::1")

LinkKey = tuple[int | None, str]


class FakeListener:
    """Implements kraft.seam.BoundListener. `accept` runs on the listening node when a connection arrives."""

    def __init__(
        self, network: FakeNetwork, binding: Binding, port: int, make_connection: Callable[[Transport], Connection]
    ) -> None:
        self.network = network
        self.name = binding.listener
        self.make_connection = make_connection
        self._place = (network.host.address, port)
        self._address = Address(binding.address.host, port)

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        listeners = self.network.fabric.listeners
        if listeners.get(self._place) is self:
            del listeners[self._place]


class FakeNetwork:
    """Implements kraft.seam.Network: listeners and dials of one incarnation, over the shared links."""

    def __init__(self, incarnation: Incarnation, fabric: Fabric, dial_map: DialMap) -> None:
        self.fabric = fabric
        self.incarnation = incarnation
        self.host: Host = incarnation.host
        self.driver = FakeDriver(incarnation, fabric)
        self._dial_map = dial_map
        self._policies: dict[LinkKey, LinkPolicy] = {}
        self._policy_changed = trio.Event()
        self._dialled: dict[LinkKey, list[FakeEndpoint]] = {}

    @property
    def stats(self) -> NetworkStats:
        return self.driver.stats

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        self.incarnation.check()
        self.driver.at_end_of_pass(callback)

    def request_pass(self) -> None:
        self.incarnation.check()
        self.driver.request_pass()

    # accepting

    def serve(self, binding: Binding, make_connection: Callable[[Transport], Connection]) -> BoundListener:
        self.incarnation.check()
        where = binding.address
        if where.host not in (*WILDCARDS, *LOOPBACKS, self.host.address):
            raise OSError(99, f"cannot bind {where}: this host is {self.host.address}")
        port = where.port or self.fabric.free_port()
        if (self.host.address, port) in self.fabric.listeners:
            raise AddressInUse(f"listener {binding.listener}: {where} is in use")
        listener = FakeListener(self, binding, port, make_connection)
        self.fabric.listeners[self.host.address, port] = listener
        self.stats.listeners.setdefault(binding.listener, ListenerStats())
        return listener

    # dialling

    async def dial(self, peer: Peer, make_connection: Callable[[Transport], C], *, timeout_ms: int) -> C:
        try:
            return await self._dial(peer, make_connection, timeout_ms)
        except DialFailed as failure:
            if self.fabric.observer is not None:
                self.fabric.observer.dial_failed(self.host.name, peer, failure.outcome)
            raise

    async def _dial(self, peer: Peer, make_connection: Callable[[Transport], C], timeout_ms: int) -> C:
        self.incarnation.check()
        with trio.move_on_after(self.host.clock.virtual_seconds(timeout_ms)):
            await self._pass_link(peer)
            endpoint = await self._connect(peer)
            self.incarnation.check()
            connection = make_connection(endpoint)
            endpoint.start(connection)
            self._remember(peer, endpoint)
            self.driver.stats.dialled += 1
            return connection
        self.incarnation.check()
        raise DialFailed(peer, DialOutcome.TIMED_OUT)

    async def _pass_link(self, peer: Peer) -> None:
        while (policy := self._policies.get((peer.node_id, peer.listener), LinkPolicy.OPEN)) is not LinkPolicy.OPEN:
            await self._pass_a_moment()
            if policy is LinkPolicy.REFUSE:
                raise DialFailed(peer, DialOutcome.REFUSED)
            if policy is LinkPolicy.RESET:
                raise DialFailed(peer, DialOutcome.RESET)
            await self._policy_changed.wait()

    async def _pass_a_moment(self) -> None:
        """Let a short time pass before a dial fails: otherwise a caller that redials at once would stop
        virtual time."""
        await self.fabric.schedule.sleep(self.fabric.options.delay_min_ns / 1e9)

    async def _connect(self, peer: Peer) -> FakeEndpoint:
        """Open a connection: let one packet cross to the other host, be accepted there, and let the answer
        cross back."""
        address = peer.address
        if peer.node_id is not None:
            address = self._dial_map.get((peer.node_id, peer.listener), address)
        host = self.host if address.host in LOOPBACKS else self.fabric.host_at(address.host)
        if host is None:
            await self._pass_a_moment()
            raise DialFailed(peer, DialOutcome.UNREACHABLE)
        await self.fabric.wait_crossing(self.host, host)
        listener = self.fabric.listeners.get((host.address, address.port))
        if listener is None:
            await self.fabric.wait_crossing(host, self.host)
            raise DialFailed(peer, DialOutcome.REFUSED)
        endpoint = _connect_pair(self, listener, peer)
        try:
            await self.fabric.wait_crossing(host, self.host)
        except BaseException:
            endpoint.reset()
            raise
        return endpoint

    # link policies

    def set_link_policy(self, node_id: int, listener: str, policy: LinkPolicy) -> None:
        """Apply `policy` from now on to the link to this peer, also to existing connections."""
        key = (node_id, listener)
        self._policies[key] = policy
        self._policy_changed.set()
        self._policy_changed = trio.Event()
        for endpoint in self._dialled.get(key, ()):
            if endpoint.ended:
                continue
            if policy in (LinkPolicy.REFUSE, LinkPolicy.RESET):
                self.incarnation.call(endpoint.reset)
            else:
                endpoint.hold(policy is LinkPolicy.HANG)

    def _remember(self, peer: Peer, endpoint: FakeEndpoint) -> None:
        key = (peer.node_id, peer.listener)
        living = [other for other in self._dialled.get(key, ()) if not other.ended]
        self._dialled[key] = [*living, endpoint]

    # end of this incarnation

    def listeners(self) -> list[FakeListener]:
        return [listener for listener in self.fabric.listeners.values() if listener.network is self]

    def endpoints(self) -> list[FakeEndpoint]:
        return [endpoint for endpoint in self.fabric.endpoints if endpoint.driver is self.driver]


def _connect_pair(dialler: FakeNetwork, listener: FakeListener, peer: Peer) -> FakeEndpoint:
    """Create both ends of a new connection. The accepting end starts at once, on its own node."""
    fabric = dialler.fabric
    acceptor = listener.network
    there = Stream(fabric, dialler.host, acceptor.host)
    back = Stream(fabric, acceptor.host, dialler.host)
    there.back, back.back = back, there
    near = FakeEndpoint(dialler.driver, peer.listener, peer.address.host, there, back)
    far = FakeEndpoint(acceptor.driver, listener.name, dialler.host.address, back, there)

    def accept() -> None:
        acceptor.driver.stats.accepted += 1
        acceptor.driver.trace("accepted", dialler.host.name.encode())
        far.start(listener.make_connection(far))

    acceptor.incarnation.call(accept)
    return near
