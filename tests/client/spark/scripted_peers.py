"""Peers on real sockets that follow a script, to test the blocking connection."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import CLIENT_APIS, ApiKey

SECONDS_MAX = 20
RANGES = {key: (one.min, one.max) for key, one in CLIENT_APIS.items()}


class Conversation:
    """One accepted connection: reads requests and writes bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def read_request(self) -> tuple[ApiKey, int, int, bytes]:
        """Return (key, version, correlation id, the bytes after the fixed part of the header). Raises EOFError when the
        connection is closed."""
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        return ApiKey(key), version, correlation_id, frame[8:]

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self, correlation_id: int, body: bytes) -> None:
        """Send a complete response, with a header of version 0."""
        self.send(frame(correlation_id, body))

    def negotiate(self, ranges: dict[ApiKey, tuple[int, int]] | None = None) -> None:
        """Answer ApiVersions."""
        key, version, correlation_id, _ = self.read_request()
        assert key is ApiKey.API_VERSIONS
        self.answer(correlation_id, api_versions(version, RANGES if ranges is None else ranges))

    def wait_closed(self) -> None:
        """Wait until the client has closed the connection."""
        while self.connection.recv(65536):
            pass

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.connection.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data


Script = Callable[[Conversation], None]


def frame(correlation_id: int, body: bytes) -> bytes:
    """Return a response preceded by its size."""
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def api_versions(version: int, ranges: dict[ApiKey, tuple[int, int]], error_code: int = 0) -> bytes:
    """Return the body of an ApiVersions response."""
    keys = tuple({"api_key": int(key), "min_version": low, "max_version": high} for key, (low, high) in ranges.items())
    message = messages.build(messages.response_class(ApiKey.API_VERSIONS), api_keys=keys, error_code=error_code)
    return messages.encode_response(ApiKey.API_VERSIONS, version, message)


@contextmanager
def scripted_peer(*scripts: Script, tls: ssl.SSLContext | None = None) -> Iterator[Address]:
    """Run a listener whose connection n follows script n, or the last script if there are fewer. A failed assertion in
    a script is raised when the block ends."""
    failures: list[AssertionError] = []
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def converse(raw: socket.socket, script: Script) -> None:
        try:
            with raw if tls is None else tls.wrap_socket(raw, server_side=True) as connection:
                script(Conversation(connection))
        except (OSError, EOFError):
            pass
        except AssertionError as failure:
            failures.append(failure)

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                raw, _ = listener.accept()
                raw.settimeout(SECONDS_MAX)
                script = scripts[min(len(connections), len(scripts) - 1)]
                connections.append(raw)
                thread = threading.Thread(target=converse, args=(raw, script), daemon=True)
                threads.append(thread)
                thread.start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept, args=(listener,), daemon=True)
        acceptor.start()
        try:
            yield Address("127.0.0.1", listener.getsockname()[1])
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            acceptor.join(SECONDS_MAX)
            for raw in connections:
                with suppress(OSError):
                    raw.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(SECONDS_MAX)
    if failures:
        raise failures[0]
