"""LinkProxies: one proxy for each directed link (source dials target), made as ways and policies say.

A *way* is the bytes that flow from one end to another, whichever dialled: it is the upstream of the proxy of its link
and the downstream of the proxy of the opposite link. A way between ends that no link joins carries nothing.

How real the cuts are:
- REFUSE is as real as a closed port. RESET ends the connections that exist with an ordinary close, because toxiproxy
  resets only those that open later, at their first bytes.
- In a hang nothing passes and nothing closes, and what was sent arrives afterwards. toxiproxy itself still accepts new
  dials, and bytes on these hang too: a dial to a host behind a real partition would time out.
- A node whose process has ended refuses dials (`node_down`), and its connections close, as the kernel of its host would
  do. Where a way between the two hangs, the proxy stays up until the hang ends, because neither would pass. New dials
  are accepted and closed at once there.

Invariants: an address never changes and belongs to these proxies until `close`, also while a proxy is down. After an
error the proxies concerned are in an unknown state: the next call reads it and makes the proxies as was asked last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from kraft.seam import Address
from kraft.sim.chaos.clusters.held_ports import hold_ports
from kraft.sim.chaos.proxies.api import DOWNSTREAM, UPSTREAM, ToxiproxyApi
from kraft.sim.chaos.proxies.errors import ToxiproxyError
from kraft.sim.chaos.proxies.server import HOST, ToxiproxyServer
from kraft.sim.chaos.proxies.toxics import (
    AT_REST,
    CLEAR,
    RESET,
    Manner,
    Policy,
    Toxic,
    Verb,
    Way,
    after_step,
    steps_between,
    toxics_of,
)
from kraft.sim.nemesis.partition_shapes import CLIENTS

__all__ = ["CLIENTS", "Link", "LinkProxies", "Manner", "Policy", "Toxic", "Way", "name_of"]

Link = tuple[int, int]
"""Source and target, by node id; the source dials. `CLIENTS` (0) stands for all clients."""

THREADS = 4
"""Calls to toxiproxy at once. A proxy that is stuck does not delay the others, as long as few are."""
_ESTABLISHED = "01"
_TCP_TABLE = Path("/proc/net/tcp")


class LinkProxies:
    """See the module. The server is started, and outlives these proxies."""

    def __init__(self, server: ToxiproxyServer, upstreams: Mapping[Link, Address]) -> None:
        """Create a proxy for each link, which leads to the address that is given. All are open. ToxiproxyError, or
        ClusterError if there are no free ports."""
        self._server = server
        first, self._ports = hold_ports(range(len(upstreams)) or [0])
        addresses = {link: Address(HOST, first + offset) for offset, link in enumerate(upstreams)}
        self.addresses: Mapping[Link, Address] = MappingProxyType(addresses)
        """Where a link's source dials; nodes may be told before they start."""
        self._lock = threading.RLock()
        self._ways: dict[Link, Way] = {}
        self._policies: dict[frozenset[int], Policy] = {}
        self._down: set[int] = set()
        self._is_closed = False
        self._proxies = {link: _Proxy(server.api, f"{name_of(link)}.{addresses[link].port}") for link in upstreams}
        try:
            self._in_parallel(
                partial(self._proxies[link].create, addresses[link], upstream) for link, upstream in upstreams.items()
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the proxies and release their ports; their connections close."""
        with self._lock:
            for proxy in self._proxies.values():
                try:
                    proxy.delete()
                except ToxiproxyError:
                    continue  # the server has ended, or never created it
            self._proxies.clear()
            self._is_closed = True
            self._ports.release()

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(self.addresses)

    def address(self, link: Link) -> Address:
        """Where the source of a link dials to reach its target. ToxiproxyError if there is no such link."""
        try:
            return self.addresses[link]
        except KeyError:
            raise ToxiproxyError(f"there is no link {name_of(link)}: links are {self._named_links()}") from None

    def apply(self, ways: Mapping[Link, Way], policies: Mapping[Link, Policy]) -> None:
        """Make all ways and policies as given here, and those that are not given clear and open. Only differences are
        sent to toxiproxy. A policy is for both ends of a link, in either order; of two the stricter one counts (REFUSE,
        then RESET). Ends that no link joins have no bytes between them, and are passed over. Blocks until it is so.
        ToxiproxyError."""
        with self._lock:
            self._ways = {link: way for link, way in ways.items() if way != CLEAR}
            self._policies = _by_pair(policies)
            self._bring_about()

    def reset(self, links: Iterable[Link]) -> None:
        """End the connections that these links have now; their sources may dial anew at once. A link on which a way
        hangs keeps its connections, because a reset would not pass either. Links that are not here are passed over."""
        with self._lock:
            self._require_usable()
            ended = [link for link in links if link in self._proxies and not self._is_hung(link)]
            self._in_parallel(self._proxies[link].end_connections for link in ended)

    def node_down(self, node: int) -> None:
        """Say that the process of a node has ended: dials to it are refused."""
        self._set_down(node, True)

    def node_up(self, node: int) -> None:
        """Say that the process of a node listens again, or is about to; an earlier dial is accepted and closed."""
        self._set_down(node, False)

    def established(self) -> Mapping[Link, int]:
        """Connections from the source to each link's proxy, those that neither end has closed; one read of the
        kernel's table. A connection that toxiproxy has not accepted yet counts too."""
        counts = _established_by_port(_TCP_TABLE.read_text())
        return {link: counts.get(address.port, 0) for link, address in self.addresses.items()}

    def connections(self, link: Link) -> int:
        """The connections of one link, see `established`."""
        self.address(link)
        return self.established()[link]

    def _set_down(self, node: int, is_down: bool) -> None:
        with self._lock:
            if is_down:
                self._down.add(node)
            else:
                self._down.discard(node)
            self._bring_about()

    def _bring_about(self) -> None:
        """Make every proxy as wanted. All that can be done is done before the first error is raised."""
        self._require_usable()
        wanted = {link: self._wanted(link) for link in self._proxies}
        self._in_parallel(
            partial(proxy.become, wanted[link])
            for link, proxy in self._proxies.items()
            if not proxy.is_already(wanted[link])
        )

    def _require_usable(self) -> None:
        if self._is_closed:
            raise ToxiproxyError("these proxies are closed")
        self._server.require_running()

    def _is_hung(self, link: Link) -> bool:
        """Either way."""
        return any(self._ways.get(way, CLEAR).is_hung for way in (link, link[::-1]))

    def _wanted(self, link: Link) -> _State:
        source, target = link
        there, back = self._ways.get((source, target), CLEAR), self._ways.get((target, source), CLEAR)
        policy = self._policies.get(frozenset(link), Policy.OPEN)
        is_refusing = policy is Policy.REFUSE or (target in self._down and not self._is_hung(link))
        return _State(
            not is_refusing,
            {UPSTREAM: toxics_of(there, policy, UPSTREAM), DOWNSTREAM: toxics_of(back, policy, DOWNSTREAM)},
        )

    def _in_parallel(self, tasks: Iterable[Callable[[], None]]) -> None:
        """Wait for all of them, and raise the first error."""
        work = list(tasks)
        if not work:
            return
        with ThreadPoolExecutor(min(THREADS, len(work)), thread_name_prefix="toxiproxy") as pool:
            futures = [pool.submit(task) for task in work]
        for future in futures:
            future.result()

    def _named_links(self) -> str:
        return ", ".join(name_of(link) for link in self.addresses) or "none"


class _State:
    """Whether a proxy listens, and the toxics of its two streams."""

    __slots__ = ("is_enabled", "streams")

    def __init__(self, is_enabled: bool, streams: Mapping[str, Mapping[str, Toxic]]) -> None:
        self.is_enabled = is_enabled
        self.streams = {stream: dict(toxics) for stream, toxics in streams.items()}


class _Proxy:
    """One proxy of the server, and what is known of it."""

    def __init__(self, api: ToxiproxyApi, name: str) -> None:
        self._api = api
        self._name = name
        self._present: _State | None = None
        """None: unknown, after an error."""

    def create(self, listen: Address, upstream: Address) -> None:
        """Before it listens it gets the toxics that a hang needs, in their neutral form: toxiproxy 2.12 may panic when
        a toxic is added to connections that are just closing, and these are then only updated."""
        self._api.create_proxy(self._name, listen, upstream, is_enabled=False)
        for stream in (UPSTREAM, DOWNSTREAM):
            for name, toxic in AT_REST.items():
                self._api.add_toxic(self._name, stream, name, toxic)
        self._api.enable_proxy(self._name, True)
        self._present = _State(True, {UPSTREAM: dict(AT_REST), DOWNSTREAM: dict(AT_REST)})

    def delete(self) -> None:
        self._api.delete_proxy(self._name)

    def is_already(self, wanted: _State) -> bool:
        present = self._present
        return (
            present is not None
            and present.is_enabled == wanted.is_enabled
            and not self._must_end_connections(present, wanted)
            and not any(
                steps_between(toxics, wanted.streams[stream], has_connections=present.is_enabled)
                for stream, toxics in present.streams.items()
            )
        )

    def become(self, wanted: _State) -> None:
        """Close it first if connections must end, then change its toxics, then let it listen. ToxiproxyError."""
        present = self._present or self._read()
        self._present = None
        if present.is_enabled and (not wanted.is_enabled or self._must_end_connections(present, wanted)):
            self._api.enable_proxy(self._name, False)
            present.is_enabled = False
        for stream, toxics in wanted.streams.items():
            for step in steps_between(present.streams[stream], toxics, has_connections=present.is_enabled):
                self._carry_out(step.verb, stream, step.name, step.toxic)
                present.streams[stream] = after_step(present.streams[stream], step)
        if wanted.is_enabled and not present.is_enabled:
            self._api.enable_proxy(self._name, True)
            present.is_enabled = True
        self._present = present

    def end_connections(self) -> None:
        """Close them, and listen again at once. Nothing to do if it does not listen."""
        present = self._present or self._read()
        self._present = None
        if present.is_enabled:
            self._api.enable_proxy(self._name, False)
            self._api.enable_proxy(self._name, True)
        self._present = present

    @staticmethod
    def _must_end_connections(present: _State, wanted: _State) -> bool:
        """Where connections begin to be reset, those that exist end."""
        return any(
            RESET in toxics and RESET not in present.streams[stream] for stream, toxics in wanted.streams.items()
        )

    def _carry_out(self, verb: Verb, stream: str, name: str, toxic: Toxic) -> None:
        if verb is Verb.REMOVE:
            self._api.remove_toxic(self._name, stream, name)
        elif verb is Verb.ADD:
            self._api.add_toxic(self._name, stream, name, toxic)
        else:
            self._api.update_toxic(self._name, stream, name, toxic)

    def _read(self) -> _State:
        is_enabled = bool(self._api.proxies()[self._name]["enabled"])
        return _State(is_enabled, {stream: self._api.toxics(self._name, stream) for stream in (UPSTREAM, DOWNSTREAM)})


def name_of(link: Link) -> str:
    """A link for people: "1-2", or "clients-1". The name of its proxy in toxiproxy begins with it."""
    return "-".join(_end_name(end) for end in link)


def _end_name(end: int) -> str:
    return "clients" if end == CLIENTS else str(end)


def _by_pair(policies: Mapping[Link, Policy]) -> dict[frozenset[int], Policy]:
    rising = sorted(policies.items(), key=lambda item: (Policy.OPEN, Policy.RESET, Policy.REFUSE).index(item[1]))
    return {frozenset(link): policy for link, policy in rising}


def _established_by_port(table: str) -> dict[int, int]:
    """Port of this host → its connections in the state ESTABLISHED, as the listening side has them. `table` is the
    text of /proc/net/tcp, whose addresses are hexadecimal, and whose fourth column is the state."""
    counts: dict[int, int] = {}
    for line in table.splitlines()[1:]:
        columns = line.split()
        if columns[3] == _ESTABLISHED:
            port = int(columns[1].rpartition(":")[2], 16)
            counts[port] = counts.get(port, 0) + 1
    return counts
