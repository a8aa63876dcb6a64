"""Ports that nobody else gets while a cluster has them, also while its nodes are down or not started yet.

A port is held by a socket that is bound and never listens. It is bound alone, so that two holders never share a port
(other test processes hold theirs in the same way), and lets itself be joined afterwards: a node's listener binds beside
it. Whoever dials a held port on which no node listens is refused.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from kraft.deploy.launch.layout import HOST
from kraft.sim.shapes import ClusterError

FIRST_PORT, LAST_PORT = 10_000, 32_000
"""Below those that the system gives to clients."""
TRIES_MAX = 200


class HeldPorts:
    """So many sockets, one for each port."""

    def __init__(self, ports: Iterable[int]) -> None:
        """OSError if one is taken."""
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
    """A first port, drawn at random, such that it and all at these distances from it are ours now. ClusterError."""
    wanted = sorted(offsets)
    draw = random.SystemRandom()  # tests may have seeded the common source, each process in the same way
    for _ in range(TRIES_MAX):
        first = draw.randrange(FIRST_PORT, LAST_PORT - wanted[-1])
        try:
            return first, HeldPorts(first + offset for offset in wanted)
        except OSError:
            continue
    raise ClusterError(f"no free ports for a cluster of this size between {FIRST_PORT} and {LAST_PORT}")
