"""The machine's own limits, without a broker: what receiving, checking, appending and sending cost at the least."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable

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
        ours, theirs = socket.socketpair()
        drain = threading.Thread(target=_drain, args=(theirs,))
        drain.start()
        start, sent = time.monotonic(), 0
        while sent < TOTAL_BYTES:
            sent += os.sendfile(ours.fileno(), file.fileno(), sent % (63 * PIECE_BYTES), PIECE_BYTES)
        ours.close()
        drain.join()
        return sent / 1e6 / (time.monotonic() - start)


def _receive(take: Callable[[memoryview], None]) -> float:
    listener = socket.create_server(("127.0.0.1", 0))
    sender = threading.Thread(target=_send, args=(listener.getsockname(),))
    sender.start()
    peer, _ = listener.accept()
    buffer = memoryview(bytearray(PIECE_BYTES))
    start, received, filled = time.monotonic(), 0, 0
    while count := peer.recv_into(buffer[filled:]):
        filled += count
        received += count
        if filled == PIECE_BYTES:
            take(buffer)
            filled = 0
    seconds = time.monotonic() - start
    sender.join()
    peer.close()
    listener.close()
    return received / 1e6 / seconds


def _send(address: tuple[str, int]) -> None:
    piece = os.urandom(PIECE_BYTES)
    with socket.create_connection(address) as stream:
        for _ in range(TOTAL_BYTES // PIECE_BYTES):
            stream.sendall(piece)


def _drain(stream: socket.socket) -> None:
    buffer = bytearray(PIECE_BYTES)
    while stream.recv_into(buffer):
        pass
    stream.close()
