"""The active controller's line of commands: decide, append, replay, park the reply. All of it synchronous on the loop.

Invariants: `image` is the committed image plus everything appended and not yet committed; no reply leaves before the
high watermark has reached what it depends on and its own events (M9); losing leadership drops the image and fails every
parked reply and every plan (B32). A plan's next slice is decided on the newest image, after whatever came in meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kraft.control import Context, Decision, FollowUp, ShutdownOffset, decide
from kraft.control.commands import START, FenceBrokers, RegisterBrokerCommand, ShutDownBroker, UnregisterBrokerCommand
from kraft.image import MetadataImage, encode_event, replay_with_delta
from kraft.image.events import written_version
from kraft.node.publisher import PreparedImage
from kraft.node.quorum import NotLeader, Quorum
from kraft.seam import InvariantError, require


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
        """A plan has a next slice: call `run_follow_up` soon."""
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
        self._follow_ups: deque[tuple[Any, Waiter]] = deque()

    @property
    def is_active(self) -> bool:
        return self.image is not None

    def activate(self, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
        """This node leads: all below the end of its log is replayed in `committed`, but for records without events."""
        self.image = committed
        self._epoch = epoch
        self._high_watermark = high_watermark

    def deactivate(self) -> None:
        """Leadership is lost: drop what is not known to be committed, and fail everybody who waits."""
        self.image = None
        waiters = [parked.waiter for parked in self._parked] + [waiter for _, waiter in self._follow_ups]
        self._parked.clear()
        self._follow_ups.clear()
        for waiter in waiters:
            waiter.lost()

    def submit(self, command: Any, waiter: Waiter = NOBODY) -> None:
        """Decide now. The waiter is called at once, or when the high watermark allows it."""
        if self.image is None:
            waiter.lost()
            return
        context = self._host.context()
        decision = decide(self.image, context, command)
        end_offset = decision.depends_on
        if decision.events:
            try:
                end_offset = self._append(decision, context)
            except NotLeader:
                waiter.lost()
                return
        self._host.decided(command, decision)
        following = None
        for effect in decision.effects:
            if isinstance(effect, FollowUp):
                following = effect.command
            else:
                self._host.shutdown_offset(effect)
        if following is not None:
            self._follow_ups.append((following, waiter))
            self._host.work_waits()
        elif waiter is not NOBODY:
            self._park(_Parked(max(decision.depends_on, end_offset), decision.reply, waiter))

    def _append(self, decision: Decision, context: Context) -> int:
        """One atomic batch; then the same events into the speculative image. Gives the batch's end."""
        image = self.image
        require(image is not None, "an inactive controller appends nothing")
        version = image.metadata_version if image is not None else 0
        values = [encode_event(event, written_version(type(event), version)) for event in decision.events]
        end_offset = self._quorum.append(values)
        require(
            end_offset - len(values) == context.next_offset,
            f"events were decided for offset {context.next_offset} but stand at {end_offset - len(values)}",
        )
        if image is not None and self.image is image:
            try:
                self.image, delta = replay_with_delta(image, decision.events, end_offset, self._epoch)
            except Exception as error:  # not one request's trouble: the log holds what no image shows
                raise InvariantError(f"events up to offset {end_offset} are appended and do not replay") from error
            self._host.appended(PreparedImage(image, self.image, delta))
        return end_offset

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

    def run_follow_up(self) -> bool:
        """Decide the next slice of the plan that waits longest. False if there was none."""
        if not self._follow_ups:
            return False
        command, waiter = self._follow_ups.popleft()
        self.submit(command, waiter)
        return True

    def brokers_being_fenced(self) -> frozenset[int]:
        """Brokers that a plan under way takes out: not eligible for anything."""
        if not self._follow_ups:
            return frozenset()
        return frozenset(broker_id for command, _ in self._follow_ups for broker_id in leaving_brokers(command))


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
