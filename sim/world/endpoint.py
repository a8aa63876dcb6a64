"""One end of a connection in the simulated network: implements kraft.seam.Transport, and calls the connection as the
driver does.

The calls are those of the production driver: reads in a pass, a flush (settle) at its end, `closed` once. Some reads,
drawn at random from the seed, are short, down to one byte.
"""

from __future__ import annotations

from collections import deque

from kraft.seam import Chunk, CloseReason, Connection, FileRange, WireError, require
from kraft.sim.world.disk import FakeFile
from kraft.sim.world.driver import FakeDriver
from kraft.sim.world.host import Host
from kraft.sim.world.streams import Finish, Stream

SEND_BYTES_PER_PASS = 256 * 1024
TINY_READ_BYTES_MAX = 3


class FakeEndpoint:
    """Implements kraft.seam.Transport. `outgoing` is the stream that this end writes to, `incoming` the stream that it
    reads."""

    def __init__(self, driver: FakeDriver, listener: str, peer_host: str, outgoing: Stream, incoming: Stream) -> None:
        self.driver = driver
        self.host: Host = driver.host
        self.outgoing = outgoing
        self.incoming = incoming
        self.connection: Connection | None = None
        self.ended = False
        self.deaf = False
        self.queued = False
        """Whether this end is in the driver's queue of ends to read."""
        self.marked = False
        self._listener = listener
        self._peer_host = peer_host
        self._unread: deque[memoryview] = deque()
        self._finish: Finish | None = None
        self._paused = False
        self._waits_turn = False
        self._held = False
        self._waits_for_room = False
        self._close_reason: CloseReason | None = None
        self._flush_on_close = False
        self._chance = driver.fabric.link_chance(incoming.source, incoming.target)
        incoming.receiver = self
        driver.fabric.endpoints[self] = None
        driver.stats.connections += 1

    def start(self, connection: Connection) -> None:
        """Start reading for `connection`."""
        self.connection = connection
        self.driver.queue(self)
        self.wake()

    # kraft.seam.Transport

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
        """Return the time of this pass. Data that had arrived by then has been read, unless the connection has no
        space."""
        return self.host.clock.monotonic_ns()

    def wake(self) -> None:
        self.driver.check()
        if not self.ended:
            self.driver.mark(self)

    def wait_turn(self) -> None:
        self._waits_turn = True
        self.driver.mark(self)

    def close(self, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        if self._close_reason is None or (self._flush_on_close and not flush):
            self._close_reason = reason
            self._flush_on_close = flush
            self.wake()

    # incoming data (kraft.sim.world.streams.Receiver)

    def arrive(self, data: bytes) -> None:
        self._unread.append(memoryview(data))
        self.driver.queue(self)

    def arrive_finish(self, finish: Finish) -> None:
        self._finish = finish
        if finish is Finish.RST:
            self._unread.clear()
        self.driver.queue(self)

    # the driver's calls

    def read(self) -> None:
        """Give the connection the bytes that have arrived, up to its free space; sometimes, drawn from the seed, only a
        part of them."""
        connection = self.connection
        if connection is None or self.ended or self._held:
            return
        while self._unread and self._close_reason is None:
            space: memoryview | None = connection.space()
            room = len(space) if space is not None else 0
            if space is None or not room:
                self._paused = True
                break
            count = self._share(room)
            self._copy(space, count)
            space = None  # a view that stays alive would prevent the connection from growing its buffer
            self._deliver(connection, count)
            if self._unread and count < room:
                self.driver.queue(self)  # a short read: a later pass reads the remaining bytes
                break
        if self._finish is not None and not self._unread and self._close_reason is None:
            self.end(CloseReason.RESET if self._finish is Finish.RST else CloseReason.PEER)
        else:
            self.driver.mark(self)

    def settle(self) -> None:
        self.marked = False
        connection = self.connection
        if self.ended or connection is None:
            return
        self._take_turns(connection)
        if (self._close_reason is None or self._flush_on_close) and not self._held and not self._flush(connection):
            return
        if self._close_reason is not None and not (self._flush_on_close and connection.output()):
            self.end(self._close_reason)
        elif self._paused and self._close_reason is None and len(connection.space()):
            self._paused = False
            self.driver.queue(self)

    def end(self, reason: CloseReason) -> None:
        """Close this end, and notify the peer's kernel and the connection; a second call does nothing."""
        if self.ended:
            return
        self._leave()
        self.outgoing.finish(Finish.RST if self._unread else Finish.FIN)
        self._unread.clear()
        self.driver.trace("end", reason.name.encode())
        if self.driver.fabric.observer is not None:
            self.driver.fabric.observer.ended(self, reason)
        if self.connection is not None:
            self.connection.closed(reason)

    def reset(self) -> None:
        """End the connection by a reset, which the peer receives too."""
        if not self.ended:
            self.outgoing.finish(Finish.RST)
            self.end(CloseReason.RESET)

    def die(self) -> None:
        """End this connection because its process died: the kernel closes the stream, and no code on this side is
        notified."""
        if not self.ended:
            self._leave()
            self.outgoing.finish(Finish.RST if self._unread else Finish.FIN)
            self._unread.clear()

    def go_dark(self) -> None:
        """End this connection because its host lost power: nothing is sent, not even the end of the stream."""
        if not self.ended:
            self._leave()
            self.deaf = True
            self.driver.fabric.endpoints[self] = None  # until the host has booted again

    def hold(self, held: bool) -> None:
        """Stop reading and sending while held."""
        self._held = held
        self.driver.queue(self)
        self.wake()

    def _leave(self) -> None:
        self.ended = True
        del self.driver.fabric.endpoints[self]
        self.driver.stats.connections -= 1

    # reading

    def _share(self, room: int) -> int:
        """Return how many bytes this read gives to the connection."""
        count = min(room, sum(map(len, self._unread)))
        options = self.driver.fabric.options
        if self._chance.one_in(options.tiny_read_one_in):
            return min(count, 1 + self._chance.below(TINY_READ_BYTES_MAX))
        if self._chance.one_in(options.partial_read_one_in):
            return 1 + self._chance.below(count)
        return count

    def _copy(self, space: memoryview, count: int) -> None:
        filled = 0
        while filled < count:
            front = self._unread[0]
            part = front[: count - filled]
            space[filled : filled + len(part)] = part
            filled += len(part)
            if len(part) == len(front):
                self._unread.popleft()
            else:
                self._unread[0] = front[len(part) :]
        self.incoming.was_read(count)

    def _deliver(self, connection: Connection, count: int) -> None:
        self.driver.stats.bytes_received += count
        self.driver.trace("received", b"%d" % count)
        observer = self.driver.fabric.observer
        if observer is not None:
            observer.receiving(self, count)
        try:
            connection.received(count)
            self._take_turns(connection)
        except WireError as error:
            self.driver.trace("bad bytes", str(error).encode())
            self.close(CloseReason.BAD_BYTES)
        if observer is not None:
            observer.received(self, count)

    def _take_turns(self, connection: Connection) -> None:
        """Do all bounded pieces of work that the connection has due. They take no virtual time, so no other connection
        waits for them."""
        while self._waits_turn and self._close_reason is None:
            self._waits_turn = False
            connection.take_turn()

    # sending

    def _flush(self, connection: Connection) -> bool:
        """Send as many bytes as there is room for; return False if that ended the connection."""
        budget = SEND_BYTES_PER_PASS
        while output := connection.output():
            room = min(self.outgoing.room, budget)
            if room <= 0:
                break
            data = self._gather(output, room)
            if data is None:
                self.driver.trace("short file")
                self.end(CloseReason.RESET)
                return False
            require(data, "an empty chunk in a connection's output")
            budget -= len(data)
            self.driver.stats.bytes_sent += len(data)
            self.driver.trace("sent", data)
            if self.driver.fabric.observer is not None:
                self.driver.fabric.observer.sending(self, data)
            self.outgoing.send(data)
            connection.sent(len(data))
        if connection.output():
            if budget <= 0:
                self.driver.mark(self)
            else:
                self.outgoing.want_room(self._room_again)
        return True

    def _room_again(self) -> None:
        if not self.ended:
            self.driver.mark(self)

    def _gather(self, output: deque[Chunk], room: int) -> bytes | None:
        """Return up to `room` bytes from the front of the queue; None if a file is shorter than its range."""
        parts: list[bytes | bytearray | memoryview] = []
        for chunk in output:
            if isinstance(chunk, FileRange):
                count = min(chunk.count, room)
                data = _content(chunk, count)
                if len(data) < count:
                    return None
                parts.append(data)
            elif len(chunk) > room:
                parts.append(memoryview(chunk)[:room])
            else:
                parts.append(chunk)
            room -= len(parts[-1])
            if room <= 0:
                break
        return b"".join(parts)


def _content(chunk: FileRange, count: int) -> bytes:
    require(isinstance(chunk.file, FakeFile), "a FileRange of another world's disk")
    assert isinstance(chunk.file, FakeFile)
    return chunk.file.sent(chunk.position, count)
