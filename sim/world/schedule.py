"""Virtual time: trio's clock over a heap of the world's own events.

trio asks a clock how long to sleep only when no task can run. Then this clock runs the world's events in order of time.
It stops when one of them makes a task runnable, or when trio's next deadline is due; trio continues at that time. So
bytes travel and connections answer without a single cycle of trio's loop.

Tasks that only sleep are kept here too. They are most of trio's deadlines, and waking one is much cheaper than
cancelling a scope around it. Time is an integer of nanoseconds; floats are used only where trio requires them.

An event must not raise: whoever schedules code that may raise must catch its exceptions.
"""

from __future__ import annotations

import gc
import heapq
import math
from collections.abc import Callable

import trio

YOUNG_COLLECT_EVENTS = 50_000
FULL_COLLECT_EVENTS = 2_000_000

Event = tuple[int, int, Callable[[], None]]


class _Sleeper:
    """Reference to a task that sleeps; None once the task was cancelled."""

    __slots__ = ("task",)

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task: trio.lowlevel.Task | None = task

    def abort(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def refuse_abort(self, _: object) -> trio.lowlevel.Abort:
        return trio.lowlevel.Abort.FAILED


class _Poll:
    """Repeated check of a condition, until the condition is true, raises, or times out. `over` ends it too."""

    def __init__(self, schedule: Schedule, condition: Callable[[], bool], until_ns: int, poll_ns: int) -> None:
        self.over = trio.Event()
        self.holds = False
        self.error: Exception | None = None
        self._schedule = schedule
        self._condition = condition
        self._until_ns = until_ns
        self._poll_ns = poll_ns

    def look(self) -> None:
        if self.over.is_set():
            return
        try:
            self.holds = self._condition()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for: an event must not raise
            self.error = error
        if self.holds or self.error is not None or self._schedule.now_ns >= self._until_ns:
            self.over.set()
        else:
            self._schedule.after(self._poll_ns, self.look)


class Schedule(trio.abc.Clock):
    """The heap of events and the virtual time, as trio's clock. `on_deadlock` is called when no further event can
    happen."""

    def __init__(self, on_deadlock: Callable[[], None]) -> None:
        self.now_ns = 0
        self.events_run = 0
        self._heap: list[Event] = []
        self._sleepers: list[tuple[float, int, _Sleeper]] = []
        self._number = 0
        self._on_deadlock = on_deadlock

    def at(self, when_ns: int, event: Callable[[], None]) -> None:
        """Run `event` at this time, or now if the time has passed. Events at the same time run in the order of the
        calls."""
        self._number += 1
        heapq.heappush(self._heap, (max(when_ns, self.now_ns), self._number, event))

    def after(self, delay_ns: int, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (self.now_ns + delay_ns, self._number, event))

    async def sleep(self, seconds: float, *, is_shielded: bool = False) -> None:
        """Sleep like `trio.sleep`, without the cost of a cancel scope. If shielded, a cancellation takes effect only
        after the sleep."""
        if seconds <= 0 and not is_shielded:
            await trio.lowlevel.checkpoint()
            return
        sleeper = _Sleeper(trio.lowlevel.current_task())
        self._number += 1
        heapq.heappush(self._sleepers, (self.current_time() + seconds, self._number, sleeper))
        if is_shielded:
            await trio.lowlevel.wait_task_rescheduled(sleeper.refuse_abort)
            return
        await trio.lowlevel.wait_task_rescheduled(sleeper.abort)
        if trio.current_effective_deadline() == -math.inf:  # cancelled between its waking and its run
            await trio.lowlevel.checkpoint()

    async def wait_until(self, condition: Callable[[], bool], *, until_ns: int, poll_ns: int) -> bool:
        """Suspend until the condition is true, and check it at this interval; return False if it is still not true at
        `until_ns`. A check is an event, and costs no cycle of trio's loop."""
        poll = _Poll(self, condition, until_ns, poll_ns)
        poll.look()
        try:
            await poll.over.wait()
        finally:
            poll.over.set()
        if poll.error is not None:
            raise poll.error
        return poll.holds

    # trio.abc.Clock

    def start_clock(self) -> None:
        """Do nothing: time began with the world."""

    def current_time(self) -> float:
        return self.now_ns / 1e9

    def deadline_to_sleep_time(self, deadline: float) -> float:
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner
        heap = self._heap
        deadline = min(deadline, self._next_sleeper())
        while heap and heap[0][0] / 1e9 <= deadline:
            self.now_ns, _, event = heapq.heappop(heap)
            event()
            self.events_run += 1
            if not self.events_run % YOUNG_COLLECT_EVENTS:
                gc.collect(2 if not self.events_run % FULL_COLLECT_EVENTS else 1)
            if runner.runq:
                self._wake_sleepers()
                return 0
            deadline = min(runner.deadlines.next_deadline(), self._next_sleeper())
        if deadline == math.inf:
            self._on_deadlock()
        else:
            self._jump_to(deadline)
            self._wake_sleepers()
        return 0

    def _next_sleeper(self) -> float:
        """Return when the next sleeping task is due."""
        sleepers = self._sleepers
        while sleepers:
            if sleepers[0][2].task is not None:
                return sleepers[0][0]
            heapq.heappop(sleepers)
        return math.inf

    def _wake_sleepers(self) -> None:
        now = self.current_time()
        while self._next_sleeper() <= now:
            task = heapq.heappop(self._sleepers)[2].task
            assert task is not None
            trio.lowlevel.reschedule(task)

    def _jump_to(self, deadline: float) -> None:
        when_ns = math.ceil(deadline * 1e9)
        while when_ns / 1e9 < deadline:
            when_ns += 1
        self.now_ns = max(self.now_ns, when_ns)
