"""FramedConnection: what the server's and the client's side of a connection share. A receive buffer that frames are
parsed in, and an output queue of bytes and file ranges.

Invariants:
- `space()` is never empty unless something blocks reading (see `Block`); what ends the block calls `Transport.wake`,
  and the driver then calls `space()` again, which first handles the frames that were left unhandled;
- a frame longer than the idle buffer takes its bytes from the MemoryBudget before the buffer grows, and only once what
  is there is full: a peer that announces much and sends nothing holds nothing. All of them at once, so that no two
  half-received frames wait for each other; the buffer of a long one then doubles as its bytes come;
- an empty buffer that is larger than `kept_buffer_bytes` shrinks at once; one of any size is given back when the
  budget asks for it, which it does when nothing was received for a second or two. A connection that has sent nothing
  yet has none;
- small chunks are joined, so that one pass with many answers is one send.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from kraft.seam import Chunk, CloseReason, FileRange, Transport, WireError
from kraft.wire.budget import LARGE_BYTES, BudgetWaiter, MemoryBudget

FRAME_BYTES_MAX = 104_857_600
"""socket.request.max.bytes."""
IDLE_BUFFER_BYTES = 16 * 1024
READ_BUFFER_BYTES = 256 * 1024
"""A buffer that reads fill to its end grows up to this, so that many small frames come in one read."""
KEPT_BUFFER_BYTES = 1536 * 1024
FIRST_STEP_BYTES = 1024 * 1024
BUFFER_STEP_BYTES = 64 * 1024
"""Buffers are multiples of this, so that a slightly longer frame needs no new one."""
JOIN_BYTES_MAX = 32 * 1024
"""Below this, one copy into a joined send is cheaper than a send or a sendfile of its own."""
SIZE_BYTES = 4


class Block:
    """Why a connection does not read: bits of one number. Plain integers: an enum's arithmetic costs a microsecond."""

    MUTED = 1
    BUDGET = 2
    HELD = 4
    SLOTS = 8
    OUTPUT = 16
    CLOSED = 32
    TURN = 64
    PAUSED = 128


EMPTY = memoryview(bytearray())

_FOREIGN_PROTOCOLS = (
    (b"GET ", "an HTTP request came to a Kafka port"),
    (b"POST", "an HTTP request came to a Kafka port"),
    (b"PUT ", "an HTTP request came to a Kafka port"),
    (b"HEAD", "an HTTP request came to a Kafka port"),
    (b"OPTI", "an HTTP request came to a Kafka port"),
    (b"HTTP", "an HTTP answer came on a Kafka connection"),
    (b"SSH-", "an SSH client came to a Kafka port"),
    (
        b"\x16\x03",
        "a TLS handshake came to a port without TLS: set the peer's security.protocol to PLAINTEXT",
    ),
    (b"\x15\x03", "a TLS alert came on a connection without TLS: the listener expects security.protocol=SSL"),
)


def foreign_protocol(head: bytes) -> str | None:
    """The other protocol that a frame's first four bytes belong to, in words; None if they belong to none known."""
    return next((hint for prefix, hint in _FOREIGN_PROTOCOLS if head.startswith(prefix)), None)


