"""The events of the metadata log: frozen values, their numbers, versions and bytes.

Type numbers are those of Kafka's metadata records where one exists. A committed event of an unknown type or version
must stop the node, by `UnknownEvent`. `written_version` decides which versions may be *written*, by the finalized
metadata.version. Source: KIP-631 (metadata records), docs/decisions/06-metadata-log.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import msgpack

from kraft.image.codec import (
    DIRECTORIES,
    ENDPOINTS,
    FEATURES,
    OPTIONAL_DIRECTORIES,
    OPTIONAL_REPLICAS,
    PLAIN,
    REPLICAS,
    UUID_FIELD,
    EventFieldCodec,
    EventType,
    event_type,
)
from kraft.image.partitions import NO_LEADER, Replicas
from kraft.image.registrations import Endpoint, FeatureRange
from kraft.seam import WireError

EventClass = TypeVar("EventClass", bound=type)

UNCHANGED_LEADER = -2
UNCHANGED_RECOVERY_STATE = -1


class UnknownEvent(Exception):
    """A committed event has a type or version that this release does not know. `required_release` is the release that
    introduced the finalized metadata.version, if it is known."""

    def __init__(self, number: int, version: int, required_release: str | None = None) -> None:
        release = required_release or "the release that finalized the cluster's metadata.version"
        super().__init__(
            f"the metadata log holds an event of type {number} version {version}, which this release cannot read; "
            f"install pykraft {release} or newer on this node and start it again"
        )
        self.number = number
        self.version = version


_by_number: dict[int, EventType] = {}
_by_class: dict[type, EventType] = {}
BY_NUMBER: Mapping[int, EventType] = MappingProxyType(_by_number)
BY_CLASS: Mapping[type, EventType] = MappingProxyType(_by_class)


def event(number: int, *codecs: EventFieldCodec, max_version: int = 0) -> Callable[[EventClass], EventClass]:
    """Register an event class under its number, with the codecs of its fields in order."""

    def register(event_class: EventClass) -> EventClass:
        if number in BY_NUMBER:
            raise TypeError(f"event type {number} is taken")
        _by_number[number] = _by_class[event_class] = event_type(number, max_version, event_class, codecs)
        event_class.type_number = number  # type: ignore[attr-defined]
        return event_class

    return register


class Event:
    """Base of all events."""

    __slots__ = ()
    type_number: ClassVar[int] = -1


@event(0, PLAIN, UUID_FIELD, PLAIN, ENDPOINTS, PLAIN, PLAIN, PLAIN, PLAIN, DIRECTORIES, FEATURES)
@dataclass(frozen=True, slots=True)
class RegisterBroker(Event):
    """A broker incarnation registers, or the same incarnation amends its registration."""

    broker_id: int
    incarnation_id: UUID
    broker_epoch: int
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    host_id: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    features: tuple[FeatureRange, ...] = ()


@event(1, PLAIN, PLAIN)
@dataclass(frozen=True, slots=True)
class UnregisterBroker(Event):
    """A registration is removed; replica lists keep the id."""

    broker_id: int
    broker_epoch: int


@event(2, PLAIN, UUID_FIELD)
@dataclass(frozen=True, slots=True)
class Topic(Event):
    """A new topic. Its partitions follow as separate events."""

    name: str
    topic_id: UUID


@event(
    3, UUID_FIELD, PLAIN, REPLICAS, REPLICAS, REPLICAS, REPLICAS, PLAIN, PLAIN, PLAIN, PLAIN,
    DIRECTORIES, REPLICAS, REPLICAS,
)  # fmt: skip
@dataclass(frozen=True, slots=True)
class Partition(Event):
    """A partition's whole state: at creation, and in snapshots."""

    topic_id: UUID
    partition_id: int
    replicas: Replicas
    isr: Replicas
    removing: Replicas = ()
    adding: Replicas = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[UUID, ...] = ()
    elr: Replicas = ()
    last_known_elr: Replicas = ()


