"""Plans over many partitions in slices: eligible leaders, topics' settings, and the changes by which brokers leave
ISRs.

A plan over 30,000 partitions is a chain of commands. Each handles partitions from a cursor on, in the order of topic
names, and stops after a bounded number of changes. The next one is decided on the newest image. Invariant: partitions
before the cursor need no further change, because the brokers concerned are not eligible while the plan runs.
Source: docs/decisions/05-fast-fencing.md#brokers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from kraft.config import topic_value
from kraft.control.commands import Cursor
from kraft.control.decision import (
    LEAVES_PER_SLICE_MAX,
    PARTITION_CHANGES_PER_SLICE_MAX,
    PARTITIONS_PER_SLICE_MAX,
    Context,
)
from kraft.control.partitions.partition_change import (
    Election,
    Eligibility,
    PartitionTarget,
    change_key,
    change_partition,
    for_partition,
)
from kraft.control.partitions.recovery import choose_furthest
from kraft.image import ConfigResourceType, MetadataImage, PartitionState, TopicImage
from kraft.image.events import Event, PartitionChange
from kraft.image.partitions import LEAF_MASK, LEAF_SHIFT, NO_LEADER


class Slice(NamedTuple):
    """The changes of one slice, and the cursor of the next slice (None if this is the last)."""

    events: list[Event]
    cursor: Cursor | None


class Located(NamedTuple):
    """A partition's state with its topic and partition number."""

    topic: TopicImage
    partition_id: int
    state: PartitionState

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.partition_id}"


def locate(image: MetadataImage, name: str, partition_id: int) -> Located | None:
    """Return the partition of this topic and number, or None."""
    topic = image.topics.get(name)
    state = None if topic is None else topic.find(partition_id)
    return None if topic is None or state is None else Located(topic, partition_id, state)


def partitions_from(image: MetadataImage, cursor: Cursor) -> Iterator[Located]:
    """Yield all partitions from the cursor on, by topic name and number."""
    for topic, start in _topics_from(image, cursor):
        index = (start & ~LEAF_MASK) - 1
        for leaf in topic.leaves[start >> LEAF_SHIFT :]:
            for state in leaf:
                index += 1
                if index >= start:
                    yield Located(topic, index, state)


def _topics_from(image: MetadataImage, cursor: Cursor) -> Iterator[tuple[TopicImage, int]]:
    """Yield topics from the cursor on, each with its first partition."""
    names = image.topics.names
    by_name = image.topics.by_name
    for position in range(bisect_left(names, cursor.topic), len(names)):
        topic = by_name[names[position]]
        yield topic, cursor.partition if topic.name == cursor.topic else 0


def take_slice(
    partitions: Iterable[Located | Cursor],
    change: Callable[[Located], PartitionChange | None],
    limit: int | None = None,
    looks_max: int | None = None,
) -> Slice:
    """Return up to `limit` changes of the partitions, in order; by default PARTITION_CHANGES_PER_SLICE_MAX. `looks_max`
    also limits the number of partitions checked, where a check costs as much as a change. A cursor among the partitions
    ends the slice there."""
    if limit is None:
        limit = PARTITION_CHANGES_PER_SLICE_MAX
    events: list[Event] = []
    for looks, located in enumerate(partitions):
        if isinstance(located, Cursor):
            return Slice(events, located)
        if len(events) >= limit or looks == looks_max:
            return Slice(events, Cursor(located.topic.name, located.partition_id))
        event = change(located)
        if event is not None:
            events.append(event)
    return Slice(events, None)