class FramedConnection(ABC):
    """Base of ServerConnection and ClientConnection: implements kraft.seam.Connection but for `_handle_frames`."""

    __slots__ = (
        "_blocked",
        "_budget",
        "_buffer",
        "_end",
        "_frame_bytes_max",
        "_handling",
        "_has_sent_long_frame",
        "_idle_buffer_bytes",
        "_is_filling",
        "_is_noted",
        "_kept_buffer_bytes",
        "_output",
        "_output_bytes",
        "_outstanding_bytes_max",
        "_small",
        "_start",
        "_taken_bytes",
        "_transport",
        "_unhandled",
        "_view",
        "_waiter",
        "closed_because",
        "received_bytes",
    )

    def __init__(
        self,
        transport: Transport,
        *,
        frame_bytes_max: int,
        idle_buffer_bytes: int,
        kept_buffer_bytes: int,
        outstanding_bytes_max: int,
        budget: MemoryBudget | None,
    ) -> None:
        self._transport = transport
        self._frame_bytes_max = frame_bytes_max
        self._idle_buffer_bytes = idle_buffer_bytes
        self._kept_buffer_bytes = kept_buffer_bytes
        self._outstanding_bytes_max = outstanding_bytes_max
        self._budget = budget
        self._buffer = bytearray()
        self._view = EMPTY
        self._start = 0
        self._end = 0
        self._taken_bytes = 0
        self._waiter: BudgetWaiter | None = None
        self._is_filling = False
        self._has_sent_long_frame = False
        self._is_noted = False
        self._blocked = 0
        self._handling = False
        self._unhandled = False
        self._output: deque[Chunk] = deque()
        self._small: list[bytes | bytearray | memoryview] = []
        self._output_bytes = 0
        self.received_bytes = 0
        self.closed_because: str | None = None

    @property
    def transport(self) -> Transport:
        return self._transport

    @property
    def peer_host(self) -> str:
        return self._transport.peer_host

    @property
    def is_closed(self) -> bool:
        """It has ended, or is about to."""
        return self._blocked & Block.CLOSED != 0

    # the driver's side

    def space(self) -> memoryview:
        """Where the next bytes go; empty while reading is blocked. Handles frames that a block had left unhandled."""
        if self._unhandled and not self._blocked:
            self._run_frames()
        if self._blocked:
            return EMPTY
        if not self._buffer:
            self._replace_buffer(self._idle_buffer_bytes, 0)
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes came into the last `space()`: handle every whole frame."""
        if self._blocked & Block.CLOSED:
            return
        self._end += count
        self.received_bytes += count
        self._run_frames()

    def take_turn(self) -> None:
        """Other connections have had their turns: handle frames that this one's last turn left."""
        if self._blocked & Block.TURN:
            self._blocked &= ~Block.TURN
            if self._unhandled and not self._blocked:
                self._run_frames()

    def output(self) -> deque[Chunk]:
        """What is to be sent, in order. Handles frames that a block had left unhandled: after the wake that ended the
        block a driver may have nothing to read, and then does not ask for space."""
        if self._unhandled and not self._blocked and not self._handling:
            self._run_frames()
        if self._small:
            self._output.append(b"".join(self._small))
            self._small.clear()
        return self._output

    def sent(self, count: int) -> None:
        """The first `count` bytes of `output()` have left."""
        output = self._output
        self._output_bytes -= count
        while count:
            head = output[0]
            size = head.count if type(head) is FileRange else len(head)  # type: ignore[arg-type]
            if count < size:
                if isinstance(head, FileRange):
                    output[0] = FileRange(head.file, head.position + count, size - count)
                else:
                    output[0] = memoryview(head)[count:]
                break
            output.popleft()
            count -= size
        if self._blocked & Block.OUTPUT and self._output_bytes * 2 <= self._outstanding_bytes_max:
            self._unblock(Block.OUTPUT)

    def closed(self, reason: CloseReason) -> None:
        """The stream is over: give everything back."""
        self._blocked |= Block.CLOSED
        if self.closed_because is None:
            self.closed_because = reason.value
        self._output.clear()
        self._small.clear()
        self._output_bytes = 0
        self._release_memory()

    # the owner's side

    def close(self, why: str, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        """End the connection; `why` is kept in `closed_because` for the log. No frame is handled after it."""
        if self._blocked & Block.CLOSED:
            return
        self._blocked |= Block.CLOSED
        self.closed_because = why
        self._transport.close(reason, flush=flush)

    def mute(self) -> None:
        """Stop to read and to handle frames."""
        self._blocked |= Block.MUTED

    def unmute(self) -> None:
        """Go on reading."""
        self._unblock(Block.MUTED)

    # BudgetHolder

    def evict(self) -> bool:
        """The budget wants the memory of this half-received frame back. False if it is we who do not read."""
        if self._blocked & ~Block.OUTPUT:
            return False
        self.close("a half-received frame stalled while others waited for memory")
        self._release_memory()
        return True

    def give_back_idle_buffer(self) -> bool:
        """Drop an empty buffer. False if it is in use."""
        if self._start != self._end or self._handling or self._waiter is not None:
            return False
        self._replace_buffer(0, 0)
        self._is_noted = False
        return True

    # frames

    def _run_frames(self) -> None:
        self._handling = True
        self._unhandled = False
        start = self._start
        try:
            needed = self._handle_frames()
        except WireError as error:
            self.close(str(error), CloseReason.BAD_BYTES)
            return
        finally:
            self._handling = False
        if self._is_filling and self._start != start:
            self._has_sent_long_frame = True
            self._note_filling()  # what follows has its own time
        if self._blocked:
            self._unhandled = True
            if self._blocked & Block.CLOSED:
                return
        self._settle(needed)

    def _end_turn(self) -> None:
        """Whole frames are left, for a turn after those of other connections."""
        self._blocked |= Block.TURN
        self._transport.wait_turn()

    @abstractmethod
    def _handle_frames(self) -> int:
        """Handle whole frames from `_start` on, and set `_start`. Gives the bytes that the frame at `_start` needs in
        all (0 if its size is not known yet)."""

    def _check_frame_bytes(self, size: int, start: int) -> None:
        """WireError if a frame may not have this size; says what else the bytes may be."""
        if 0 <= size <= self._frame_bytes_max:
            return
        hint = foreign_protocol(bytes(self._view[start : start + SIZE_BYTES]))
        if hint is not None:
            raise WireError(hint)
        raise WireError(f"a frame announces {size} bytes, the limit is {self._frame_bytes_max}")

    def _settle(self, needed: int) -> None:
        """After the whole frames were handled: make room for what comes, and hold no more memory than that needs."""
        start, end = self._start, self._end
        capacity = len(self._buffer)
        if start == end:
            self._start = self._end = 0
            if self._is_filling:
                self._note_filled()
            if capacity > self._kept_buffer_bytes:
                self._replace_buffer(self._idle_buffer_bytes, 0)
            elif end == capacity < READ_BUFFER_BYTES:
                self._grow(capacity * 4, must=False)
            return
        if self._taken_bytes and not self._is_filling:
            self._note_filling()
        if self._blocked:
            return
        if capacity > self._kept_buffer_bytes and max(needed, end - start) <= self._idle_buffer_bytes:
            self._replace_buffer(self._idle_buffer_bytes, 0)
        elif end == capacity or needed > capacity - start:
            self._make_room(needed, was_full=end == capacity)

    def _make_room(self, needed: int, *, was_full: bool) -> None:
        """Move the begun frame to the front; if the buffer is full of it, grow."""
        if self._start:
            kept = self._end - self._start
            self._view[:kept] = self._view[self._start : self._end]
            self._start, self._end = 0, kept
        capacity = len(self._buffer)
        if was_full and needed <= READ_BUFFER_BYTES and capacity < READ_BUFFER_BYTES:
            self._grow(min(capacity * 4, READ_BUFFER_BYTES), must=self._end == capacity)
        elif self._end == capacity:
            wanted = -(-needed // BUFFER_STEP_BYTES) * BUFFER_STEP_BYTES
            if self._taken_bytes >= wanted:
                self._swap_buffer(min(capacity * 2, wanted))
            else:
                self._grow(wanted, must=True)

    def _grow(self, capacity: int, *, must: bool) -> None:
        """A larger buffer, if the budget has room for it. `must`: there is no other way to go on, so wait for it."""
        budget = self._budget
        is_new = not self._has_sent_long_frame
        if budget is None or budget.try_take(capacity, is_new=is_new):
            self._replace_buffer(self._first_step(capacity), capacity)
        elif must:
            self._blocked |= Block.BUDGET
            self._waiter = budget.when_free(capacity, self._granted, is_new=is_new)

    def _first_step(self, capacity: int) -> int:
        """The size that a buffer of `capacity` taken bytes begins with: that of a long frame doubles as its bytes come,
        from what the frames before it have left."""
        return capacity if capacity <= LARGE_BYTES else min(capacity, max(FIRST_STEP_BYTES, 2 * len(self._buffer)))

    def _granted(self) -> None:
        if self._waiter is not None:
            capacity, self._waiter = self._waiter.count, None
            self._replace_buffer(self._first_step(capacity), capacity)
            self._unblock(Block.BUDGET)

    def _note_filling(self) -> None:
        self._is_filling = True
        if self._budget is not None:
            self._budget.note_filling(self)

    def _note_filled(self) -> None:
        self._is_filling = False
        if self._budget is not None:
            self._budget.note_filled(self)

    def _replace_buffer(self, capacity: int, taken_bytes: int) -> None:
        """Swap the buffer for one of `capacity`, for which `taken_bytes` were taken."""
        self._swap_buffer(capacity)
        given, self._taken_bytes = self._taken_bytes, taken_bytes
        budget = self._budget
        if budget is None:
            return
        if not self._is_noted:
            self._is_noted = True
            budget.note_buffer(self)
        if taken_bytes and not self._is_filling and self._start != self._end:
            self._note_filling()
        if given:
            budget.give(given)

    def _swap_buffer(self, capacity: int) -> None:
        """A new buffer of `capacity`, with what the old one holds."""
        buffer = bytearray(capacity)
        view = memoryview(buffer)
        kept = self._end - self._start
        if kept:
            view[:kept] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, kept

    def _release_memory(self) -> None:
        self._start = self._end = 0
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        self._buffer = bytearray()
        self._view = EMPTY
        given, self._taken_bytes = self._taken_bytes, 0
        budget = self._budget
        if budget is not None:
            budget.forget(self)
            if given:
                budget.give(given)

    def _unblock(self, block: int) -> None:
        if self._blocked & block:
            self._blocked &= ~block
            if not self._blocked:
                self._transport.wake()

    # output

    def _push(self, header: bytes, chunks: tuple[Chunk, ...], size: int) -> None:
        """Queue a frame: its header, then its chunks, `size` bytes in all."""
        small = self._small
        small.append(header)
        for chunk in chunks:
            if type(chunk) is FileRange:
                self._push_range(chunk)
            elif len(chunk) <= JOIN_BYTES_MAX:  # type: ignore[arg-type]
                small.append(chunk)  # type: ignore[arg-type]
            else:
                self._push_large(chunk)
        self._count_output(size)
        if not self._handling:
            self._transport.wake()

    def _count_output(self, size: int) -> None:
        self._output_bytes += size
        if self._output_bytes > self._outstanding_bytes_max:
            self._blocked |= Block.OUTPUT

    def _push_range(self, chunk: FileRange) -> None:
        """A short range that is in memory is read and joined; a long one is left to the driver's sendfile."""
        if chunk.count <= JOIN_BYTES_MAX:
            if not chunk.count:
                return
            data = chunk.file.read_cached(chunk.position, chunk.count)
            if data is not None and len(data) == chunk.count:
                self._small.append(data)
                return
        self._push_large(chunk)

    def _push_large(self, chunk: Chunk) -> None:
        if self._small:
            self._output.append(b"".join(self._small))
            self._small.clear()
        self._output.append(chunk)
