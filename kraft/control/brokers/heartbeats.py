"""The heartbeat state machine: FENCED, UNFENCED, CONTROLLED_SHUTDOWN, SHUTDOWN_NOW.

Invariants: a broker is unfenced only after it has published its own registration (M12), and not while it is being
fenced. Unfencing is recorded before the elections that it allows. Fencing and controlled shutdown are recorded after
their partition changes, so that no change in between finds an inactive broker in an ISR (M6).
Source: BrokerHeartbeatRequest, KIP-631, KIP-841, Kafka's BrokerHeartbeatManager.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from kraft.control.commands import (
    START,
    BrokerHeartbeat,
    ElectLeaderless,
    FenceBrokers,
    FenceCause,
    FenceTarget,
    HandleOfflineDirectories,
    ShutDownBroker,
)
from kraft.control.decision import SHUTDOWN_UNDER_WAY, Context, Decision, FollowUp, ShutdownOffset
from kraft.control.partitions.plans import (
    elect_leaderless,
    elect_recoverable,
    eligibility,
    leads_anything,
    leave_partitions,
)
from kraft.control.partitions.recovery import find_recoverable
from kraft.control.replies import BrokerHeartbeatReply
from kraft.image import BrokerRegistration, MetadataImage
from kraft.image.events import BrokerRegistrationChange
from kraft.wire.error_codes import ErrorCode


class BrokerControlState(Enum):
    """State of a broker in the heartbeat state machine."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shut down now"


def current_state(context: Context, broker: BrokerRegistration) -> BrokerControlState:
    """Return the broker's state, derived from the image and the running plans."""
    if broker.fenced:
        return BrokerControlState.FENCED
    if is_shutdown_in_progress(context, broker.broker_id):
        return BrokerControlState.CONTROLLED_SHUTDOWN
    if broker.broker_id in context.being_fenced:
        return BrokerControlState.FENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerControlState.UNFENCED


def is_shutdown_in_progress(context: Context, broker_id: int) -> bool:
    """Return whether a plan for the broker's controlled shutdown has begun on this controller and is not complete."""
    session = context.sessions.get(broker_id)
    return session is not None and session.shutdown_offset == SHUTDOWN_UNDER_WAY


def next_state(
    image: MetadataImage, context: Context, broker: BrokerRegistration, command: BrokerHeartbeat
) -> BrokerControlState:
    """Return the broker's state after this heartbeat."""
    current = current_state(context, broker)
    if current is BrokerControlState.FENCED:
        if command.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        may_unfence = not command.want_fence and broker.broker_id not in context.being_fenced
        return BrokerControlState.UNFENCED if may_unfence and is_caught_up(command) else BrokerControlState.FENCED
    if current is BrokerControlState.UNFENCED:
        if command.want_fence:
            return BrokerControlState.SHUTDOWN_NOW if command.want_shut_down else BrokerControlState.FENCED
        if not command.want_shut_down:
            return BrokerControlState.UNFENCED
        leads = leads_anything(image, broker.broker_id)
        return BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
    return BrokerControlState.SHUTDOWN_NOW if _may_stop(image, context, broker.broker_id) else current


def is_caught_up(command: BrokerHeartbeat) -> bool:
    """Return whether the broker has published the record of its own registration, whose offset is the broker epoch."""
    return command.metadata_offset > command.broker_epoch


def _may_stop(image: MetadataImage, context: Context, broker_id: int) -> bool:
    """Return whether the broker leads no partition, and every active broker has published metadata that shows this."""
    session = context.sessions.get(broker_id)
    if session is None or session.shutdown_offset in (None, SHUTDOWN_UNDER_WAY):
        return False
    if leads_anything(image, broker_id):
        return False
    return lowest_active_offset(image, context) >= (session.shutdown_offset or 0)


def lowest_active_offset(image: MetadataImage, context: Context) -> int:
    """Return the lowest metadata offset that an active broker has published; a very high offset if none is active."""
    lowest = SHUTDOWN_UNDER_WAY
    for broker_id, broker in image.brokers.items():
        if broker.is_active and broker_id not in context.being_fenced:
            session = context.sessions.get(broker_id)
            lowest = min(lowest, -1 if session is None else session.metadata_offset)
    return lowest