class ElectionSettings:
    """Topic settings that elections need, resolved once per topic and decision."""

    def __init__(self, image: MetadataImage, context: Context) -> None:
        self._image = image
        self._context = context
        self._dynamic = image.configs_of(ConfigResourceType.BROKER, "")
        self._min_insync: dict[str, int] = {}
        self._unclean: dict[str, bool] = {}

    def min_insync_replicas(self, topic: str) -> int:
        """Return the topic's min.insync.replicas."""
        found = self._min_insync.get(topic)
        if found is None:
            found = self._min_insync[topic] = int(str(self._value(topic, "min.insync.replicas")))
        return found

    def is_unclean_enabled(self, topic: str) -> bool:
        """Return whether the topic's configuration allows unclean elections."""
        found = self._unclean.get(topic)
        if found is None:
            found = self._unclean[topic] = self._value(topic, "unclean.leader.election.enable") is True
        return found

    def unclean_election(self, located: Located) -> Election:
        """Return UNCLEAN if the topic allows it and no broker that may hold the data was fenced recently; else ONLINE
        (K3)."""
        if not self.is_unclean_enabled(located.topic.name):
            return Election.ONLINE
        recent = self._context.recently_fenced
        state = located.state
        if recent and not recent.isdisjoint((*state.isr, *state.elr, *state.last_known_elr, state.leader)):
            return Election.ONLINE
        return Election.UNCLEAN

    def _value(self, topic: str, key: str) -> object:
        return topic_value(key, self._image.topic_configs(topic), self._dynamic, self._context.config)


def eligibility(
    image: MetadataImage,
    context: Context,
    *,
    without: Iterable[int] = (),
    also: Iterable[int] = (),
) -> Eligibility:
    """Return which replicas may lead: active brokers whose directory of the replica is online. Excluded are brokers
    that are being fenced, directories that are going offline, and brokers in `without`. Brokers in `also` count as
    active, such as one that this decision unfences."""
    extra = frozenset(also)
    excluded = context.being_fenced.union(without)
    active = {
        broker_id
        for broker_id, broker in image.brokers.items()
        if (broker.is_active or broker_id in extra) and broker_id not in excluded
    }
    brokers = image.brokers

    def may_lead(broker_id: int, directory: UUID | None) -> bool:
        if broker_id not in active or directory in context.directories_going_offline:
            return False
        return directory is None or brokers[broker_id].has_directory(directory)

    return Eligibility(may_lead=may_lead, is_connected=context.is_connected)


class _ChangeCache:
    """A cache of the changes of one decision. Partitions in equal states change in the same way, so each such change is
    decided once. `target` computes a change's target from the state and the replica whose log reaches furthest."""

    def __init__(self, eligible: Eligibility, target: Callable[[PartitionState, int], PartitionTarget]) -> None:
        self._eligible = eligible
        self._target = target
        self._known: dict[object, PartitionChange | None] = {}

    def change(
        self, located: Located, election: Election, min_insync_replicas: int, furthest: int = NO_LEADER
    ) -> PartitionChange | None:
        """Same as `change_partition`, from the cache if possible."""
        known, (topic, partition_id, state) = self._known, located
        how = (election, min_insync_replicas, furthest)
        same = (id(state), how)  # keyed by identity: the image keeps the states alive
        if same not in known:
            shape = (change_key(state), how)
            if shape not in known:
                known[shape] = change_partition(
                    topic.topic_id,
                    partition_id,
                    state,
                    election=election,
                    eligibility=self._eligible,
                    min_insync_replicas=min_insync_replicas,
                    target=self._target(state, furthest),
                )
            known[same] = known[shape]
        return for_partition(known[same], topic.topic_id, partition_id)


def _target_with_furthest_log(_state: PartitionState, furthest: int) -> PartitionTarget:
    return PartitionTarget(furthest=furthest)


def leave_partitions(
    image: MetadataImage,
    context: Context,
    brokers: frozenset[int],
    cursor: Cursor,
    *,
    may_be_unclean: bool = False,
    unclean_restarted: frozenset[int] = frozenset(),
    led: bool | None = None,
    limit: int | None = None,
) -> Slice:
    """Remove the brokers from every ISR, and the brokers that restarted uncleanly from every ELR. Elect new leaders
    where they led. With `led` True, only partitions that these brokers lead are handled; with False, only the others.
    """
    settings = ElectionSettings(image, context)

    def without_them(state: PartitionState, _furthest: int) -> PartitionTarget:
        staying = tuple(replica for replica in state.isr if replica not in brokers)
        return PartitionTarget(isr=staying, unclean_restarted=unclean_restarted)

    alike = _ChangeCache(eligibility(image, context, without=brokers), without_them)

    def change(located: Located) -> PartitionChange | None:
        election = settings.unclean_election(located) if may_be_unclean else Election.ONLINE
        return alike.change(located, election, settings.min_insync_replicas(located.topic.name))

    def is_concerned(state: PartitionState) -> bool:
        leads = state.leader in brokers
        if led is not None and leads != led:
            return False
        return leads or not brokers.isdisjoint(state.isr) or not unclean_restarted.isdisjoint(state.elr)

    return take_slice(partitions_where(image, cursor, is_concerned), change, limit)


