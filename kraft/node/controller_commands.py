"""The active controller's line of commands: decide, append, replay, park the reply. All of it synchronous on the loop.

What is decided or appended in steps (`FollowUp.at_once`, very large batches) has the line to itself until it is done:
commands that come meanwhile wait in their order, and others have the loop between two steps.

Invariants: `image` is the committed image plus everything appended and not yet committed; no reply leaves before the
high watermark has reached what it depends on and its own events (M9); losing leadership drops the image and fails every
parked reply and every plan (B32). A plan's next slice is decided on the newest image, after whatever came in meanwhile,
and when most of what was appended before it is committed: whoever else is answered waits for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kraft.control import Context, Decision, FollowUp, ShutdownOffset, decide
from kraft.control.commands import START, FenceBrokers, RegisterBrokerCommand, ShutDownBroker, UnregisterBrokerCommand
from kraft.image import BatchBuilder, MetadataImage
from kraft.node.publisher import PreparedImage
from kraft.node.quorum import NotLeader, Quorum
from kraft.seam import InvariantError, require

EVENTS_PER_STEP_MAX = 2_000
"""A batch of more events is encoded and replayed in steps of so many."""

PLAN_EVENTS_AHEAD_MAX = 1_000
"""While more events than this are not committed, plans wait: those who ask for other things are answered behind them.
Two slices are under way at a time, so that one is decided while another is being committed."""


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
        """A command that had to wait could not be decided. Its waiter is told that it is lost."""
        ...


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for a command: `reply` gets the decision's reply, once it may be known; `lost` is called instead if
    leadership is lost first. Each is called at most once."""

    reply: Callable[[Any], None]
    lost: Callable[[], None]


def _ignore(_reply: Any) -> None:
    """Nobody waits for this reply."""


def _nothing() -> None:
    """Nobody needs to know."""


NOBODY = Waiter(_ignore, _nothing)


