"""Ports that stay reserved for a cluster, also while its nodes are down or not started yet.

A port is held by a socket that is bound and never listens. The socket is first bound exclusively, so that two holders
never share a port (other test processes hold theirs in the same way). Then it allows sharing, so that a node's listener
can bind to the same port. A dial to a held port on which no node listens is refused.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from kraft.deploy.launch.layout import HOST
from kraft.sim.shapes import ClusterError

FIRST_PORT, LAST_PORT = 10_000, 32_000
"""First and last port that may be held. They are below the range from which the system draws clients' ports."""
TRIES_MAX = 200


class HeldPorts:
    """A socket for each held port."""

    def __init__(self, ports: Iterable[int]) -> None:
        """Bind a socket to each port. OSError if one is in use."""
        self._sockets: list[socket.socket] = []
        try:
            for port in ports:
                self._hold(port)
        except OSError:
            self.release()
            raise

    def _hold(self, port: int) -> None:
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sockets.append(holder)
        holder.bind((HOST, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def release(self) -> None:
        for holder in self._sockets:
            holder.close()
        self._sockets.clear()


def hold_ports(offsets: Iterable[int]) -> tuple[int, HeldPorts]:
    """Hold a random first port and all ports at these distances from it. ClusterError if none are free."""
    wanted = sorted(offsets)
    draw = random.SystemRandom()  # the global random source may be seeded equally in each test process
    for _ in range(TRIES_MAX):
        first = draw.randrange(FIRST_PORT, LAST_PORT - wanted[-1])
        try:
            return first, HeldPorts(first + offset for offset in wanted)
        except OSError:
            continue
    raise ClusterError(f"no free ports for a cluster of this size between {FIRST_PORT} and {LAST_PORT}")
