"""Gates: the three checks that every request passes: authorization, throttling, and memory.

The only implementations so far allow everything and set no quota. They are called at the places that the protocol
requires (authorization comes before the check for existence), so adding an authorizer changes only this module. Codes
are those of Kafka's AclOperation and ResourceType. Source: Kafka's Authorizer, ClientQuotaManager, AclOperation,
ResourceType.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

import trio

from kraft.broker.serving.session import Session
from kraft.wire.budget import MemoryBudget

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


class Operation(IntEnum):
    """Kafka's AclOperation; the value is also the bit in `authorized_operations`."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Kafka's ResourceType."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """The object of an operation: a resource type and a name."""

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")

OPERATIONS_OF: Mapping[ResourceType, tuple[Operation, ...]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
    }
)
"""The operations that `authorized_operations` may name for a resource."""


def topic_resource(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


class QuotaKind(Enum):
    """The kinds of client use that quotas limit; the unit is in the name."""

    PRODUCE_BYTES = "Produce"
    FETCH_BYTES = "Fetch"
    CONTROLLER_MUTATIONS = "ControllerMutation"


class Authorizer(Protocol):
    """Decides whether a request is allowed, without side effects."""

    def authorize(self, session: Session, operation: Operation, resource: Resource) -> bool: ...

    def authorize_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        """Return whether the session is allowed this operation on any resource of this type."""
        ...


class Quotas(Protocol):
    """Counts the clients' use of the broker, and throttles clients."""

    def record(self, session: Session, kind: QuotaKind, amount: int) -> int:
        """Count `amount`. Return the number of milliseconds for which the connection must be muted; 0 if it must not
        be."""
        ...


class AllowAll:
    """The authorizer of a cluster without `authorizer.class.name`."""

    def authorize(self, session: Session, operation: Operation, resource: Resource) -> bool:
        return True

    def authorize_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        return True


class NoQuotas:
    """The quotas of a cluster in which none was set."""

    def record(self, session: Session, kind: QuotaKind, amount: int) -> int:
        return 0


OPENERS_MAX = 3
"""Maximum number of requests that decompress stored batches at the same time; further requests wait."""
OPENING_BYTES = 8 * 1024 * 1024
"""Bytes charged to the memory budget for one request that decompresses stored batches, or for a round of compaction.
They cover one batch and the window of its codec."""


class Gates:
    """The gates of one node. `memory` is the process's single budget for frames, fetch buffers and decompression."""

    __slots__ = ("_openers", "authorizer", "memory", "quotas")

    def __init__(
        self, memory: MemoryBudget, *, authorizer: Authorizer | None = None, quotas: Quotas | None = None
    ) -> None:
        self.memory = memory
        self._openers = trio.CapacityLimiter(OPENERS_MAX)
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.quotas: Quotas = quotas or NoQuotas()

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[None]:
        """Wait for permission to decompress stored batches. While the `async with` block runs, their memory is charged
        to the budget."""
        async with self._openers:
            with self.counting(OPENING_BYTES):
                yield

    @contextmanager
    def counting(self, count: int) -> Iterator[None]:
        """Charge this many bytes to the memory budget while the `with` block runs. The budget cannot reject them."""
        self.memory.take(count)
        try:
            yield
        finally:
            self.memory.give(count)

    def authorize(self, session: Session, operation: Operation, resource: Resource) -> bool:
        """Return whether this session is allowed this operation on this resource."""
        return self.authorizer.authorize(session, operation, resource)

    def authorize_topic(self, session: Session, operation: Operation, topic: str) -> bool:
        """Return whether this session is allowed this operation on this topic."""
        return self.authorizer.authorize(session, operation, Resource(ResourceType.TOPIC, topic))

    def authorize_cluster(self, session: Session, operation: Operation) -> bool:
        """Return whether this session is allowed this operation on the cluster as a whole."""
        return self.authorizer.authorize(session, operation, CLUSTER)

    def authorize_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        """Return whether this session is allowed this operation on any resource of this type."""
        return self.authorizer.authorize_any(session, operation, type)

    def throttle(self, session: Session, kind: QuotaKind, amount: int) -> int:
        """Count `amount` of `kind`. Return the throttle time in ms, for the response and for muting the connection."""
        return self.quotas.record(session, kind, amount)

    def authorized_operations(self, session: Session, resource: Resource) -> int:
        """Return the bit field of allowed operations that Metadata and DescribeCluster return on request."""
        bits = 0
        for operation in OPERATIONS_OF[resource.type]:
            if self.authorizer.authorize(session, operation, resource):
                bits |= 1 << operation
        return bits
