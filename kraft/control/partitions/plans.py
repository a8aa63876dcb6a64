"""Walking over many partitions in slices: eligible leaders, topics' settings, and the changes of a leave from an ISR.

A plan over 30,000 partitions is a chain of commands. Each looks at partitions from a cursor on, in the order of topic
names, and stops after a bounded number of changes. The next is decided on the image as it is then. Invariant:
partitions behind the cursor need nothing more, because the brokers concerned are not eligible while the plan runs.
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
    LOOKS_PER_SLICE_MAX,
    PARTITION_CHANGES_PER_SLICE_MAX,
    Context,
)
from kraft.control.partitions.partition_change import Election, Eligibility, Target, at, change_partition, same_shape
from kraft.control.partitions.recovery import choose_furthest
from kraft.image import ConfigResourceType, MetadataImage, PartitionState, TopicImage
from kraft.image.events import Event, PartitionChange
from kraft.image.partitions import LEAF_MASK, LEAF_SHIFT, NO_LEADER


class Slice(NamedTuple):
    """The changes of one slice, and where the next begins (None: the end was reached)."""

    events: list[Event]
    cursor: Cursor | None


class Located(NamedTuple):
    """One partition with its place."""

    topic: TopicImage
    partition_id: int
    state: PartitionState

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.partition_id}"


def locate(image: MetadataImage, name: str, partition_id: int) -> Located | None:
    """The partition of this topic and number, or None."""
    topic = image.topics.get(name)
    state = None if topic is None else topic.find(partition_id)
    return None if topic is None or state is None else Located(topic, partition_id, state)


def partitions_from(image: MetadataImage, cursor: Cursor) -> Iterator[Located]:
    """All partitions from the cursor on, by topic name and number."""
    for topic, start in _topics_from(image, cursor):
        index = (start & ~LEAF_MASK) - 1
        for leaf in topic.leaves[start >> LEAF_SHIFT :]:
            for state in leaf:
                index += 1
                if index >= start:
                    yield Located(topic, index, state)


def _topics_from(image: MetadataImage, cursor: Cursor) -> Iterator[tuple[TopicImage, int]]:
    """Topics from the cursor on, each with the first partition to look at."""
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
    """Up to `limit` changes of the partitions, in order; by default PARTITION_CHANGES_PER_SLICE_MAX. `looks_max`: and
    up to so many partitions, where to see that one needs no change takes as long as to change it. A cursor among the
    partitions ends the slice there."""
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


class TopicSettings:
    """What elections need of a topic's configuration, resolved once per topic and decision."""

    def __init__(self, image: MetadataImage, context: Context) -> None:
        self._image = image
        self._context = context
        self._dynamic = image.configs_of(ConfigResourceType.BROKER, "")
        self._min_insync: dict[str, int] = {}
        self._unclean: dict[str, bool] = {}

    def min_insync_replicas(self, topic: str) -> int:
        """The topic's min.insync.replicas."""
        found = self._min_insync.get(topic)
        if found is None:
            found = self._min_insync[topic] = int(str(self._value(topic, "min.insync.replicas")))
        return found

    def is_unclean_enabled(self, topic: str) -> bool:
        """Whether the topic's configuration allows unclean elections."""
        found = self._unclean.get(topic)
        if found is None:
            found = self._unclean[topic] = self._value(topic, "unclean.leader.election.enable") is True
        return found

    def unclean_election(self, located: Located) -> Election:
        """UNCLEAN where the topic allows it and nobody who may hold the data was fenced just now; else ONLINE (K3)."""
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
    """Active brokers may lead, if the replica's directory is online; never one whose fencing is under way, or the loss
    of that directory, nor those in `without`. `also` are taken as active: a broker that this very decision unfences."""
    extra = frozenset(also)
    excluded = context.being_fenced.union(without)
    active = {
        broker_id
        for broker_id, broker in image.brokers.items()
        if (broker.is_active or broker_id in extra) and broker_id not in excluded
    }
    brokers = image.brokers

    def may_lead(broker_id: int, directory: UUID | None) -> bool:
        if broker_id not in active or directory in context.being_lost:
            return False
        return directory is None or brokers[broker_id].has_directory(directory)

    return Eligibility(may_lead=may_lead, is_connected=context.is_connected)


class _Alike:
    """The changes of one decision: partitions in equal states change alike, and are decided once. `target` follows from
    the state and from whose log reaches furthest."""

    def __init__(self, eligible: Eligibility, target: Callable[[PartitionState, int], Target]) -> None:
        self._eligible = eligible
        self._target = target
        self._known: dict[object, PartitionChange | None] = {}

    def change(
        self, located: Located, election: Election, min_insync_replicas: int, furthest: int = NO_LEADER
    ) -> PartitionChange | None:
        """As `change_partition`."""
        known, (topic, partition_id, state) = self._known, located
        how = (election, min_insync_replicas, furthest)
        same = (id(state), how)  # the image keeps the states alive
        if same not in known:
            shape = (same_shape(state), how)
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
        return at(known[same], topic.topic_id, partition_id)


def _whose_log_reaches(_state: PartitionState, furthest: int) -> Target:
    return Target(furthest=furthest)


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
    """Take the brokers out of every ISR, and those that restarted uncleanly out of every ELR; elect where they led.
    `led`: only the partitions that they lead (True), or only the others (False)."""
    settings = TopicSettings(image, context)

    def without_them(state: PartitionState, _furthest: int) -> Target:
        staying = tuple(replica for replica in state.isr if replica not in brokers)
        return Target(isr=staying, unclean_restarted=unclean_restarted)

    alike = _Alike(eligibility(image, context, without=brokers), without_them)

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
    """Those from the cursor on for whose state it holds. Partitions that are alike share one state, as a rule, so each
    state is asked about once, and most leaves are passed over as a whole. A cursor stands behind every
    LEAVES_PER_SLICE_MAX."""
    verdicts: dict[int, bool] = {}  # by identity: the image keeps the states alive
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
    """Leaders for partitions that have none, and, if `broker_id` is given, a replica on that broker. Where nobody is
    known to be complete, the replica whose log reaches furthest, once enough of them have told."""
    settings = TopicSettings(image, context)
    eligible = eligibility(image, context, also=also)

    alike = _Alike(eligible, _whose_log_reaches)

    def change(located: Located) -> PartitionChange | None:
        state, topic = located.state, located.topic
        furthest = choose_furthest(image, context, topic.topic_id, located.partition_id, state, eligible.may_lead)
        election = settings.unclean_election(located)
        return alike.change(located, election, settings.min_insync_replicas(topic.name), furthest)

    def is_concerned(state: PartitionState) -> bool:
        return state.leader < 0 and (broker_id is None or broker_id in state.replicas)

    return take_slice(partitions_where(image, cursor, is_concerned), change, looks_max=LOOKS_PER_SLICE_MAX)


def elect_recoverable(image: MetadataImage, context: Context, partitions: Iterable[tuple[UUID, int]]) -> list[Event]:
    """For each of these partitions the replica whose log reaches furthest, where it may be taken by now."""
    settings = TopicSettings(image, context)
    eligible = eligibility(image, context)
    alike = _Alike(eligible, _whose_log_reaches)
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
    """Whether the broker leads any partition."""
    return any(state.leader == broker_id for topic in image.topics for leaf in topic.leaves for state in leaf)
