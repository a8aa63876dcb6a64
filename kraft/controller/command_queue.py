"""The active controller's command queue: decide, append, replay, park the reply. All of it is synchronous on the loop.

A command that is decided or appended in steps (`FollowUp.at_once`, very large batches) holds the queue until it is
done: other commands wait in order, and the loop serves other work between two steps. When the queue is free, the
controller's own fences come first; then slices of plans and waiting commands take turns.

Invariants: `image` is the committed image plus everything appended and not yet committed. A reply is sent only when the
high watermark has reached the command's events and everything that the reply depends on (M9). Losing leadership drops
the image and fails every parked reply and every plan (B32). The next slice of a plan is decided on the newest image,
once most of what plans have appended is committed, so that other replies do not wait behind plans. A command whose
decision or reply raises fails alone. Events that are in the log but not in `image` stop the node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from kraft.control import Context, Decision, FollowUp, ShutdownOffset, decide
from kraft.control.commands import (
    START,
    FenceBrokers,
    HandleOfflineDirectories,
    RegisterBrokerCommand,
    ShutDownBroker,
    UnregisterBrokerCommand,
)
from kraft.image import BatchBuilder, MetadataImage
from kraft.quorum.publisher import PreparedImage
from kraft.quorum.quorum import NotLeader, Quorum
from kraft.seam import Clock, DiskError, InvariantError, require
from kraft.seam.measures import Histogram
from kraft.wire.error_codes import ErrorCode

EVENTS_PER_STEP_MAX = 2_000
"""Maximum number of events per step: a larger batch is encoded and replayed in several steps."""

PLAN_EVENTS_AHEAD_MAX = 1_000
"""Maximum number of uncommitted events of plans. Above it, plans wait, because other replies wait behind those events.
Two slices of a thousand events may be in flight at a time, or three of a fence: one is decided while others are being
committed."""

TURN_NS_MAX = 5_000_000
"""Maximum nanoseconds that one step of the event loop spends on deciding commands that wait."""

NS_PER_MS = 1e6

WAITING_MAX = 1_000
"""Maximum number of waiting commands; further ones are answered REQUEST_TIMED_OUT."""


class CommandHost(Protocol):
    """Owner of the queue: gives each decision its context, and is notified of the results."""

    def context(self) -> Context: ...

    def decided(self, command: Any, decision: Decision) -> None:
        """Called when the events of a decision are appended and replayed."""
        ...

    def appended(self, prepared: PreparedImage) -> None:
        """Called when the events of a decision are in the log, with the image that results from them."""
        ...

    def shutdown_offset(self, effect: ShutdownOffset) -> None: ...

    def work_available(self) -> None:
        """Called when `run_next` has work. The host then calls `run_next` soon, until it returns False."""
        ...

    def failed(self, command: Any, problem: Exception) -> None:
        """Called when this command has raised: in its decision, in a later step of it, or in the `reply` callback of
        its waiter. The waiter's `failed` is called next."""
        ...


@dataclass(frozen=True, slots=True)
class CommandWaiter:
    """Callbacks of a command's requester. Each is called at most once.

    `reply` gets the decision's reply once everything that the reply depends on is committed. `lost` is called if
    leadership is lost first. `failed` is called if too many commands wait (REQUEST_TIMED_OUT), or if the command or
    `reply` has raised (UNKNOWN_SERVER_ERROR)."""

    reply: Callable[[Any], None]
    lost: Callable[[], None]
    failed: Callable[[ErrorCode], None]


def _ignore(_told: Any) -> None:
    """Ignore a reply or an error."""


def _ignore_loss() -> None:
    """Ignore a loss of leadership."""


NO_WAITER = CommandWaiter(_ignore, _ignore_loss, _ignore)


