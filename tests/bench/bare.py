"""The machine's own limits, without a broker: what receiving, checking, appending and sending cost at the least.

A virtual machine may get its memory from its host at the first touch of each page, and give freed pages back after a
few seconds. Writing to fresh pages then costs ten times what writing to pages that were used a moment ago costs
(measured: 500 and 4,900 MB/s), and every bulk figure says more about the host than about the broker. So `touch_memory`
goes before each bulk measurement.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crc32c import crc32c

PIECE_BYTES = 1024 * 1024
TOTAL_BYTES = 1024 * PIECE_BYTES
CRC_SKIPS_BYTES = 21


def receive_check_append() -> float:
    """MB/s of receiving 1 MiB pieces from a loopback peer, CRC-32C over each, and one write of each to a file."""
    with tempfile.TemporaryFile() as file:
        descriptor = file.fileno()

        def take(piece: memoryview) -> None:
            crc32c(piece[CRC_SKIPS_BYTES:])
            os.write(descriptor, piece)

        return _receive(take)


def sendfile() -> float:
    """MB/s of sendfile from the page cache to a loopback peer that drains."""
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(PIECE_BYTES) * 64)
        file.flush()
        with _peer(_drain) as stream:
            start, sent = time.monotonic(), 0
            while sent < TOTAL_BYTES:
                sent += os.sendfile(stream.fileno(), file.fileno(), sent % (63 * PIECE_BYTES), PIECE_BYTES)
            return sent / 1e6 / (time.monotonic() - start)


def touch_memory(megabytes: int) -> None:
    """Have so much memory backed by the host: fill it with a file's pages, and free them."""
    piece = bytes(PIECE_BYTES)
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(megabytes):
            file.write(piece)


def _receive(take: Callable[[memoryview], None]) -> float:
    buffer = memoryview(bytearray(PIECE_BYTES))
    with _peer(_send) as stream:
        start, received, filled = time.monotonic(), 0, 0
        while count := stream.recv_into(buffer[filled:]):
            filled += count
            received += count
            if filled == PIECE_BYTES:
                take(buffer)
                filled = 0
        return received / 1e6 / (time.monotonic() - start)


@contextmanager
def _peer(work: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A connection to a process of its own (a thread would share our interpreter lock) that does `work`."""
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if not pid:
        with socket.create_connection(listener.getsockname()) as stream:
            work(stream)
        os._exit(0)
    stream, _ = listener.accept()
    with listener, stream:
        yield stream
    os.waitpid(pid, 0)


def _send(stream: socket.socket) -> None:
    piece = os.urandom(PIECE_BYTES)
    for _ in range(TOTAL_BYTES // PIECE_BYTES):
        stream.sendall(piece)


def _drain(stream: socket.socket) -> None:
    buffer = bytearray(PIECE_BYTES)
    while stream.recv_into(buffer):
        pass
