"""The connection driver: one trio task with its own epoll for all connections and listeners of a node.

A pass has these steps:

- Ready descriptors are handled until PASS_NS_MAX has passed; reads go into the connections, whose handlers run
  immediately. The remaining descriptors are first in the next pass.
- Connections with requests left from their last turn get further turns, in order, in the rest of that time.
- Each end-of-pass callback runs once.
- Each marked connection is settled once: flushed, closed, or read again.

trio's overhead is not per connection. It occurs once per PASSES_PER_TURN passes or, in a node, only when trio itself
has something to do (`shared_wait`).

Invariants: connections are called only from here (or from a dial that has just created them), one call at a time. A
mark is never lost: the connection is settled at the end of this pass, or the mark starts another pass.

Why one task: a task per connection costs a trio wake-up per request. Measured with 64 connections: 58,000 requests/s;
with one epoll in one task: 90,000; with a bare epoll loop: 94,000.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
import trio

from kraft.runtime.heap import HeapTrim
from kraft.runtime.shared_wait import EVENTS_PER_PASS, SharedWait
from kraft.runtime.thread_schedule import ThreadSchedule
from kraft.seam import CloseReason, NetworkStats, require

PASSES_PER_TURN = 8
PASS_NS_MAX = 5_000_000
"""Nanoseconds after which a pass handles no further descriptor, because each of several peers may have sent work for
some milliseconds."""
TURNS_NS = 2_000_000
"""Nanoseconds of a pass for the turns of connections with remaining requests, however long the reads of the pass took.
A single such connection gets the remainder of the pass, if that is more."""
TURNS_SHARE_NS = 500_000
"""Nanoseconds that a connection with remaining requests gets before the next one, if several have requests."""
SLOW_NS = 3_000_000
"""Nanoseconds above which a connection counts as slow. If handling it took longer, it is handled after the others when
it is ready again. A pass handles at least one slow connection, and usually no more, so that the others wait for only
one of them."""
SEND_BYTES_PER_PASS = 4 << 20
SEND_BYTES_MIN = 128 * 1024
"""Minimum bytes that a connection may send when it is settled. The connections settled in one pass share
SEND_BYTES_PER_PASS."""
LONG_STEP_NS = 20_000_000

log = structlog.get_logger("kraft.runtime")


class Pollable(Protocol):
    """Interface of an object with a descriptor in the driver's epoll."""

    def on_ready(self, mask: int) -> None: ...

    def release(self) -> None:
        """Close the descriptor, because the driver stops."""
        ...


class Settleable(Protocol):
    """The methods of a connection's channel that the driver calls."""

    def take_turn(self) -> None:
        """Handle requests that remain from the last turn."""
        ...

    def settle(self) -> None:
        """Flush, close or read again, as necessary. Called once in each pass in which the channel was marked."""
        ...

    def end(self, reason: CloseReason) -> None:
        """Close the stream at once, and notify the connection."""
        ...

    def sweep(self, now_ns: int) -> None:
        """Close the connection if it has been idle, or closing, for too long."""
        ...


class _Waker:
    """An eventfd in the epoll: ends the driver's wait from outside a pass, once per wait."""

    __slots__ = ("_kicked", "fd")

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._kicked = False

    def kick(self) -> None:
        if not self._kicked:
            self._kicked = True
            os.eventfd_write(self.fd, 1)

    def on_ready(self, mask: int) -> None:
        os.eventfd_read(self.fd)
        self._kicked = False

    def release(self) -> None:
        """Do nothing: the driver closes it, last."""