def partitions_where(
    image: MetadataImage, cursor: Cursor, holds: Callable[[PartitionState], bool]
) -> Iterator[Located | Cursor]:
    """Yield the partitions from the cursor on whose state satisfies `holds`. Equal partitions usually share one state
    object, so each state is checked once, and most leaves (blocks of partitions) are skipped as a whole. A cursor is
    yielded after every LEAVES_PER_SLICE_MAX leaves."""
    verdicts: dict[int, bool] = {}  # keyed by identity: the image keeps the states alive
    looked_at = 0
    for topic, start in _topics_from(image, cursor):
        begin = start & ~LEAF_MASK
        for leaf in topic.leaves[start >> LEAF_SHIFT :]:
            if looked_at == LEAVES_PER_SLICE_MAX:
                looked_at = 0
                yield Cursor(topic.name, max(begin, start))
            looked_at += 1
            here = set(map(id, leaf))
            for state in leaf if not here <= verdicts.keys() else ():
                if id(state) not in verdicts:
                    verdicts[id(state)] = holds(state)
            if any(map(verdicts.__getitem__, here)):
                for index, state in enumerate(leaf, begin):
                    if verdicts[id(state)] and index >= start:
                        yield Located(topic, index, state)
            begin += len(leaf)


def elect_leaderless(
    image: MetadataImage, context: Context, cursor: Cursor, broker_id: int | None, also: Iterable[int] = ()
) -> Slice:
    """Elect leaders for partitions without one; with `broker_id`, only for partitions with a replica on that broker. If
    no replica is known to be complete, the replica whose log reaches furthest is elected, once enough replicas have
    reported."""
    settings = ElectionSettings(image, context)
    eligible = eligibility(image, context, also=also)

    alike = _ChangeCache(eligible, _target_with_furthest_log)

    def change(located: Located) -> PartitionChange | None:
        state, topic = located.state, located.topic
        furthest = choose_furthest(image, context, topic.topic_id, located.partition_id, state, eligible.may_lead)
        election = settings.unclean_election(located)
        return alike.change(located, election, settings.min_insync_replicas(topic.name), furthest)

    def is_concerned(state: PartitionState) -> bool:
        return state.leader < 0 and (broker_id is None or broker_id in state.replicas)

    return take_slice(partitions_where(image, cursor, is_concerned), change, looks_max=PARTITIONS_PER_SLICE_MAX)


def elect_recoverable(image: MetadataImage, context: Context, partitions: Iterable[tuple[UUID, int]]) -> list[Event]:
    """For each of these partitions, elect the replica whose log reaches furthest, if it may be elected by now."""
    settings = ElectionSettings(image, context)
    eligible = eligibility(image, context)
    alike = _ChangeCache(eligible, _target_with_furthest_log)
    events: list[Event] = []
    for topic_id, partition_id in partitions:
        topic = image.topics.get_by_id(topic_id)
        state = None if topic is None else topic.find(partition_id)
        if topic is None or state is None:
            continue
        furthest = choose_furthest(image, context, topic_id, partition_id, state, eligible.may_lead)
        if furthest != NO_LEADER:
            located = Located(topic, partition_id, state)
            min_insync_replicas = settings.min_insync_replicas(topic.name)
            event = alike.change(located, settings.unclean_election(located), min_insync_replicas, furthest)
            if event is not None:
                events.append(event)
    return events


def leads_anything(image: MetadataImage, broker_id: int) -> bool:
    """Return whether the broker leads any partition."""
    return any(state.leader == broker_id for topic in image.topics for leaf in topic.leaves for state in leaf)