@event(4, PLAIN, PLAIN, PLAIN, PLAIN)
@dataclass(frozen=True, slots=True)
class Config(Event):
    """One override of a resource's configuration; the value None removes the override."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@event(
    5, UUID_FIELD, PLAIN, OPTIONAL_REPLICAS, PLAIN, OPTIONAL_REPLICAS, OPTIONAL_REPLICAS, OPTIONAL_REPLICAS, PLAIN,
    OPTIONAL_DIRECTORIES, OPTIONAL_REPLICAS, OPTIONAL_REPLICAS,
)  # fmt: skip
@dataclass(frozen=True, slots=True)
class PartitionChange(Event):
    """A change of a partition. None, -2 (leader) and -1 (recovery state) leave a field unchanged. Replay always raises
    the partition epoch. It raises the leader epoch only if `leader` is not -2."""

    topic_id: UUID
    partition_id: int
    isr: Replicas | None = None
    leader: int = UNCHANGED_LEADER
    replicas: Replicas | None = None
    removing: Replicas | None = None
    adding: Replicas | None = None
    leader_recovery_state: int = UNCHANGED_RECOVERY_STATE
    directories: tuple[UUID, ...] | None = None
    elr: Replicas | None = None
    last_known_elr: Replicas | None = None


@event(9, UUID_FIELD)
@dataclass(frozen=True, slots=True)
class RemoveTopic(Event):
    """A topic is removed, with its partitions and its configs."""

    topic_id: UUID


@event(12, PLAIN, PLAIN, PLAIN)
@dataclass(frozen=True, slots=True)
class FeatureLevel(Event):
    """A finalized feature; level 0 removes the feature. `release` names the release of this project that introduced the
    level."""

    name: str
    level: int
    release: str | None = None


@event(15, PLAIN, PLAIN, PLAIN)
@dataclass(frozen=True, slots=True)
class ProducerIds(Event):
    """All producer ids below `next_producer_id` have been allocated, the last block to this broker."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@event(17, PLAIN, PLAIN, PLAIN, PLAIN, OPTIONAL_DIRECTORIES)
@dataclass(frozen=True, slots=True)
class BrokerRegistrationChange(Event):
    """A change of a registration; None leaves a field unchanged."""

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[UUID, ...] | None = None


@event(20)
@dataclass(frozen=True, slots=True)
class NoOp(Event):
    """An event without effect, by which a leader proves progress."""


@event(27, PLAIN, UUID_FIELD, ENDPOINTS, FEATURES)
@dataclass(frozen=True, slots=True)
class RegisterController(Event):
    """A controller's endpoints and supported features."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()


@event(28, PLAIN)
@dataclass(frozen=True, slots=True)
class ClearElr(Event):
    """min.insync.replicas of a topic ("" = of all topics) changed, so ELR members are no longer known to be complete.
    The ELR and last known ELR of its partitions are dropped, except where the ISR is empty."""

    topic_name: str = ""


@event(64, PLAIN)
@dataclass(frozen=True, slots=True)
class ClusterIdentity(Event):
    """The cluster's id, written once when the log is empty."""

    cluster_id: str


EVENT_VERSIONS_BY_METADATA_VERSION: Mapping[int, dict[int, int]] = MappingProxyType({0: {}})
"""metadata.version → (type number → version): from this level on, the event type is written in this version instead of
0. A later entry adds to the earlier ones."""


def written_version(event_class: type[Event], metadata_version: int) -> int:
    """Return the version in which this event is written while this metadata.version is finalized."""
    number = BY_CLASS[event_class].number
    version = 0
    for level in sorted(EVENT_VERSIONS_BY_METADATA_VERSION):
        if level <= metadata_version:
            version = EVENT_VERSIONS_BY_METADATA_VERSION[level].get(number, version)
    return version


_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode_event(value: Event, version: int = 0) -> bytes:
    """Return the bytes of one event: msgpack `[type, version, field, ...]`."""
    known = BY_CLASS[type(value)]
    row: list[Any] = [known.number, version, *known.values(value)]
    for position, to_wire in known.to_wire:
        row[2 + position] = to_wire(row[2 + position])
    packed: bytes = _pack(row)
    return packed


def decode_event(data: bytes | memoryview) -> Event:
    """Return the event of these bytes. Raises UnknownEvent if its type or version is not known, WireError if they are
    not an event."""
    try:
        row = msgpack.unpackb(data, raw=False)
        number, version = row[0], row[1]
    except (ValueError, IndexError, TypeError, msgpack.UnpackException) as problem:
        raise WireError(f"not a metadata event: {problem}") from problem
    known = BY_NUMBER.get(number)
    if known is None or version > known.max_version:
        raise UnknownEvent(number, version)
    values = row[2 : 2 + known.field_count]
    try:
        for position, from_wire in known.from_wire:
            if position >= len(values):
                break
            values[position] = from_wire(values[position])
        decoded: Event = known.event_class(*values)
    except (ValueError, TypeError, IndexError, AttributeError) as problem:
        raise WireError(f"damaged metadata event of type {number} version {version}: {problem}") from problem
    return decoded
