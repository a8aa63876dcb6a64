"""Fencing of brokers, in slices: partition changes first, the fence record last.

Invariants: a target whose broker epoch or connection is no longer current when the plan begins is skipped (K2). Only an
expired session may lead to an unclean election (K3). All targets of one plan are ineligible together, so that no
partition moves from one dying broker to the next (M5, M6). Partitions that a target leads come first, because their
clients wait; the other partitions only lack one replica.
Source: docs/decisions/05-fast-fencing.md#brokers, Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from dataclasses import replace

from kraft.control.commands import START, FenceBrokers, FenceCause, FenceTarget
from kraft.control.decision import FENCE_CHANGES_PER_SLICE_MAX, Context, Decision, FollowUp
from kraft.control.partitions.plans import leave_partitions
from kraft.image import MetadataImage
from kraft.image.events import BrokerRegistrationChange, Event


def decide_fence(image: MetadataImage, context: Context, command: FenceBrokers) -> Decision:
    """Decide one slice of a fence. The last slice contains the fence records and the reply."""
    targets = current_targets(image, context, command)
    if not targets:
        return Decision(reply=command.reply, depends_on=image.offset)
    brokers = frozenset(target.broker_id for target in targets)
    expired = command.cause is FenceCause.SESSION_EXPIRED
    events: list[Event] = []
    cursor = command.cursor or START
    if not command.led_is_done:
        part = leave_partitions(
            image, context, brokers, cursor, may_be_unclean=expired, led=True, limit=FENCE_CHANGES_PER_SLICE_MAX
        )
        events += part.events
        if part.cursor is not None:
            return _sliced(image, events, replace(command, targets=targets, cursor=part.cursor))
        cursor = START
    # Partitions that this decision itself has changed are not checked again: the image does not show the changes yet.
    others = None if command.led_is_done else False
    limit = FENCE_CHANGES_PER_SLICE_MAX - len(events)
    part = leave_partitions(image, context, brokers, cursor, may_be_unclean=expired, led=others, limit=limit)
    events += part.events
    if part.cursor is not None:
        return _sliced(image, events, replace(command, targets=targets, cursor=part.cursor, led_is_done=True))
    events += [
        BrokerRegistrationChange(target.broker_id, target.broker_epoch, fenced=True)
        for target in targets
        if not image.brokers[target.broker_id].fenced
    ]
    return Decision(events=tuple(events), reply=command.reply, depends_on=image.offset)


def _sliced(image: MetadataImage, events: list[Event], rest: FenceBrokers) -> Decision:
    return Decision(events=tuple(events), depends_on=image.offset, effects=(FollowUp(rest),))


def current_targets(image: MetadataImage, context: Context, command: FenceBrokers) -> tuple[FenceTarget, ...]:
    """Return the targets that are still valid. Before the first slice, these are the unfenced brokers whose broker
    epoch and connection number are current. Later, they are the brokers whose broker epoch is current."""
    return tuple(
        target
        for target in command.targets
        if _is_registered(image, target) and (command.cursor is not None or _is_due(image, context, command, target))
    )


def _is_registered(image: MetadataImage, target: FenceTarget) -> bool:
    broker = image.brokers.get(target.broker_id)
    return broker is not None and broker.broker_epoch == target.broker_epoch


def _is_due(image: MetadataImage, context: Context, command: FenceBrokers, target: FenceTarget) -> bool:
    if image.brokers[target.broker_id].fenced and command.cause is not FenceCause.REQUESTED:
        return False
    session = context.sessions.get(target.broker_id)
    if command.cause is FenceCause.SESSION_EXPIRED:
        return not context.is_session_live(target.broker_id, target.broker_epoch)
    if command.cause is FenceCause.REQUESTED:
        return True
    if session is None:
        return target.connection_number is None
    return session.broker_epoch == target.broker_epoch and session.connection_number == target.connection_number
