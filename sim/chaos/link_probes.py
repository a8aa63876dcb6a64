"""LinkProbes: connections of the run's own over links that were just broken, which show that they are.

A probe dials the proxy of a link as its source does, and asks the target for its API versions. The time that takes is
the link's round trip; a probe that is refused, reset or not answered in time counts as unanswered.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from kraft.seam import Address
from kraft.wire.api_keys import ApiKey

Link = tuple[int, int]
ANSWER_SECONDS_MAX = 2.0
THREADS = 8
_LENGTH = struct.Struct(">i")
CLIENT_ID = b"kraft chaos probe"
REQUEST = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, len(CLIENT_ID)) + CLIENT_ID
"""ApiVersions, version 0, with a request header of version 1."""


class LinkProbes:
    """`addresses`: link → where its source dials. Probes go on in threads; `facts` has what is known so far."""

    def __init__(self, addresses: Mapping[Link, Address]) -> None:
        self._addresses = addresses
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="probe")
        self._round_trips_ms: dict[Link, float] = {}
        self._unanswered: Counter[Link] = Counter()
        self._looked: dict[Link, None] = {}

    def begin(self) -> None:
        """Probe every link while all is well, and wait for that."""
        list(self._pool.map(self._probe, self._addresses))

    def look(self, links: Iterable[Link]) -> None:
        """Probe these links, of those that there are, and do not wait."""
        for link in links:
            if link in self._addresses:
                self._looked[link] = None
                self._pool.submit(self._probe, link)

    def facts(self) -> dict[str, float]:
        """Of links that were probed since the begin: "round trip ms SOURCE->TARGET" of the last answered probe, and
        "unanswered probes SOURCE->TARGET"."""
        found: dict[str, float] = {}
        for source, target in [*self._looked]:
            name = f"{source}->{target}"
            found[f"round trip ms {name}"] = self._round_trips_ms.get((source, target), 0.0)
            found[f"unanswered probes {name}"] = float(self._unanswered[source, target])
        return found

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _probe(self, link: Link) -> None:
        begin = time.monotonic()
        try:
            _ask(self._addresses[link])
        except OSError:
            self._unanswered[link] += 1
        else:
            self._round_trips_ms[link] = round((time.monotonic() - begin) * 1000, 1)


def _ask(address: Address) -> None:
    """OSError if there is no whole answer in time."""
    with socket.create_connection((address.host, address.port), ANSWER_SECONDS_MAX) as connection:
        connection.settimeout(ANSWER_SECONDS_MAX)
        connection.sendall(_LENGTH.pack(len(REQUEST)) + REQUEST)
        (size,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
        _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("the connection ended before the answer")
        data += chunk
    return data
