"""The limits of the machine itself, measured with bare loops instead of a broker: the minimum cost of receiving,
checking, appending and sending.

A virtual machine may get its memory from its host at the first touch of each page, and return freed pages after a few
seconds. Writing to fresh pages then costs ten times more than writing to recently used pages (measured: 500 and 4,900
MB/s), and every bulk figure depends more on the host than on the broker. The speed of the whole machine also varies
from one minute to the next. So `beside` measures the bare loop right before and right after the broker, for the same
number of bytes, and memory is touched before each of the three measurements.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crc32c import crc32c

from kraft.sim.chaos.hosts.leash import end_with_parent

PIECE_BYTES = 1 << 20
FILE_PIECES = 64
CRC_SKIPS_BYTES = 21
FOLLOWERS = 2


@dataclass(frozen=True, slots=True)
class Bulk:
    """Throughput in MB (10^6 bytes of values) a second, and CPU seconds per GB of the processes that do a broker's
    work."""

    megabytes_per_second: float
    cpu_seconds_per_gigabyte: float


def beside(
    loop: Callable[[int], Bulk], megabytes: int, measure: Callable[[], Bulk], *, copies: int = 1
) -> tuple[Bulk, Bulk]:
    """Run `measure` between two runs of the bare loop with the same number of MB. Return the figures of `measure`, and
    the mean figures of the two runs. `copies` is how many times the bytes are stored."""

    def touched(work: Callable[[], Bulk]) -> Bulk:
        touch_memory(11 * megabytes * copies // 10)
        return work()

    first, measured, last = touched(lambda: loop(megabytes)), touched(measure), touched(lambda: loop(megabytes))
    return measured, Bulk(
        (first.megabytes_per_second + last.megabytes_per_second) / 2,
        (first.cpu_seconds_per_gigabyte + last.cpu_seconds_per_gigabyte) / 2,
    )


def touch_memory(megabytes: int) -> None:
    """Make the host provide this much memory: fill it with pages of a file, and free them."""
    piece = bytes(PIECE_BYTES)
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(megabytes):
            file.write(piece)


def receive_check_append(megabytes: int) -> Bulk:
    """Receive pieces of 1 MiB from a loopback peer, compute the CRC-32C of each, and append each to a file with one
    write."""
    with tempfile.TemporaryFile(buffering=0) as file, _peer(lambda peer: _send(peer, megabytes)) as stream:
        return _timed(megabytes, lambda: _append_all(stream, file.fileno()))


def sendfile(megabytes: int) -> Bulk:
    """Send from the page cache with sendfile to a loopback peer that reads everything."""
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(FILE_PIECES):
            file.write(os.urandom(PIECE_BYTES))
        with _peer(_drain) as stream:
            return _timed(megabytes, lambda: _send_file(stream, file.fileno(), megabytes))


def replicate(megabytes: int) -> Bulk:
    """Receive, check and append as in `receive_check_append`, then send each piece with sendfile to two processes that
    check and append it too. The CPU time is that of all three processes."""
    cpu_before = _children_cpu_s()
    with tempfile.TemporaryFile(buffering=0) as file, _peer(lambda peer: _send(peer, megabytes)) as stream:
        followers = [_forked(_follow) for _ in range(FOLLOWERS)]

        def work() -> None:
            position = 0
            for piece in _pieces(stream):
                _check_and_append(piece, file.fileno())
                for _, follower in followers:
                    _send_range(follower, file.fileno(), position, len(piece))
                position += len(piece)
            for pid, follower in followers:
                # closing is not enough, because the next follower process has inherited this socket
                follower.shutdown(socket.SHUT_WR)
                os.waitpid(pid, 0)
                follower.close()

        leader = _timed(megabytes, work)
        followers_cpu_s = _children_cpu_s() - cpu_before
    return Bulk(leader.megabytes_per_second, leader.cpu_seconds_per_gigabyte + followers_cpu_s / (megabytes / 1e3))


def _timed(megabytes: int, work: Callable[[], None]) -> Bulk:
    start, cpu_start = time.monotonic(), time.process_time()
    work()
    seconds, cpu_s = time.monotonic() - start, time.process_time() - cpu_start
    return Bulk(megabytes / seconds, cpu_s / (megabytes / 1e3))


def _children_cpu_s() -> float:
    """Return user and system time of the children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _pieces(stream: socket.socket) -> Iterator[memoryview]:
    buffer, filled = memoryview(bytearray(PIECE_BYTES)), 0
    while count := stream.recv_into(buffer[filled:]):
        filled += count
        if filled == PIECE_BYTES:
            yield buffer
            filled = 0
    if filled:
        yield buffer[:filled]


def _check_and_append(piece: memoryview, descriptor: int) -> None:
    crc32c(piece[CRC_SKIPS_BYTES:])
    os.write(descriptor, piece)


def _append_all(stream: socket.socket, descriptor: int) -> None:
    for piece in _pieces(stream):
        _check_and_append(piece, descriptor)


def _follow(stream: socket.socket) -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        _append_all(stream, file.fileno())


def _send_file(stream: socket.socket, descriptor: int, megabytes: int) -> None:
    left = megabytes * 1_000_000
    while left:
        count = min(left, PIECE_BYTES)
        _send_range(stream, descriptor, left // PIECE_BYTES % FILE_PIECES * PIECE_BYTES, count)
        left -= count


def _send_range(stream: socket.socket, descriptor: int, position: int, count: int) -> None:
    while count:
        sent = os.sendfile(stream.fileno(), descriptor, position, count)
        position += sent
        count -= sent


def _send(stream: socket.socket, megabytes: int) -> None:
    piece, left = os.urandom(PIECE_BYTES), megabytes * 1_000_000
    while left:
        stream.sendall(piece[: min(left, PIECE_BYTES)])
        left -= min(left, PIECE_BYTES)


def _drain(stream: socket.socket) -> None:
    buffer = bytearray(PIECE_BYTES)
    while stream.recv_into(buffer):
        pass


@contextmanager
def _peer(work: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """Return a connection to a new process that does `work`. A thread would share our interpreter lock."""
    pid, stream = _forked(work)
    with stream:
        yield stream
    os.waitpid(pid, 0)


def _forked(work: Callable[[socket.socket], None]) -> tuple[int, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.fork()
        if pid:
            return pid, listener.accept()[0]
        end_with_parent()
        try:
            with socket.create_connection(listener.getsockname()) as stream:
                work(stream)
        finally:
            os._exit(0)
