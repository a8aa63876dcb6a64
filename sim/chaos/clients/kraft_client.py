"""pykraft's client as a workload's library. It also runs in a simulated world: it has no threads and reads no clock.

Settings that differ from the client's defaults:
- `acks`, `enable_idempotence`, `delivery_timeout_ms` and `request_timeout_ms` come from the workload.
- `enable_auto_commit` is False and `auto_offset_reset` is earliest.
- In a group, session timeout and heartbeat interval are SESSION_TIMEOUT_MS and HEARTBEAT_INTERVAL_MS, so that a dropped
  member expires within a short run.
- Each call of an admin client has the timeout ADMIN_TIMEOUT_MS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import trio

from kraft.client import Consumer, Producer
from kraft.client.admin import Admin, NewTopic
from kraft.client.core.records import DeliveryFailed, KafkaError
from kraft.client.rebalancing import RebalanceListener
from kraft.seam import Seam
from kraft.sim.chaos.clients import DescribedPartition, OperationFailed, ProducerSettings, ReadRecord
from kraft.sim.chaos.clients.outcomes import reason_of, send_failed, topic_change_failed, unknown
from kraft.sim.chaos.history import Place

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
ADMIN_TIMEOUT_MS = 10_000
END_OFFSETS_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 5_000


class _Abandoned(Exception):
    """Exception passed to a client's `__aexit__` to end the client without delivering its pending records."""


class KraftProducer:
    """Producer of a workload that uses `kraft.client.Producer`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def send(self, place: Place, value: bytes) -> int:
        try:
            delivery = await self._producer.enqueue(place.topic, value, partition=place.partition)
        except KafkaError as problem:  # the client did not accept it
            raise send_failed(_name_of(problem), is_certain=True) from problem
        try:
            return (await delivery.wait()).offset
        except DeliveryFailed as problem:
            raise send_failed(_name_of(problem), is_certain=problem.certain) from problem

    async def aclose(self) -> None:
        await _abandon(self._producer)


class _Counted(RebalanceListener):
    """A rebalance listener that counts rebalances."""

    def __init__(self) -> None:
        self.count = 0

    async def on_partitions_assigned(self, partitions: frozenset[tuple[str, int]]) -> None:
        self.count += 1
        await trio.lowlevel.checkpoint()

    async def on_partitions_lost(self, partitions: frozenset[tuple[str, int]]) -> None:
        self.count += 1
        await trio.lowlevel.checkpoint()


class KraftConsumer:
    """Consumer of a workload that uses `kraft.client.Consumer`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._rebalances = _Counted()

    async def assign(self, places: Sequence[Place]) -> None:
        try:
            await self._consumer.assign([(place.topic, place.partition) for place in places], at="earliest")
        except Exception as problem:
            raise _unknown(problem) from problem

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self._consumer.subscribe(topics, listener=self._rebalances)

    def assignment(self) -> tuple[frozenset[Place], int]:
        return frozenset(Place(*each) for each in self._consumer.assignment), self._rebalances.count

    async def poll(self, timeout_ms: int) -> list[ReadRecord]:
        try:
            records = await self._consumer.poll(timeout_ms=timeout_ms)
        except Exception as problem:
            raise _unknown(problem) from problem
        return [ReadRecord(Place(each.topic, each.partition), each.offset, each.value or b"") for each in records]

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        try:
            await self._consumer.commit({(place.topic, place.partition): at for place, at in offsets.items()})
        except Exception as problem:
            raise _unknown(problem) from problem

    def position(self, place: Place) -> int:
        try:
            return self._consumer.position((place.topic, place.partition))
        except (KafkaError, KeyError):
            return -1

    async def end_offsets(self, places: Sequence[Place]) -> dict[Place, int]:
        wanted = [(place.topic, place.partition) for place in places]
        try:
            found = await self._consumer.offsets(wanted, timeout_ms=END_OFFSETS_TIMEOUT_MS)
        except Exception as problem:
            raise _unknown(problem) from problem
        return {Place(*each): offset for each, offset in found.items()}

    async def aclose(self, *, leaves: bool = True) -> None:
        if not leaves:
            self._consumer._group = None  # a cancelled consumer leaves its group too: the client cannot end without
        await _abandon(self._consumer)


class KraftAdmin:
    """Admin client of a workload that uses `kraft.client.admin.Admin`."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def create_topic(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> str:
        try:
            await self._admin.topics.create(NewTopic(topic, partitions, replicas, configs))
        except Exception as problem:
            raise topic_change_failed(_name_of(problem)) from problem
        return ""

    async def delete_topic(self, topic: str) -> None:
        try:
            await self._admin.topics.delete(topic)
        except Exception as problem:
            raise topic_change_failed(_name_of(problem)) from problem

    async def partitions(self, topic: str) -> tuple[DescribedPartition, ...]:
        try:
            [found] = await self._admin.topics.describe([topic])
        except Exception as problem:
            raise _unknown(problem) from problem
        return tuple(
            DescribedPartition(-1 if each.leader is None else each.leader, tuple(each.isr), tuple(each.replicas))
            for each in found.partitions
        )

    async def aclose(self) -> None:
        await self._admin.__aexit__(None, None, None)


class KraftLibrary:
    """pykraft's client: `--client kraft`. `seam` is the clients' interface to the outside world (default: the current
    seam)."""

    name = "kraft"

    def __init__(self, seam: Seam | None = None) -> None:
        self._seam = seam
        try:
            self.version = version("pykraft")
        except PackageNotFoundError:
            self.version = "unknown"

    async def producer(self, bootstrap: str, client_id: str, settings: ProducerSettings) -> KraftProducer:
        producer = Producer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            acks=settings.acks,
            enable_idempotence=settings.is_idempotent and settings.acks == "all",
            delivery_timeout_ms=settings.delivery_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
            seam=self._seam,
        )
        return KraftProducer(await producer.__aenter__())

    async def consumer(self, bootstrap: str, client_id: str, group: str | None) -> KraftConsumer:
        consumer = Consumer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            seam=self._seam,
        )
        return KraftConsumer(await consumer.__aenter__())

    async def admin(self, bootstrap: str, client_id: str) -> KraftAdmin:
        admin = Admin(bootstrap_servers=bootstrap, client_id=client_id, timeout_ms=ADMIN_TIMEOUT_MS, seam=self._seam)
        return KraftAdmin(await admin.__aenter__())


async def _abandon(client: Producer | Consumer) -> None:
    """End a client as if an exception had ended its `async with` block. Raises errors of the client's own tasks, and
    Cancelled."""
    given_up = _Abandoned()
    try:
        await client.__aexit__(_Abandoned, given_up, None)
    except _Abandoned:
        return
    except BaseExceptionGroup as problems:
        others = problems.split(_Abandoned)[1]
        if others is not None:
            raise others from None


def _unknown(problem: Exception) -> OperationFailed:
    return unknown(_name_of(problem))


def _name_of(problem: Exception) -> str:
    """Return Kafka's name of the error, otherwise the exception's name."""
    return problem.code.name if isinstance(problem, KafkaError) else reason_of(problem)
