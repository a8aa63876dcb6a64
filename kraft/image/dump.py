"""dump(image): the events that make this image out of nothing, in a stable order; they are a snapshot's content.

`replay(empty, dump(image)) == image`. The digest is taken over the encoded dump, so that it depends on nothing but the
image's value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from kraft.image import events
from kraft.image.events import Event, encode_event, written_version
from kraft.image.image import METADATA_VERSION_FEATURE, MetadataImage
from kraft.image.partitions import TopicImage


def dump(image: MetadataImage) -> Iterator[Event]:
    """The snapshot's events: features first (they say how to read the rest), then brokers, topics, configs."""
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
    for topic in image.topics:
        yield from _dump_topic(topic)
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
    """The dump as chunks of encoded events, in the versions that the finalized metadata.version allows."""
    metadata_version = image.metadata_version
    versions: dict[type[Event], int] = {}
    chunk: list[bytes] = []
    for event in dump(image):
        event_class = type(event)
        if event_class not in versions:
            versions[event_class] = written_version(event_class, metadata_version)
        chunk.append(encode_event(event, versions[event_class]))
        if len(chunk) == events_per_chunk:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def digest(image: MetadataImage) -> str:
    """A canonical digest: equal exactly for equal images at the same offset."""
    hashed = hashlib.sha256(f"{image.offset}:".encode())
    for chunk in encoded_dump(image, 1024):
        for value in chunk:
            hashed.update(len(value).to_bytes(4, "big"))
            hashed.update(value)
    return hashed.hexdigest()
