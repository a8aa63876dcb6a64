"""Async: the clients that carry out a workload: pykraft's client, confluent-kafka and kafka-python, behind one
interface.

Workloads are written once against this interface. pykraft's client also runs in a simulated world; confluent-kafka and
kafka-python run in threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraft.sim.chaos.history import HistoryEventType, Place


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How a producer sends. `acks` is "all", "1" or "0"; an idempotent producer has acks "all"."""

    acks: str = "all"
    is_idempotent: bool = True
    delivery_timeout_ms: int = 30_000
    request_timeout_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record that a consumer received."""

    place: Place
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """A partition in the cluster's metadata. `leader` is -1 while there is none."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class OperationFailed(Exception):
    """An operation ended without success. `type` is FAIL if it certainly did not happen, otherwise INFO. `error` is
    Kafka's name of the error where the client gives one."""

    def __init__(self, type: HistoryEventType, error: str) -> None:
        super().__init__(error)
        self.type = type
        self.error = error


class WorkloadProducer(Protocol):
    """A producer of a workload, in one of the client libraries."""

    async def send(self, place: Place, value: bytes) -> int:
        """Send one record, wait for its acknowledgement and return its offset. The offset is -1 where the library does
        not know it (acks=0, or a retry that the broker answered as a duplicate). Raises OperationFailed."""
        ...

    async def aclose(self) -> None:
        """Close the producer and discard undelivered records. Never raises because of the cluster."""
        ...


class WorkloadConsumer(Protocol):
    """A consumer of a workload, in one of the client libraries, without auto commit."""

    async def assign(self, places: Sequence[Place]) -> None:
        """Read these partitions from their beginning. Raises OperationFailed."""
        ...

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Join the consumer's group and subscribe to these topics. Reading starts at the committed offset, otherwise at
        the beginning."""
        ...

    def assignment(self) -> tuple[frozenset[Place], int]:
        """Return the assigned partitions, and a number that increases with each rebalance (0 without a group)."""
        ...

    async def poll(self, timeout_ms: int) -> list[ReadRecord]:
        """Return the records that arrive within this time, possibly none. Raises OperationFailed."""
        ...

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commit the offsets of the next records to read. Raises OperationFailed."""
        ...

    def position(self, place: Place) -> int:
        """The offset after everything that polls have returned or skipped (transaction markers); -1 before the
        first."""
        ...

    async def end_offsets(self, places: Sequence[Place]) -> dict[Place, int]:
        """Request the current log end offset of each partition. Raises OperationFailed."""
        ...

    async def aclose(self, *, leaves: bool = True) -> None:
        """Close the consumer. Never raises because of the cluster. `leaves` False: end without a LeaveGroup request, if
        the library can close that way."""
        ...


class WorkloadAdmin(Protocol):
    """Admin client of a workload, in one of the client libraries."""

    async def create_topic(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> str:
        """Create a topic and return its id in hexadecimal, "" where the library does not return it. Raises
        OperationFailed."""
        ...

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic. Raises OperationFailed."""
        ...

    async def partitions(self, topic: str) -> tuple[DescribedPartition, ...]:
        """Return the topic's partitions as one broker describes them, in order. Raises OperationFailed, also if the
        topic does not exist."""
        ...

    async def aclose(self) -> None: ...


class ClientLibrary(Protocol):
    """A Kafka client library. `name` is its name for `--client`: kraft, confluent-kafka, kafka-python. A client must be
    closed by the task that opened it, within the same cancel scopes. Raises OperationFailed if a client cannot be
    opened now."""

    name: str
    version: str

    async def producer(self, bootstrap: str, client_id: str, settings: ProducerSettings) -> WorkloadProducer: ...

    async def consumer(self, bootstrap: str, client_id: str, group: str | None) -> WorkloadConsumer: ...

    async def admin(self, bootstrap: str, client_id: str) -> WorkloadAdmin: ...
