"""LinkProbes: connections of the run's own over links that were just broken, which show that they are.

A probe dials the proxy of a link as its source does, and asks the target for its API versions. The time that takes is
the link's round trip; a probe that is refused, reset or not answered in time counts as unanswered. After the answer it
closes its side, and the time until the target has closed the other one is how long a close takes.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from kraft.seam import Address
from kraft.wire.api_keys import ApiKey

Link = tuple[int, int]
ANSWER_SECONDS_MAX = 2.0
HELD_MS = 400
"""A probe that is answered only after so long was held back on its way."""
THREADS = 8
_LENGTH = struct.Struct(">i")
CLIENT_ID = b"kraft chaos probe"
REQUEST = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, len(CLIENT_ID)) + CLIENT_ID
"""ApiVersions, version 0, with a request header of version 1."""


@dataclass(frozen=True, slots=True)
class Times:
    """What a probe took, in ms: until the answer, and from there until the connection was closed."""

    round_trip_ms: float
    close_ms: float

    def longest(self, other: Times) -> Times:
        """Of two probes."""
        return Times(max(self.round_trip_ms, other.round_trip_ms), max(self.close_ms, other.close_ms))


UNKNOWN = Times(0.0, 0.0)


class LinkProbes:
    """`addresses`: link → where its source dials. Probes go on in threads; `facts` has what is known so far."""

    def __init__(self, addresses: Mapping[Link, Address]) -> None:
        self._addresses = addresses
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="probe")
        self._lock = threading.Lock()
        self._times: dict[Link, tuple[int, Times]] = {}
        """Link → the number of the look that was answered last, and the longest times of its probes."""
        self._unanswered: Counter[Link] = Counter()
        self._held: Counter[Link] = Counter()
        self._looked: dict[Link, None] = {}
        self._looks = 0

    def begin(self) -> None:
        """Probe every link while all is well, and wait for that."""
        list(self._pool.map(lambda link: self._probe(link, 0, True), self._addresses))

    def look(self, links: Iterable[Link], count: int = 1) -> None:
        """Probe these links, of those that there are, so many times, and do not wait."""
        self._submit(links, count, is_counted=True)

    def refresh(self, links: Iterable[Link]) -> None:
        """Probe links that are well again, and do not wait. A probe that is late or not answered shows nothing then."""
        self._submit(links, 1, is_counted=False)

    def _submit(self, links: Iterable[Link], count: int, *, is_counted: bool) -> None:
        self._looks += 1
        for link in links:
            if link in self._addresses:
                self._looked[link] = None
                for _ in range(count):
                    self._pool.submit(self._probe, link, self._looks, is_counted)

    def facts(self) -> dict[str, float]:
        """Of links that were probed since the begin: "round trip ms SOURCE->TARGET" and "close ms SOURCE->TARGET", the
        longest of the last look of which a probe was answered; "unanswered probes SOURCE->TARGET", and "held probes
        SOURCE->TARGET", those that were answered after HELD_MS or later."""
        found: dict[str, float] = {}
        for link in [*self._looked]:
            name = "->".join(map(str, link))
            _, times = self._times.get(link, (0, UNKNOWN))
            found[f"round trip ms {name}"] = times.round_trip_ms
            found[f"close ms {name}"] = times.close_ms
            found[f"unanswered probes {name}"] = float(self._unanswered[link])
            found[f"held probes {name}"] = float(self._held[link])
        return found

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _probe(self, link: Link, look: int, is_counted: bool) -> None:
        try:
            times = _ask(self._addresses[link])
        except OSError:
            with self._lock:
                self._unanswered[link] += is_counted
            return
        with self._lock:
            self._held[link] += is_counted and times.round_trip_ms >= HELD_MS
            last, known = self._times.get(link, (look, UNKNOWN))
            if look >= last:
                self._times[link] = (look, times.longest(known) if look == last else times)


def _ask(address: Address) -> Times:
    """OSError if there is no whole answer in time."""
    begin = time.monotonic()
    with socket.create_connection((address.host, address.port), ANSWER_SECONDS_MAX) as connection:
        connection.settimeout(ANSWER_SECONDS_MAX)
        connection.sendall(_LENGTH.pack(len(REQUEST)) + REQUEST)
        (size,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
        _receive(connection, size)
        answered = time.monotonic()
        _close(connection)
        return Times(_ms(answered - begin), _ms(time.monotonic() - answered))


def _close(connection: socket.socket) -> None:
    """Close this side, and wait for the other one, if that does not take too long. A reset closes it too."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1024):
            continue


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("the connection ended before the answer")
        data += chunk
    return data