@dataclass(frozen=True, slots=True)
class _QueuedCommand:
    command: Any
    waiter: CommandWaiter
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision that has events, and the batch that is being built from these events."""

    asked: _QueuedCommand
    next_offset: int
    decision: Decision
    batch: BatchBuilder


def _queued_command_of(step: _QueuedCommand | _Decided) -> _QueuedCommand:
    return step if isinstance(step, _QueuedCommand) else step.asked


@dataclass(frozen=True, slots=True)
class _ParkedReply:
    asked: _QueuedCommand
    offset: int
    reply: Any


class CommandQueue:
    """Decides commands one after the other while this node is the active controller."""

    def __init__(self, quorum: Quorum, host: CommandHost, clock: Clock) -> None:
        self.image: MetadataImage | None = None
        self._quorum = quorum
        self._host = host
        self._clock = clock
        self._epoch = -1
        self._high_watermark = 0
        self._parked: deque[_ParkedReply] = deque()
        self._in_progress: _QueuedCommand | _Decided | None = None
        """The next step of the command that holds the queue: a step of its decision or of appending its batch."""
        self._urgent: deque[_QueuedCommand] = deque()
        self._waiting: deque[_QueuedCommand] = deque()
        self._follow_ups: deque[_QueuedCommand] = deque()
        self._steps_owed = 0
        """Number of steps that plans may take before waiting commands continue: one for each step that other commands
        took while a plan existed."""
        self._plan_events: deque[tuple[int, int]] = deque()
        """(end offset, number of events) of each slice of a plan that is not known to be committed, except the last
        slice of a plan."""
        self.queue_ms = Histogram()
        """Histogram of how long commands waited in the queue, in ms."""
        self.processing_ms = Histogram()
        """Histogram of how long decisions took, in ms. Each step of a decision counts by itself."""
        self.started = 0
        """Number of commands whose decision has started."""
        self.timed_out = 0
        """Number of commands that were rejected because too many were waiting."""

    @property
    def is_active(self) -> bool:
        return self.image is not None

    @property
    def is_held(self) -> bool:
        """Whether a command holds the queue, so that nothing else is decided."""
        return self._in_progress is not None

    def activate(self, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
        """Start deciding as the leader. `committed` is the image up to the log end; the records after its offset hold
        no events."""
        self.image = committed
        self._epoch = epoch
        self._high_watermark = high_watermark

    def deactivate(self) -> None:
        """Stop after a loss of leadership: drop everything not known to be committed, and fail all waiters."""
        self.image = None
        under_way, self._in_progress = self._in_progress, None
        left = [parked.asked for parked in self._parked]
        if under_way is not None:
            left.append(_queued_command_of(under_way))
        left += (*self._urgent, *self._waiting, *self._follow_ups)
        for queue in (self._parked, self._urgent, self._waiting, self._follow_ups, self._plan_events):
            queue.clear()
        self._steps_owed = 0
        for asked in left:
            asked.waiter.lost()

    def submit(self, command: Any, waiter: CommandWaiter = NO_WAITER) -> None:
        """Decide a command now or, while the queue is held, after the commands that wait already. The waiter is called
        at once, or when the high watermark allows it."""
        asked = _QueuedCommand(command, waiter, self._clock.monotonic_ns())
        if self.image is None:
            waiter.lost()
        elif not self.is_held and not self._urgent and not self._waiting:
            self._guarded(asked, self._decide, asked)
        elif len(self._waiting) < WAITING_MAX or waiter is NO_WAITER:
            self._waiting.append(asked)
        else:
            self.timed_out += 1
            waiter.failed(ErrorCode.REQUEST_TIMED_OUT)

    def submit_first(self, command: Any) -> None:
        """Decide a command of the controller itself: now, or before all waiting ones while the queue is held."""
        asked = _QueuedCommand(command, NO_WAITER, self._clock.monotonic_ns())
        if self.is_held:
            self._urgent.append(asked)
        elif self.image is not None:
            self._guarded(asked, self._decide, asked)

    def _decide(self, asked: _QueuedCommand) -> None:
        """Decide the command, and measure its waiting time and its duration."""
        began_ns = self._clock.monotonic_ns()
        if asked.since_ns:
            self.started += 1
            self.queue_ms.update((began_ns - asked.since_ns) / NS_PER_MS)
        try:
            self._decide_now(asked)
        finally:
            self.processing_ms.update((self._clock.monotonic_ns() - began_ns) / NS_PER_MS)

    def _decide_now(self, asked: _QueuedCommand) -> None:
        image = self.image
        if image is None:
            asked.waiter.lost()
            return
        context = self._host.context()
        decision = decide(image, context, asked.command)
        if not decision.events:
            self._carry_out(asked, decision, decision.depends_on)
            return
        self._fill(_Decided(asked, context.next_offset, decision, BatchBuilder(image, decision.events)))

    def _fill(self, decided: _Decided) -> None:
        """Add the next events to the batch. A complete batch is appended: at once if one step sufficed, else in a
        separate step."""
        begun = len(decided.batch.values)
        is_complete = decided.batch.take(EVENTS_PER_STEP_MAX)
        if is_complete and begun in (0, len(decided.batch.values)):
            self._append(decided)
        else:
            self._hold_queue(decided)

    def _hold_queue(self, step: _QueuedCommand | _Decided) -> None:
        self._in_progress = step
        self._host.work_available()

    def _append(self, decided: _Decided) -> None:
        """Append one atomic batch. The image after it is built first, because that may fail; it becomes the speculative
        image."""
        before, values = self.image, decided.batch.values
        end_offset = decided.next_offset + len(values)
        image, delta = decided.batch.build(end_offset, self._epoch)
        try:
            appended = self._quorum.append(values)
            require(
                appended == end_offset,
                f"events were decided for offset {decided.next_offset} but were appended at {appended - len(values)}",
            )
            if before is not None and self.image is before:
                self.image = image
                self._host.appended(PreparedImage(before, image, delta))
            if decided.decision.follow_up is not None:
                self._plan_events.append((end_offset, len(values)))
            self._carry_out(decided.asked, decided.decision, max(decided.decision.depends_on, end_offset))
        except NotLeader:
            decided.asked.waiter.lost()
        except (DiskError, InvariantError):
            raise
        except Exception as problem:
            what = f"the events of {type(decided.asked.command).__name__} below offset {end_offset}"
            raise InvariantError(f"{what} may be in the log, but are not applied: {problem!r}") from problem

    def _carry_out(self, asked: _QueuedCommand, decision: Decision, end_offset: int) -> None:
        """Finish a decision whose events are appended: notify the host, carry out its effects, park its reply."""
        self._host.decided(asked.command, decision)
        following: FollowUp | None = None
        for effect in decision.effects:
            if isinstance(effect, FollowUp):
                following = effect
            else:
                self._host.shutdown_offset(effect)
        is_over = following is None or following.is_answered
        if following is not None and following.at_once:
            require(not decision.events, "what is decided in steps has no events before the last")
            self._hold_queue(_QueuedCommand(following.command, asked.waiter))
        elif following is not None:
            self._follow_ups.append(_QueuedCommand(following.command, NO_WAITER if is_over else asked.waiter))
            self._host.work_available()
        if is_over and asked.waiter is not NO_WAITER:
            self._park(_ParkedReply(asked, end_offset, decision.reply))

    def _park(self, parked: _ParkedReply) -> None:
        if parked.offset <= self._high_watermark and not self._parked:
            self._reply(parked)
        else:
            self._parked.append(parked)

    def _reply(self, parked: _ParkedReply) -> None:
        self._guarded(parked.asked, parked.asked.waiter.reply, parked.reply)

    def high_watermark_reached(self, high_watermark: int) -> None:
        """Release the replies that waited for offsets below the high watermark, in order."""
        self._high_watermark = max(self._high_watermark, high_watermark)
        while self._parked and self._parked[0].offset <= self._high_watermark:
            self._reply(self._parked.popleft())
        if self._follow_ups:
            self._host.work_available()

    def run_next(self) -> bool:
        """Run the next step, and return False if nothing may run now. The order is: the command that holds the queue, a
        command of the controller itself, then the next slice of a plan or a turn of waiting commands. While a plan
        exists, plans get one step for each step of other commands. Steps owed to plans come before waiting commands
        even while the plans wait for commits, because every reply waits for those commits too."""
        under_way, self._in_progress = self._in_progress, None
        if under_way is not None:
            self._owe_plans()
            self._continue(under_way)
        elif self._urgent:
            self._take(self._urgent)
        elif self._follow_ups and (self._steps_owed or not self._waiting):
            if not self._may_plans_continue():
                return False
            self._steps_owed = max(0, self._steps_owed - 1)
            self._next_slice()
        elif self._waiting:
            self._owe_plans()
            self._take_turn()
        else:
            return False
        return True

    def _owe_plans(self) -> None:
        self._steps_owed = self._steps_owed + 1 if self._follow_ups else 0

    def _may_plans_continue(self) -> bool:
        """Return whether plans may continue: the number of their uncommitted events is below the limit."""
        ahead, high_watermark = self._plan_events, self._quorum.high_watermark
        while ahead and ahead[0][0] <= high_watermark:
            ahead.popleft()
        return sum(events for _, events in ahead) <= PLAN_EVENTS_AHEAD_MAX

    def _next_slice(self) -> None:
        """Run a slice of a plan. Plans that remove brokers come first: their clients wait for new leaders."""
        plans = self._follow_ups
        first = next((number for number, asked in enumerate(plans) if leaving_brokers(asked.command)), 0)
        asked = plans[first]
        del plans[first]
        self._guarded(asked, self._decide, asked)

    def _take_turn(self) -> None:
        """Carry out the oldest waiting commands. Stop after a few milliseconds, or at a command after which the others
        must wait for its result."""
        end_ns = self._clock.monotonic_ns() + TURN_NS_MAX
        while self._waiting and not self.is_held:
            self._take(self._waiting)
            if self._clock.monotonic_ns() >= end_ns:
                break

    def _take(self, queue: deque[_QueuedCommand]) -> None:
        asked = queue.popleft()
        self._guarded(asked, self._decide, asked)

    def _continue(self, under_way: _QueuedCommand | _Decided) -> None:
        asked = _queued_command_of(under_way)
        if isinstance(under_way, _Decided) and under_way.next_offset == self._quorum.log_end_offset:
            self._guarded(asked, self._fill, under_way)
        # a decision in steps, or the quorum has since appended a record by itself, so that the offset is no longer
        # right
        else:
            self._guarded(asked, self._decide, asked)

    def _guarded(self, asked: _QueuedCommand, step: Callable[[Any], None], value: Any) -> None:
        """Run a step of a command. An exception is reported to the host and to the command's waiter, and affects no
        other command."""
        try:
            step(value)
        except (DiskError, InvariantError):
            raise
        except Exception as problem:  # noqa: BLE001 - reported to the host and to the waiter
            self._host.failed(asked.command, problem)
            asked.waiter.failed(ErrorCode.UNKNOWN_SERVER_ERROR)

    def brokers_being_fenced(self) -> frozenset[int]:
        """Return brokers that a running plan removes; they are not eligible for anything."""
        if not self._follow_ups:
            return frozenset()
        return frozenset(broker_id for asked in self._follow_ups for broker_id in leaving_brokers(asked.command))

    def directories_going_offline(self) -> frozenset[UUID]:
        """Return log directories from which a running plan removes replicas."""
        if not self._follow_ups:
            return frozenset()
        commands = (asked.command for asked in self._follow_ups)
        return frozenset(
            directory
            for command in commands
            if isinstance(command, HandleOfflineDirectories)
            for directory in command.directories
        )


def leaving_brokers(command: Any) -> tuple[int, ...]:
    """Return the brokers that a plan removes, once the first slice of the plan is decided."""
    match command:
        case FenceBrokers(targets=targets, cursor=cursor) if cursor is not None:
            return tuple(target.broker_id for target in targets)
        case RegisterBrokerCommand(broker_id=broker_id, cursor=cursor) if cursor is not None:
            return (broker_id,)
        case UnregisterBrokerCommand(broker_id=broker_id, cursor=cursor) if cursor != START:
            return (broker_id,)
        case ShutDownBroker(broker_id=broker_id):
            return (broker_id,)
    return ()
