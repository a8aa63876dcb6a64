"""The active controller's line of commands: decide, append, replay, park the reply. All of it synchronous on the loop.

What is decided or appended in steps (`FollowUp.at_once`, very large batches) has the line to itself until it is done:
commands that come meanwhile wait in their order, and others have the loop between two steps. When it is free, the
controller's own fences come first; then the slices of plans and those that wait take turns.

Invariants: `image` is the committed image plus everything appended and not yet committed; no reply leaves before the
high watermark has reached what it depends on and its own events (M9); losing leadership drops the image and fails every
parked reply and every plan (B32). A plan's next slice is decided on the newest image, and when most of what plans have
appended is committed: whoever else is answered waits for that. A command whose decision or reply raises fails alone;
events that are in the log and not in `image` stop the node.
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
    LoseDirectories,
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
"""A batch of more events is encoded and replayed in steps of so many."""

PLAN_EVENTS_AHEAD_MAX = 1_000
"""While more events of plans than this are not committed, plans wait: those who ask for other things are answered
behind them. So two slices of a thousand events are under way at a time, or three of a fence: one is decided while
others are being committed."""

TURN_NS_MAX = 5_000_000
"""Of those that waited for the line, as many are decided in one step as fit into this time."""

NS_PER_MS = 1e6

WAITING_MAX = 1_000
"""While so many wait for the line, others are told to come again (REQUEST_TIMED_OUT)."""


class CommandHost(Protocol):
    """Who owns the line: gives each decision its context, and hears what was decided."""

    def context(self) -> Context: ...

    def decided(self, command: Any, decision: Decision) -> None:
        """The decision's events are appended and replayed."""
        ...

    def appended(self, prepared: PreparedImage) -> None:
        """A decision's events are in the log, and this is the image that they make."""
        ...

    def shutdown_offset(self, effect: ShutdownOffset) -> None: ...

    def work_waits(self) -> None:
        """There is something for `run_next`: call it soon, until it says that there is nothing."""
        ...

    def failed(self, command: Any, problem: Exception) -> None:
        """Deciding this command, or a later step of it, or its waiter's reply, has raised. Its waiter is told next."""
        ...


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for a command: `reply` gets the decision's reply, once it may be known; `lost` is called instead if
    leadership is lost first; `failed` if too many wait (REQUEST_TIMED_OUT), or if the command, or `reply`, has raised
    (UNKNOWN_SERVER_ERROR). Each is called at most once."""

    reply: Callable[[Any], None]
    lost: Callable[[], None]
    failed: Callable[[ErrorCode], None]


def _ignore(_told: Any) -> None:
    """Nobody waits for this."""


def _nothing() -> None:
    """Nobody needs to know."""


NOBODY = Waiter(_ignore, _nothing, _ignore)


@dataclass(frozen=True, slots=True)
class _Asked:
    command: Any
    waiter: Waiter
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision with events, and the batch that is made of them."""

    asked: _Asked
    next_offset: int
    decision: Decision
    batch: BatchBuilder


def _who_asked(step: _Asked | _Decided) -> _Asked:
    return step if isinstance(step, _Asked) else step.asked


@dataclass(frozen=True, slots=True)
class _Parked:
    asked: _Asked
    offset: int
    reply: Any


