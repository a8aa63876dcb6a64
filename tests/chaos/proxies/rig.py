"""Rig: listeners at the targets of links, proxies before them, and both ends of connections in the hands of a test."""

from __future__ import annotations

import select
import socket
import struct
from contextlib import ExitStack

from kraft.seam import Address
from kraft.sim.chaos.proxies.links import Link, LinkProxies
from kraft.sim.chaos.proxies.server import ToxiproxyServer

SECONDS_MAX = 20.0
DATA_SEGS_IN = 152
"""Where `tcpi_data_segs_in` is in Linux's `struct tcp_info`."""
LINKS = ((1, 2), (2, 1), (0, 1), (0, 2), (1, 3), (3, 1), (2, 3), (3, 2))


class Rig:
    """See the module. `close` ends all of it."""

    def __init__(self, server: ToxiproxyServer, links: tuple[Link, ...] = LINKS) -> None:
        self._stack = ExitStack()
        self._targets = {link: self._keep(socket.create_server(("127.0.0.1", 0))) for link in links}
        for target in self._targets.values():
            target.settimeout(SECONDS_MAX)
        upstreams = {link: Address(*target.getsockname()) for link, target in self._targets.items()}
        self.proxies = self._stack.enter_context(LinkProxies(server, upstreams))

    def close(self) -> None:
        self._stack.close()

    def _keep(self, end: socket.socket) -> socket.socket:
        end.settimeout(SECONDS_MAX)
        return self._stack.enter_context(end)

    def dial(self, link: Link) -> socket.socket:
        """The source's end of a new connection. OSError as from the kernel."""
        address = self.proxies.address(link)
        return self._keep(socket.create_connection((address.host, address.port), SECONDS_MAX))

    def accept(self, link: Link) -> socket.socket:
        """The target's end of the connection that was dialled first."""
        return self._keep(self._targets[link].accept()[0])

    def connect(self, link: Link) -> tuple[socket.socket, socket.socket]:
        """Both ends of a connection over which bytes have passed both ways."""
        near = self.dial(link)
        far = self.accept(link)
        exchange(near, far)
        return near, far

    def let_bytes_pass_elsewhere(self) -> None:
        """Pass many messages over another link of the same server: what was not held back would be there by now."""
        near, far = self.connect((3, 2))
        for _ in range(50):
            exchange(near, far)

    def fill(self, end: socket.socket) -> int:
        """Send until nothing more is taken, because the other end does not read; the number of bytes."""
        sent = 0
        while select.select([], [end], [], 0)[1]:
            while select.select([], [end], [], 0)[1]:
                sent += end.send(b"x" * 100_000, socket.MSG_DONTWAIT)
            self.let_bytes_pass_elsewhere()  # the proxy has taken meanwhile what it takes
        return sent


def exchange(near: socket.socket, far: socket.socket) -> None:
    for one, other in ((near, far), (far, near)):
        one.sendall(b"ping")
        assert receive(other, 4) == b"ping"


def receive(end: socket.socket, count: int) -> bytes:
    """So many bytes, or fewer if the connection ends."""
    found = b""
    while len(found) < count:
        piece = end.recv(count - len(found))
        if not piece:
            break
        found += piece
    return found


def segments(end: socket.socket) -> int:
    """Segments with data that have come so far: also of a reader that was late there are as many as were sent."""
    (count,) = struct.unpack_from("I", end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), DATA_SEGS_IN)
    return int(count)


def is_quiet(end: socket.socket) -> bool:
    """Whether neither bytes nor the end of the connection have arrived."""
    return not select.select([end], [], [], 0)[0]
