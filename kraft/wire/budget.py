"""MemoryBudget: the bytes that frames, fetch buffers and decompression may hold at once in this process.

Invariants:
- The bytes taken never exceed `total_bytes` plus one large take. A large take is always admitted when no other is held.
  Only `take`, for memory that cannot be refused, may exceed this bound.
- Large takes use at most three quarters, so small ones are served however many large ones are held.
- A quarter is reserved for connections that have already sent a whole long frame. New connections that announce frames
  and do not send them cannot use it up.
- Waiters of a size class are woken in order of arrival, those of new connections after the others. A new waiter does
  not overtake earlier ones.
- While others wait, a connection whose frame does not arrive at a minimal rate is closed (`check_progress`).

A frame takes all of its bytes before its buffer grows, so two half-received frames cannot block each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

LARGE_BYTES = 2 * 1024 * 1024
"""Size above which a take is large; all large takes together may use three quarters of the budget."""

STALL_MS_MAX = 2_000
"""Milliseconds within which a half-received frame must grow by STALL_BYTES_MIN while other connections wait for memory.
Otherwise its connection is closed."""

STALL_BYTES_MIN = 512 * 1024
"""Minimum bytes by which a half-received frame must grow within STALL_MS_MAX, unless it reaches its end."""


class BudgetHolder(Protocol):
    """A connection that holds budget bytes for its receive buffer."""

    @property
    def received_bytes(self) -> int:
        """Bytes received since the connection began; never decreases."""
        ...

    @property
    def peer_host(self) -> str:
        """The peer's address, for the log."""
        ...

    def give_back_idle_buffer(self) -> bool:
        """Drop an empty buffer and return its bytes to the budget. Return False if the buffer is in use."""
        ...

    def evict(self) -> bool:
        """Close the connection, because it makes no progress with memory that others wait for. Return False, with no
        effect, if the peer is not at fault."""
        ...


class BudgetWaiter:
    """A place in the queue for budget bytes. `cancel` leaves the queue. Once `granted`, the waiter must give the bytes
    back."""

    __slots__ = ("callback", "count", "granted", "is_cancelled", "is_new")

    def __init__(self, count: int, callback: Callable[[], None], is_new: bool) -> None:
        self.count = count
        self.callback = callback
        self.is_new = is_new
        self.granted = False
        self.is_cancelled = False

    def cancel(self) -> None:
        """Leave the queue. No effect once granted."""
        self.is_cancelled = True


