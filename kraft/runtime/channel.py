"""One TCP stream without TLS: reads into the connection's buffer, and sends its queue of bytes and file ranges.

Small chunks (and file ranges below SENDFILE_BYTES_MIN that are in the page cache) are joined in one `send`. A large
file range is sent by `sendfile`, and what precedes it by a `send` with MSG_MORE, so that both share packets. EPOLLOUT
is requested only while the socket is full.

While the socket is full, an accepted stream is not read and its requests are not handled: a peer that does not read its
responses gets no more of them. The dialling side always reads, so that the two sides never wait for each other. A range
that is not in the page cache is first read ahead by the thread pool. The stream waits for that, the loop does not.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable

import trio

from kraft.runtime.driver import Driver
from kraft.runtime.file import RealFile
from kraft.seam import Chunk, CloseReason, Connection, DiskError, FileRange, HandleRevoked, WireError, require

READ_BYTES_PER_PASS = 1 << 20
"""Maximum bytes read from a stream before responses are sent: the sender of large requests may wait for a response
before it continues."""
SENDFILE_BYTES_MIN = 32 * 1024
"""Size of a file range from which sendfile is used. Below it, a read from the page cache and one joined send is cheaper
(measured equal at 32 KiB)."""
SENDFILE_BYTES_MAX = 1 << 20
JOIN_BYTES_MAX = 32 * 1024
"""Maximum size of chunks that are joined into one piece; more bytes are sent as one vector, uncopied."""
GATHER_BYTES_MAX = 256 * 1024
GATHER_CHUNKS_MAX = 256
WARM_BYTES_MAX = 4 << 20
LINGER_NS_MAX = 10_000_000_000
"""Maximum nanoseconds that a close with flush, or a TLS handshake, may take."""

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_BROKEN = select.EPOLLERR | select.EPOLLHUP
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def _short(chunk: FileRange) -> str:
    end = chunk.position + chunk.count
    return f"{chunk.file.path} has {chunk.file.size} bytes, wanted {chunk.position} to {end}"


class Channel:
    """Implementation of kraft.seam.Transport over a connected, non-blocking socket. It is in the driver's epoll until
    it ends."""

    __slots__ = (
        "_blocked",
        "_close_reason",
        "_ended",
        "_fd",
        "_flush_on_close",
        "_heard_ns",
        "_held",
        "_idle_ns",
        "_is_accepted",
        "_listener",
        "_marked",
        "_mask",
        "_owes_turn",
        "_paused",
        "_peer_host",
        "_socket",
        "_warm_end",
        "_warming",
        "connection",
        "driver",
    )

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
        self.driver = driver
        self._is_accepted = is_accepted
        self.connection: Connection | None = None
        self._socket = stream
        self._fd = stream.fileno()
        self._listener = listener
        self._peer_host = peer_host
        self._idle_ns = idle_ms * 1_000_000
        self._heard_ns = driver.pass_ns
        self._mask = _READ
        self._paused = False  # the connection has no space
        self._blocked = False  # the socket is full
        self._owes_turn = False  # unhandled requests wait until the socket has room
        self._held = False  # a link policy lets nothing through
        self._warming = False  # the front of the output is being read into the page cache
        self._warm_end: tuple[RealFile, int] | None = None
        self._marked = False
        self._close_reason: CloseReason | None = None
        self._flush_on_close = False
        self._ended = False

    def start(self, connection: Connection | None) -> None:
        """Begin to read for `connection`. Output that it already has is sent in the next pass."""
        self.connection = connection
        self.driver.add(self._fd, self, self._mask)
        self.driver.add_channel(self._fd, self)
        self.wake()

    # methods of kraft.seam.Transport

    @property
    def listener(self) -> str:
        return self._listener

    @property
    def peer_host(self) -> str:
        return self._peer_host

    @property
    def peer_principal(self) -> str | None:
        return None

    @property
    def heard_ns(self) -> int:
        return self._heard_ns

    @property
    def ended(self) -> bool:
        return self._ended

    def wake(self) -> None:
        if not self._marked and not self._ended:
            self._marked = True
            self.driver.mark(self)

    def wait_turn(self) -> None:
        self.driver.wait_turn(self)

    def close(self, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        if self._close_reason is None or (self._flush_on_close and not flush):
            self._close_reason = reason
            self._flush_on_close = flush
            self._heard_ns = self.driver.pass_ns
            self.wake()

    # called by the driver

    def on_ready(self, mask: int) -> None:
        if mask & _WRITE:
            self._blocked = False
            self._update_mask()
            self.wake()
        if mask & (_READ | _BROKEN):
            if self._mask & _READ:
                self._read()
            elif mask & _BROKEN:
                self.end(CloseReason.RESET)

    def take_turn(self) -> None:
        connection = self.connection
        if connection is None or self._close_reason is not None:
            return
        if self._blocked or self._held:
            self._owes_turn = True
            return
        self._handle(connection.take_turn)
        self.wake()

    def settle(self) -> None:
        self._marked = False
        connection = self.connection
        if self._ended or connection is None:
            return
        if self._close_reason is None or self._flush_on_close:
            output = connection.output()
            if output and not (self._blocked or self._held or self._warming):
                self._flush(connection, output)
                if self.ended:  # not an attribute: mypy would assume that it does not change
                    return
        if self._close_reason is not None and not (self._flush_on_close and self._has_unsent(connection)):
            self.end(self._close_reason)
        elif self._paused and self._close_reason is None and len(connection.space()):
            self._paused = False
            self._resume()
        if self._owes_turn and not (self._blocked or self._held):
            self._owes_turn = False
            self.driver.wait_turn(self)

    def sweep(self, now_ns: int) -> None:
        silent_ns = now_ns - self._heard_ns
        if self._close_reason is not None or self.connection is None:
            if silent_ns > LINGER_NS_MAX:
                self.end(self._close_reason or CloseReason.IDLE)
        elif 0 <= self._idle_ns < silent_ns and not getattr(self.connection, "in_flight", 0):
            self.close(CloseReason.IDLE)

    def end(self, reason: CloseReason) -> None:
        """Close the socket, notify the connection, and drop the reference to the connection. A reference cycle of
        channel and connection would keep both alive until the next garbage collection. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        self.driver.remove(self._fd)
        self.driver.remove_channel(self._fd)
        self._socket.close()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.closed(reason)

    def release(self) -> None:
        self.end(CloseReason.SHUTDOWN)

    def reset(self) -> None:
        """End the stream with a reset, for the peer too."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.end(CloseReason.RESET)

    def hold(self, held: bool) -> None:
        """Set whether the stream is held: while it is, nothing is read or sent."""
        if self._ended or held == self._held:
            return
        self._held = held
        if held:
            self.driver.suspend(self._fd)
        else:
            self.driver.resume(self._fd, self._mask)
            self.wake()

    def splice(self) -> tuple[socket.socket, socket.socket]:
        """Replace this stream's socket by one end of a new socket pair, under the same descriptor. Return the pair's
        other end and the previous socket; the caller must carry the bytes between them."""
        ours, near = socket.socketpair()
        far = self._socket.dup()
        if not self._held:
            self.driver.suspend(self._fd)
        with ours:
            os.dup2(ours.fileno(), self._fd, inheritable=False)
        self._socket.setblocking(False)
        if not self._held:
            self.driver.resume(self._fd, self._mask)
        return near, far

    # reading

    def _read(self) -> None:
        connection = self.connection
        budget = READ_BYTES_PER_PASS
        if self._close_reason is not None:
            self._pause()
        while budget > 0 and self._close_reason is None and connection is not None:
            space: memoryview | None = connection.space()
            room = len(space) if space is not None else 0
            if not room:
                self._pause()
                break
            try:
                count = self._socket.recv_into(space)  # type: ignore[arg-type]
            except BlockingIOError:
                break
            except OSError:
                self.end(CloseReason.RESET)
                return
            space = None  # an existing view would prevent the connection from growing its buffer
            if not count:
                self.end(CloseReason.PEER)
                return
            self._deliver(connection, count)
            if count < room:
                break
            budget -= count
        if not self._marked:
            self.wake()

    def _deliver(self, connection: Connection, count: int) -> None:
        self._heard_ns = self.driver.pass_ns
        self.driver.stats.bytes_received += count
        self._handle(connection.received, count)

    def _handle(self, function: Callable[..., None], *arguments: int) -> None:
        try:
            function(*arguments)
        except WireError as error:
            self._log_warning("closing a connection: bad bytes", error)
            self.close(CloseReason.BAD_BYTES)
        except Exception:
            self.driver.log.exception("a connection's handler failed", peer=self._peer_host, listener=self._listener)
            raise

    def _log_warning(self, what: str, why: Exception) -> None:
        self.driver.log.warning(what, peer=self._peer_host, listener=self._listener, why=str(why))

    def _pause(self) -> None:
        self._paused = True
        self._update_mask()

    def _resume(self) -> None:
        """Resume reading, as there is space again."""
        self._update_mask()

    def _update_mask(self) -> None:
        is_deaf = self._paused or (self._blocked and self._is_accepted)
        mask = (0 if is_deaf else _READ) | (_WRITE if self._blocked else 0)
        if mask != self._mask:
            self._mask = mask
            if not self._held:
                self.driver.modify(self._fd, mask)

    # sending

    def _has_unsent(self, connection: Connection) -> bool:
        return bool(connection.output())

    def _flush(self, connection: Connection, output: deque[Chunk]) -> None:
        """Send from the front of `output` until it is empty, the socket is full, or the bytes allowed per pass are
        sent."""
        budget = self.driver.send_bytes_max
        try:
            while output:
                first = output[0]
                if isinstance(first, FileRange) and first.count >= SENDFILE_BYTES_MIN:
                    asked, count = self._send_file(first, budget)
                elif len(output) == 1 and not isinstance(first, FileRange):
                    asked, count = len(first), self._socket.send(first)
                else:
                    asked, count = self._send_gathered(output)
                if count:
                    budget -= count
                    self.driver.stats.bytes_sent += count
                    connection.sent(count)
                if count < asked:
                    self._block()
                    return
                if self._warming or self._ended or not asked:
                    return
                if budget <= 0:
                    self.wake()
                    return
        except BlockingIOError:
            self._block()
        except OSError:
            self.end(CloseReason.RESET)
        except DiskError as error:
            self._file_failed(str(error))

    def _block(self) -> None:
        if not self._warming and not self._ended:
            self._blocked = True
            self._update_mask()

    def _send_gathered(self, output: deque[Chunk]) -> tuple[int, int]:
        """Send everything before the next large file range as one piece. Return the size of the piece, and how many
        bytes were sent."""
        parts: list[bytes | bytearray | memoryview] = []
        total = 0
        flags = 0
        for chunk in output:
            if isinstance(chunk, FileRange):
                if chunk.count >= SENDFILE_BYTES_MIN:
                    flags = socket.MSG_MORE
                    break
                data = self._read_small(chunk)
                if data is None:
                    if not parts:
                        self._warm(chunk)
                    break
                parts.append(data)
                total += len(data)
            else:
                parts.append(chunk)
                total += len(chunk)
            if total >= GATHER_BYTES_MAX or len(parts) >= GATHER_CHUNKS_MAX:
                break
        if not parts:
            return 0, 0
        if len(parts) == 1:
            return total, self._socket.send(parts[0], flags)
        if total <= JOIN_BYTES_MAX:
            return total, self._socket.send(b"".join(parts), flags)
        return total, self._socket.sendmsg(parts, (), flags)

    def _read_small(self, chunk: FileRange) -> bytes | None:
        data = chunk.file.read_cached(chunk.position, chunk.count)
        if data is not None and len(data) != chunk.count:
            self._file_failed(_short(chunk))
            return None
        return data

    def _send_file(self, chunk: FileRange, budget: int) -> tuple[int, int]:
        file = chunk.file
        require(isinstance(file, RealFile), "a FileRange of another world's disk")
        assert isinstance(file, RealFile)
        count = min(chunk.count, budget, SENDFILE_BYTES_MAX)
        end = chunk.position + count
        warmed = self._warm_end is not None and self._warm_end[0] is file and self._warm_end[1] >= end
        if not warmed and not file.is_cached(chunk.position, count):
            self._warm(chunk)
            return 0, 0
        sent = os.sendfile(self._fd, file.fileno(), chunk.position, count)
        if not sent:
            self._file_failed(_short(chunk))
            return 0, 0
        return count, sent

    def _file_failed(self, why: str) -> None:
        """End the stream, which cannot continue: the frame's length has already been sent."""
        self.driver.log.error("closing a connection: a file range could not be sent", peer=self._peer_host, why=why)
        self.end(CloseReason.RESET)

    # ranges that are not in the page cache

    def _warm(self, chunk: FileRange) -> None:
        if self._ended:
            return
        self._warming = True
        self.driver.stats.cold_reads += 1
        self.driver.run_task(lambda: self._read_ahead(chunk), name="cold read")

    async def _read_ahead(self, chunk: FileRange) -> None:
        file = chunk.file
        assert isinstance(file, RealFile)
        count = min(chunk.count, WARM_BYTES_MAX)
        try:
            await trio.to_thread.run_sync(file.warm, chunk.position, count, limiter=self.driver.cold_limiter)
        except (DiskError, HandleRevoked) as error:
            self._file_failed(str(error))
            return
        self._warming = False
        self._warm_end = (file, chunk.position + count)
        self.wake()
