"""LinkProbes: connections of the run itself over links that were just given a fault, which measure its effect.

A probe dials the proxy of a link as its source does, and sends the target an ApiVersions request. The time until the
response is the link's round trip. A probe that is refused, reset or not answered in time counts as unanswered. After
the response the probe closes its side; the time until the target has closed the other side is the close time.
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
"""Time in ms from which on an answered probe counts as held back."""
PROBES, PROBES_PARTLY = 3, 8
"""Probes per link: the normal number, and the number where only some connections are affected."""
ENOUGH_SECONDS = 0.5
THREADS = 8
OWN_SECONDS = 5.0
"""Seconds after a probe's end during which the remote end of its connection may still exist."""
TOLERANCE = 0.1
"""Fraction of a delay by which a timer may fire early."""
_LENGTH = struct.Struct(">i")
CLIENT_ID = b"kraft chaos probe"
REQUEST = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, len(CLIENT_ID)) + CLIENT_ID
"""An ApiVersions request, version 0, with a request header of version 1."""


@dataclass(frozen=True, slots=True)
class ProbeTimes:
    """Measured times of a probe, in ms: until the response, and from there until the connection was closed."""

    round_trip_ms: float
    close_ms: float

    def combine(self, choose: Callable[[float, float], float], other: ProbeTimes) -> ProbeTimes:
        """Combine the times of two probes: `choose` (min or max) is applied to the two round trips and to the two close
        times."""
        return ProbeTimes(choose(self.round_trip_ms, other.round_trip_ms), choose(self.close_ms, other.close_ms))


NONE = ProbeTimes(0.0, 0.0)


class LinkProbes:
    """Probes links. `addresses`: link → the address that its source dials. Probes run in threads; `facts` returns the
    results so far.

    A busy machine delays probes. So several probes are sent one after the other, and the shortest times are used. They
    count as increased if they are longer by at least half of what the fault adds. Where a fault affects only some
    connections (`partly`), many probes are sent at once and the longest times are used. Because a busy machine may
    delay a single probe, these times must be longer by everything that the fault adds. Where that amount is unknown,
    nothing is reported."""

    def __init__(self, addresses: Mapping[Link, Address]) -> None:
        self._addresses = addresses
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="probe")
        self._lock = threading.Lock()
        self._well: dict[Link, ProbeTimes] = {}
        """Link → times of a probe before the first fault."""
        self._times: dict[Link, tuple[int, ProbeTimes]] = {}
        """Link → number and times of the last round of probes that was answered."""
        self._unanswered: Counter[Link] = Counter()
        self._held: Counter[Link] = Counter()
        self._probed: dict[Link, None] = {}
        self._rounds = 0
        self._least_increase: dict[Link, ProbeTimes] = {}
        """Probed link → minimum increase of each time that is reported."""
        self._own_ports: dict[int, float] = {}
        """Local port of a probe → time on the monotonic clock until which a connection from this port counts as the
        probe's."""

    def begin(self) -> None:
        """Probe every link before the first fault, and wait for the results."""
        list(self._pool.map(lambda link: self._probe(link, 0, PROBES, is_counted=False), self._addresses))
        self._well = {link: times for link, (_, times) in self._times.items()}

    def is_own(self, port: int) -> bool:
        """Return whether a connection from this local port is a probe's, or recently was. May be called from any
        thread."""
        return self._own_ports.get(port, 0.0) > time.monotonic()

    def probe(self, links: Mapping[Link, ProbeTimes], *, partly: bool = False) -> None:
        """Start probes of the given links that exist, without waiting. `links`: link → how much its fault adds to the
        times, 0 where unknown."""
        self._least_increase |= {link: _least_increase_of(added, partly) for link, added in links.items()}
        self._submit(links, *([1] * PROBES_PARTLY if partly else [PROBES]), is_counted=True)

    def refresh(self, links: Iterable[Link]) -> None:
        """Start probes of links that are healed, without waiting. Late or unanswered probes are not counted
        for them."""
        self._submit(links, PROBES, is_counted=False)

    def _submit(self, links: Iterable[Link], *counts: int, is_counted: bool) -> None:
        self._rounds += 1
        for link in links:
            if link in self._addresses:
                self._probed[link] = None
                for count in counts:
                    self._pool.submit(self._probe, link, self._rounds, count, is_counted=is_counted)

    def facts(self) -> dict[str, float]:
        """Return measurements of every link SOURCE->TARGET that was probed since `begin`. "added round trip ms" and
        "added close ms" are the increases of the last answered round over the probe before the first fault. They are 0
        if the increase is less than the fault must add (see the class). "unanswered probes" counts failures, and "held
        probes" counts probes that were answered after HELD_MS or later."""
        found: dict[str, float] = {}
        for link in [*self._probed]:
            name = "->".join(map(str, link))
            well = self._well.get(link, NONE)
            _, times = self._times.get(link, (0, well))
            least = self._least_increase.get(link, NONE)
            added = times.combine(lambda now, was: round(max(0.0, now - was), 1), well)
            reported = added.combine(lambda longer, enough: longer if longer >= enough else 0.0, least)
            found[f"added round trip ms {name}"] = reported.round_trip_ms
            found[f"added close ms {name}"] = reported.close_ms
            found[f"unanswered probes {name}"] = float(self._unanswered[link])
            found[f"held probes {name}"] = float(self._held[link])
        return found

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _probe(self, link: Link, round_number: int, count: int, *, is_counted: bool) -> None:
        """Send up to `count` probes one after the other, and keep the shortest times. Stops after a failed probe, or
        after ENOUGH_SECONDS."""
        shortest: ProbeTimes | None = None
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
            self._keep(link, round_number, shortest)

    def _ask(self, link: Link) -> ProbeTimes:
        """Send one probe. Its port counts as a probe's until OWN_SECONDS after its end. Raises OSError."""
        ports: list[int] = []

        def own(port: int) -> None:
            ports.append(port)
            self._own_ports[port] = math.inf

        try:
            return _ask(self._addresses[link], own)
        finally:
            for port in ports:
                self._own_ports[port] = time.monotonic() + OWN_SECONDS

    def _keep(self, link: Link, round_number: int, times: ProbeTimes) -> None:
        with self._lock:
            last, known = self._times.get(link, (round_number, NONE))
            if round_number >= last:
                self._times[link] = (round_number, times.combine(max, known) if round_number == last else times)


def _least_increase_of(added: ProbeTimes, partly: bool) -> ProbeTimes:
    """Return the minimum increase of times that proves a fault which adds `added`; 0 where that is unknown."""
    if partly:
        return ProbeTimes(
            *(each * (1 - TOLERANCE) if each else math.inf for each in (added.round_trip_ms, added.close_ms))
        )
    return ProbeTimes(added.round_trip_ms / 2, added.close_ms / 2)


def _ask(
    address: Address,
    on_port: Callable[[int], None] = lambda port: None,
    *,
    timeout_s: float = ANSWER_SECONDS_MAX,
) -> ProbeTimes:
    """Send one probe and measure it. `on_port` is called with the local port before the connection is opened. OSError
    if there is no complete response in time."""
    begin = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.bind(("", 0))
        on_port(connection.getsockname()[1])
        connection.connect((address.host, address.port))
        connection.sendall(_LENGTH.pack(len(REQUEST)) + REQUEST)
        (size,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
        _receive(connection, size)
        answered = time.monotonic()
        _close(connection)
        return ProbeTimes(_ms(answered - begin), _ms(time.monotonic() - answered))


def _close(connection: socket.socket) -> None:
    """Close our side of the connection, and wait a limited time until the peer has closed its side. A reset counts as a
    close."""
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