class MemoryBudget:
    """The memory budget of one process. Pure: nothing here suspends; `when_free` calls back."""

    def __init__(self, total_bytes: int) -> None:
        """`total_bytes`: the bytes that may be held. The bound is strict if it is at least 4/3 of the largest frame."""
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self.large_used_bytes = 0
        self._large_bytes_max = total_bytes - total_bytes // 4
        self._reserved_bytes = total_bytes // 4
        self._queues: tuple[deque[BudgetWaiter], ...] = (deque(), deque(), deque(), deque())
        """Queues of waiters, in the order in which they are served; see `_queue`."""
        self._buffers: dict[BudgetHolder, int] = {}
        self._filling: dict[BudgetHolder, tuple[int, int | None]] = {}
        self._checked_ms = 0

    # take and give

    def try_take(self, count: int, *, is_new: bool = False) -> bool:
        """Take `count` bytes now, or take nothing and return False. Idle receive buffers are reclaimed first. `is_new`:
        the connection has not sent a whole long frame yet."""
        if self._queue(count, is_new):
            return False
        if not self._fits(count, is_new) and not self._reclaim(count, is_new):
            return False
        self.take(count)
        return True

    def take(self, count: int) -> None:
        """Take `count` bytes whether they are available or not."""
        self.used_bytes += count
        if count > LARGE_BYTES:
            self.large_used_bytes += count

    def give(self, count: int) -> None:
        """Give back `count` bytes that one take took, and serve the waiters."""
        self.used_bytes -= count
        if count > LARGE_BYTES:
            self.large_used_bytes -= count
        for waiters in self._queues:
            if waiters:
                self._serve(waiters)

    def when_free(self, count: int, callback: Callable[[], None], *, is_new: bool = False) -> BudgetWaiter:
        """Queue for `count` bytes. `callback` runs once they are taken for this waiter, at the earliest inside a later
        `give`."""
        waiter = BudgetWaiter(count, callback, is_new)
        self._queue(count, is_new).append(waiter)
        return waiter

    @property
    def has_waiters(self) -> bool:
        return any(not waiter.is_cancelled for waiters in self._queues for waiter in waiters)

    # receive buffers

    def note_buffer(self, holder: BudgetHolder) -> None:
        """Register a holder's receive buffer: it may be reclaimed while it is empty."""
        self._buffers[holder] = -1

    def note_filling(self, holder: BudgetHolder) -> None:
        """Record that this holder has taken bytes for an incomplete frame."""
        self._filling[holder] = (holder.received_bytes, None)

    def note_filled(self, holder: BudgetHolder) -> None:
        self._filling.pop(holder, None)

    def forget(self, holder: BudgetHolder) -> None:
        """Forget a holder whose connection has ended."""
        self._buffers.pop(holder, None)
        self._filling.pop(holder, None)

    def release_idle(self) -> None:
        """Reclaim the buffers of connections that received nothing since the last call. To be called every few
        seconds."""
        for holder, received_bytes in list(self._buffers.items()):
            if holder.received_bytes == received_bytes and holder.give_back_idle_buffer():
                self._buffers.pop(holder, None)
            else:
                self._buffers[holder] = holder.received_bytes

    def check_progress(self, now_ms: int) -> list[BudgetHolder]:
        """Evict holders of half-received frames that stall while others wait, and return them.

        To be called about once a second. After a longer pause each holder gets its full time again, as this process may
        be the one that did not read."""
        has_waiters = self.has_waiters and now_ms - self._checked_ms <= STALL_MS_MAX
        self._checked_ms = now_ms
        evicted: list[BudgetHolder] = []
        for holder, (bytes_seen, since_ms) in list(self._filling.items()):
            if not has_waiters or since_ms is None or holder.received_bytes - bytes_seen >= STALL_BYTES_MIN:
                self._filling[holder] = (holder.received_bytes, now_ms if has_waiters else None)
            elif now_ms - since_ms >= STALL_MS_MAX:
                if holder.evict():
                    evicted.append(holder)
                else:
                    self._filling[holder] = (holder.received_bytes, now_ms)
        return evicted

    # internals

    def _queue(self, count: int, is_new: bool) -> deque[BudgetWaiter]:
        return self._queues[2 * (count > LARGE_BYTES) + is_new]

    def _fits(self, count: int, is_new: bool) -> bool:
        reserved_bytes = self._reserved_bytes if is_new else 0
        used_bytes_max = self.total_bytes - reserved_bytes
        if count <= LARGE_BYTES:
            small_used_bytes = self.used_bytes - self.large_used_bytes
            small_bytes_max = self.total_bytes - self._large_bytes_max - reserved_bytes // 4
            return self.used_bytes + count <= used_bytes_max or small_used_bytes + count <= small_bytes_max
        return self.large_used_bytes == 0 or (
            self.large_used_bytes + count <= self._large_bytes_max - reserved_bytes
            and self.used_bytes + count <= used_bytes_max
        )

    def _reclaim(self, count: int, is_new: bool) -> bool:
        for holder in list(self._buffers):
            if holder.give_back_idle_buffer():
                self._buffers.pop(holder, None)
                if self._fits(count, is_new):
                    return True
        return False

    def _serve(self, waiters: deque[BudgetWaiter]) -> None:
        while waiters:
            waiter = waiters[0]
            if not waiter.is_cancelled:
                if not self._fits(waiter.count, waiter.is_new):
                    return
                self.take(waiter.count)
                waiter.granted = True
            waiters.popleft()
            if waiter.granted:
                waiter.callback()
