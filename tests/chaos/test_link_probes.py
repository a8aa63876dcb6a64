"""Probes of links tell what a fault adds and not what a busy machine does, and their connections are no sign."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from kraft.seam import Address
from kraft.sim.chaos.clusters.connection_ends import ConnectionEnds
from kraft.sim.chaos.clusters.fault_toxics import added_of
from kraft.sim.chaos.clusters.link_probes import NONE, PROBES, PROBES_PARTLY, LinkProbes, Times
from kraft.sim.chaos.proxies.toxics import Toxic, Way

LINK = (1, 2)
HOST = "127.0.0.1"
ADDED = "added round trip ms 1->2"
SECONDS_MAX = 30.0


class Target:
    """Answers each connection after `delays_ms`, in the order in which they come; then the last one again. `on_asked`
    is called while a connection is open."""

    def __init__(self) -> None:
        self.delays_ms = [0.0]
        self.on_asked: Callable[[], None] = lambda: None
        self._listener = socket.create_server((HOST, 0))
        self._lock = threading.Lock()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.recv(1024)
            with self._lock:
                delay_ms = self.delays_ms.pop(0) if len(self.delays_ms) > 1 else self.delays_ms[0]
                self.on_asked()
            time.sleep(delay_ms / 1000)  # it is what a slow link does
            connection.sendall(struct.pack(">i", 4) + b"1234")
            connection.recv(1024)


@pytest.fixture
def target() -> Iterator[Target]:
    with closing(Target()) as opened:
        yield opened


def added_ms(target: Target, expected: Times, delays_ms: list[float], *, partly: bool) -> float:
    """What is told of the link when its connections have these delays."""
    target.delays_ms = [0.0]
    probes = LinkProbes({LINK: Address(HOST, target.port)})
    try:
        probes.begin()
        target.delays_ms = delays_ms
        probes.look({LINK: expected}, partly=partly)
        probes._pool.shutdown()
        return probes.facts()[ADDED]
    finally:
        probes.close()


LATENCY = Times(200.0, 0.0)


def test_one_probe_of_many_that_is_late_by_less_than_the_fault_adds_shows_nothing(target: Target) -> None:
    assert added_ms(target, Times(10_000.0, 0.0), [60.0, 0.0], partly=True) == 0
    assert added_ms(target, NONE, [60.0, 0.0], partly=True) == 0


def test_one_probe_of_many_that_is_late_by_all_that_the_fault_adds_shows_it(target: Target) -> None:
    assert added_ms(target, LATENCY, [400.0, 0.0], partly=True) >= 180


def test_probes_that_are_all_late_show_a_fault_by_half_of_what_it_adds_or_if_that_is_not_known(target: Target) -> None:
    assert added_ms(target, Times(10_000.0, 0.0), [60.0] * PROBES, partly=False) == 0
    assert added_ms(target, Times(600.0, 0.0), [450.0] * PROBES, partly=False) >= 300
    assert added_ms(target, NONE, [300.0] * PROBES, partly=False) > 0


@pytest.mark.parametrize(
    ("way", "added"),
    [
        (Way(), NONE),
        (Way(latency_ms=50, jitter_ms=20), Times(50.0, 0.0)),
        (Way(toxics=(Toxic("latency", {"latency": 250, "jitter": 50}, 0.5),)), Times(200.0, 0.0)),
        (Way(toxics=(Toxic("slow_close", {"delay": 500}), Toxic("timeout"))), Times(0.0, 500.0)),
    ],
)
def test_what_a_way_adds_is_known_by_its_toxics(way: Way, added: Times) -> None:
    assert added_of(way) == added


def test_connections_of_probes_do_not_count_as_ended(target: Target) -> None:
    probes = LinkProbes({LINK: Address(HOST, target.port)})
    ends = ConnectionEnds({target.port: LINK}, probes.is_own)
    everyone = ConnectionEnds({target.port: LINK})

    def look() -> None:
        ends.look()
        everyone.look()

    target.on_asked = look
    try:
        probes.begin()
        probes.look({LINK: NONE}, partly=True)
        probes._pool.shutdown()
        name = "connections ended 1->2"
        wait_until(lambda: (look(), everyone.facts()[name] >= PROBES_PARTLY)[1])
        assert ends.facts() == {name: 0}
        with socket.create_connection((HOST, target.port)) as other:
            assert not probes.is_own(other.getsockname()[1])
            look()
        wait_until(lambda: (look(), ends.facts()[name] == 1)[1])
    finally:
        probes.close()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