class Driver:
    """The epoll, its members, and the loop over it."""

    def __init__(
        self,
        node_name: str,
        *,
        cold_limiter: trio.CapacityLimiter,
        sweep_interval_ms: int,
        shares_wait: bool = False,
        worked: Callable[[int], None] | None = None,
    ) -> None:
        """`shares_wait`: let trio wait in this driver's epoll (see `shared_wait`), for a process that is a node.
        `worked` is called with the duration of each pass (ns)."""
        self._schedule = ThreadSchedule()
        self.stats = NetworkStats(schedule=self._schedule.read)
        self.log = log.bind(node=node_name)
        self.pass_ns = time.monotonic_ns()
        """Time at which the current pass began. Channels use it as the time of what they receive."""
        self.ended_ns = self.pass_ns
        """Time at which the last pass ended."""
        self.send_bytes_max = SEND_BYTES_PER_PASS
        """Maximum bytes that a channel may send when it is settled."""
        self.channels: dict[int, Settleable] = {}
        self.nursery: trio.Nursery | None = None
        """Nursery for the few operations that need a task: cold reads, accept back-off."""
        self.cold_limiter = cold_limiter
        self._sweep_interval_ms = sweep_interval_ms
        self._epoll = select.epoll()
        self._targets: dict[int, Pollable] = {}
        self._suspended: set[int] = set()
        self._left: dict[int, int] = {}
        """Descriptors that were ready in the last pass but not handled → their place in the next one."""
        self._slow: set[int] = set()
        self._late: dict[int, int] = {}
        """Descriptors of slow connections that are ready, in the order in which they became so → their event mask."""
        self._woken: list[Settleable] = []
        self._turns: deque[Settleable] = deque()
        """Channels with remaining requests, in the order of their next turns."""
        self._end_of_pass: list[Callable[[], None]] = []
        self._changes = 0
        """Number of connections opened plus number of connections closed."""
        self._heap = HeapTrim()
        self._shares_wait = shares_wait
        self._worked = worked
        self._shared: SharedWait | None = None
        self._failure: BaseException | None = None
        self._failed = trio.Event()
        self._in_pass = False
        self._pass_requested = False
        self._waker = _Waker()
        self.add(self._waker.fd, self._waker, select.EPOLLIN)

    # members of the epoll

    def add(self, fd: int, target: Pollable, mask: int) -> None:
        self._targets[fd] = target
        self._epoll.register(fd, mask)

    def modify(self, fd: int, mask: int) -> None:
        self._epoll.modify(fd, mask)

    def suspend(self, fd: int) -> None:
        """Get no events of this descriptor, not even its errors, until `resume`."""
        self._suspended.add(fd)
        self._late.pop(fd, None)
        self._epoll.unregister(fd)

    def resume(self, fd: int, mask: int) -> None:
        self._suspended.discard(fd)
        self._epoll.register(fd, mask)

    def remove(self, fd: int) -> None:
        del self._targets[fd]
        self._slow.discard(fd)
        self._late.pop(fd, None)
        if fd in self._suspended:
            self._suspended.discard(fd)
        else:
            self._epoll.unregister(fd)

    def add_channel(self, fd: int, channel: Settleable) -> None:
        self.channels[fd] = channel
        self.stats.connections += 1
        self._changes += 1

    def remove_channel(self, fd: int) -> None:
        del self.channels[fd]
        self.stats.connections -= 1
        self._changes += 1

    # marks and passes

    def mark(self, channel: Settleable) -> None:
        """Settle this channel at the end of this pass, or of a new pass that starts now. Until then, marking it again
        has no effect."""
        self._woken.append(channel)
        if not self._in_pass and self._shared is None:
            self._waker.kick()

    def wait_turn(self, channel: Settleable) -> None:
        """Give this channel a turn after those already queued."""
        self._turns.append(channel)
        if not self._in_pass and self._shared is None:
            self._waker.kick()

    def request_pass(self) -> None:
        if not self._pass_requested:
            self._pass_requested = True
            if not self._in_pass and self._shared is None:
                self._waker.kick()

    @property
    def has_work(self) -> bool:
        """Whether a pass is due even without an event."""
        return bool(self._woken) or bool(self._turns) or bool(self._late) or self._pass_requested

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        self._end_of_pass.append(callback)

    async def run(self) -> None:
        """Drive until cancelled. An exception from a connection or a callback ends it, and with it the node."""
        self._shared = SharedWait.install(self, self._epoll) if self._shares_wait else None
        if self._shared is None:
            await self._run_as_task()
            return
        try:
            await self._failed.wait()
        finally:
            self._shared.remove()
            self._shared = None
        assert self._failure is not None
        raise self._failure

    async def _run_as_task(self) -> None:
        epoll_fd = self._epoll.fileno()
        poll = self._epoll.poll
        while True:
            if self.has_work:
                await trio.lowlevel.checkpoint()
            else:
                began_ns = time.monotonic_ns()
                await trio.lowlevel.wait_readable(epoll_fd)
                self.stats.waited_ns += time.monotonic_ns() - began_ns
            for _ in range(PASSES_PER_TURN):
                events = poll(0, EVENTS_PER_PASS)
                if not events and not self.has_work:
                    break
                self._pass(events)

    def run_pass(self, events: list[tuple[int, int]]) -> None:
        """Run a pass outside of any task; an exception from it ends `run`."""
        if self._failure is not None:
            return
        try:
            self._pass(events)
        except BaseException as failure:  # noqa: BLE001 - raised again by `run`
            self._failure = failure
            self._failed.set()

    def _pass(self, events: list[tuple[int, int]]) -> None:
        self.pass_ns = started_ns = time.monotonic_ns()
        self._in_pass = True
        self._pass_requested = False
        targets, now = self._targets, time.monotonic_ns
        end_ns = started_ns + PASS_NS_MAX
        if self._left:  # epoll reports again what is still ready, and no descriptor may be handled twice before it
            left, self._left = self._left, {}
            events.sort(key=lambda event: left.get(event[0], len(left)))
        turns, slow, late = self._turns, self._slow, self._late
        began_ns = started_ns
        for number, (fd, mask) in enumerate(events, 1):
            target = targets.get(fd)
            if target is None:
                continue
            if fd in slow:
                late[fd] = mask
                continue
            target.on_ready(mask)
            ready_ns = now()
            if ready_ns - began_ns > SLOW_NS and fd in self.channels:
                slow.add(fd)
            if turns:
                self._give_further_turns(target, ready_ns + PASS_NS_MAX // len(events))
                ready_ns = now()
            if ready_ns > end_ns and number < len(events):
                self._left = {fd: place for place, (fd, _) in enumerate(events[number:])}
                break
            began_ns = ready_ns
        if late:
            self._handle_slow(end_ns)
        if turns:
            turns_end_ns = now() + TURNS_NS
            self._take_turns(max(end_ns, turns_end_ns) if len(turns) == 1 else turns_end_ns)
        for callback in self._end_of_pass:
            callback()
        if self._woken:
            woken, self._woken = self._woken, []
            self.send_bytes_max = max(SEND_BYTES_MIN, SEND_BYTES_PER_PASS // len(woken))
            for channel in woken:
                channel.settle()
        self._in_pass = False
        self.ended_ns = time.monotonic_ns()
        self._count_pass(self.ended_ns - started_ns)

    def _handle_slow(self, end_ns: int) -> None:
        """Handle slow connections that are ready: one, and more while the pass has time."""
        late, now = self._late, time.monotonic_ns
        began_ns = now()
        while late:
            fd = next(iter(late))
            mask = late.pop(fd)
            self._targets[fd].on_ready(mask)
            ready_ns = now()
            if ready_ns - began_ns < SLOW_NS:
                self._slow.discard(fd)
            if ready_ns > end_ns:
                break
            began_ns = ready_ns

    def _give_further_turns(self, channel: object, end_ns: int) -> None:
        """Give further turns to the channel that has just had one, for its share of the pass. Where few peers send,
        their requests are then handled at once, and the responses of many turns are sent in one send."""
        turns, now = self._turns, time.monotonic_ns
        while turns and turns[-1] is channel and now() < end_ns:
            turns.pop().take_turn()

    def _take_turns(self, end_ns: int) -> None:
        turns, now = self._turns, time.monotonic_ns
        while turns:
            channel = turns.popleft()
            share_end_ns = end_ns if not turns else min(end_ns, now() + TURNS_SHARE_NS)
            channel.take_turn()
            self._give_further_turns(channel, share_end_ns)
            if now() > end_ns:
                break

    def _count_pass(self, step_ns: int) -> None:
        stats = self.stats
        stats.passes += 1
        if step_ns > LONG_STEP_NS:
            stats.long_steps += 1
        if step_ns > stats.longest_step_ns:
            stats.longest_step_ns = step_ns
        if self._worked is not None:
            self._worked(step_ns)

    async def sweep(self) -> None:
        """Check all connections for idleness from time to time, and return the memory of closed ones. Runs as long as
        the seam."""
        while True:
            await trio.sleep(self._sweep_interval_ms / 1000)
            now_ns = time.monotonic_ns()
            for channel in list(self.channels.values()):
                channel.sweep(now_ns)
            if self._heap.is_due(self._changes):
                await trio.to_thread.run_sync(self._heap.trim, limiter=self.cold_limiter)

    def run_task(self, function: Callable[[], Awaitable[object]], *, name: str) -> None:
        """Start a small task in the driver's nursery."""
        require(self.nursery is not None, "the driver has no nursery yet")
        assert self.nursery is not None
        self.nursery.start_soon(function, name=name)

    def close(self) -> None:
        """End every connection and close the descriptors."""
        self._in_pass = True  # later marks need no wake-up
        del self._targets[self._waker.fd]
        for target in list(self._targets.values()):
            target.release()
        self._epoll.close()
        self._schedule.close()
        os.close(self._waker.fd)