@dataclass(frozen=True, slots=True)
class _Asked:
    command: Any
    waiter: Waiter


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision with events, and the batch that is made of them."""

    asked: _Asked
    next_offset: int
    decision: Decision
    batch: BatchBuilder


@dataclass(frozen=True, slots=True)
class _Parked:
    offset: int
    reply: Any
    waiter: Waiter


class CommandLine:
    """Decides commands one after the other while this node is the active controller."""

    def __init__(self, quorum: Quorum, host: CommandHost) -> None:
        self.image: MetadataImage | None = None
        self._quorum = quorum
        self._host = host
        self._epoch = -1
        self._high_watermark = 0
        self._parked: deque[_Parked] = deque()
        self._under_way: _Asked | _Decided | None = None
        """What has the line to itself: the next step of a decision, or of a batch."""
        self._waiting: deque[_Asked] = deque()
        self._follow_ups: deque[_Asked] = deque()

    @property
    def is_active(self) -> bool:
        return self.image is not None

    @property
    def is_taken(self) -> bool:
        """Commands wait for what has the line to itself, or for those that waited before them."""
        return self._under_way is not None or bool(self._waiting)

    def activate(self, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
        """This node leads: all below the end of its log is replayed in `committed`, but for records without events."""
        self.image = committed
        self._epoch = epoch
        self._high_watermark = high_watermark

    def deactivate(self) -> None:
        """Leadership is lost: drop what is not known to be committed, and fail everybody who waits."""
        self.image = None
        under_way, self._under_way = self._under_way, None
        waiters = [parked.waiter for parked in self._parked]
        if under_way is not None:
            waiters.append(under_way.waiter if isinstance(under_way, _Asked) else under_way.asked.waiter)
        waiters += [asked.waiter for asked in (*self._waiting, *self._follow_ups)]
        self._parked.clear()
        self._waiting.clear()
        self._follow_ups.clear()
        for waiter in waiters:
            waiter.lost()

    def submit(self, command: Any, waiter: Waiter = NOBODY) -> None:
        """Decide now, or, while the line is taken, after those that wait. The waiter is called at once, or when the
        high watermark allows it."""
        asked = _Asked(command, waiter)
        if self.image is None:
            waiter.lost()
        elif self.is_taken:
            self._waiting.append(asked)
        else:
            self._decide(asked)

    def _decide(self, asked: _Asked) -> None:
        image = self.image
        if image is None:
            asked.waiter.lost()
            return
        context = self._host.context()
        decision = decide(image, context, asked.command)
        if not decision.events:
            self._carry_out(asked, decision, decision.depends_on)
            return
        decided = _Decided(asked, context.next_offset, decision, BatchBuilder(image, decision.events))
        if decided.batch.take(EVENTS_PER_STEP_MAX):
            self._append(decided)
        else:
            self._take_line(decided)

    def _take_line(self, step: _Asked | _Decided) -> None:
        self._under_way = step
        self._host.work_waits()

    def _append(self, decided: _Decided) -> None:
        """One atomic batch; and the image that it makes is the speculative image."""
        image, values = self.image, decided.batch.values
        try:
            end_offset = self._quorum.append(values)
        except NotLeader:
            decided.asked.waiter.lost()
            return
        require(
            end_offset - len(values) == decided.next_offset,
            f"events were decided for offset {decided.next_offset} but stand at {end_offset - len(values)}",
        )
        if image is not None and self.image is image:
            self.image, delta = decided.batch.build(end_offset, self._epoch)
            self._host.appended(PreparedImage(image, self.image, delta))
        self._carry_out(decided.asked, decided.decision, max(decided.decision.depends_on, end_offset))

    def _carry_out(self, asked: _Asked, decision: Decision, end_offset: int) -> None:
        """What is left of a decision when its events are appended: who hears of it, its effects, its reply."""
        self._host.decided(asked.command, decision)
        following: FollowUp | None = None
        for effect in decision.effects:
            if isinstance(effect, FollowUp):
                following = effect
            else:
                self._host.shutdown_offset(effect)
        if following is None:
            if asked.waiter is not NOBODY:
                self._park(_Parked(end_offset, decision.reply, asked.waiter))
        elif following.at_once:
            require(not decision.events, "what is decided in steps has no events before the last")
            self._take_line(_Asked(following.command, asked.waiter))
        else:
            self._follow_ups.append(_Asked(following.command, asked.waiter))
            self._host.work_waits()

    def _park(self, parked: _Parked) -> None:
        if parked.offset <= self._high_watermark and not self._parked:
            parked.waiter.reply(parked.reply)
        else:
            self._parked.append(parked)

    def high_watermark_reached(self, high_watermark: int) -> None:
        """Everything below is committed: release the replies that waited for it, in order."""
        self._high_watermark = max(self._high_watermark, high_watermark)
        while self._parked and self._parked[0].offset <= self._high_watermark:
            parked = self._parked.popleft()
            parked.waiter.reply(parked.reply)
        if self._follow_ups:
            self._host.work_waits()

    def run_next(self) -> bool:
        """The next step of what has the line, else the command that waits longest, else the next slice of the plan that
        waits longest. False if there was none that may run now."""
        under_way, self._under_way = self._under_way, None
        if isinstance(under_way, _Asked):
            self._decide_late(under_way)
        elif under_way is not None:
            self._go_on(under_way)
        elif self._waiting:
            self._decide_late(self._waiting.popleft())
        elif self._follow_ups and self._quorum.log_end_offset - self._quorum.high_watermark <= PLAN_EVENTS_AHEAD_MAX:
            self._decide(self._follow_ups.popleft())
        else:
            return False
        return True

    def _go_on(self, decided: _Decided) -> None:
        if self._quorum.log_end_offset != decided.next_offset:
            self._decide(decided.asked)  # the quorum has appended a record of its own: it is decided for another offset
        elif decided.batch.take(EVENTS_PER_STEP_MAX):
            self._append(decided)
        else:
            self._under_way = decided

    def _decide_late(self, asked: _Asked) -> None:
        """Who asked is not the caller, and is told of its trouble; nobody else is."""
        try:
            self._decide(asked)
        except InvariantError:
            raise
        except Exception as problem:  # noqa: BLE001 - told to the host, and to the waiter
            self._host.failed(asked.command, problem)
            asked.waiter.lost()

    def brokers_being_fenced(self) -> frozenset[int]:
        """Brokers that a plan under way takes out: not eligible for anything."""
        if not self._follow_ups:
            return frozenset()
        return frozenset(broker_id for asked in self._follow_ups for broker_id in leaving_brokers(asked.command))


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
