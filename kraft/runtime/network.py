"""The real network: kraft.seam.Network over the driver, for streams with and without TLS."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

import trio

from kraft.runtime.channel import Channel
from kraft.runtime.dialing import connect
from kraft.runtime.driver import Driver
from kraft.runtime.links import WELL, LinkKey, LinkPolicies
from kraft.runtime.listening import Listener, bind
from kraft.runtime.relay import Relay
from kraft.runtime.tls import TlsContexts, tls_settings
from kraft.runtime.tls_channel import TlsChannel
from kraft.seam import (
    Address,
    Binding,
    BoundListener,
    CloseReason,
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


class RealNetwork:
    """Implementation of kraft.seam.Network. Created by `open_seam`, which runs the driver."""

    def __init__(self, driver: Driver, dial_map: DialMap, links: LinkPolicies, *, idle_ms: int, backlog: int) -> None:
        self._driver = driver
        self._dial_map = dial_map
        self._links = links
        self._idle_ms = idle_ms
        self._backlog = backlog
        self._contexts = TlsContexts()
        self._dialled: dict[LinkKey, list[Channel]] = {}
        self._relays: dict[Channel, Relay] = {}
        links.watch(self._link_changed)

    @property
    def stats(self) -> NetworkStats:
        return self._driver.stats

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        self._driver.at_end_of_pass(callback)

    def request_pass(self) -> None:
        self._driver.request_pass()

    # accepting

    def serve(self, binding: Binding, make_connection: Callable[[Transport], Connection]) -> BoundListener:
        settings = tls_settings(binding.tls)
        stats = self.stats.listeners.setdefault(binding.listener, ListenerStats())
        if settings is not None:
            self._contexts.server(settings)  # a wrong file is an error now, not at the first client
            stats.certificate_expiry_s = partial(self._contexts.certificate_expiry_s, settings)

        def accepted(stream: socket.socket, host: str) -> None:
            if settings is None:
                channel = Channel(self._driver, stream, binding.listener, host, self._idle_ms, is_accepted=True)
                channel.start(make_connection(channel))
                return
            context = self._contexts.server(settings)
            secure = TlsChannel(self._driver, stream, binding.listener, host, self._idle_ms, is_accepted=True)
            secure.start_handshake(context.wrap_bio(*secure.bios, server_side=True), make_connection, stats)

        return Listener(self._driver, bind(binding, self._backlog), binding.address.host, accepted)

    # dialling

    async def dial(self, peer: Peer, make_connection: Callable[[Transport], C], *, timeout_ms: int) -> C:
        with trio.move_on_after(timeout_ms / 1000):
            settings = tls_settings(peer.tls)
            if settings is not None:
                self._contexts.client(settings)  # the caller, too, must learn of unusable files
            await self._pass_link(peer)
            stream = await connect(peer, self._address_of(peer))
            try:
                late_ms = sum(way.latency_ms for way in self._links.qualities((peer.node_id, peer.listener)))
                if late_ms:
                    await trio.sleep(late_ms / 1000)
            except BaseException:
                stream.close()
                raise
            return await self._start(peer, stream, make_connection)
        raise DialFailed(peer, DialOutcome.TIMED_OUT)

    def _address_of(self, peer: Peer) -> Address:
        if peer.node_id is None:
            return peer.address
        return self._dial_map.get((peer.node_id, peer.listener), peer.address)

    async def _pass_link(self, peer: Peer) -> None:
        """Apply the link's policy to this dial."""
        key = (peer.node_id, peer.listener)
        while not self._links.is_open(key):
            policy = self._links.policy(key)
            await trio.lowlevel.checkpoint()
            if policy is LinkPolicy.REFUSE:
                raise DialFailed(peer, DialOutcome.REFUSED)
            if policy is LinkPolicy.RESET:
                raise DialFailed(peer, DialOutcome.RESET)
            await self._links.wait_changed()

    async def _start(self, peer: Peer, stream: socket.socket, make_connection: Callable[[Transport], C]) -> C:
        host = peer.address.host
        settings = tls_settings(peer.tls)
        self._driver.stats.dialled += 1
        if settings is None:
            channel = Channel(self._driver, stream, peer.listener, host, self._idle_ms)
            connection = make_connection(channel)
            channel.start(connection)
            self._remember(peer, channel)
            return connection
        secure = TlsChannel(self._driver, stream, peer.listener, host, self._idle_ms)
        context = self._contexts.client(settings)
        name = host if settings.verify_hostname else None
        secure.start_handshake(context.wrap_bio(*secure.bios, server_side=False, server_hostname=name), None)
        self._remember(peer, secure)
        try:
            failure = await secure.wait_established()
        except BaseException:
            secure.end(CloseReason.LOCAL)
            raise
        if failure is not None:
            raise DialFailed(peer, failure, secure.why)
        return secure.adopt(make_connection)

    # link policies

    def _remember(self, peer: Peer, channel: Channel) -> None:
        key = (peer.node_id, peer.listener)
        living = [other for other in self._dialled.get(key, ()) if not other.ended]
        self._dialled[key] = [*living, channel]
        self._apply_qualities(key, channel)

    def _link_changed(self, key: LinkKey, policy: LinkPolicy) -> None:
        for channel in self._dialled.get(key, ()):
            if channel.ended:
                continue
            if policy in (LinkPolicy.REFUSE, LinkPolicy.RESET):
                channel.reset()
                if channel in self._relays:
                    self._relays[channel].reset()
            else:
                channel.hold(policy is LinkPolicy.HANG)
                self._apply_qualities(key, channel)

    def _apply_qualities(self, key: LinkKey, channel: Channel) -> None:
        """Update the qualities of existing connections. A relay is added when a link is first degraded, and stays until
        the connection ends."""
        sends, receives = self._links.qualities(key)
        if channel in self._relays:
            self._relays[channel].change(sends, receives)
        elif (sends, receives) != (WELL, WELL):
            relay = self._relays[channel] = Relay(*channel.splice(), sends, receives)

            async def run() -> None:
                try:
                    await relay.run()
                finally:
                    del self._relays[channel]

            self._driver.run_task(run, name="relay")
