"""Registrations of brokers and controllers, and the resource types that have configs.

`host_id` is not in Kafka: the failure domain is rack and host.
Source: RegisterBrokerRecord, RegisterControllerRecord, KIP-631, docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

UNASSIGNED_DIRECTORY = UUID(int=1)
"""The replica is not yet placed in a log directory (Kafka's DirectoryId.UNASSIGNED)."""

LOST_DIRECTORY = UUID(int=2)
"""The replica was in a directory that is offline and whose id is not known (DirectoryId.LOST)."""

RESERVED_DIRECTORIES = 100
"""Directory ids whose integer is below this are reserved."""


class ConfigResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def config_type_name(resource_type: int) -> str:
    """The type's name for messages; its number if Kafka has no such type."""
    known = ConfigResourceType._value2member_map_.get(resource_type)
    return str(resource_type) if known is None else ConfigResourceType(resource_type).name


class Endpoint(NamedTuple):
    """A listener as others reach it. `security_protocol` is Kafka's name: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


TEXT_CHARACTERS_MAX = 8_191
"""So many fit the 16-bit lengths of Kafka's strings in every encoding of UTF-8."""
PORT_MAX = 65_535
NODE_ID_MAX = 2**31 - 1


def is_node_id(value: int) -> bool:
    """Whether Kafka's messages can name a node by this id. Logs of earlier releases may hold others."""
    return 0 <= value <= NODE_ID_MAX


def tellable_endpoints(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints as Kafka's messages can name them: logs of earlier releases may hold others. A port that is none
    becomes 0, which nobody listens on."""
    return tuple([_tellable(endpoint) for endpoint in endpoints])


def _tellable(endpoint: Endpoint) -> Endpoint:
    if 0 <= endpoint.port <= PORT_MAX and len(endpoint.name) + len(endpoint.host) <= TEXT_CHARACTERS_MAX:
        return endpoint
    return endpoint._replace(
        name=endpoint.name[:TEXT_CHARACTERS_MAX],
        host=endpoint.host[:TEXT_CHARACTERS_MAX],
        port=endpoint.port if 0 <= endpoint.port <= PORT_MAX else 0,
    )


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports, both ends included."""

    name: str
    min_level: int
    max_level: int


class BrokerRegistration(NamedTuple):
    """One broker, alive or not. `broker_epoch` is the offset at which this incarnation registered; `fenced` brokers
    lead nothing and are not shown to clients; `log_dirs` are directory ids that are online."""

    broker_id: int
    incarnation_id: UUID
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    host_id: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    features: tuple[FeatureRange, ...]

    @property
    def is_active(self) -> bool:
        """Neither fenced nor shutting down: may lead, and may join an ISR."""
        return not (self.fenced or self.in_controlled_shutdown)

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of this listener name, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)

    def has_directory(self, directory: UUID) -> bool:
        """False only if this directory is known to be offline at the broker, or lost. A registration whose directories
        are all offline has LOST_DIRECTORY in their place."""
        if directory == UNASSIGNED_DIRECTORY or not self.log_dirs:
            return True
        return directory != LOST_DIRECTORY and directory in self.log_dirs

    @property
    def has_any_directory(self) -> bool:
        """False only if all log directories of the broker are known to be offline."""
        return self.log_dirs != (LOST_DIRECTORY,)


class ControllerRegistration(NamedTuple):
    """One controller of the quorum, with the endpoints of its controller listeners and the levels it supports."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of this listener name, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)
