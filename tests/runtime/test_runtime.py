"""Behaviour of the real seam only: descriptors, threads, the page cache, idle connections."""

from __future__ import annotations

import gc
import os
import resource
import select
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from kraft.runtime import RuntimeSettings, open_seam
from kraft.runtime import driver as driver_module
from kraft.runtime.driver import Driver
from kraft.seam import Address, Binding, CloseReason, DialFailed, DialOutcome, FileRange, Peer, Seam, Transport
from tests.seam.test_network import pattern
from tests.stages.recorder import Recorder, echo

LISTENER = "PLAINTEXT"


class Node:
    """A seam with one listener, whose connections are of the given class."""

    def __init__(self, seam: Seam, kind: type[Recorder] = Recorder) -> None:
        self.seam = seam
        self._kind = kind
        self.accepted: list[Recorder] = []
        self.bound = seam.network.serve(Binding(LISTENER, Address("127.0.0.1", 0)), self._make)

    def _make(self, transport: Transport) -> Recorder:
        connection = self._kind(transport)
        connection.on_heard = echo
        self.accepted.append(connection)
        return connection

    async def dial(self, kind: type[Recorder] = Recorder) -> Recorder:
        peer = Peer(None, LISTENER, self.bound.address)
        near = await self.seam.network.dial(peer, kind, timeout_ms=10_000)
        near.say(b"?")
        await near.wait_heard(1)
        return near


class InFlight(Recorder):
    """A connection with an unanswered request, so it is not idle."""

    in_flight = 1


def run(
    body: Callable[[Node], Awaitable[None]],
    settings: RuntimeSettings | None = None,
    kind: type[Recorder] = Recorder,
) -> None:
    async def main() -> None:
        async with open_seam(node_name="node", settings=settings) as seam:
            await body(Node(seam, kind))

    trio.run(main)


def test_an_idle_connection_is_closed_and_one_with_requests_in_flight_is_not() -> None:
    async def body(node: Node) -> None:
        idle, busy = await node.dial(InFlight), await node.dial(InFlight)
        idle.in_flight = node.accepted[0].in_flight = 0  # type: ignore[attr-defined]
        assert await node.accepted[0].wait_closed() in (CloseReason.IDLE, CloseReason.PEER)
        assert await idle.wait_closed() in (CloseReason.IDLE, CloseReason.PEER)
        assert not busy.reasons
        busy.say(b"!")
        assert await busy.wait_heard(2) == b"?!"

    run(body, RuntimeSettings(connections_idle_ms=60), InFlight)


def test_a_listener_backs_off_when_descriptors_run_out_and_then_accepts() -> None:
    async def body(node: Node) -> None:
        waiting = socket.socket()
        waiting.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        gc.collect()
        gc.disable()  # otherwise objects of earlier tests would release descriptors meanwhile
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            with pytest.raises(BlockingIOError):
                waiting.connect((node.bound.address.host, node.bound.address.port))
            await node.seam.clock.sleep_ms(30)
            assert not node.accepted
            passes = node.seam.network.stats.passes
            await node.seam.clock.sleep_ms(20)
            assert node.seam.network.stats.passes - passes < 5  # it backs off, without busy waiting
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            gc.enable()
        while not node.accepted:
            await node.seam.clock.sleep_ms(5)
        waiting.close()

    run(body)


