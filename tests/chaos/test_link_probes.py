"""Tests of probes of links: they report the delay that a fault adds, not the delay of a busy machine, and their own
connections are not counted as ended.
"""

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
from kraft.sim.chaos.clusters.link_probes import NONE, PROBES, PROBES_PARTLY, LinkProbes, ProbeTimes
from kraft.sim.chaos.proxies.toxics import ByteConditions, Toxic

LINK = (1, 2)
HOST = "127.0.0.1"
ADDED = "added round trip ms 1->2"
SECONDS_MAX = 30.0


class DelayedServer:
    """A server that delays its response on connection number N by `delays_ms[N]`, and on later connections by the last
    delay. `on_asked` is called while a connection is open."""

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
            time.sleep(delay_ms / 1000)  # as on a slow link
            connection.sendall(struct.pack(">i", 4) + b"1234")
            connection.recv(1024)


@pytest.fixture
def target() -> Iterator[DelayedServer]:
    with closing(DelayedServer()) as opened:
        yield opened


def added_ms(target: DelayedServer, expected: ProbeTimes, delays_ms: list[float], *, partly: bool) -> float:
    """Return the reported increase of the round trip time of a link on which connections have these delays."""
    target.delays_ms = [0.0]
    probes = LinkProbes({LINK: Address(HOST, target.port)})
    try:
        probes.begin()
        target.delays_ms = delays_ms
        probes.probe({LINK: expected}, partly=partly)
        probes._pool.shutdown()
        return probes.facts()[ADDED]
    finally:
        probes.close()


LATENCY = ProbeTimes(200.0, 0.0)


def test_a_delay_of_one_of_many_link_probes_below_the_faults_delay_is_not_reported(target: DelayedServer) -> None:
    assert added_ms(target, ProbeTimes(10_000.0, 0.0), [60.0, 0.0], partly=True) == 0
    assert added_ms(target, NONE, [60.0, 0.0], partly=True) == 0


def test_a_delay_of_one_of_many_link_probes_by_the_faults_whole_delay_is_reported(target: DelayedServer) -> None:
    assert added_ms(target, LATENCY, [400.0, 0.0], partly=True) >= 180


def test_a_delay_of_all_link_probes_by_half_the_faults_delay_is_reported(
    target: DelayedServer,
) -> None:
    assert added_ms(target, ProbeTimes(10_000.0, 0.0), [60.0] * PROBES, partly=False) == 0
    assert added_ms(target, ProbeTimes(600.0, 0.0), [450.0] * PROBES, partly=False) >= 300
    assert added_ms(target, NONE, [300.0] * PROBES, partly=False) > 0


@pytest.mark.parametrize(
    ("way", "added"),
    [
        (ByteConditions(), NONE),
        (ByteConditions(latency_ms=50, jitter_ms=20), ProbeTimes(50.0, 0.0)),
        (ByteConditions(toxics=(Toxic("latency", {"latency": 250, "jitter": 50}, 0.5),)), ProbeTimes(200.0, 0.0)),
        (ByteConditions(toxics=(Toxic("slow_close", {"delay": 500}), Toxic("timeout"))), ProbeTimes(0.0, 500.0)),
    ],
)
def test_the_delay_that_a_direction_adds_to_probes_is_computed_from_its_toxics(
    way: ByteConditions, added: ProbeTimes
) -> None:
    assert added_of(way) == added


def test_connections_of_link_probes_do_not_count_as_ended(target: DelayedServer) -> None:
    probes = LinkProbes({LINK: Address(HOST, target.port)})
    ends = ConnectionEnds({target.port: LINK}, probes.is_own)
    everyone = ConnectionEnds({target.port: LINK})

    def update_both() -> None:
        ends.update()
        everyone.update()

    target.on_asked = update_both
    try:
        probes.begin()
        probes.probe({LINK: NONE}, partly=True)
        probes._pool.shutdown()
        name = "connections ended 1->2"
        wait_until(lambda: (update_both(), everyone.facts()[name] >= PROBES_PARTLY)[1])
        assert ends.facts() == {name: 0}
        with socket.create_connection((HOST, target.port)) as other:
            assert not probes.is_own(other.getsockname()[1])
            update_both()
        wait_until(lambda: (update_both(), ends.facts()[name] == 1)[1])
    finally:
        probes.close()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
