"""ControlServer: a server on a Unix socket. Requests and responses are JSON objects, one per line; responses are sent
in the order of the requests. A response that is sent later is a `Pending`.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraft.deploy.launch.socket_path import short_path

LINE_BYTES_MAX = 1 << 20
SEND_SECONDS_MAX = 1.0

Answer = dict[str, Any]
Condition = Callable[[], Answer | None]
"""Type: function that returns the response once it is available, and None before."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A response that is sent later: the result of `condition` as soon as it is not None. If the deadline (in monotonic
    seconds) passes first, it is the result of `late()`."""

    condition: Condition
    deadline: float
    late: Callable[[], Answer]


@dataclass(slots=True, eq=False)
class Client:
    """One connection to the server. If it is `attached`, the server's owner is notified when it closes."""

    socket: socket.socket
    attached: bool
    text: bytes = b""
    closed: bool = False


class ControlServer:
    """Accepts connections, reads request lines, and sends responses. It blocks only while it sends, and only for a
    bounded time."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        handle: Callable[[Client, Answer], Answer | Pending],
        on_detached: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._handle = handle
        self._on_detached = on_detached
        self._listener: socket.socket | None = None
        self._clients: list[Client] = []
        self._waiting: list[tuple[Client, Pending]] = []

    def listen(self, path: Path) -> None:
        """Accept connections of this user at this path, and replace an existing file there. Raise OSError if the socket
        cannot be created."""
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            with short_path(path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        listener.listen(64)
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def add(self, connection: socket.socket, *, attached: bool) -> None:
        """Serve a connection that the server has not accepted itself."""
        connection.setblocking(False)
        client = Client(connection, attached)
        self._clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(client))

    def answer_waiting(self) -> None:
        """Send every delayed response that is available by now."""
        now = time.monotonic()
        for entry in self._waiting[:]:
            client, pending = entry
            answer = pending.condition()
            if answer is None and now >= pending.deadline:
                answer = pending.late()
            if answer is not None or client.closed:
                self._waiting.remove(entry)
                self._send(client, answer or {})

    @property
    def next_deadline(self) -> float | None:
        """Time, in monotonic seconds, at which `answer_waiting` must be called at the latest; None if no response is
        delayed."""
        return min((pending.deadline for _, pending in self._waiting), default=None)

    def close(self) -> None:
        """Close the listener and all connections. Also called in a forked child."""
        if self._listener is not None:
            self._listener.close()
        for client in self._clients:
            client.socket.close()

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(BlockingIOError):
            self.add(self._listener.accept()[0], attached=False)

    def _read(self, client: Client) -> None:
        try:
            chunk = client.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk or len(client.text) + len(chunk) > LINE_BYTES_MAX:
            self._drop(client)
            return
        *lines, client.text = (client.text + chunk).split(b"\n")
        for line in lines:
            answer = self._safely(client, line)
            if isinstance(answer, Pending):
                self._waiting.append((client, answer))
            else:
                self._send(client, answer)

    def _safely(self, client: Client, line: bytes) -> Answer | Pending:
        try:
            return self._handle(client, json.loads(line))
        except (ValueError, KeyError, TypeError) as problem:
            return refusal("request", f"the zygote cannot read this request: {problem!r}")

    def _send(self, client: Client, answer: Answer) -> None:
        if client.closed:
            return
        try:
            client.socket.settimeout(SEND_SECONDS_MAX)
            client.socket.sendall(json.dumps(answer).encode() + b"\n")
            client.socket.setblocking(False)
        except OSError:
            self._drop(client)

    def _drop(self, client: Client) -> None:
        if client.closed:
            return
        client.closed = True
        self._selector.unregister(client.socket)
        client.socket.close()
        self._clients.remove(client)
        if client.attached:
            self._on_detached()


def refusal(kind: str, message: str) -> Answer:
    """Return the response for a failed request; `kind` is one of the kinds of LaunchError."""
    return {"ok": False, "kind": kind, "error": message}
