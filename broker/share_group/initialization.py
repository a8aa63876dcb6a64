"""Which share partitions of a group have a delivery state at the share coordinator.

A share partition is assigned only after the share coordinator has its state. The group coordinator first writes which
ones it begins to initialize, then asks the share coordinator, then writes which ones are initialized. What was begun
and not finished is begun again after the retry interval, also by a later coordinator.

Invariant: each alteration and each deletion begins a new epoch of the group, and a deletion removes only states of
older epochs. So a request that arrives late changes no state that has begun since. Every share partition that may have
a state is in the group's records, in one of the three maps.
Kafka's deletions have no epoch. Source: KIP-932, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from kraft.broker.consumer_group.requests import Partitions
from kraft.broker.consumer_group.topics import TopicsView
from kraft.broker.share_group.records import (
    ShareGroupKey,
    ShareGroupValue,
    ShareStatesKey,
    ShareStatesValue,
    TopicStates,
)
from kraft.broker.share_group.state import ShareDraft, ShareGroup

ValueT = TypeVar("ValueT")
NO_NUMBERS: frozenset[int] = frozenset()


class ShareInitialization(NamedTuple):
    """Share partitions whose state the share coordinator must begin, in this state epoch. `asked_before_ms` is when it
    was asked the last time before."""

    group: str
    state_epoch: int
    partitions: tuple[tuple[UUID, int], ...]
    asked_before_ms: int | None = None


class ShareMemory:
    """What a coordinator remembers of a share group besides its records: when it last asked for states, and the epoch
    of the last deletion."""

    __slots__ = ("asked_ms", "deleted_epoch")

    def __init__(self) -> None:
        self.asked_ms: int | None = None
        self.deleted_epoch = 0


def subscribed_to(group: ShareGroup) -> frozenset[str]:
    """Return the topics to which some member of the group subscribes."""
    return frozenset().union(*(member.subscribed_names for member in group.members.values()))


def assignable(group: ShareGroup, topics: TopicsView) -> Partitions:
    """Return the initialized partitions of all topics that exist."""
    return {
        topic_id: states.partitions
        for topic_id, states in group.states.initialized.items()
        if states.partitions and topics.name_of(topic_id) is not None
    }


def begin_initialization(
    draft: ShareDraft, topics: TopicsView, memory: ShareMemory, now_ms: int, retry_ms: int
) -> ShareInitialization | None:
    """Write which partitions of the subscribed topics are not initialized, if they are others than before. Return those
    for which the share coordinator must be asked now, or None. It is not asked twice in a short time, because a second
    request that came late would begin a state again that is in use.

    Topics whose initialization has begun stay in the records when nobody subscribes to them any more, because their
    states may exist. A topic that is initialized is no longer being deleted: its states begin again in a newer epoch
    than that of the deletion."""
    states, missing = draft.group.states, _missing(draft.group, topics)
    deleting = {one: name for one, name in _existing(states.deleting, topics).items() if one not in missing}
    initializing = {**_existing(states.initializing, topics), **missing}
    value = ShareStatesValue(initializing, _existing(states.initialized, topics), deleting)
    if value != states:
        draft.write(ShareStatesKey(draft.group_id), value)
    is_due = memory.asked_ms is None or now_ms - memory.asked_ms >= retry_ms
    places = tuple(
        (topic_id, number)
        for topic_id, one in missing.items()
        for number in sorted(one.partitions if is_due else one.partitions - _numbers(states.initializing, topic_id))
    )
    if not places:
        return None
    asked_before_ms, memory.asked_ms = memory.asked_ms, now_ms
    return ShareInitialization(draft.group_id, draft.group.epoch, places, asked_before_ms)


def _missing(group: ShareGroup, topics: TopicsView) -> dict[UUID, TopicStates]:
    """Return the partitions of the subscribed topics that are not initialized."""
    missing: dict[UUID, TopicStates] = {}
    for name in sorted(subscribed_to(group)):
        topic = topics.get(name)
        if topic is not None:
            numbers = frozenset(range(topic.partition_count)) - _numbers(group.states.initialized, topic.topic_id)
            if numbers:
                missing[topic.topic_id] = TopicStates(name, numbers)
    return missing


def finish_initialization(draft: ShareDraft, partitions: Iterable[tuple[UUID, int]]) -> bool:
    """Write that these share partitions are initialized, and begin a new epoch, in which they are assigned. Return
    whether that changes the group."""
    states = draft.group.states
    initializing, initialized = dict(states.initializing), dict(states.initialized)
    for topic_id, number in partitions:
        begun = initializing.get(topic_id)
        if begun is None or number not in begun.partitions:
            continue
        initializing[topic_id] = TopicStates(begun.name, begun.partitions - {number})
        known = _numbers(initialized, topic_id)
        initialized[topic_id] = TopicStates(begun.name, known | {number})
    if initialized == dict(states.initialized):
        return False
    left = {topic_id: one for topic_id, one in initializing.items() if one.partitions}
    draft.write(ShareStatesKey(draft.group_id), ShareStatesValue(left, initialized, states.deleting))
    draft.bump(draft.group.metadata_hash)
    return True


def begin_alteration(draft: ShareDraft, partitions: Iterable[tuple[UUID, str, int]], topics: TopicsView) -> None:
    """Begin a new epoch of the group, in which the states of these share partitions begin again. Those that are not
    initialized yet are being initialized from now on, with all others of their topic if it was being deleted."""
    states = draft.group.states
    initializing, deleting = dict(states.initializing), dict(states.deleting)
    for topic_id, name, number in partitions:
        if deleting.pop(topic_id, None) is not None:
            numbers = frozenset(number for _, number in _all_of(topic_id, name, topics))
            initializing[topic_id] = TopicStates(name, numbers)
        if number not in _numbers(states.initialized, topic_id):
            initializing[topic_id] = TopicStates(name, _numbers(initializing, topic_id) | {number})
    value = ShareStatesValue(initializing, states.initialized, deleting)
    if value != states:
        draft.write(ShareStatesKey(draft.group_id), value)
    draft.bump(draft.group.metadata_hash)


def begin_deletion(draft: ShareDraft, topic_ids: Iterable[UUID], topics: TopicsView) -> tuple[tuple[UUID, int], ...]:
    """Write that the states of these topics are being deleted. Return the share partitions whose states may exist. If
    there are any, begin a new epoch of the group: the deletion removes states of older epochs."""
    states = draft.group.states
    initializing, initialized = dict(states.initializing), dict(states.initialized)
    deleting = dict(states.deleting)
    places: dict[tuple[UUID, int], None] = {}
    for topic_id in sorted(topic_ids):
        known = [one for one in (initializing.pop(topic_id, None), initialized.pop(topic_id, None)) if one is not None]
        places.update(((topic_id, number), None) for one in known for number in sorted(one.partitions))
        if topic_id in deleting:
            places.update((place, None) for place in _all_of(topic_id, deleting[topic_id], topics))
        elif known:
            deleting[topic_id] = known[0].name
    value = ShareStatesValue(initializing, initialized, deleting)
    if value != states:
        draft.write(ShareStatesKey(draft.group_id), value)
    if places:
        draft.bump(draft.group.metadata_hash)
    return tuple(places)


def finish_deletion(draft: ShareDraft, topic_ids: Iterable[UUID]) -> None:
    """Write that the states of these topics are deleted."""
    states, gone = draft.group.states, set(topic_ids)
    left = {topic_id: name for topic_id, name in states.deleting.items() if topic_id not in gone}
    if left != dict(states.deleting):
        value = ShareStatesValue(states.initializing, states.initialized, left)
        draft.write(ShareStatesKey(draft.group_id), value)


def forget_states(draft: ShareDraft, topic_ids: Collection[UUID | None]) -> None:
    """Write that the group has no states of these topics, which were deleted."""
    states = draft.group.states

    def without(known: Mapping[UUID, ValueT]) -> dict[UUID, ValueT]:
        return {topic_id: one for topic_id, one in known.items() if topic_id not in topic_ids}

    left = ShareStatesValue(without(states.initializing), without(states.initialized), without(states.deleting))
    if left.topics() != states.topics():
        draft.write(ShareStatesKey(draft.group_id), left)


def raise_epoch(draft: ShareDraft, state_epoch: int) -> None:
    """Begin an epoch of the group that is newer than this one of a state."""
    if state_epoch >= draft.group.epoch:
        draft.write(ShareGroupKey(draft.group_id), ShareGroupValue(state_epoch + 1, draft.group.metadata_hash))


def _existing(known: Mapping[UUID, ValueT], topics: TopicsView) -> dict[UUID, ValueT]:
    """Return what is known of the topics that still exist."""
    return {topic_id: one for topic_id, one in known.items() if topics.name_of(topic_id) is not None}


def _all_of(topic_id: UUID, name: str, topics: TopicsView) -> list[tuple[UUID, int]]:
    """Return all partitions of a topic; none if it does not exist any more."""
    topic = topics.get(name)
    count = 0 if topic is None or topic.topic_id != topic_id else topic.partition_count
    return [(topic_id, number) for number in range(count)]


def _numbers(states: Mapping[UUID, TopicStates], topic_id: UUID) -> frozenset[int]:
    known = states.get(topic_id)
    return NO_NUMBERS if known is None else known.partitions
