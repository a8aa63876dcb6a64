"""Rig: listeners at the targets of links, proxies in front of the listeners, and connections whose two ends the test
holds.
"""

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
"""Offset of `tcpi_data_segs_in` in Linux's `struct tcp_info`."""
LINKS = ((1, 2), (2, 1), (0, 1), (0, 2), (1, 3), (3, 1), (2, 3), (3, 2))


class Rig:
    """Listeners, proxies and connections of a test. `close` closes all of them."""

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
        """Return the source's end of a new connection. Raises the OSError of the kernel."""
        address = self.proxies.address(link)
        return self._keep(socket.create_connection((address.host, address.port), SECONDS_MAX))

    def accept(self, link: Link) -> socket.socket:
        """Return the target's end of the earliest dialled connection."""
        return self._keep(self._targets[link].accept()[0])

    def connect(self, link: Link) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a connection over which bytes have passed in both directions."""
        near = self.dial(link)
        far = self.accept(link)
        exchange(near, far)
        return near, far

    def let_bytes_pass_elsewhere(self) -> None:
        """Pass many messages over another link of the same server. After that, bytes on this link that are not held
        back would have arrived too."""
        near, far = self.connect((3, 2))
        for _ in range(50):
            exchange(near, far)

    def fill(self, end: socket.socket) -> int:
        """Send until the socket accepts no more, because the peer does not read; return the number of bytes."""
        sent = 0
        while select.select([], [end], [], 0)[1]:
            while select.select([], [end], [], 0)[1]:
                sent += end.send(b"x" * 100_000, socket.MSG_DONTWAIT)
            self.let_bytes_pass_elsewhere()  # the proxy has read its share by now
        return sent


def exchange(near: socket.socket, far: socket.socket) -> None:
    for one, other in ((near, far), (far, near)):
        one.sendall(b"ping")
        assert receive(other, 4) == b"ping"


def receive(end: socket.socket, count: int) -> bytes:
    """Receive `count` bytes; return fewer if the connection ends before."""
    found = b""
    while len(found) < count:
        piece = end.recv(count - len(found))
        if not piece:
            break
        found += piece
    return found


def segments(end: socket.socket) -> int:
    """Return the number of data segments that the socket has received. It equals the number of sent segments even if
    the reader starts late."""
    (count,) = struct.unpack_from("I", end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), DATA_SEGS_IN)
    return int(count)


def is_quiet(end: socket.socket) -> bool:
    """Return whether neither bytes nor the end of the connection have arrived."""
    return not select.select([end], [], [], 0)[0]
