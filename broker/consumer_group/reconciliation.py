"""Reconciliation: move a member's current assignment step by step to its target assignment.

A member first revokes what it loses, in its old epoch. When its client no longer owns any of that, the member moves to
the target's epoch and gets those of its new partitions that no other member holds.

| state | condition | next state | effect |
|---|---|---|---|
| STABLE | epoch = target epoch, same subscription | STABLE | none |
| UNREVOKED | the client owns a revoking partition, or does not say | UNREVOKED | none |
| any | assigned partitions leave the target, and the client owns one | UNREVOKED | they become revoking; same epoch |
| any other | some partitions of the target are held by others | UNRELEASED | the free ones are assigned; target epoch |
| any other | all partitions of the target are free | STABLE | all are assigned; target epoch |

A partition is free if no other member has it assigned or revoking. A topic that the member no longer subscribes to is
taken from it at once, whatever its target says.
Source: KIP-848, Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.records import NOTHING_HELD, CurrentMemberValue, HeldPartitions, MemberState
from kraft.broker.consumer_group.requests import Partitions

NO_NUMBERS: frozenset[int] = frozenset()


class Goal(NamedTuple):
    """What a member is reconciled to. `owned` is None if the client did not say what it owns. `is_free(topic id,
    partition)` returns whether no other member holds the partition. `is_new_subscription`: the member's subscription
    has changed in this operation."""

    epoch: int
    target: Partitions
    subscribed: frozenset[UUID]
    owned: Partitions | None
    is_free: Callable[[UUID, int], bool]
    is_new_subscription: bool = False


def reconcile(current: CurrentMemberValue, goal: Goal) -> CurrentMemberValue | None:
    """Return the member's next assignment, which is `current` itself if nothing changes. Return None if the member must
    be fenced, because its state was written by a newer release and its client owns partitions."""
    if current.state is MemberState.UNKNOWN:
        if goal.owned is None or goal.owned:
            return None
        return _next(current, goal, goal.epoch)
    if current.state is MemberState.STABLE and current.epoch == goal.epoch:
        return _without_unsubscribed(current, goal) if goal.is_new_subscription else current
    if current.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(goal.owned, current.revoking):
        return _without_unsubscribed(current, goal) if goal.is_new_subscription else current
    return _next(current, goal, current.epoch)


def _owns_any(owned: Partitions | None, held: HeldPartitions) -> bool:
    """Return whether the client owns one of these partitions, as far as is known."""
    if owned is None:
        return True
    return any(partitions & held[topic_id].keys() for topic_id, partitions in owned.items() if topic_id in held)


def _without_unsubscribed(current: CurrentMemberValue, goal: Goal) -> CurrentMemberValue:
    """Take the topics that the member no longer subscribes to; the rest of its assignment stays."""
    lost = {topic_id: held for topic_id, held in current.assigned.items() if topic_id not in goal.subscribed}
    if not lost:
        return current
    assigned = {topic_id: held for topic_id, held in current.assigned.items() if topic_id not in lost}
    revoking = dict(current.revoking)
    for topic_id, held in lost.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **held}
    if _owns_any(goal.owned, revoking):
        state = MemberState.UNREVOKED_PARTITIONS
        return CurrentMemberValue(current.epoch, current.epoch, state, assigned, revoking)
    return current._replace(previous_epoch=current.epoch, assigned=assigned)


def _next(current: CurrentMemberValue, goal: Goal, epoch: int) -> CurrentMemberValue:
    """Return the first step towards the target from a state in which nothing is left to revoke."""
    kept: dict[UUID, dict[int, int]] = {}
    lost: dict[UUID, dict[int, int]] = {}
    for topic_id, held in current.assigned.items():
        target = goal.target.get(topic_id, NO_NUMBERS) if topic_id in goal.subscribed else NO_NUMBERS
        for partition, since in held.items():
            (kept if partition in target else lost).setdefault(topic_id, {})[partition] = since
    if lost and _owns_any(goal.owned, lost):
        return CurrentMemberValue(epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, lost)
    is_waiting = False
    for topic_id, target in goal.target.items():
        if topic_id not in goal.subscribed:
            continue
        for partition in sorted(target - kept.get(topic_id, {}).keys()):
            if goal.is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = goal.epoch
            else:
                is_waiting = True
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    following = CurrentMemberValue(goal.epoch, current.epoch, state, kept, NOTHING_HELD)
    if following._replace(previous_epoch=current.previous_epoch) == current:
        return current
    return following
