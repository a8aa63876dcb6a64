"""One TLS stream: the same calls to the connection, with `ssl` between it and the socket.

Reading: bytes from the socket go into the session's incoming buffer. Plain text is then read into the connection's
buffer. The epoll does not report plain text inside the session, so a resume continues to read without an event.
Sending: chunks are encrypted piece by piece, and file ranges are read for that. `sent` is called when a piece is
encrypted: the channel owns the cipher text, and its size is bounded. A connection is created only after the handshake,
when the peer's principal is known.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Callable
from itertools import islice

import trio

from kraft.runtime.channel import GATHER_BYTES_MAX, Channel
from kraft.runtime.driver import Driver
from kraft.runtime.tls import distinguished_name
from kraft.seam import Buffer, Chunk, CloseReason, Connection, DialOutcome, FileRange, ListenerStats, Transport
from kraft.seam.network import C

RECEIVE_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024
"""Number of plain-text bytes that are encrypted at once: four TLS records."""


class TlsChannel(Channel):
    """A Channel whose bytes pass through an `ssl` session in memory."""

    __slots__ = ("_cipher", "_established", "_failure", "_make", "_principal", "_session", "_stats", "bios", "why")

    def __init__(
        self,
        driver: Driver,
        stream: socket.socket,
        listener: str,
        peer_host: str,
        idle_ms: int,
        *,
        is_accepted: bool = False,
    ) -> None:
        super().__init__(driver, stream, listener, peer_host, idle_ms, is_accepted=is_accepted)
        self.bios = (ssl.MemoryBIO(), ssl.MemoryBIO())
        self._session: ssl.SSLObject | None = None
        self._cipher: memoryview = memoryview(b"")  # encrypted and not yet sent
        self._make: Callable[[Transport], Connection] | None = None
        self._stats: ListenerStats | None = None
        self._principal: str | None = None
        self._established = trio.Event()
        self._failure: DialOutcome | None = None
        self.why = ""
        """Reason why the handshake failed, for the dialling side."""

    @property
    def peer_principal(self) -> str | None:
        return self._principal

    # the handshake

    def start_handshake(
        self,
        session: ssl.SSLObject,
        make: Callable[[Transport], Connection] | None,
        stats: ListenerStats | None = None,
    ) -> None:
        """Begin the handshake. Afterwards `make` creates the connection on the accepting side, and `adopt` on the
        dialling one. `stats`: where the accepting side counts the results."""
        self._session = session
        self._make = make
        self._stats = stats
        self.start(None)
        self._handshake()

    async def wait_established(self) -> DialOutcome | None:
        """Suspend until the handshake ends. Return None if it succeeded, else how it failed."""
        await self._established.wait()
        if self._ended and self._failure is None:
            return DialOutcome.RESET  # established here, and refused by the peer before any data
        return self._failure

    def adopt(self, make_connection: Callable[[Transport], C]) -> C:
        """Create the dialling side's connection, once established."""
        connection = make_connection(self)
        self.connection = connection
        self._paused = True  # a resume reads what the session already holds
        self.wake()
        return connection

    def _handshake(self) -> None:
        assert self._session is not None
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            self._send_cipher()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self.why = _explain(error)
            if self._make is not None:  # the dialling side raises it to its caller
                self._log_warning("a TLS handshake failed", error)
            if self._stats is not None:
                self._stats.authentications_failed += 1
            self._send_cipher()  # sends the alert
            self.end(CloseReason.BAD_BYTES)
            return
        self._principal = distinguished_name(self._session.getpeercert())
        self._send_cipher()
        if self._ended:
            return
        self._established.set()
        if self._stats is not None:
            self._stats.authenticated += 1
        if self._make is not None:
            self.adopt(self._make)

    def end(self, reason: CloseReason) -> None:
        if not self._established.is_set():
            self._failure = DialOutcome.RESET
            self._established.set()
        super().end(reason)

    # reading

    def _read(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.end(CloseReason.RESET)
            return
        if not data:
            self.end(CloseReason.PEER)
            return
        self.bios[0].write(data)
        if self.connection is None and not self._established.is_set():
            self._handshake()
        else:
            self._take_plain()

    def _take_plain(self) -> None:
        """Give the connection what the session can decrypt, as far as it has space."""
        connection = self.connection
        assert self._session is not None
        while connection is not None and self._close_reason is None and not self._ended:
            space: memoryview | None = connection.space()
            if space is None or not len(space):
                self._pause()
                break
            try:
                count = self._read_session(space)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                self._log_warning("closing a connection: bad TLS", error)
                self.end(CloseReason.BAD_BYTES)
                return
            space = None
            if not count:
                self.end(CloseReason.PEER)
                return
            self._deliver(connection, count)
        if self._close_reason is not None:
            self._pause()
        self.wake()

    def _read_session(self, space: memoryview) -> int:
        assert self._session is not None
        count: object = self._session.read(len(space), space)
        assert isinstance(count, int)  # typeshed knows only the form without a buffer
        return count

    def _resume(self) -> None:
        super()._resume()
        self._take_plain()

    # sending

    def settle(self) -> None:
        if self.connection is None and not self._ended:
            self._marked = False
            if not self._blocked:
                self._send_cipher()
            if self._close_reason is not None:
                self.end(self._close_reason)
            return
        if self._cipher and not self._blocked and not self._held and not self._ended:
            self._send_cipher()
        super().settle()

    def _has_unsent(self, connection: Connection) -> bool:
        return bool(self._cipher) or bool(connection.output())

    def _flush(self, connection: Connection, output: deque[Chunk]) -> None:
        assert self._session is not None
        budget = self.driver.send_bytes_max
        while not (self._cipher or self._blocked or self._warming or self._ended):
            if not self._encrypt_some(connection):
                return
            budget -= len(self._cipher)
            self._send_cipher()
            if budget <= 0:
                self.wake()
                return

    def _encrypt_some(self, connection: Connection) -> bool:
        """Encrypt up to GATHER_BYTES_MAX from the front of the queue; False if nothing can be encrypted now."""
        assert self._session is not None
        total = 0
        while total < GATHER_BYTES_MAX:
            piece = self._next_piece(connection.output())
            if not piece:
                break
            self._session.write(piece)
            total += len(piece)
            connection.sent(len(piece))
        self._cipher = memoryview(self.bios[1].read())
        return total > 0

    def _next_piece(self, output: deque[Chunk]) -> Buffer:
        """Return up to PIECE_BYTES of the front; several small chunks as one. Empty if there is none, or none yet."""
        if not output:
            return b""
        first = output[0]
        if isinstance(first, FileRange):
            count = min(first.count, PIECE_BYTES)
            data = first.file.read_cached(first.position, count)
            if data is None:
                self._warm(first)
                return b""
            if len(data) < count:
                self._file_failed(f"{first.file.path} is shorter than {first.position + count} bytes")
                return b""
            return data
        if len(first) >= PIECE_BYTES or len(output) == 1:
            return memoryview(first)[:PIECE_BYTES]
        parts: list[Buffer] = []
        total = 0
        for chunk in islice(output, 64):
            if isinstance(chunk, FileRange) or total + len(chunk) > PIECE_BYTES:
                break
            parts.append(chunk)
            total += len(chunk)
        return b"".join(parts)

    def _send_cipher(self) -> None:
        """Send cipher text; the remainder waits for EPOLLOUT."""
        if not self._cipher:
            self._cipher = memoryview(self.bios[1].read())
        try:
            while self._cipher:
                count = self._socket.send(self._cipher)
                self.driver.stats.bytes_sent += count
                self._cipher = self._cipher[count:]
        except BlockingIOError:
            self._block()
        except OSError:
            self.end(CloseReason.RESET)


def _explain(error: Exception) -> str:
    """Return why a handshake failed, without OpenSSL's source location."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"CERTIFICATE_VERIFY_FAILED: {error.verify_message}"
    return str(getattr(error, "reason", None) or error)
