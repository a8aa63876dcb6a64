"""LinkProbes: connections of the run's own over links that were just broken, which show that they are.

A probe dials the proxy of a link as its source does, and asks the target for its API versions. The time that takes is
the link's round trip; a probe that is refused, reset or not answered in time counts as unanswered. After the answer it
closes its side, and the time until the target has closed the other one is how long a close takes.
"""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from kraft.seam import Address
from kraft.wire.api_keys import ApiKey

Link = tuple[int, int]
ANSWER_SECONDS_MAX = 2.0
HELD_MS = 400
"""A probe that is answered only after so long was held back on its way."""
PROBES, PROBES_PARTLY = 3, 8
"""So many probes are sent over a link; over one on which only some connections are hit."""
ENOUGH_SECONDS = 0.5
THREADS = 8
OWN_SECONDS = 5.0
"""So long after its end the other end of a probe's connection may still be there."""
TOLERANCE = 0.1
"""A timer may be so much early."""
_LENGTH = struct.Struct(">i")
CLIENT_ID = b"kraft chaos probe"
REQUEST = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, len(CLIENT_ID)) + CLIENT_ID
"""ApiVersions, version 0, with a request header of version 1."""


@dataclass(frozen=True, slots=True)
class Times:
    """What a probe took, in ms: until the answer, and from there until the connection was closed."""

    round_trip_ms: float
    close_ms: float

    def combine(self, choose: Callable[[float, float], float], other: Times) -> Times:
        """One of two probes, for each time."""
        return Times(choose(self.round_trip_ms, other.round_trip_ms), choose(self.close_ms, other.close_ms))


NONE = Times(0.0, 0.0)


class LinkProbes:
    """`addresses`: link → where its source dials. Probes go on in threads; `facts` has what is known so far.

    A busy machine makes a probe late, so several are sent one after the other, and the shortest times count, if they
    are longer by half of what the fault is to add at least. Where only some connections are hit (`partly`), many are
    sent at once, and the longest times count: the machine alone makes one of them late, so they must be longer by all
    that the fault adds, and where that is not known nothing is told of them.
    """

    def __init__(self, addresses: Mapping[Link, Address]) -> None:
        self._addresses = addresses
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="probe")
        self._lock = threading.Lock()
        self._well: dict[Link, Times] = {}
        """What a probe of each link took while all was well."""
        self._times: dict[Link, tuple[int, Times]] = {}
        """Link → the number of the look that was answered last, and its times."""
        self._unanswered: Counter[Link] = Counter()
        self._held: Counter[Link] = Counter()
        self._looked: dict[Link, None] = {}
        self._looks = 0
        self._least: dict[Link, Times] = {}
        """Link that was looked at → what its times must be longer by to be told."""
        self._own_ports: dict[int, float] = {}
        """Local port of a probe → until when it counts as ours, on the monotonic clock."""

    def begin(self) -> None:
        """Probe every link while all is well, and wait for that."""
        list(self._pool.map(lambda link: self._probe(link, 0, PROBES, is_counted=False), self._addresses))
        self._well = {link: times for link, (_, times) in self._times.items()}

    def is_own(self, port: int) -> bool:
        """Whether a connection from this local port is a probe's, or was a moment ago. From any thread."""
        return self._own_ports.get(port, 0.0) > time.monotonic()

    def look(self, links: Mapping[Link, Times], *, partly: bool = False) -> None:
        """Probe these links, of those that there are, and do not wait. With each link comes what its fault adds to the
        times, as far as that is known: else 0."""
        self._least |= {link: _least_of(added, partly) for link, added in links.items()}
        self._submit(links, *([1] * PROBES_PARTLY if partly else [PROBES]), is_counted=True)

    def refresh(self, links: Iterable[Link]) -> None:
        """Probe links that are well again, and do not wait. A probe that is late or not answered shows nothing then."""
        self._submit(links, PROBES, is_counted=False)

    def _submit(self, links: Iterable[Link], *counts: int, is_counted: bool) -> None:
        self._looks += 1
        for link in links:
            if link in self._addresses:
                self._looked[link] = None
                for count in counts:
                    self._pool.submit(self._probe, link, self._looks, count, is_counted=is_counted)

    def facts(self) -> dict[str, float]:
        """Of links SOURCE->TARGET that were probed since the begin: "added round trip ms" and "added close ms", by how
        much longer these took in the last look that was answered than at the begin (0 if that is less than the fault
        must add: see the class); "unanswered probes", and "held probes", those that were answered after HELD_MS or
        later."""
        found: dict[str, float] = {}
        for link in [*self._looked]:
            name = "->".join(map(str, link))
            well = self._well.get(link, NONE)
            _, times = self._times.get(link, (0, well))
            least = self._least.get(link, NONE)
            added = times.combine(lambda now, was: round(max(0.0, now - was), 1), well)
            told = added.combine(lambda longer, enough: longer if longer >= enough else 0.0, least)
            found[f"added round trip ms {name}"] = told.round_trip_ms
            found[f"added close ms {name}"] = told.close_ms
            found[f"unanswered probes {name}"] = float(self._unanswered[link])
            found[f"held probes {name}"] = float(self._held[link])
        return found

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _probe(self, link: Link, look: int, count: int, *, is_counted: bool) -> None:
        """Send up to `count` probes one after the other, and keep the shortest times: none after one that fails, or
        after ENOUGH_SECONDS."""
        shortest: Times | None = None
        until = time.monotonic() + ENOUGH_SECONDS
        for number in range(count):
            if number and time.monotonic() > until:
                break
            try:
                times = self._ask(link)
            except OSError:
                with self._lock:
                    self._unanswered[link] += is_counted
                break
            with self._lock:
                self._held[link] += is_counted and times.round_trip_ms >= HELD_MS
            shortest = times if shortest is None else shortest.combine(min, times)
        if shortest is not None:
            self._keep(link, look, shortest)

    def _ask(self, link: Link) -> Times:
        """One probe, whose port counts as ours until OWN_SECONDS behind its end. OSError."""
        ports: list[int] = []

        def own(port: int) -> None:
            ports.append(port)
            self._own_ports[port] = math.inf

        try:
            return _ask(self._addresses[link], own)
        finally:
            for port in ports:
                self._own_ports[port] = time.monotonic() + OWN_SECONDS

    def _keep(self, link: Link, look: int, times: Times) -> None:
        with self._lock:
            last, known = self._times.get(link, (look, NONE))
            if look >= last:
                self._times[link] = (look, times.combine(max, known) if look == last else times)


def _least_of(added: Times, partly: bool) -> Times:
    """What times must be longer by at least if a fault adds so much, 0 where that is not known."""
    if partly:
        return Times(*(each * (1 - TOLERANCE) if each else math.inf for each in (added.round_trip_ms, added.close_ms)))
    return Times(added.round_trip_ms / 2, added.close_ms / 2)


def _ask(
    address: Address,
    told_port: Callable[[int], None] = lambda port: None,
    *,
    timeout_s: float = ANSWER_SECONDS_MAX,
) -> Times:
    """`told_port` is called with the local port before there is a connection. OSError if there is no whole answer in
    time."""
    begin = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.bind(("", 0))
        told_port(connection.getsockname()[1])
        connection.connect((address.host, address.port))
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
