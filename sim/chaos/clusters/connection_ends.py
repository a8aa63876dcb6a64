"""ConnectionEnds: how many connections over each proxied link have ended so far, by the kernel's own table.

Those that the run itself makes to look at a link come and go without a fault: they do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

Link = tuple[int, int]
_ESTABLISHED = "01"
_TCP_TABLE = Path("/proc/net/tcp")


class ConnectionEnds:
    """`ports`: port of a proxy → its link. `is_ignored`: whether connections from this local port do not count. A
    connection that comes and goes between two looks is not seen."""

    def __init__(self, ports: Mapping[int, Link], is_ignored: Callable[[int], bool] = lambda port: False) -> None:
        self._ports = ports
        self._is_ignored = is_ignored
        self._seen: set[tuple[int, str]] = set()
        """Port of a proxy and the other end of a connection to it."""
        self._ended: Counter[Link] = Counter()

    def look(self) -> None:
        """Compare with the last look."""
        now = set(self._established())
        self._ended.update(self._ports[port] for port, _ in self._seen - now)
        self._seen = now

    def facts(self) -> dict[str, float]:
        """ "connections ended SOURCE->TARGET": how many so far, 0 too."""
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
    """Of an end of a connection in the kernel's table."""
    return int(end.rpartition(":")[2], 16)
