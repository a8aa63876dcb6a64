"""replay(image, events) -> image: the only way in which metadata changes.

Each event type has one function in `REPLAY`. An event that does not fit the image (a change of an unknown partition) is
a broken invariant: every committed event applies on every node (invariant M14).

`ImageBuilder` is the mutable form: it applies many events, and then builds one image and one delta.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.image import events
from kraft.image.delta import ImageDelta, TopicDelta
from kraft.image.image import METADATA_VERSION_FEATURE, ConfigKey, MetadataImage
from kraft.image.partitions import (
    LEAF_MASK,
    LEAF_PARTITIONS_MAX,
    LEAF_SHIFT,
    PartitionState,
    RecoveryState,
    Replicas,
    TopicCounts,
    TopicImage,
)
from kraft.image.registrations import (
    TEXT_CHARACTERS_MAX,
    BrokerRegistration,
    ConfigResourceType,
    ControllerRegistration,
    encodable_endpoints,
    is_node_id,
)
from kraft.image.topics import TopicsImage
from kraft.seam import InvariantError


class ReplayFailed(InvariantError):
    """An event does not fit the image that it is replayed on."""


class TopicBuilder:
    """One topic while events are applied: leaves become lists when they are first changed."""

    __slots__ = ("_image", "_moved", "_reassigning", "changed", "created", "leaves", "name", "topic_id")

    def __init__(self, topic: TopicImage, *, created: bool) -> None:
        self._image = topic
        self._moved: dict[Replicas, int] = {}
        """Tuple of replicas → how many more partitions have these replicas now than in the original image (may be
        negative)."""
        self._reassigning = 0
        """Number of partitions being reassigned, in comparison with the original image (may be negative)."""
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.leaves: list[Any] = list(topic.leaves)
        self.created = created
        self.changed: set[int] = set()

    def get(self, index: int) -> PartitionState:
        if index < 0:
            raise IndexError(index)
        state: PartitionState = self.leaves[index >> LEAF_SHIFT][index & LEAF_MASK]
        return state

    def put(self, index: int, state: PartitionState) -> None:
        """Replace partition `index`, or add it if it is the next one."""
        number = index >> LEAF_SHIFT
        leaves, moved = self.leaves, self._moved
        if number == len(leaves):
            leaves.append([])
        leaf = leaves[number]
        if type(leaf) is tuple:
            leaves[number] = leaf = list(leaf)
        position = index & LEAF_MASK
        replicas = state.replicas
        if position == len(leaf):
            leaf.append(state)
            moved[replicas] = moved.get(replicas, 0) + 1
        else:
            old = leaf[position]
            leaf[position] = state
            if old.replicas is not replicas:
                moved[replicas] = moved.get(replicas, 0) + 1
                moved[old.replicas] = moved.get(old.replicas, 0) - 1
            if old.removing or old.adding:
                self._reassigning -= 1
        if state.removing or state.adding:
            self._reassigning += 1
        self.changed.add(index)

    @property
    def partition_count(self) -> int:
        leaves = self.leaves
        return (len(leaves) - 1) * LEAF_PARTITIONS_MAX + len(leaves[-1]) if leaves else 0

    def build(self) -> TopicImage:
        leaves = tuple([tuple(leaf) for leaf in self.leaves])
        return TopicImage(self.name, self.topic_id, leaves, self._counts())

    def _counts(self) -> TopicCounts:
        known = self._image.partition_counts
        replicas, preferred = dict(known.replicas), dict(known.preferred)
        for assigned, more in self._moved.items():
            for broker_id in assigned:
                replicas[broker_id] = replicas.get(broker_id, 0) + more
            for broker_id in assigned[:1]:
                preferred[broker_id] = preferred.get(broker_id, 0) + more
        return TopicCounts(replicas, preferred, known.reassigning + self._reassigning)


class ImageBuilder:
    """Applies events to an image. `build()` returns the new image, `delta()` the changes."""

    def __init__(self, image: MetadataImage) -> None:
        self._old = image
        self.cluster_id = image.cluster_id
        self.release = image.release
        self.features = image.features
        self.brokers = image.brokers
        self.controllers = image.controllers
        self.by_name = image.topics.by_name
        self.names_by_id = image.topics.names_by_id
        self.configs = image.configs
        self.next_producer_id = image.next_producer_id
        self.topics: dict[UUID, TopicBuilder] = {}
        self.deleted_topics: dict[UUID, str] = {}
        self.changed_brokers: set[int] = set()
        self.changed_controllers: set[int] = set()
        self.changed_configs: set[ConfigKey] = set()
        self.changed_features: set[str] = set()

    def apply(self, event: events.Event) -> None:
        """Replay one event. Raises ReplayFailed if it does not fit."""
        try:
            REPLAY[type(event)](self, event)
        except (KeyError, IndexError, ValueError) as problem:
            raise ReplayFailed(f"{event!r} does not fit the metadata image: {problem!r}") from problem

    def topic(self, topic_id: UUID) -> TopicBuilder:
        """Return the mutable form of a topic. Raises KeyError if there is none."""
        builder = self.topics.get(topic_id)
        if builder is None:
            image = self.by_name[self.names_by_id[topic_id]]
            self.topics[topic_id] = builder = TopicBuilder(image, created=False)
        return builder

    def build(self, offset: int, epoch: int) -> MetadataImage:
        """Return the image after all applied events, at `offset`."""
        by_name = self.by_name
        built = [builder.build() for builder in self.topics.values()]
        for topic in built:
            by_name = by_name.insert(topic.name, topic)
        old_topics = self._old.topics
        if by_name is old_topics.by_name:
            topics = old_topics
        else:
            names = old_topics.known_names if self.names_by_id is old_topics.names_by_id else None
            topics = TopicsImage(by_name, self.names_by_id, names, self._replica_counts(built))
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            cluster_id=self.cluster_id,
            release=self.release,
            features=self.features,
            brokers=self.brokers,
            controllers=self.controllers,
            topics=topics,
            configs=self.configs,
            next_producer_id=self.next_producer_id,
        )

    def _replica_counts(self, built: Iterable[TopicImage]) -> Mapping[int, int]:
        """Return the replica counts of all topics: the old counts, minus those of changed and removed topics, plus
        those of changed and new ones."""
        counts = Counter(self._old.topics.replica_counts)
        for topic_id in {**self.topics, **self.deleted_topics}:
            old = self._old.topics.get_by_id(topic_id)
            if old is not None:
                counts.subtract(old.partition_counts.replicas)
        for topic in built:
            counts.update(topic.partition_counts.replicas)
        return counts

    def delta(self) -> ImageDelta:
        """Return the changes of the applied events, in a stable order. A value may be listed although the event left it
        as it was."""
        topics = {
            builder.topic_id: TopicDelta(
                builder.name,
                builder.topic_id,
                tuple(range(builder.partition_count)) if builder.created else tuple(sorted(builder.changed)),
                builder.created,
            )
            for builder in self.topics.values()
            if builder.created or builder.changed
        }
        return ImageDelta(
            topics=topics,
            deleted_topics=dict(self.deleted_topics),
            brokers=tuple(sorted(self.changed_brokers)),
            controllers=tuple(sorted(self.changed_controllers)),
            configs=tuple(sorted(self.changed_configs)),
            features=tuple(sorted(self.changed_features)),
            producer_ids=self.next_producer_id != self._old.next_producer_id,
        )


def replay(image: MetadataImage, applied: Iterable[events.Event], end_offset: int, epoch: int) -> MetadataImage:
    """Return the image after the events, at `end_offset` (exclusive) in leader epoch `epoch`."""
    return replay_with_delta(image, applied, end_offset, epoch)[0]


def replay_with_delta(
    image: MetadataImage, applied: Iterable[events.Event], end_offset: int, epoch: int
) -> tuple[MetadataImage, ImageDelta]:
    """Return the image after the events, and their changes."""
    builder = ImageBuilder(image)
    for event in applied:
        builder.apply(event)
    return builder.build(end_offset, epoch), builder.delta()


def replay_register_broker(builder: ImageBuilder, event: events.RegisterBroker) -> None:
    if not is_node_id(event.broker_id):
        return
    builder.brokers = builder.brokers.insert(
        event.broker_id,
        BrokerRegistration(
            broker_id=event.broker_id,
            incarnation_id=event.incarnation_id,
            broker_epoch=event.broker_epoch,
            endpoints=encodable_endpoints(event.endpoints),
            rack=None if event.rack is None else event.rack[:TEXT_CHARACTERS_MAX],
            host_id=event.host_id,
            fenced=event.fenced,
            in_controlled_shutdown=event.in_controlled_shutdown,
            log_dirs=event.log_dirs,
            features=event.features,
        ),
    )
    builder.changed_brokers.add(event.broker_id)


def replay_unregister_broker(builder: ImageBuilder, event: events.UnregisterBroker) -> None:
    if not is_node_id(event.broker_id):
        return
    _check_broker_epoch(builder, event.broker_id, event.broker_epoch)
    builder.brokers = builder.brokers.remove(event.broker_id)
    builder.changed_brokers.add(event.broker_id)


def replay_registration_change(builder: ImageBuilder, event: events.BrokerRegistrationChange) -> None:
    if not is_node_id(event.broker_id):
        return
    old = _check_broker_epoch(builder, event.broker_id, event.broker_epoch)
    new = old._replace(
        fenced=old.fenced if event.fenced is None else event.fenced,
        in_controlled_shutdown=(
            old.in_controlled_shutdown if event.in_controlled_shutdown is None else event.in_controlled_shutdown
        ),
        log_dirs=old.log_dirs if event.log_dirs is None else event.log_dirs,
    )
    builder.brokers = builder.brokers.insert(event.broker_id, new)
    builder.changed_brokers.add(event.broker_id)


def _check_broker_epoch(builder: ImageBuilder, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    broker = builder.brokers[broker_id]
    if broker.broker_epoch != broker_epoch:
        raise ValueError(f"broker {broker_id} has epoch {broker.broker_epoch}")
    return broker


def replay_topic(builder: ImageBuilder, event: events.Topic) -> None:
    if event.name in builder.by_name or event.topic_id in builder.names_by_id:
        raise ValueError(f"topic {event.name} or id {event.topic_id} exists")
    topic = TopicImage(event.name, event.topic_id)
    builder.by_name = builder.by_name.insert(event.name, topic)
    builder.names_by_id = builder.names_by_id.insert(event.topic_id, event.name)
    builder.topics[event.topic_id] = TopicBuilder(topic, created=True)


def replay_partition(builder: ImageBuilder, event: events.Partition) -> None:
    topic = builder.topic(event.topic_id)
    if event.partition_id > topic.partition_count:
        raise ValueError(f"topic {topic.name} has only {topic.partition_count} partitions")
    topic.put(
        event.partition_id,
        PartitionState(
            event.replicas,
            event.isr,
            event.leader,
            event.leader_epoch,
            event.partition_epoch,
            event.elr,
            event.last_known_elr,
            event.removing,
            event.adding,
            RecoveryState(event.leader_recovery_state),
            event.directories,
        ),
    )


def replay_partition_change(builder: ImageBuilder, event: events.PartitionChange) -> None:
    topic = builder.topic(event.topic_id)
    topic.put(event.partition_id, changed_partition(topic.get(event.partition_id), event))


def changed_partition(old: PartitionState, event: events.PartitionChange) -> PartitionState:
    """Return the partition after this change."""
    set_leader = event.leader != events.UNCHANGED_LEADER
    recovery = event.leader_recovery_state
    return PartitionState(
        old.replicas if event.replicas is None else event.replicas,
        old.isr if event.isr is None else event.isr,
        event.leader if set_leader else old.leader,
        old.leader_epoch + 1 if set_leader else old.leader_epoch,
        old.partition_epoch + 1,
        old.elr if event.elr is None else event.elr,
        old.last_known_elr if event.last_known_elr is None else event.last_known_elr,
        old.removing if event.removing is None else event.removing,
        old.adding if event.adding is None else event.adding,
        old.leader_recovery_state if recovery == events.UNCHANGED_RECOVERY_STATE else RecoveryState(recovery),
        old.directories if event.directories is None else event.directories,
    )


def replay_remove_topic(builder: ImageBuilder, event: events.RemoveTopic) -> None:
    name = builder.names_by_id[event.topic_id]
    builder.by_name = builder.by_name.remove(name)
    builder.names_by_id = builder.names_by_id.remove(event.topic_id)
    transient = builder.topics.pop(event.topic_id, None)
    if transient is None or not transient.created:
        builder.deleted_topics[event.topic_id] = name
    key = (ConfigResourceType.TOPIC, name)
    if key in builder.configs:
        builder.configs = builder.configs.remove(key)
        builder.changed_configs.add(key)


def replay_config(builder: ImageBuilder, event: events.Config) -> None:
    key = (ConfigResourceType(event.resource_type), event.resource_name)
    values = dict(builder.configs.get(key, {}))
    if event.value is None:
        values.pop(event.name, None)
    else:
        values[event.name] = event.value
    if values:
        builder.configs = builder.configs.insert(key, MappingProxyType(dict(sorted(values.items()))))
    elif key in builder.configs:
        builder.configs = builder.configs.remove(key)
    builder.changed_configs.add(key)


def replay_feature_level(builder: ImageBuilder, event: events.FeatureLevel) -> None:
    if event.level:
        builder.features = builder.features.insert(event.name, event.level)
    else:
        builder.features = builder.features.discard(event.name)
    if event.name == METADATA_VERSION_FEATURE:
        builder.release = event.release
    builder.changed_features.add(event.name)


def replay_producer_ids(builder: ImageBuilder, event: events.ProducerIds) -> None:
    if event.next_producer_id < builder.next_producer_id:
        raise ValueError(f"the next producer id is already {builder.next_producer_id}")
    builder.next_producer_id = event.next_producer_id


def replay_register_controller(builder: ImageBuilder, event: events.RegisterController) -> None:
    if not is_node_id(event.controller_id):
        return
    builder.controllers = builder.controllers.insert(
        event.controller_id,
        ControllerRegistration(
            event.controller_id, event.incarnation_id, encodable_endpoints(event.endpoints), event.features
        ),
    )
    builder.changed_controllers.add(event.controller_id)


def replay_clear_elr(builder: ImageBuilder, event: events.ClearElr) -> None:
    if event.topic_name:
        topic_ids = [builder.by_name[event.topic_name].topic_id]
    else:
        topic_ids = [builder.by_name[name].topic_id for name in sorted(builder.by_name)]
    for topic_id in topic_ids:
        topic = builder.topic(topic_id)
        for index in range(topic.partition_count):
            state = topic.get(index)
            # With an empty ISR the high watermark does not move: the ELR members stay complete, and may hold the only
            # copies.
            if state.isr and (state.elr or state.last_known_elr):
                epoch = state.partition_epoch + 1
                topic.put(index, state._replace(elr=(), last_known_elr=(), partition_epoch=epoch))


def replay_cluster_identity(builder: ImageBuilder, event: events.ClusterIdentity) -> None:
    if builder.cluster_id not in (None, event.cluster_id):
        raise ValueError(f"the cluster id is already {builder.cluster_id}")
    builder.cluster_id = event.cluster_id


def replay_nothing(_builder: ImageBuilder, _event: events.NoOp) -> None:
    """Replay a NoOp, which changes only the offset."""


REPLAY: Mapping[type[events.Event], Callable[[ImageBuilder, Any], None]] = MappingProxyType(
    {
        events.RegisterBroker: replay_register_broker,
        events.UnregisterBroker: replay_unregister_broker,
        events.BrokerRegistrationChange: replay_registration_change,
        events.Topic: replay_topic,
        events.Partition: replay_partition,
        events.PartitionChange: replay_partition_change,
        events.RemoveTopic: replay_remove_topic,
        events.Config: replay_config,
        events.FeatureLevel: replay_feature_level,
        events.ProducerIds: replay_producer_ids,
        events.NoOp: replay_nothing,
        events.RegisterController: replay_register_controller,
        events.ClearElr: replay_clear_elr,
        events.ClusterIdentity: replay_cluster_identity,
    }
)
