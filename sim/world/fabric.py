"""The network between the hosts: listeners, cut links, and the travel time of bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from kraft.seam import LinkQuality
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.host import Host
from kraft.sim.world.options import MILLISECOND_NS, WorldOptions
from kraft.sim.world.schedule import Schedule
from kraft.sim.world.streams import Finish, Stream

if TYPE_CHECKING:
    from kraft.sim.world.endpoint import FakeEndpoint
    from kraft.sim.world.network import FakeListener
    from kraft.sim.world.observer import WorldObserver

FIRST_FREE_PORT = 40_000
LATE_RESET_NS_MAX = 3_000_000_000
"""Maximum time after which a host that has booted answers packets for its dead connections with a reset (TCP
retransmits the packets)."""


class Fabric:
    """All links between hosts. A link is an ordered pair of hosts; a cut link holds back what is sent over it."""

    def __init__(self, schedule: Schedule, chance: NamedRandom, options: WorldOptions) -> None:
        self.schedule = schedule
        self.options = options
        self.hosts: dict[str, Host] = {}
        self.listeners: dict[tuple[str, int], FakeListener] = {}
        self.observer: WorldObserver | None = None
        self.endpoints: dict[FakeEndpoint, None] = {}
        """Open ends of connections, including those on hosts without power, in the order of their creation."""
        self._chance = chance
        self._links: dict[tuple[str, str], NamedRandom] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._held: dict[Stream, None] = {}
        self._qualities: dict[tuple[str, str], LinkQuality] = {}
        """Link → its quality, for links that are slow or lossy."""
        self._changed = trio.Event()
        self._next_port = FIRST_FREE_PORT

    # delay and randomness per link

    def link_chance(self, source: Host, target: Host) -> NamedRandom:
        key = (source.name, target.name)
        chance = self._links.get(key)
        if chance is None:
            chance = self._links[key] = self._chance.stream(f"{source.name}->{target.name}")
        return chance

    def delay_ns(self, source: Host, target: Host) -> int:
        """Return the travel time of the next piece over this link."""
        options = self.options
        chance = self.link_chance(source, target)
        delay_ns = options.delay_min_ns + chance.below(options.delay_jitter_ns + 1)
        if chance.one_in(options.slow_delay_one_in):
            delay_ns += chance.below(options.slow_delay_ns + 1)
        quality = self.quality(source, target)
        if quality is not None:
            delay_ns += (quality.latency_ms + chance.below(quality.jitter_ms + 1)) * MILLISECOND_NS
        return delay_ns

    # quality

    def quality(self, source: Host, target: Host) -> LinkQuality | None:
        """Return this link's quality; None: normal."""
        return self._qualities.get((source.name, target.name)) if self._qualities else None

    def set_quality(self, source: str, target: str, quality: LinkQuality | None) -> None:
        """Set the link's quality from now on. If the quality becomes normal, data that a slow link has held back
        arrives soon."""
        if quality is not None:
            self._qualities[source, target] = quality
        elif self._qualities.pop((source, target), None) is not None:
            for endpoint in list(self.endpoints):
                stream = endpoint.outgoing
                if (stream.source.name, stream.target.name) == (source, target):
                    stream.hurry()

    def restore_all(self) -> None:
        for source, target in list(self._qualities):
            self.set_quality(source, target, None)

    # cuts

    def is_cut(self, source: Host, target: Host) -> bool:
        return bool(self._cuts) and (source.name, target.name) in self._cuts

    def cut(self, source: str, target: str) -> None:
        self._cuts[source, target] = None

    def heal(self, should_heal: Callable[[str, str], bool]) -> None:
        """Heal the links for which `should_heal` is true, and release what they held."""
        self._cuts = {link: None for link in self._cuts if not should_heal(*link)}
        held, self._held = self._held, {}
        for stream in held:
            if self.is_cut(stream.source, stream.target):
                self._held[stream] = None
            else:
                stream.release()
        self.something_changed()

    def hold(self, stream: Stream) -> None:
        self._held[stream] = None

    def something_changed(self) -> None:
        """Let waiting dials retry, because a link healed or a host booted."""
        self._changed.set()
        self._changed = trio.Event()

    # packets of dials

    async def wait_crossing(self, source: Host, target: Host) -> None:
        """Suspend until one small packet, retransmitted as often as needed, has crossed this link."""
        while True:
            await self.schedule.sleep(self.delay_ns(source, target) / 1e9)
            if not self.is_cut(source, target) and target.powered:
                return
            await self._changed.wait()
            resend_ns = self.link_chance(source, target).below(self.options.redial_delay_ns + 1)
            await self.schedule.sleep(resend_ns / 1e9)

    def host_at(self, address: str) -> Host | None:
        return self.hosts.get(address)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    # ends

    def reset_links(self, one: str, other: str) -> None:
        """Drop every connection between two hosts; a random part of the data in flight is lost."""
        for endpoint in list(self.endpoints):
            if {endpoint.outgoing.source.name, endpoint.outgoing.target.name} != {one, other} or endpoint.ended:
                continue
            stream = endpoint.outgoing
            stream.lose_some(self.link_chance(stream.source, stream.target).below(stream.under_way + 1))
            stream.finish(Finish.RST)

    def stall_links(self, source: str, target: str, duration_ns: int, one_in: int) -> None:
        """Delay some of the streams from one host to another."""
        until_ns = self.schedule.now_ns + duration_ns
        for endpoint in list(self.endpoints):
            stream = endpoint.outgoing
            is_theirs = (stream.source.name, stream.target.name) == (source, target) and not endpoint.ended
            if is_theirs and self.link_chance(stream.source, stream.target).one_in(one_in):
                stream.stall(until_ns)

    def host_booted(self, host: Host) -> None:
        """Notify the peers of the incarnation that lost power, because the booted host does not know its old
        connections."""
        for endpoint in [end for end in self.endpoints if end.host is host and end.deaf]:
            endpoint.deaf = False
            del self.endpoints[endpoint]
            if endpoint.incoming.swallowed:
                late_ns = self.link_chance(host, endpoint.incoming.source).below(LATE_RESET_NS_MAX)
                self.schedule.after(late_ns, partial(endpoint.outgoing.finish, Finish.RST))
        self.something_changed()