def drop_from_page_cache(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def test_a_file_range_outside_the_page_cache_is_read_by_the_thread_pool(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        data = pattern(6_000_000)
        disk = node.seam.disk
        paths = [tmp_path / "probe", tmp_path / "segment"]
        probe, file = (disk.create(str(path)) for path in paths)
        for target in (probe, file):
            target.append(data)
        near = await node.dial()
        for path in paths:
            drop_from_page_cache(path)
        pages_can_leave = probe.read_cached(0, 1) is None  # not true where files are in memory
        for position, count in ((0, 5_000_000), (5_500_000, 1_000)):
            drop_from_page_cache(paths[1])
            heard = len(near.heard)
            node.accepted[0].say(b"head", FileRange(file, position, count), b"tail")
            expected = b"head" + data[position : position + count] + b"tail"
            assert (await near.wait_heard(heard + len(expected)))[heard:] == expected
            # The small range may already have arrived: a probe that would have to wait starts a read-ahead.
            assert node.seam.network.stats.cold_reads > 0 or not pages_can_leave

    run(body)


def test_passes_that_block_the_loop_for_long_are_counted() -> None:
    async def body(node: Node) -> None:
        def dawdle(connection: Recorder) -> None:
            deadline = time.monotonic() + 0.03
            while time.monotonic() < deadline:
                pass
            echo(connection)

        near = await node.dial()
        before = node.seam.network.stats.long_steps
        node.accepted[0].on_heard = dawdle
        near.say(b"!")
        await near.wait_heard(2)
        assert node.seam.network.stats.long_steps > before
        assert node.seam.network.stats.longest_step_ns >= 30_000_000

    run(body)


def test_leaving_the_seam_context_ends_every_connection_with_the_reason_shutdown() -> None:
    ends: list[Recorder] = []

    async def body(node: Node) -> None:
        ends.append(await node.dial())
        ends.extend(node.accepted)

    run(body)
    assert [end.reasons for end in ends] == [[CloseReason.SHUTDOWN], [CloseReason.SHUTDOWN]]


def test_connection_that_the_peer_resets_ends_with_the_reason_reset() -> None:
    async def body(node: Node) -> None:
        stream = socket.create_connection((node.bound.address.host, node.bound.address.port))
        while not node.accepted:
            await node.seam.clock.sleep_ms(1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        stream.close()
        assert await node.accepted[0].wait_closed() is CloseReason.RESET

    run(body)


def test_a_reset_is_seen_by_a_connection_that_does_not_read() -> None:
    async def body(node: Node) -> None:
        near = await node.dial()
        far = node.accepted[0]
        far.muted = True
        near.say(b"unread")
        await node.seam.clock.sleep_ms(10)
        near.transport._socket.setsockopt(  # type: ignore[attr-defined]
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0"
        )
        near.transport.close()
        assert await far.wait_closed() is CloseReason.RESET

    run(body)


def test_a_dialled_host_name_is_resolved_and_an_unknown_one_is_unreachable() -> None:
    async def body(node: Node) -> None:
        for name in ("localhost", socket.gethostbyaddr("127.0.0.1")[0]):
            peer = Peer(None, LISTENER, Address(name, node.bound.address.port))
            await node.seam.network.dial(peer, Recorder, timeout_ms=10_000)
        nowhere = Peer(None, LISTENER, Address("no.such.host.invalid", 9092))
        with pytest.raises(DialFailed) as failure:
            await node.seam.network.dial(nowhere, Recorder, timeout_ms=30_000)
        assert failure.value.outcome is DialOutcome.UNREACHABLE

    run(body)


@pytest.mark.parametrize(
    ("host", "port"), [("a" * 70, 9092), ("a..b", 9092), ("a\0b", 9092), ("", 9092), ("127.0.0.1", 70_000), ("::1", -1)]
)
def test_an_invalid_dialled_address_is_unreachable(host: str, port: int) -> None:
    async def body(node: Node) -> None:
        with pytest.raises(DialFailed) as failure:
            await node.seam.network.dial(Peer(None, LISTENER, Address(host, port)), Recorder, timeout_ms=10_000)
        assert failure.value.outcome is DialOutcome.UNREACHABLE

    run(body)


def test_a_dial_of_several_addresses_is_refused_if_all_reachable_ones_refuse() -> None:
    async def body(node: Node) -> None:
        node.bound.close()
        peer = Peer(None, LISTENER, Address("localhost", node.bound.address.port))
        with pytest.raises(DialFailed) as failure:
            await node.seam.network.dial(peer, Recorder, timeout_ms=10_000)
        assert failure.value.outcome is DialOutcome.REFUSED

    run(body)


def test_an_exception_in_the_body_of_the_seam_context_is_raised_unchanged() -> None:
    async def body(node: Node) -> None:
        raise KeyError("orders")

    with pytest.raises(KeyError, match="orders"):
        run(body)


def test_closed_connections_leave_no_open_descriptors(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        near = await node.dial()
        file = node.seam.disk.create(str(tmp_path / "segment"))
        file.append(bytes(100_000))
        node.accepted[0].say(FileRange(file, 0, 100_000))
        file.close()
        del file
        await near.wait_heard(100_001)

    run(body)
    before = set(os.listdir("/proc/self/fd"))
    run(body)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_an_ended_connection_is_freed_without_garbage_collection() -> None:
    async def body(node: Node) -> None:
        near = await node.dial()
        near.transport.close()
        await node.accepted[0].wait_closed()
        ended = [weakref.ref(near), weakref.ref(node.accepted.pop())]
        del near
        assert not any(one() for one in ended)

    gc.disable()
    try:
        run(body)
    finally:
        gc.enable()


def test_importing_the_runtime_opens_nothing_and_starts_nothing() -> None:
    script = (
        "import os, threading; before = sorted(os.listdir('/proc/self/fd'));"
        "from kraft.runtime import open_seam;"
        "assert sorted(os.listdir('/proc/self/fd')) == before;"
        "assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


class Busy:
    """A descriptor in the driver's epoll that is always ready; each call to it takes longer than a pass should."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self._heard = heard

    def on_ready(self, mask: int) -> None:
        self._heard.append(self.name)

    def release(self) -> None:
        """Do nothing: the test owns the descriptor."""


class Slow(Busy):
    """A descriptor whose calls take this long by the driver's clock."""

    def __init__(self, name: str, heard: list[str], clock: MovedClock, work_ns: int) -> None:
        super().__init__(name, heard)
        self._clock = clock
        self.work_ns = work_ns

    def on_ready(self, mask: int) -> None:
        super().on_ready(mask)
        self._clock.now_ns += self.work_ns


class MovedClock:
    """Stands in for the module `time` in the driver."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_slow_descriptors_are_handled_after_the_others_one_per_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    clock = MovedClock()
    driver = Driver("node", cold_limiter=trio.CapacityLimiter(1), sweep_interval_ms=1000)
    monkeypatch.setattr(driver_module, "time", clock)
    work_ns = {"x": 2 * driver_module.PASS_NS_MAX, "y": 2 * driver_module.PASS_NS_MAX, "a": 0, "b": 0}
    pipes = {name: os.pipe() for name in work_ns}
    targets = {name: Slow(name, heard, clock, work_ns[name]) for name in work_ns}
    for name, (read, _) in pipes.items():
        driver.add(read, targets[name], select.EPOLLIN)
        driver.channels[read] = targets[name]  # type: ignore[assignment]
    ready = {name: (read, select.EPOLLIN) for name, (read, _) in pipes.items()}
    for name in "xy":
        driver.run_pass([ready[name]])
    heard.clear()
    for _ in range(4):
        driver.run_pass(list(ready.values()))
    assert heard == list("abxabyabxaby")
    heard.clear()
    assert driver.has_work, "one of the two is left"
    driver.run_pass([])
    assert heard == ["x"], "though nobody tells again that it is ready"
    targets["x"].work_ns = 0
    driver.run_pass([ready["x"]])
    driver.run_pass([ready["x"], ready["a"]])
    assert heard[2:] == ["x", "a"], "it is not slow any more"
    driver.run_pass([ready["y"], ready["x"]])
    driver.run_pass([ready["y"]])
    driver.remove(ready["y"][0])
    heard.clear()
    driver.run_pass([ready["a"]])
    assert heard == ["a"], "what is gone is not late"
    monkeypatch.undo()
    driver.close()
    for pipe in pipes.values():
        for end in pipe:
            os.close(end)


def test_descriptors_that_a_long_pass_did_not_handle_are_handled_in_order_in_the_next_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[str] = []
    ends: list[int] = []
    driver = Driver("node", cold_limiter=trio.CapacityLimiter(1), sweep_interval_ms=1000)
    driver.at_end_of_pass(lambda: ends.append(len(heard)))
    pipes = {name: os.pipe() for name in "abcd"}
    for name, (read, _) in pipes.items():
        driver.add(read, Busy(name, heard), select.EPOLLIN)
    ready = [(read, select.EPOLLIN) for read, _ in pipes.values()]
    driver.run_pass(list(ready))
    assert heard == list("abcd"), "there was time for all"
    monkeypatch.setattr(driver_module, "PASS_NS_MAX", -1)
    heard.clear()
    for _ in range(8):
        driver.run_pass(list(ready))
    assert heard == list("abcdabcd"), "each has its turn, though all are ready in each pass"
    assert ends == [4, *range(1, 9)], "what waits for the end of a pass waits for one turn"
    driver.run_pass(ready[:1])
    driver.run_pass(ready[1:])
    assert heard[8:] == ["a", "b"], "and who is not ready any more keeps nobody back"
    driver.close()
    for pipe in pipes.values():
        for end in pipe:
            os.close(end)
