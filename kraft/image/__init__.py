"""Pure: metadata as an immutable value, the event types, replay, and dump to events. May import kraft.wire."""

from kraft.image import events
from kraft.image.batch import BatchBuilder
from kraft.image.delta import ImageDelta, TopicDelta
from kraft.image.dump import digest, dump
from kraft.image.events import Event, UnknownEvent, decode_event, encode_event
from kraft.image.image import MetadataImage
from kraft.image.partitions import PartitionState, RecoveryState, TopicImage
from kraft.image.registrations import (
    BrokerRegistration,
    ConfigResourceType,
    ControllerRegistration,
    Endpoint,
    FeatureRange,
    config_type_name,
)
from kraft.image.replay import ImageBuilder, ReplayFailed, replay, replay_with_delta
from kraft.image.topics import TopicsImage

__all__ = [
    "BatchBuilder",
    "BrokerRegistration",
    "ConfigResourceType",
    "ControllerRegistration",
    "Endpoint",
    "Event",
    "FeatureRange",
    "ImageBuilder",
    "ImageDelta",
    "MetadataImage",
    "PartitionState",
    "RecoveryState",
    "ReplayFailed",
    "TopicDelta",
    "TopicImage",
    "TopicsImage",
    "UnknownEvent",
    "config_type_name",
    "decode_event",
    "digest",
    "dump",
    "encode_event",
    "events",
    "replay",
    "replay_with_delta",
]
