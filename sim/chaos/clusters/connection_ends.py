"""ConnectionEnds: how many connections over each proxied link have ended so far, from the kernel's TCP table.

Connections of the run's own probes open and close without a fault, so they do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

Link = tuple[int, int]
_ESTABLISHED = "01"
_TCP_TABLE = Path("/proc/net/tcp")


class ConnectionEnds:
    """Counts ended connections. `ports`: port of a proxy → its link. `is_ignored`: whether connections from this local
    port do not count. A connection that opens and closes between two updates is not seen."""

    def __init__(self, ports: Mapping[int, Link], is_ignored: Callable[[int], bool] = lambda port: False) -> None:
        self._ports = ports
        self._is_ignored = is_ignored
        self._seen: set[tuple[int, str]] = set()
        """Port of a proxy, and the remote address of a connection to it."""
        self._ended: Counter[Link] = Counter()

    def update(self) -> None:
        """Read the table, and count the connections that have disappeared since the last call."""
        now = set(self._established())
        self._ended.update(self._ports[port] for port, _ in self._seen - now)
        self._seen = now

    def facts(self) -> dict[str, float]:
        """Return "connections ended SOURCE->TARGET": the count so far of each link, including 0."""
        return {
            f"connections ended {source}->{target}": float(self._ended[source, target])
            for source, target in self._ports.values()
        }

    def _established(self) -> list[tuple[int, str]]:
        rows = (line.split() for line in _TCP_TABLE.read_text().splitlines()[1:])
        found = ((_port_of(row[1]), row[2]) for row in rows if row[3] == _ESTABLISHED)
        return [
            (port, remote) for port, remote in found if port in self._ports and not self._is_ignored(_port_of(remote))
        ]


def _port_of(end: str) -> int:
    """Return the port of an address in the kernel's table."""
    return int(end.rpartition(":")[2], 16)
