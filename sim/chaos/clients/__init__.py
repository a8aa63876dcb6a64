"""Async: the clients that carry out a workload: ours, confluent-kafka and kafka-python behind one interface.

The workloads are written once against this interface. Ours also runs in a simulated world; the others live in threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraft.sim.chaos.history import EventType, Place


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer sends. `acks` is "all", "1" or "0"; an idempotent one has acks "all"."""

    acks: str = "all"
    is_idempotent: bool = True
    delivery_timeout_ms: int = 30_000
    request_timeout_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record as a consumer was given it."""

    place: Place
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the cluster's metadata has it. `leader` is -1 while there is none."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class OperationFailed(Exception):
    """An operation ended without success. `type` is FAIL if it certainly did not happen, else INFO; `error` names why:
    Kafka's name of the error where the client gives one."""

    def __init__(self, type: EventType, error: str) -> None:
        super().__init__(error)
        self.type = type
        self.error = error


class WorkloadProducer(Protocol):
    """One producer of the library."""

    async def send(self, place: Place, value: bytes) -> int:
        """Send one record and wait for its acknowledgement; its offset, -1 where the library does not know it (acks=0,
        or a retry that the broker answered as a duplicate). OperationFailed."""
        ...

    async def aclose(self) -> None:
        """Close it; never raises because of the cluster, and gives up what is not delivered."""
        ...


class WorkloadConsumer(Protocol):
    """One consumer of the library, without auto commit."""

    async def assign(self, places: Sequence[Place]) -> None:
        """Read these partitions from their beginning. OperationFailed."""
        ...

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Join the consumer's group for these topics; begins at the committed offset, else at the beginning."""
        ...

    def assignment(self) -> tuple[frozenset[Place], int]:
        """What it reads now, and a number that rises with each rebalance (0 without a group)."""
        ...

    async def poll(self, timeout_ms: int) -> list[ReadRecord]:
        """What comes within this time, perhaps nothing. OperationFailed."""
        ...

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commit the offsets of the next records to read. OperationFailed."""
        ...

    def position(self, place: Place) -> int:
        """The offset behind all that polls have given or passed over (markers of transactions); -1 before the first."""
        ...

    async def end_offsets(self, places: Sequence[Place]) -> dict[Place, int]:
        """The log end offset of each, asked for now. OperationFailed."""
        ...

    async def aclose(self, *, leaves: bool = True) -> None:
        """Close it; never raises because of the cluster. `leaves` False: without a word to the group, where the library
        can do that."""
        ...


class WorkloadAdmin(Protocol):
    """What workloads ask of the cluster."""

    async def create_topic(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> str:
        """The topic's id in hexadecimal, "" where the library does not tell. OperationFailed."""
        ...

    async def delete_topic(self, topic: str) -> None:
        """OperationFailed."""
        ...

    async def partitions(self, topic: str) -> tuple[PartitionState, ...]:
        """Its partitions as one broker describes them, in their order. OperationFailed, also if there is no topic."""
        ...

    async def aclose(self) -> None: ...


class ClientLibrary(Protocol):
    """A Kafka client library. `name` is how `--client` names it: kraft, confluent-kafka, kafka-python. A client must be
    closed by the task that opened it, within the same cancel scopes. OperationFailed if it cannot be opened now."""

    name: str
    version: str

    async def producer(self, bootstrap: str, client_id: str, settings: ProducerSettings) -> WorkloadProducer: ...

    async def consumer(self, bootstrap: str, client_id: str, group: str | None) -> WorkloadConsumer: ...

    async def admin(self, bootstrap: str, client_id: str) -> WorkloadAdmin: ...
