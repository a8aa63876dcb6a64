"""Minimal proxies for tests. Each one either forwards bytes, or is cut and has no connections."""

from __future__ import annotations

import select
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from kraft.seam import Address

Key = TypeVar("Key")
HOST = "127.0.0.1"


class Relays(Generic[Key]):
    """One relay for each key. `accepted` counts the connections of all relays."""

    def __init__(self) -> None:
        self.targets: dict[Key, Address] = {}
        self.addresses: dict[Key, Address] = {}
        self.accepted: Counter[Key] = Counter()
        self._cut: set[Key] = set()
        self._sockets: list[tuple[Key, socket.socket]] = []
        self._listeners: list[socket.socket] = []
        self._lock = threading.Lock()

    def place(self, targets: Mapping[Key, Address]) -> Mapping[Key, Address]:
        """Put a relay in front of each of these addresses."""
        self.targets.update(targets)
        for key in targets:
            listener = socket.create_server((HOST, 0))
            self._listeners.append(listener)
            self.addresses[key] = Address(HOST, listener.getsockname()[1])
            threading.Thread(target=self._accept, args=(key, listener), daemon=True).start()
        return self.addresses

    def advertise(self, bound: Mapping[Key, Address]) -> Mapping[Key, Address]:
        return self.place(bound)

    def cut(self, manners: Mapping[Key, str]) -> None:
        """Cut exactly these relays. Their connections are closed at once, whatever `manner` is."""
        self._set_cut(manners)

    def node_up(self, node: int) -> None:
        """Do nothing: the relay's dial to a node that is down is refused."""

    node_down = node_up

    def close(self) -> None:
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # ends the pending accept
            listener.close()
        self._set_cut(self.targets)

    def _set_cut(self, keys: Iterable[Key]) -> None:
        with self._lock:
            self._cut = set(keys)
            for key, one in self._sockets:
                if key in self._cut:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
            self._sockets = [(key, one) for key, one in self._sockets if key not in self._cut and one.fileno() >= 0]

    def _accept(self, key: Key, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                stream = listener.accept()[0]
                self.accepted[key] += 1
                threading.Thread(target=self._pass, args=(key, stream), daemon=True).start()

    def _pass(self, key: Key, stream: socket.socket) -> None:
        target = self.targets[key]
        with suppress(OSError), stream, socket.create_connection((target.host, target.port)) as other:
            with self._lock:
                if key in self._cut:
                    return
                self._sockets += [(key, stream), (key, other)]
            while True:
                for ready in select.select([stream, other], [], [])[0]:
                    piece = ready.recv(1 << 16)
                    if not piece:
                        return
                    (other if ready is stream else stream).sendall(piece)
