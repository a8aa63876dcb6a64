"""dump(image): the events that build this image from nothing, in a stable order; they are a snapshot's content.

Invariant: `replay(empty, dump(image)) == image`. The digest is taken over the encoded dump, so it depends only on the
image's value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from uuid import UUID

from kraft.image import events
from kraft.image.encoding import EventEncoder
from kraft.image.events import Event
from kraft.image.image import METADATA_VERSION_FEATURE, MetadataImage
from kraft.image.partitions import Leaf, TopicImage


def dump(image: MetadataImage) -> Iterator[Event]:
    """Return the snapshot's events: features first (they determine how to read the others), then brokers, topics,
    configs."""
    yield from _dump_before_topics(image)
    for topic in image.topics:
        yield from _dump_topic(topic)
    yield from _dump_after_topics(image)


def _dump_before_topics(image: MetadataImage) -> Iterator[Event]:
    if image.cluster_id is not None:
        yield events.ClusterIdentity(image.cluster_id)
    for name in sorted(image.features, key=lambda feature: (feature != METADATA_VERSION_FEATURE, feature)):
        release = image.release if name == METADATA_VERSION_FEATURE else None
        yield events.FeatureLevel(name, image.features[name], release)
    for controller in image.sorted_controllers():
        yield events.RegisterController(
            controller.controller_id, controller.incarnation_id, controller.endpoints, controller.features
        )
    for broker in image.sorted_brokers():
        yield events.RegisterBroker(
            broker.broker_id,
            broker.incarnation_id,
            broker.broker_epoch,
            broker.endpoints,
            broker.rack,
            broker.host_id,
            broker.fenced,
            broker.in_controlled_shutdown,
            broker.log_dirs,
            broker.features,
        )


def _dump_after_topics(image: MetadataImage) -> Iterator[Event]:
    for resource_type, resource_name in image.sorted_config_keys():
        for name, value in sorted(image.configs[resource_type, resource_name].items()):
            yield events.Config(int(resource_type), resource_name, name, value)
    if image.next_producer_id:
        yield events.ProducerIds(-1, -1, image.next_producer_id)


def _dump_topic(topic: TopicImage) -> Iterator[Event]:
    yield events.Topic(topic.name, topic.topic_id)
    for index, state in topic.partitions():
        yield events.Partition(
            topic.topic_id,
            index,
            state.replicas,
            state.isr,
            state.removing,
            state.adding,
            state.leader,
            int(state.leader_recovery_state),
            state.leader_epoch,
            state.partition_epoch,
            state.directories,
            state.elr,
            state.last_known_elr,
        )


def encoded_dump(image: MetadataImage, events_per_chunk: int) -> Iterator[list[bytes]]:
    """Yield the dump as chunks of encoded events, in the versions that the finalized metadata.version allows."""
    chunk: list[bytes] = []
    for value in _encoded(dump(image), image.metadata_version):
        chunk.append(value)
        if len(chunk) == events_per_chunk:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _encoded(dumped: Iterator[Event], metadata_version: int) -> Iterator[bytes]:
    return map(EventEncoder(metadata_version).encode, dumped)


class Digester:
    """Computes digests of one image after another, and encodes only what changed. A topic with the same leaves is
    unchanged, because leaves are immutable tuples. The same holds for the maps of brokers, controllers, features and
    configs, which change far less often than topics."""

    def __init__(self) -> None:
        self._topics: dict[UUID, tuple[tuple[Leaf, ...], str, int, bytes]] = {}
        self._image = MetadataImage()
        """The last image that was digested, and the encoded events before and after its topics."""
        self._ends = _encoded_ends(self._image)

    def digest(self, image: MetadataImage) -> str:
        """Return a canonical digest: equal exactly for equal images at the same offset."""
        version, before, topics = image.metadata_version, self._topics, {}
        if not _has_same_ends(image, self._image):
            self._ends = _encoded_ends(image)
        self._image = image
        hashed = hashlib.sha256(f"{image.offset}:".encode())
        hashed.update(self._ends[0])
        for topic in image.topics:
            known = before.get(topic.topic_id)
            if known is None or known[0] is not topic.leaves or known[1:3] != (topic.name, version):
                known = (topic.leaves, topic.name, version, _framed(_dump_topic(topic), version))
            topics[topic.topic_id] = known
            hashed.update(known[-1])
        self._topics = topics
        hashed.update(self._ends[1])
        return hashed.hexdigest()


def _has_same_ends(one: MetadataImage, other: MetadataImage) -> bool:
    """Return whether everything but the topics is the same in both images."""
    return (
        one.brokers is other.brokers
        and one.controllers is other.controllers
        and one.features is other.features
        and one.configs is other.configs
        and one.next_producer_id == other.next_producer_id
        and (one.cluster_id, one.release) == (other.cluster_id, other.release)
    )


def _encoded_ends(image: MetadataImage) -> tuple[bytes, bytes]:
    version = image.metadata_version
    return _framed(_dump_before_topics(image), version), _framed(_dump_after_topics(image), version)


def _framed(dumped: Iterator[Event], metadata_version: int) -> bytes:
    """Return encoded events, each prefixed with its size."""
    encoded = _encoded(dumped, metadata_version)
    return b"".join([part for value in encoded for part in (len(value).to_bytes(4, "big"), value)])


def digest(image: MetadataImage) -> str:
    """Return a canonical digest: equal exactly for equal images at the same offset."""
    return Digester().digest(image)