def decide_heartbeat(image: MetadataImage, context: Context, command: BrokerHeartbeat) -> Decision:
    """Decide the state change that a heartbeat requests, and the reply."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        return Decision(reply=BrokerHeartbeatReply(error_code=ErrorCode.STALE_BROKER_EPOCH), depends_on=image.offset)
    newly_offline = set(command.offline_log_dirs).intersection(broker.log_dirs)
    if newly_offline and broker.broker_id not in context.being_fenced:
        lose = HandleOfflineDirectories(heartbeat=command, directories=tuple(sorted(newly_offline)))
        return Decision(depends_on=image.offset, effects=(FollowUp(lose),))
    current = current_state(context, broker)
    wanted = next_state(image, context, broker, command)
    reply = BrokerHeartbeatReply(
        is_caught_up=is_caught_up(command),
        is_fenced=wanted in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        should_shut_down=wanted is BrokerControlState.SHUTDOWN_NOW,
    )
    if wanted is BrokerControlState.UNFENCED and current is BrokerControlState.FENCED:
        return _unfence(image, context, command, reply)
    if (
        wanted in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)
        and current is not BrokerControlState.FENCED
    ):
        target = FenceTarget(command.broker_id, command.broker_epoch, None)
        fence = FenceBrokers(targets=(target,), cause=FenceCause.REQUESTED, reply=reply)
        return Decision(depends_on=image.offset, effects=(FollowUp(fence),))
    if wanted is BrokerControlState.CONTROLLED_SHUTDOWN:
        return _controlled_shutdown(image, context, broker, reply)
    if command.log_ends:
        may_lead = eligibility(image, context).may_lead
        recoverable = tuple(find_recoverable(image, context, command.log_ends, may_lead))
        if recoverable:
            recover = ElectLeaderless(broker_id=command.broker_id, recoverable=recoverable, reply=reply)
            return Decision(depends_on=image.offset, effects=(FollowUp(recover),))
    return Decision(reply=reply, depends_on=image.offset)


def _unfence(image: MetadataImage, context: Context, command: BrokerHeartbeat, reply: BrokerHeartbeatReply) -> Decision:
    """Record the unfencing first, then hold elections in which the broker counts as active."""
    broker_id = command.broker_id
    unfence = BrokerRegistrationChange(broker_id, command.broker_epoch, fenced=False, in_controlled_shutdown=False)
    part = elect_leaderless(image, context, START, broker_id, also=(broker_id,))
    events = (unfence, *part.events)
    if part.cursor is None:
        return Decision(events=events, reply=reply, depends_on=image.offset)
    rest = ElectLeaderless(broker_id=broker_id, cursor=part.cursor, reply=reply)
    return Decision(events=events, depends_on=image.offset, effects=(FollowUp(rest),))


def _controlled_shutdown(
    image: MetadataImage, context: Context, broker: BrokerRegistration, reply: BrokerHeartbeatReply
) -> Decision:
    """Start the plan that removes the broker from all ISRs, and decide its first slice. Do nothing if this controller
    has already started the plan."""
    session = context.sessions.get(broker.broker_id)
    is_complete = broker.in_controlled_shutdown and session is not None and session.shutdown_offset is not None
    if is_complete or is_shutdown_in_progress(context, broker.broker_id):
        return Decision(reply=reply, depends_on=image.offset)
    plan = ShutDownBroker(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, cursor=START, reply=reply)
    return decide_shut_down(image, context, plan)


def decide_shut_down(image: MetadataImage, context: Context, command: ShutDownBroker) -> Decision:
    """Decide one slice of a controlled shutdown: remove the broker from every ISR. A partition with no other member
    becomes leaderless. The last slice contains the record. The heartbeat is answered after the first slice, because a
    stopping broker assumes that a controller which does not answer for long is dead. The broker repeats its heartbeat
    until the plan is complete."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        return Decision(reply=BrokerHeartbeatReply(error_code=ErrorCode.STALE_BROKER_EPOCH), depends_on=image.offset)
    part = leave_partitions(image, context, frozenset((command.broker_id,)), command.cursor)
    if part.cursor is not None:
        under_way = ShutdownOffset(command.broker_id, command.broker_epoch, SHUTDOWN_UNDER_WAY)
        rest = FollowUp(replace(command, cursor=part.cursor), is_answered=True)
        return Decision(
            events=tuple(part.events), reply=command.reply, depends_on=image.offset, effects=(under_way, rest)
        )
    events = part.events
    if broker.is_active:  # otherwise another controller recorded it, or the broker was fenced meanwhile
        events = [*events, BrokerRegistrationChange(broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True)]
    offset = context.next_offset + len(events)
    return Decision(
        events=tuple(events),
        reply=command.reply,
        depends_on=image.offset,
        effects=(ShutdownOffset(command.broker_id, command.broker_epoch, offset),),
    )


def decide_elect_leaderless(image: MetadataImage, context: Context, command: ElectLeaderless) -> Decision:
    """Decide one slice of elections: for all partitions without a leader, or for the few recoverable ones that a
    heartbeat reports."""
    if command.recoverable:
        events = elect_recoverable(image, context, command.recoverable)
        return Decision(events=tuple(events), reply=command.reply, depends_on=image.offset)
    part = elect_leaderless(image, context, command.cursor, command.broker_id)
    if part.cursor is None:
        return Decision(events=tuple(part.events), reply=command.reply, depends_on=image.offset)
    rest = ElectLeaderless(broker_id=command.broker_id, cursor=part.cursor, reply=command.reply)
    return Decision(events=tuple(part.events), depends_on=image.offset, effects=(FollowUp(rest),))
