"""The minimum cost of a replicated acknowledgement on this machine: a leader and its followers as bare epoll loops.

The processes and messages are those of a produce with acks=all: request, one append, records to each follower, the
followers' appends, their next fetches, the response. The number of bytes is the same too. But the loops do no parsing
and no checks, and have no state. A broker's cost beyond that of the loops is due to our code; the rest is the cost of
the kernel and the machine.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from kraft.sim.chaos.hosts.leash import end_with_parent

BUFFER_BYTES = 1 << 20
FETCH_BYTES = 100
"""Size of a follower's incremental fetch request on the wire."""
_END = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Chain:
    """A running chain: the leader's address, and the processes whose CPU time is counted, with the leader first."""

    address: tuple[str, int]
    pids: tuple[int, ...]

    def cpu_seconds(self) -> float:
        times = [psutil.Process(pid).cpu_times() for pid in self.pids]
        return sum(one.user + one.system for one in times)


@contextmanager
def running(frame_bytes: int, answer: bytes, *, followers: int = 2) -> Iterator[Chain]:
    """Run a leader that sends `answer` for each `frame_bytes` of a client, once all followers have these bytes."""
    clients = socket.create_server(("127.0.0.1", 0))
    replicas = socket.create_server(("127.0.0.1", 0))
    address = replicas.getsockname()
    pids = [_forked(lambda: _Leader(clients, replicas, frame_bytes, answer, followers).run())]
    pids += [_forked(lambda: _follow(address)) for _ in range(followers)]
    replicas.close()
    clients_address = clients.getsockname()
    clients.close()
    try:
        yield Chain(clients_address, tuple(pids))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _forked(function: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    end_with_parent()
    try:
        function()
    finally:
        os._exit(1)


def _follow(address: tuple[str, int]) -> None:
    stream = _quick(socket.create_connection(address))
    buffer, end = memoryview(bytearray(BUFFER_BYTES)), 0
    fetch = bytearray(FETCH_BYTES)
    epoll = select.epoll()
    epoll.register(stream.fileno(), select.EPOLLIN)
    with tempfile.TemporaryFile(buffering=0) as file:
        while True:
            _END.pack_into(fetch, 0, end)
            stream.send(fetch)
            epoll.poll()
            count = stream.recv_into(buffer)
            file.write(buffer[:count])
            end += count


def _quick(stream: socket.socket) -> socket.socket:
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


class _Leader:
    def __init__(
        self, clients: socket.socket, replicas: socket.socket, frame_bytes: int, answer: bytes, followers: int
    ) -> None:
        self._frame_bytes = frame_bytes
        self._answer = answer
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - for the life of the process
        self._end = 0
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._epoll = select.epoll()
        self._streams: dict[int, socket.socket] = {}
        self._followers: dict[int, int] = {}
        """Log end offset of each follower, in bytes."""
        self._parked: dict[int, int] = {}
        self._rests: dict[int, int] = {}
        """Bytes from each client that are not a complete frame yet."""
        self._waiting: deque[tuple[int, int, int]] = deque()
        for _ in range(followers):
            self._followers[self._accept(replicas)] = 0
        self._clients = clients
        clients.setblocking(False)
        self._epoll.register(clients.fileno(), select.EPOLLIN)

    def _accept(self, listener: socket.socket) -> int:
        stream = _quick(listener.accept()[0])
        number = stream.fileno()
        self._streams[number] = stream
        self._epoll.register(number, select.EPOLLIN)
        return number

    def run(self) -> None:
        while True:
            for number, _ in self._epoll.poll():
                if number == self._clients.fileno():
                    self._rests[self._accept(self._clients)] = 0
                    continue
                count = self._streams[number].recv_into(self._buffer)
                if not count:
                    self._epoll.unregister(number)
                    self._streams.pop(number).close()
                elif number in self._followers:
                    self._followers[number] = self._parked[number] = _END.unpack_from(self._buffer)[0]
                else:
                    self._take(number, count)
            self._end_pass()

    def _take(self, number: int, count: int) -> None:
        self._file.write(self._buffer[:count])
        self._end += count
        frames, self._rests[number] = divmod(self._rests[number] + count, self._frame_bytes)
        self._waiting.append((self._end, number, frames))

    def _end_pass(self) -> None:
        for number, end in list(self._parked.items()):
            if end < self._end:
                del self._parked[number]
                piece = os.pread(self._file.fileno(), min(self._end - end, BUFFER_BYTES // 4), end)
                self._streams[number].send(piece)
        acknowledged = min(self._followers.values(), default=self._end)
        answers: dict[int, int] = {}
        while self._waiting and self._waiting[0][0] <= acknowledged:
            _, number, frames = self._waiting.popleft()
            answers[number] = answers.get(number, 0) + frames
        for number, frames in answers.items():
            self._streams[number].send(self._answer * frames)