class CommandLine:
    """Decides commands one after the other while this node is the active controller."""

    def __init__(self, quorum: Quorum, host: CommandHost, clock: Clock) -> None:
        self.image: MetadataImage | None = None
        self._quorum = quorum
        self._host = host
        self._clock = clock
        self._epoch = -1
        self._high_watermark = 0
        self._parked: deque[_Parked] = deque()
        self._under_way: _Asked | _Decided | None = None
        """What has the line to itself: the next step of a decision, or of a batch."""
        self._urgent: deque[_Asked] = deque()
        self._waiting: deque[_Asked] = deque()
        self._follow_ups: deque[_Asked] = deque()
        self._steps_owed = 0
        """To plans, before those that wait go on: one for each step that had the line while a plan was there."""
        self._plan_events: deque[tuple[int, int]] = deque()
        """Each slice that is not known to be committed, and is not its plan's last: its end offset, how many events."""
        self.queue_ms = Histogram()
        """How long commands waited for the line."""
        self.processing_ms = Histogram()
        """How long decisions took, each step by itself."""
        self.started = 0
        """Commands whose decision began."""
        self.timed_out = 0
        """Commands that were refused, for too many waited."""

    @property
    def is_active(self) -> bool:
        return self.image is not None

    @property
    def is_taken(self) -> bool:
        """Something has the line to itself: nothing else is decided."""
        return self._under_way is not None

    def activate(self, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
        """This node leads: all below the end of its log is replayed in `committed`, but for records without events."""
        self.image = committed
        self._epoch = epoch
        self._high_watermark = high_watermark

    def deactivate(self) -> None:
        """Leadership is lost: drop what is not known to be committed, and fail everybody who waits."""
        self.image = None
        under_way, self._under_way = self._under_way, None
        left = [parked.asked for parked in self._parked]
        if under_way is not None:
            left.append(_who_asked(under_way))
        left += (*self._urgent, *self._waiting, *self._follow_ups)
        for queue in (self._parked, self._urgent, self._waiting, self._follow_ups, self._plan_events):
            queue.clear()
        self._steps_owed = 0
        for asked in left:
            asked.waiter.lost()

    def submit(self, command: Any, waiter: Waiter = NOBODY) -> None:
        """Decide now, or, while the line is taken, after those that wait. The waiter is called at once, or when the
        high watermark allows it."""
        asked = _Asked(command, waiter, self._clock.monotonic_ns())
        if self.image is None:
            waiter.lost()
        elif not self.is_taken and not self._urgent and not self._waiting:
            self._guarded(asked, self._decide, asked)
        elif len(self._waiting) < WAITING_MAX or waiter is NOBODY:
            self._waiting.append(asked)
        else:
            self.timed_out += 1
            waiter.failed(ErrorCode.REQUEST_TIMED_OUT)

    def submit_first(self, command: Any) -> None:
        """A command of the controller's own: decide now, or, while the line is taken, before those that wait."""
        asked = _Asked(command, NOBODY, self._clock.monotonic_ns())
        if self.is_taken:
            self._urgent.append(asked)
        elif self.image is not None:
            self._guarded(asked, self._decide, asked)

    def _decide(self, asked: _Asked) -> None:
        """Decide the command, and count how long it waited and took."""
        began_ns = self._clock.monotonic_ns()
        if asked.since_ns:
            self.started += 1
            self.queue_ms.update((began_ns - asked.since_ns) / NS_PER_MS)
        try:
            self._decide_now(asked)
        finally:
            self.processing_ms.update((self._clock.monotonic_ns() - began_ns) / NS_PER_MS)

    def _decide_now(self, asked: _Asked) -> None:
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
        """The next events of the batch, and, when it is complete, into the log with it: in a step of its own if the
        events took several."""
        begun = len(decided.batch.values)
        is_complete = decided.batch.take(EVENTS_PER_STEP_MAX)
        if is_complete and begun in (0, len(decided.batch.values)):
            self._append(decided)
        else:
            self._take_line(decided)

    def _take_line(self, step: _Asked | _Decided) -> None:
        self._under_way = step
        self._host.work_waits()

    def _append(self, decided: _Decided) -> None:
        """One atomic batch; and the image that it makes is the speculative image, built first: it may not fit."""
        before, values = self.image, decided.batch.values
        end_offset = decided.next_offset + len(values)
        image, delta = decided.batch.build(end_offset, self._epoch)
        try:
            appended = self._quorum.append(values)
            require(
                appended == end_offset,
                f"events were decided for offset {decided.next_offset} but stand at {appended - len(values)}",
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
            raise InvariantError(f"{what} may be in the log, and are not carried out: {problem!r}") from problem

    def _carry_out(self, asked: _Asked, decision: Decision, end_offset: int) -> None:
        """What is left of a decision when its events are appended: who hears of it, its effects, its reply."""
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
            self._take_line(_Asked(following.command, asked.waiter))
        elif following is not None:
            self._follow_ups.append(_Asked(following.command, NOBODY if is_over else asked.waiter))
            self._host.work_waits()
        if is_over and asked.waiter is not NOBODY:
            self._park(_Parked(asked, end_offset, decision.reply))

    def _park(self, parked: _Parked) -> None:
        if parked.offset <= self._high_watermark and not self._parked:
            self._reply(parked)
        else:
            self._parked.append(parked)

    def _reply(self, parked: _Parked) -> None:
        self._guarded(parked.asked, parked.asked.waiter.reply, parked.reply)

    def high_watermark_reached(self, high_watermark: int) -> None:
        """Everything below is committed: release the replies that waited for it, in order."""
        self._high_watermark = max(self._high_watermark, high_watermark)
        while self._parked and self._parked[0].offset <= self._high_watermark:
            self._reply(self._parked.popleft())
        if self._follow_ups:
            self._host.work_waits()

    def run_next(self) -> bool:
        """The next step of what has the line; else a command of the controller's own; else the next slice of a plan, or
        a turn of those that wait. Plans have as many steps as others had meanwhile, and those that wait let them go
        first, also while plans wait for commits: so does every reply. False if there was nothing that may run now."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._owe_plans()
            self._go_on(under_way)
        elif self._urgent:
            self._take(self._urgent)
        elif self._follow_ups and (self._steps_owed or not self._waiting):
            if not self._plans_may_go_on():
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

    def _plans_may_go_on(self) -> bool:
        """Little of what plans have appended is not committed."""
        ahead, high_watermark = self._plan_events, self._quorum.high_watermark
        while ahead and ahead[0][0] <= high_watermark:
            ahead.popleft()
        return sum(events for _, events in ahead) <= PLAN_EVENTS_AHEAD_MAX

    def _next_slice(self) -> None:
        """Plans that take brokers out come before others: their clients wait for new leaders."""
        plans = self._follow_ups
        first = next((number for number, asked in enumerate(plans) if leaving_brokers(asked.command)), 0)
        asked = plans[first]
        del plans[first]
        self._guarded(asked, self._decide, asked)

    def _take_turn(self) -> None:
        """Those that wait longest, for a few milliseconds, or until one takes the line."""
        end_ns = self._clock.monotonic_ns() + TURN_NS_MAX
        while self._waiting and not self.is_taken:
            self._take(self._waiting)
            if self._clock.monotonic_ns() >= end_ns:
                break

    def _take(self, queue: deque[_Asked]) -> None:
        asked = queue.popleft()
        self._guarded(asked, self._decide, asked)

    def _go_on(self, under_way: _Asked | _Decided) -> None:
        asked = _who_asked(under_way)
        if isinstance(under_way, _Decided) and under_way.next_offset == self._quorum.log_end_offset:
            self._guarded(asked, self._fill, under_way)
        else:  # a draft; or the quorum has appended a record of its own, and it was decided for another offset
            self._guarded(asked, self._decide, asked)

    def _guarded(self, asked: _Asked, step: Callable[[Any], None], value: Any) -> None:
        """A command's step. What it raises is told to the host and to who waits for the command, and harms nobody
        else."""
        try:
            step(value)
        except (DiskError, InvariantError):
            raise
        except Exception as problem:  # noqa: BLE001 - told to the host, and to the waiter
            self._host.failed(asked.command, problem)
            asked.waiter.failed(ErrorCode.UNKNOWN_SERVER_ERROR)

    def brokers_being_fenced(self) -> frozenset[int]:
        """Brokers that a plan under way takes out: not eligible for anything."""
        if not self._follow_ups:
            return frozenset()
        return frozenset(broker_id for asked in self._follow_ups for broker_id in leaving_brokers(asked.command))

    def directories_being_lost(self) -> frozenset[UUID]:
        """Log directories that a plan under way takes replicas away from."""
        if not self._follow_ups:
            return frozenset()
        commands = (asked.command for asked in self._follow_ups)
        return frozenset(
            directory
            for command in commands
            if isinstance(command, LoseDirectories)
            for directory in command.directories
        )


def leaving_brokers(command: Any) -> tuple[int, ...]:
    """Whom a plan takes out, once its first slice is decided."""
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
