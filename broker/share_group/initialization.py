"""Which share partitions of a group have a delivery state at the share coordinator.

A share partition is assigned only after the share coordinator has its state. The group coordinator first writes which
ones it begins to initialize, then asks the share coordinator, then writes which ones are initialized. What was begun
and not finished is begun again after the retry interval, also by a later coordinator. Deletions work in the same way:
a state that is being deleted is initialized again only when its deletion has finished, because a late deletion would
remove the new state of share partitions that are in use. Kafka does not wait: a topic that is initialized is no longer
being deleted. Source: KIP-932, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

from kraft.broker.consumer_group.requests import Partitions
from kraft.broker.consumer_group.topics import TopicsView
from kraft.broker.share_group.records import ShareStatesKey, ShareStatesValue, TopicStates
from kraft.broker.share_group.state import ShareDraft, ShareGroup

ValueT = TypeVar("ValueT")
NO_NUMBERS: frozenset[int] = frozenset()


class ShareInitialization(NamedTuple):
    """Share partitions whose state the share coordinator must begin, in this state epoch."""

    group: str
    state_epoch: int
    partitions: tuple[tuple[UUID, int], ...]


class ShareDeletion(NamedTuple):
    """Share partitions whose state the share coordinator must delete."""

    group: str
    partitions: tuple[tuple[UUID, int], ...]


class ShareMemory:
    """What a coordinator remembers of a share group besides its records: when it last asked for states, and when it
    last asked for, or first saw, the deletion that is not finished."""

    __slots__ = ("asked_ms", "deleting_ms")

    def __init__(self) -> None:
        self.asked_ms: int | None = None
        self.deleting_ms: int | None = None


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
    request that came late would begin a state again that is in use."""
    states = draft.group.states
    missing: dict[UUID, TopicStates] = {}
    for name in sorted(subscribed_to(draft.group)):
        topic = topics.get(name)
        if topic is not None and topic.topic_id not in states.deleting:
            numbers = frozenset(range(topic.partition_count)) - _numbers(states.initialized, topic.topic_id)
            if numbers:
                missing[topic.topic_id] = TopicStates(name, numbers)
    kept = {topic_id: one for topic_id, one in states.initialized.items() if topics.name_of(topic_id) is not None}
    if missing != dict(states.initializing) or kept != dict(states.initialized):
        value = ShareStatesValue(missing, kept, states.deleting)
        draft.write(ShareStatesKey(draft.group_id), value)
    is_due = memory.asked_ms is None or now_ms - memory.asked_ms >= retry_ms
    places = tuple(
        (topic_id, number)
        for topic_id, one in missing.items()
        for number in sorted(one.partitions if is_due else one.partitions - _numbers(states.initializing, topic_id))
    )
    if not places:
        return None
    memory.asked_ms = now_ms
    return ShareInitialization(draft.group_id, draft.group.epoch, places)


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


def begin_alteration(draft: ShareDraft, partitions: Iterable[tuple[UUID, str, int]]) -> None:
    """Begin a new epoch of the group, in which the states of these share partitions begin again. Those that are not
    initialized yet are being initialized from now on. A deletion that has not finished in these topics is not
    repeated, because it would remove the new states."""
    states = draft.group.states
    initializing, deleting = dict(states.initializing), dict(states.deleting)
    for topic_id, name, number in partitions:
        deleting.pop(topic_id, None)
        if number not in _numbers(states.initialized, topic_id):
            initializing[topic_id] = TopicStates(name, _numbers(initializing, topic_id) | {number})
    if initializing != dict(states.initializing) or deleting != dict(states.deleting):
        value = ShareStatesValue(initializing, states.initialized, deleting)
        draft.write(ShareStatesKey(draft.group_id), value)
    draft.bump(draft.group.metadata_hash)


def begin_deletion(draft: ShareDraft, topic_ids: Iterable[UUID], topics: TopicsView) -> tuple[tuple[UUID, int], ...]:
    """Write that the states of these topics are being deleted. Return the share partitions whose states may exist."""
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
    return tuple(places)


def repeat_deletion(
    draft: ShareDraft, topics: TopicsView, memory: ShareMemory, now_ms: int, retry_ms: int
) -> ShareDeletion | None:
    """Return the states for whose deletion the share coordinator must be asked again, or None. That is due a retry
    interval after it was last asked, or after this coordinator first saw the unfinished deletion: by then no request of
    an earlier coordinator is under way."""
    deleting = draft.group.states.deleting
    if not deleting:
        memory.deleting_ms = None
        return None
    if memory.deleting_ms is None:
        memory.deleting_ms = now_ms
    if now_ms - memory.deleting_ms < retry_ms:
        return None
    memory.deleting_ms = now_ms
    places = [place for topic_id, name in deleting.items() for place in _all_of(topic_id, name, topics)]
    return ShareDeletion(draft.group_id, tuple(places)) if places else None


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


def _all_of(topic_id: UUID, name: str, topics: TopicsView) -> list[tuple[UUID, int]]:
    """Return all partitions of a topic; none if it does not exist any more."""
    topic = topics.get(name)
    count = 0 if topic is None or topic.topic_id != topic_id else topic.partition_count
    return [(topic_id, number) for number in range(count)]


def _numbers(states: Mapping[UUID, TopicStates], topic_id: UUID) -> frozenset[int]:
    known = states.get(topic_id)
    return NO_NUMBERS if known is None else known.partitions
