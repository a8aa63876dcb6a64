"""MemoryBudget: the bytes that frames, fetch buffers and decompression may hold at once in this process.

Invariants:
- what is taken never exceeds `total_bytes` plus one large take: a large one is always admitted when no other is held
  (only `take`, for what cannot be refused, may overdraw further);
- large takes use at most three quarters, so small ones are served however many large ones are held;
- waiters of a size class are woken in the order in which they came, and a newcomer does not overtake them;
- a peer that announced a frame and does not go on sending it loses its buffer while others wait (`check_progress`).

A frame takes all of its bytes before its buffer grows, so two half-received frames cannot block each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

LARGE_BYTES = 2 * 1024 * 1024
"""Takes above this are large: they share three quarters of the budget."""

STALL_MS_MAX = 5_000
"""While others wait, a half-received frame must go on growing within this time …"""

STALL_BYTES_MIN = 64 * 1024
"""… by at least this many bytes (or to its end), else its connection is closed."""


class BudgetHolder(Protocol):
    """A connection that holds budget bytes for its receive buffer."""

    @property
    def received_bytes(self) -> int:
        """Bytes received since the connection began; never falls."""
        ...

    def give_back_idle_buffer(self) -> bool:
        """Shrink an empty buffer to its idle size and give its bytes back. False if the buffer is in use."""
        ...

    def evict(self) -> bool:
        """Close the connection: it holds memory that others wait for and makes no progress. False (and no effect) if
        that is not the peer's fault."""
        ...


class BudgetWaiter:
    """A place in the queue. `cancel` leaves it; once `granted`, the bytes are the waiter's to give back."""

    __slots__ = ("callback", "count", "granted", "is_cancelled")

    def __init__(self, count: int, callback: Callable[[], None]) -> None:
        self.count = count
        self.callback = callback
        self.granted = False
        self.is_cancelled = False

    def cancel(self) -> None:
        """Leave the queue. No effect once granted."""
        self.is_cancelled = True


class MemoryBudget:
    """One per process. Pure: nothing here waits; `when_free` calls back."""

    def __init__(self, total_bytes: int) -> None:
        """`total_bytes`: the bytes that may be held; at least 4/3 of the largest frame keeps the bound strict."""
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self.large_used_bytes = 0
        self._large_bytes_max = total_bytes - total_bytes // 4
        self._small_waiters: deque[BudgetWaiter] = deque()
        self._large_waiters: deque[BudgetWaiter] = deque()
        self._buffers: dict[BudgetHolder, int] = {}
        self._filling: dict[BudgetHolder, tuple[int, int | None]] = {}

    # takes and gives

    def try_take(self, count: int) -> bool:
        """Take `count` bytes now, or take nothing and return False. Idle receive buffers are reclaimed first."""
        waiters = self._large_waiters if count > LARGE_BYTES else self._small_waiters
        if waiters:
            return False
        if not self._fits(count) and not self._reclaim(count):
            return False
        self.take(count)
        return True

    def take(self, count: int) -> None:
        """Take `count` bytes whether they are free or not."""
        self.used_bytes += count
        if count > LARGE_BYTES:
            self.large_used_bytes += count

    def give(self, count: int) -> None:
        """Give back what one take of `count` bytes took, and serve who waits."""
        self.used_bytes -= count
        if count > LARGE_BYTES:
            self.large_used_bytes -= count
        if self._small_waiters or self._large_waiters:
            self._serve(self._small_waiters)
            self._serve(self._large_waiters)

    def when_free(self, count: int, callback: Callable[[], None]) -> BudgetWaiter:
        """Queue for `count` bytes. `callback` runs once they are taken for this waiter, at the earliest inside a later
        `give`."""
        waiter = BudgetWaiter(count, callback)
        (self._large_waiters if count > LARGE_BYTES else self._small_waiters).append(waiter)
        return waiter

    @property
    def has_waiters(self) -> bool:
        return any(not w.is_cancelled for w in self._small_waiters) or any(
            not w.is_cancelled for w in self._large_waiters
        )

    # receive buffers

    def note_buffer(self, holder: BudgetHolder) -> None:
        """This holder has taken bytes for its receive buffer: they may be reclaimed while the buffer is empty."""
        self._buffers[holder] = -1

    def note_filling(self, holder: BudgetHolder) -> None:
        """This holder has taken bytes for a frame that is not complete."""
        self._filling[holder] = (holder.received_bytes, None)

    def note_filled(self, holder: BudgetHolder) -> None:
        self._filling.pop(holder, None)

    def forget(self, holder: BudgetHolder) -> None:
        """This holder's connection is over."""
        self._buffers.pop(holder, None)
        self._filling.pop(holder, None)

    def release_idle(self) -> None:
        """Reclaim the buffers of connections that received nothing since the last call. For a timer of some seconds."""
        for holder, received_bytes in list(self._buffers.items()):
            if holder.received_bytes == received_bytes and holder.give_back_idle_buffer():
                self._buffers.pop(holder, None)
            else:
                self._buffers[holder] = holder.received_bytes

    def check_progress(self, now_ms: int) -> None:
        """Evict holders of half-received frames that stall while others wait. For a timer of about a second."""
        has_waiters = self.has_waiters
        for holder, (bytes_seen, since_ms) in list(self._filling.items()):
            if not has_waiters or since_ms is None or holder.received_bytes - bytes_seen >= STALL_BYTES_MIN:
                self._filling[holder] = (holder.received_bytes, now_ms if has_waiters else None)
            elif now_ms - since_ms >= STALL_MS_MAX and not holder.evict():
                self._filling[holder] = (holder.received_bytes, now_ms)

    # inside

    def _fits(self, count: int) -> bool:
        if count <= LARGE_BYTES:
            small_used_bytes = self.used_bytes - self.large_used_bytes
            return (
                self.used_bytes + count <= self.total_bytes
                or small_used_bytes + count <= self.total_bytes - self._large_bytes_max
            )
        return self.large_used_bytes == 0 or (
            self.large_used_bytes + count <= self._large_bytes_max and self.used_bytes + count <= self.total_bytes
        )

    def _reclaim(self, count: int) -> bool:
        for holder in list(self._buffers):
            if holder.give_back_idle_buffer():
                self._buffers.pop(holder, None)
                if self._fits(count):
                    return True
        return False

    def _serve(self, waiters: deque[BudgetWaiter]) -> None:
        while waiters:
            waiter = waiters[0]
            if not waiter.is_cancelled:
                if not self._fits(waiter.count):
                    return
                self.take(waiter.count)
                waiter.granted = True
            waiters.popleft()
            if waiter.granted:
                waiter.callback()
