"""Listeners: bind, accept a few connections per pass, and back off when the process is out of descriptors."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable

import trio

from kraft.runtime.driver import Driver
from kraft.seam import Address, AddressInUse, Binding

ACCEPTS_PER_PASS = 64
ACCEPT_BACKOFF_MS = 100
"""Milliseconds for which a listener backs off when accept fails for lack of descriptors or memory."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def bind(binding: Binding, backlog: int) -> socket.socket:
    """Return a listening, non-blocking socket. Raises AddressInUse if the port is taken, and OSError if the address is
    not local or does not resolve. Both name the listener."""
    host, port = binding.address.host, binding.address.port
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:  # a label that is empty or longer than 63 bytes is a UnicodeError
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise OSError(f"listener {binding.listener}: cannot look up the host {host} ({why})") from error
    family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 if there are both
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(place)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            text = (
                f"listener {binding.listener}: {binding.address} is in use; stop what listens there or set another port"
            )
            raise AddressInUse(text) from error
        raise OSError(f"listener {binding.listener}: {binding.address}: {error.strerror}") from error
    return listening


class Listener:
    """Implementation of kraft.seam.BoundListener in the driver's epoll. `accepted` is called with each new socket and
    its peer's host."""

    def __init__(
        self, driver: Driver, listening: socket.socket, host: str, accepted: Callable[[socket.socket, str], None]
    ) -> None:
        self._driver = driver
        self._socket = listening
        self._address = Address(host, listening.getsockname()[1])
        self._accepted = accepted
        self._closed = False
        driver.add(listening.fileno(), self, select.EPOLLIN)

    @property
    def address(self) -> Address:
        return self._address

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._driver.remove(self._socket.fileno())
            self._socket.close()

    def release(self) -> None:
        self.close()

    def on_ready(self, mask: int) -> None:
        for _ in range(ACCEPTS_PER_PASS):
            if self._closed:
                return
            try:
                stream, place = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._back_off(error)
                    return
                continue  # the peer closed it before it was accepted
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._driver.stats.accepted += 1
            self._accepted(stream, str(place[0]))

    def _back_off(self, error: OSError) -> None:
        self._driver.log.warning("accept failed, backing off", address=str(self._address), why=error.strerror)
        self._driver.suspend(self._socket.fileno())
        self._driver.run_task(self._resume, name="accept back-off")

    async def _resume(self) -> None:
        await trio.sleep(ACCEPT_BACKOFF_MS / 1000)
        if not self._closed:
            self._driver.resume(self._socket.fileno(), select.EPOLLIN)
