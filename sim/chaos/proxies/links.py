"""LinkProxies: one proxy for each directed link (the source dials the target), set up according to directions and
policies.

A *direction* is the bytes that flow from one end to the other, whichever end dialled. It is the upstream of the proxy
of its link and the downstream of the proxy of the opposite link. Between ends without a link no bytes flow.

How realistic the cuts are:
- REFUSE behaves as a closed port. RESET ends existing connections with an ordinary close, because toxiproxy resets only
  connections that open later, at their first bytes.
- In a hang no bytes and no close pass, and bytes that were sent arrive afterwards. toxiproxy itself still accepts new
  dials, and bytes on these hang too. Behind a real partition such a dial would time out.
- A node whose process has ended refuses dials (`node_down`), and its connections close, as by the kernel of its host.
  Where a direction between the two ends hangs, neither a refusal nor a close would pass, so the proxy stays up until
  the hang ends. New dials there are accepted and closed at once.

Invariants: an address never changes and belongs to these proxies until `close`, also while a proxy is down. After an
error the affected proxies are in an unknown state: the next call reads the state from toxiproxy and sets the proxies as
last requested.
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
    ByteConditions,
    ChangeKind,
    ConnectionPolicy,
    HangMode,
    Toxic,
    after_change,
    changes_between,
    toxics_of,
)
from kraft.sim.nemesis.partition_shapes import CLIENTS

__all__ = ["CLIENTS", "ByteConditions", "ConnectionPolicy", "HangMode", "Link", "LinkProxies", "Toxic", "name_of"]

Link = tuple[int, int]
"""Source and target, by node id; the source dials. `CLIENTS` (0) means all clients."""

THREADS = 4
"""Maximum concurrent calls to toxiproxy. A stuck proxy does not delay the others, as long as few are stuck."""
_ESTABLISHED = "01"
_TCP_TABLE = Path("/proc/net/tcp")


class LinkProxies:
    """The proxies of a cluster's links; see the module. The server must be running, and must outlive these proxies."""

    def __init__(self, server: ToxiproxyServer, upstreams: Mapping[Link, Address]) -> None:
        """Create a proxy for each link; the proxy forwards to the given address. All links are open at first. Raises
        ToxiproxyError, or ClusterError if there are no free ports."""
        self._server = server
        first, self._ports = hold_ports(range(len(upstreams)) or [0])
        addresses = {link: Address(HOST, first + offset) for offset, link in enumerate(upstreams)}
        self.addresses: Mapping[Link, Address] = MappingProxyType(addresses)
        """Link → the address that its source dials. Nodes may be configured with it before they start."""
        self._lock = threading.RLock()
        self._ways: dict[Link, ByteConditions] = {}
        self._policies: dict[frozenset[int], ConnectionPolicy] = {}
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
        """Return the address that the source of a link dials to reach its target. ToxiproxyError if there is no such
        link."""
        try:
            return self.addresses[link]
        except KeyError:
            raise ToxiproxyError(f"there is no link {name_of(link)}: links are {self._named_links()}") from None

    def apply(self, ways: Mapping[Link, ByteConditions], policies: Mapping[Link, ConnectionPolicy]) -> None:
        """Set all directions and policies as given. A direction that is not given has no conditions afterwards, and a
        pair of ends whose policy is not given is open. Only differences are sent to toxiproxy. A policy applies to both
        ends of a link, in either order; of two policies the stricter one counts (REFUSE, then RESET). Pairs of ends
        without a link are ignored. Blocks until done. Raises ToxiproxyError."""
        with self._lock:
            self._ways = {link: way for link, way in ways.items() if way != CLEAR}
            self._policies = _by_pair(policies)
            self._bring_about()

    def reset(self, links: Iterable[Link]) -> None:
        """End the current connections of these links; their sources may dial again at once. A link on which a direction
        hangs keeps its connections, because a reset would not pass either. Unknown links are ignored."""
        with self._lock:
            self._require_usable()
            ended = [link for link in links if link in self._proxies and not self._is_hung(link)]
            self._in_parallel(self._proxies[link].end_connections for link in ended)

    def node_down(self, node: int) -> None:
        """Report that the process of a node has ended: dials to it are refused."""
        self._set_down(node, True)

    def node_up(self, node: int) -> None:
        """Report that the process of a node listens again, or is about to listen. A dial before it listens is accepted
        and closed."""
        self._set_down(node, False)

    def established(self) -> Mapping[Link, int]:
        """Return the connections from the source to each link's proxy that neither end has closed, from one read of the
        kernel's table. A connection that toxiproxy has not accepted yet counts too."""
        counts = _established_by_port(_TCP_TABLE.read_text())
        return {link: counts.get(address.port, 0) for link, address in self.addresses.items()}

    def connections(self, link: Link) -> int:
        """Return the connections of one link; see `established`."""
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
        """Set every proxy to its requested state. All proxies are tried before the first error is raised."""
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
        """Return whether bytes hang in either direction of this link."""
        return any(self._ways.get(way, CLEAR).is_hung for way in (link, link[::-1]))

    def _wanted(self, link: Link) -> _State:
        source, target = link
        there, back = self._ways.get((source, target), CLEAR), self._ways.get((target, source), CLEAR)
        policy = self._policies.get(frozenset(link), ConnectionPolicy.OPEN)
        is_refusing = policy is ConnectionPolicy.REFUSE or (target in self._down and not self._is_hung(link))
        return _State(
            not is_refusing,
            {UPSTREAM: toxics_of(there, policy, UPSTREAM), DOWNSTREAM: toxics_of(back, policy, DOWNSTREAM)},
        )

    def _in_parallel(self, tasks: Iterable[Callable[[], None]]) -> None:
        """Run all calls in parallel, wait for all, and raise the first error."""
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
    """Requested state of a proxy: whether it listens, and the toxics of its two streams."""

    __slots__ = ("is_enabled", "streams")

    def __init__(self, is_enabled: bool, streams: Mapping[str, Mapping[str, Toxic]]) -> None:
        self.is_enabled = is_enabled
        self.streams = {stream: dict(toxics) for stream, toxics in streams.items()}


