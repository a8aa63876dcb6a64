"""Faults that clients cause (endless requests, incomplete requests), and those of a busy machine."""

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
"""Number of requests that each connection sends at once."""
LONG = 6_000
"""Number of names in a request that is too long for a single read."""
LARGE_BYTES, SMALL_BYTES, SMALL_ONES = 100_000_000, 2_000_000, 29
"""Sizes and number of requests that together use 94 % of a node's request memory."""
PAUSE_SECONDS, RUN_SECONDS = 0.04, 0.16
"""Seconds for which a process is stopped, five times a second: twice the time that counts as a long step of the event
loop."""


def metadata_request() -> bytes:
    """Return a framed Metadata request for all topics, version 1."""
    body = struct.pack(">hhih", ApiKey.METADATA, 1, 7, -1) + struct.pack(">i", -1)
    return struct.pack(">i", len(body)) + body


@contextmanager
def requests_without_end(port: int) -> Iterator[None]:
    """Send requests on many connections, as fast as they are answered, while the context is open."""
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
            stack.callback(stream.shutdown, socket.SHUT_RDWR)  # wakes the threads that read, which closing would not do
            for work in (ask, read):
                threading.Thread(target=work, args=(stream,), daemon=True).start()
        stack.callback(ended.set)
        yield


@contextmanager
def processor_taken_away(pid: int) -> Iterator[None]:
    """Stop the process for a moment again and again while the context is open, as on a machine with too few
    processors."""
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
    """Open connections that send most of a request and then pause.

    Each connection has sent a complete request first, because a quarter of the memory is reserved for such connections.
    The largest request comes last. Otherwise the others would wait for memory, and the connections that hold it would
    be closed."""
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
    """Return a framed Metadata request, version 4, for this many topics that do not exist. No topic is created."""
    names = b"".join(struct.pack(">h40s", 40, b"no-such-topic-%d" % number) for number in range(count))
    body = struct.pack(">hhihi", ApiKey.METADATA, 4, 7, -1, count) + names + b"\0"
    return struct.pack(">i", len(body)) + body


def nonsense(port: int, times: int) -> None:
    """Repeatedly send bytes that are not TLS to a TLS listener."""
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", port)) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stream.recv(4096):
                pass
