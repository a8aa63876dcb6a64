"""Registrations of brokers and controllers, and the resource types that have configs.

`host_id` is not in Kafka: the failure domains are rack and host.
Source: RegisterBrokerRecord, RegisterControllerRecord, KIP-631, docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

UNASSIGNED_DIRECTORY = UUID(int=1)
"""Directory id of a replica that has no log directory yet (Kafka's DirectoryId.UNASSIGNED)."""

LOST_DIRECTORY = UUID(int=2)
"""Directory id of a replica that was in an offline directory with an unknown id (Kafka's DirectoryId.LOST)."""

RESERVED_DIRECTORIES = 100
"""Limit of reserved directory ids: ids with an integer value below this are reserved."""


class ConfigResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def config_type_name(resource_type: int) -> str:
    """Return the type's name for messages; its number if Kafka has no such type."""
    known = ConfigResourceType._value2member_map_.get(resource_type)
    return str(resource_type) if known is None else ConfigResourceType(resource_type).name


class Endpoint(NamedTuple):
    """An advertised listener. `security_protocol` is Kafka's name: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


TEXT_CHARACTERS_MAX = 8_191
"""Maximum characters that fit the 16-bit lengths of Kafka's strings in any UTF-8 encoding."""
PORT_MAX = 65_535
NODE_ID_MAX = 2**31 - 1


def is_node_id(value: int) -> bool:
    """Return whether Kafka's messages can contain this node id. Logs of earlier releases may hold ids that they cannot
    contain."""
    return 0 <= value <= NODE_ID_MAX


def encodable_endpoints(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints in a form that Kafka's messages can contain, because logs of earlier releases may hold other
    forms. An invalid port becomes 0, which no process listens on."""
    return tuple([_encodable(endpoint) for endpoint in endpoints])


def _encodable(endpoint: Endpoint) -> Endpoint:
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
    """One registered broker, alive or not. `broker_epoch` is the offset at which this incarnation registered. `fenced`
    brokers lead nothing and are not shown to clients. `log_dirs` are the ids of its online directories."""

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
        """Whether the broker is neither fenced nor shutting down: it may lead, and may join an ISR."""
        return not (self.fenced or self.in_controlled_shutdown)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint of this listener name, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)

    def has_directory(self, directory: UUID) -> bool:
        """Return False only if this directory is known to be offline at the broker, or lost. A registration whose
        directories are all offline contains LOST_DIRECTORY instead."""
        if directory == UNASSIGNED_DIRECTORY or not self.log_dirs:
            return True
        return directory != LOST_DIRECTORY and directory in self.log_dirs

    @property
    def has_any_directory(self) -> bool:
        """Whether the broker has a log directory that may be online; False only if all are known to be offline."""
        return self.log_dirs != (LOST_DIRECTORY,)


class ControllerRegistration(NamedTuple):
    """One registered controller, with the endpoints of its controller listeners and the levels it supports."""

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint of this listener name, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)