class _Proxy:
    """One proxy of the server, and its known state."""

    def __init__(self, api: ToxiproxyApi, name: str) -> None:
        self._api = api
        self._name = name
        self._present: _State | None = None
        """State of the proxy in toxiproxy; None if it is unknown after an error."""

    def create(self, listen: Address, upstream: Address) -> None:
        """Create the proxy, and give it the toxics of a hang in their neutral form before it listens. toxiproxy 2.12
        may panic when a toxic is added to connections that are closing; these toxics are only updated later."""
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
                changes_between(toxics, wanted.streams[stream], has_connections=present.is_enabled)
                for stream, toxics in present.streams.items()
            )
        )

    def become(self, wanted: _State) -> None:
        """Change the proxy to this state: close its listener first if connections must end, then change its toxics,
        then let it listen. Raises ToxiproxyError."""
        present = self._present or self._read()
        self._present = None
        if present.is_enabled and (not wanted.is_enabled or self._must_end_connections(present, wanted)):
            self._api.enable_proxy(self._name, False)
            present.is_enabled = False
        for stream, toxics in wanted.streams.items():
            for step in changes_between(present.streams[stream], toxics, has_connections=present.is_enabled):
                self._carry_out(step.kind, stream, step.name, step.toxic)
                present.streams[stream] = after_change(present.streams[stream], step)
        if wanted.is_enabled and not present.is_enabled:
            self._api.enable_proxy(self._name, True)
            present.is_enabled = True
        self._present = present

    def end_connections(self) -> None:
        """Close all connections, and listen again at once. Does nothing if it does not listen."""
        present = self._present or self._read()
        self._present = None
        if present.is_enabled:
            self._api.enable_proxy(self._name, False)
            self._api.enable_proxy(self._name, True)
        self._present = present

    @staticmethod
    def _must_end_connections(present: _State, wanted: _State) -> bool:
        """Return whether existing connections must end: this is the case when the policy changes to RESET."""
        return any(
            RESET in toxics and RESET not in present.streams[stream] for stream, toxics in wanted.streams.items()
        )

    def _carry_out(self, kind: ChangeKind, stream: str, name: str, toxic: Toxic) -> None:
        if kind is ChangeKind.REMOVE:
            self._api.remove_toxic(self._name, stream, name)
        elif kind is ChangeKind.ADD:
            self._api.add_toxic(self._name, stream, name, toxic)
        else:
            self._api.update_toxic(self._name, stream, name, toxic)

    def _read(self) -> _State:
        is_enabled = bool(self._api.proxies()[self._name]["enabled"])
        return _State(is_enabled, {stream: self._api.toxics(self._name, stream) for stream in (UPSTREAM, DOWNSTREAM)})


def name_of(link: Link) -> str:
    """Return a readable name of a link: "1-2", or "clients-1". The name of its proxy in toxiproxy begins with it."""
    return "-".join(_end_name(end) for end in link)


def _end_name(end: int) -> str:
    return "clients" if end == CLIENTS else str(end)


def _by_pair(policies: Mapping[Link, ConnectionPolicy]) -> dict[frozenset[int], ConnectionPolicy]:
    rising = sorted(
        policies.items(),
        key=lambda item: (ConnectionPolicy.OPEN, ConnectionPolicy.RESET, ConnectionPolicy.REFUSE).index(item[1]),
    )
    return {frozenset(link): policy for link, policy in rising}


def _established_by_port(table: str) -> dict[int, int]:
    """Return port of this host → its connections in the state ESTABLISHED, as the listening side has them. `table` is
    the text of /proc/net/tcp, where addresses are hexadecimal and the fourth column is the state."""
    counts: dict[int, int] = {}
    for line in table.splitlines()[1:]:
        columns = line.split()
        if columns[3] == _ESTABLISHED:
            port = int(columns[1].rpartition(":")[2], 16)
            counts[port] = counts.get(port, 0) + 1
    return counts
