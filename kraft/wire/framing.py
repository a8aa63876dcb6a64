"""FramedConnection: common base of both sides of a connection. It has a receive buffer in which frames are parsed, and
an output queue of bytes and file ranges.

Invariants:
- `space()` is never empty unless something blocks reading (see `Block`). Whatever ends the block calls
  `Transport.wake`. The driver then calls `space()` again, which first handles the remaining frames.
- A frame longer than the idle buffer takes its bytes from the MemoryBudget before the buffer grows, and only once the
  present buffer is full. A peer that announces much and sends nothing therefore holds nothing. All bytes are taken at
  once, so that two half-received frames never wait for each other. The buffer of a long frame then doubles as its bytes
  arrive.
- An empty buffer larger than `kept_buffer_bytes` shrinks at once. One of any size is given back when the budget asks
  for it, which it does when nothing was received for a second or two. A connection that has not received anything yet
  has no buffer.
- Small chunks are joined, so that one pass with many responses needs one send.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from kraft.seam import Chunk, CloseReason, FileRange, Transport, WireError
from kraft.wire.budget import LARGE_BYTES, BudgetWaiter, MemoryBudget

FRAME_BYTES_MAX = 104_857_600
"""Maximum size of a frame: Kafka's default of socket.request.max.bytes."""
IDLE_BUFFER_BYTES = 16 * 1024
READ_BUFFER_BYTES = 256 * 1024
"""Maximum size to which a buffer grows when reads fill it completely, so that one read takes many small frames."""
KEPT_BUFFER_BYTES = 1536 * 1024
FIRST_STEP_BYTES = 1024 * 1024
BUFFER_STEP_BYTES = 64 * 1024
"""Step of buffer sizes: they are multiples of this, so that a slightly longer frame needs no new buffer."""
JOIN_BYTES_MAX = 32 * 1024
"""Number of bytes below which copying a chunk into a joined send is cheaper than a separate send or sendfile."""
SIZE_BYTES = 4


class Block:
    """Reasons why a connection does not read: bits of one number. They are plain integers, because an enum's arithmetic
    costs a microsecond."""

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
    """Return a description of the protocol, other than Kafka's, that a frame's first four bytes belong to; None if it
    is not known."""
    return next((hint for prefix, hint in _FOREIGN_PROTOCOLS if head.startswith(prefix)), None)


class FramedConnection(ABC):
    """Base of ServerConnection and ClientConnection. Implements kraft.seam.Connection except `_handle_frames`."""

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
        """Whether the connection has ended or is closing."""
        return self._blocked & Block.CLOSED != 0

    # called by the driver

    def space(self) -> memoryview:
        """Return the buffer for the next bytes; empty while reading is blocked. Also handle frames that were left
        unhandled while reading was blocked."""
        if self._unhandled and not self._blocked:
            self._run_frames()
        if self._blocked:
            return EMPTY
        if not self._buffer:
            self._replace_buffer(self._idle_buffer_bytes, 0)
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Handle every whole frame after `count` bytes were written into the last `space()`."""
        if self._blocked & Block.CLOSED:
            return
        self._end += count
        self.received_bytes += count
        self._run_frames()

    def take_turn(self) -> None:
        """Handle frames that remain from the last turn, now that other connections have had theirs."""
        if self._blocked & Block.TURN:
            self._blocked &= ~Block.TURN
            if self._unhandled and not self._blocked:
                self._run_frames()

    def output(self) -> deque[Chunk]:
        """Return the chunks to send, in order.

        Also handle frames that were left unhandled while reading was blocked. After the wake that ended the block, a
        driver may have nothing to read, and then it does not call `space`."""
        if self._unhandled and not self._blocked and not self._handling:
            self._run_frames()
        if self._small:
            self._output.append(b"".join(self._small))
            self._small.clear()
        return self._output

    def sent(self, count: int) -> None:
        """Remove the first `count` bytes of `output()`, which were sent."""
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
        """Handle the end of the stream: give all memory back."""
        self._blocked |= Block.CLOSED
        if self.closed_because is None:
            self.closed_because = reason.value
        self._output.clear()
        self._small.clear()
        self._output_bytes = 0
        self._release_memory()

    # called by the owner

    def close(self, why: str, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        """End the connection; `why` is kept in `closed_because` for the log. No frame is handled after this call."""
        if self._blocked & Block.CLOSED:
            return
        self._blocked |= Block.CLOSED
        self.closed_because = why
        self._transport.close(reason, flush=flush)

    def mute(self) -> None:
        """Stop reading and handling frames."""
        self._blocked |= Block.MUTED

    def unmute(self) -> None:
        """Resume reading."""
        self._unblock(Block.MUTED)

    # BudgetHolder

    def evict(self) -> bool:
        """Close this connection, because the budget needs the memory of its half-received frame. Return False if the
        peer is not at fault, because this side does not read."""
        if self._blocked & ~Block.OUTPUT:
            return False
        self.close("a half-received frame stalled while others waited for memory")
        self._release_memory()
        return True

    def give_back_idle_buffer(self) -> bool:
        """Drop an empty buffer. Return False if it is in use."""
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
            self._note_filling()  # the next frame gets its own time
        if self._blocked:
            self._unhandled = True
            if self._blocked & Block.CLOSED:
                return
        self._settle(needed)

    def _end_turn(self) -> None:
        """Leave the remaining whole frames for a turn after those of other connections."""
        self._blocked |= Block.TURN
        self._transport.wait_turn()

    @abstractmethod
    def _handle_frames(self) -> int:
        """Handle whole frames from `_start` on, and advance `_start`. Return the total size of the incomplete frame at
        `_start` (0 if it is not known yet)."""

    def _check_frame_bytes(self, size: int, start: int) -> None:
        """Raise WireError if a frame may not have this size. The text names the protocol, other than Kafka's, that the
        bytes may belong to."""
        if 0 <= size <= self._frame_bytes_max:
            return
        hint = foreign_protocol(bytes(self._view[start : start + SIZE_BYTES]))
        if hint is not None:
            raise WireError(hint)
        raise WireError(f"a frame announces {size} bytes, the limit is {self._frame_bytes_max}")

    def _settle(self, needed: int) -> None:
        """After handling the whole frames, make room for the next bytes, and keep no more memory than they need."""
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
        """Move the incomplete frame to the front; if it fills the buffer, grow the buffer."""
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
        """Grow the buffer if the budget permits. With `must`, the connection cannot continue without more space, so it
        waits for the budget."""
        budget = self._budget
        is_new = not self._has_sent_long_frame
        if budget is None or budget.try_take(capacity, is_new=is_new):
            self._replace_buffer(self._first_step(capacity), capacity)
        elif must:
            self._blocked |= Block.BUDGET
            self._waiter = budget.when_free(capacity, self._granted, is_new=is_new)

    def _first_step(self, capacity: int) -> int:
        """Return the initial size of a buffer for `capacity` taken bytes. The buffer of a long frame starts at twice
        the present buffer's size, and doubles as its bytes arrive."""
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
        """Replace the buffer with one of `capacity`, for which `taken_bytes` were taken."""
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
        """Allocate a buffer of `capacity` and copy the unhandled bytes into it."""
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
        """Queue a frame: its header, then its chunks, `size` bytes in total."""
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
        """Queue a file range: a short one that is in memory is read and joined, a long one is left to the driver's
        sendfile."""
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
