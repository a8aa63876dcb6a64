"""Faults that clients make, requests without end and requests that never end, and one that a crowded machine makes."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from kraft.wire.api_keys import ApiKey

CONNECTIONS = 300
BURST = 200
"""Requests that are sent at once on each connection."""
LONG = 6_000
"""Names in a request that comes in several reads."""
LARGE_BYTES, SMALL_BYTES, SMALL_ONES = 100_000_000, 2_000_000, 29
"""Of requests, that make 94 % of a node's memory for requests."""
PAUSE_SECONDS, RUN_SECONDS = 0.04, 0.16
"""Of a process that loses the processor: twice a step that counts as long, five times a second."""


def metadata_request() -> bytes:
    """Metadata of all topics, version 1, in its frame."""
    body = struct.pack(">hhih", ApiKey.METADATA, 1, 7, -1) + struct.pack(">i", -1)
    return struct.pack(">i", len(body)) + body


@contextmanager
def requests_without_end(port: int) -> Iterator[None]:
    """Many connections ask as fast as they are answered, until the block ends."""
    ended = threading.Event()
    burst = metadata_request() * BURST

    def ask(stream: socket.socket) -> None:
        while not ended.is_set():
            try:
                stream.sendall(burst)
            except OSError:
                return

    def read(stream: socket.socket) -> None:
        with suppress(OSError):
            while stream.recv(1 << 20):
                pass

    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stack.callback(stream.shutdown, socket.SHUT_RDWR)  # which wakes its threads; a close would not
            for work in (ask, read):
                threading.Thread(target=work, args=(stream,), daemon=True).start()
        stack.callback(ended.set)
        yield


@contextmanager
def processor_taken_away(pid: int) -> Iterator[None]:
    """The process is stopped for a moment again and again, as by a machine with too few processors, until the block
    ends."""
    ended = threading.Event()

    def take() -> None:
        while not ended.wait(RUN_SECONDS):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PAUSE_SECONDS)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def halves_of_requests(port: int) -> Iterator[None]:
    """Connections that have sent most of a request and do not go on. They have sent a whole one first, for a quarter of
    the memory is kept from connections that have not; and the longest comes last, or others would wait for memory, and
    connections that hold it would be closed."""
    with ExitStack() as stack:
        for size in (*(SMALL_BYTES,) * SMALL_ONES, LARGE_BYTES):
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            stream.sendall(describe_names(LONG))
            (answer_bytes,) = struct.unpack(">i", stream.recv(4, socket.MSG_WAITALL))
            stream.recv(answer_bytes, socket.MSG_WAITALL)
            head = struct.pack(">ihhih", size, ApiKey.PRODUCE, 9, 7, -1)
            stream.sendall(head + bytes(size - len(head)))
        yield


def describe_names(count: int) -> bytes:
    """Metadata of so many topics that there are not, version 4, in its frame; none is created."""
    names = b"".join(struct.pack(">h40s", 40, b"no-such-topic-%d" % number) for number in range(count))
    body = struct.pack(">hhihi", ApiKey.METADATA, 4, 7, -1, count) + names + b"\0"
    return struct.pack(">i", len(body)) + body


def nonsense(port: int, times: int) -> None:
    """Say something that is no TLS to a listener that speaks it, so often."""
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", port)) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stream.recv(4096):
                pass
