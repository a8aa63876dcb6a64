"""Members of consumer groups, in foreign libraries, behind one face: each polls in its own thread until stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, ClassVar

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KafkaPythonRoundRobin
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as KafkaPythonSticky

POLL_S = 0.1
SESSION_MS = 6_000
STOP_SECONDS_MAX = 30
WAIT_SECONDS_MAX = 120


class GroupMember:
    """Subclasses say how to `consume`. `values` is all that was given, in order; `owned` the partitions held now."""

    assignors: ClassVar[dict[str, Any]]

    def __init__(
        self, bootstrap: str, topic: str, group: str, *, instance_id: str | None = None, assignor: str = "range"
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.instance_id = instance_id
        self.assignor = self.assignors[assignor]
        self.values: list[str] = []
        self.owned: set[int] = set()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consume(self._stop)
        except BaseException as failure:  # noqa: BLE001 - raised again by stop
            self.failure = failure

    def consume(self, stop: threading.Event) -> None:
        """Poll until `stop`, then commit and leave."""
        raise AssertionError(f"{type(self).__name__} does not consume")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise TimeoutError("a member did not stop")
        if self.failure is not None:
            raise self.failure


class ConfluentMember(GroupMember):
    assignors: ClassVar[dict[str, Any]] = {
        "range": "range",
        "roundrobin": "roundrobin",
        "cooperative-sticky": "cooperative-sticky",
    }

    def consume(self, stop: threading.Event) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": self.assignor,
        }
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe([self.topic])
        while not stop.is_set():
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self.values.append(str(message.value(), "ascii"))
            self.owned = {place.partition for place in consumer.assignment()}
        consumer.close()


class KafkaPythonMember(GroupMember):
    assignors: ClassVar[dict[str, Any]] = {
        "range": KafkaPythonRange,
        "roundrobin": KafkaPythonRoundRobin,
        "sticky": KafkaPythonSticky,
    }

    def consume(self, stop: threading.Event) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(self.assignor,),
        )
        while not stop.is_set():
            for records in consumer.poll(timeout_ms=int(POLL_S * 1000)).values():
                self.values += [record.value.decode() for record in records]
            self.owned = {place.partition for place in consumer.assignment()}
        consumer.close()


class AiokafkaMember(GroupMember):
    assignors: ClassVar[dict[str, Any]] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    def consume(self, stop: threading.Event) -> None:
        asyncio.run(self._consume(stop))

    async def _consume(self, stop: threading.Event) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(self.assignor,),
        )
        await consumer.start()
        while not stop.is_set():
            for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                self.values += [record.value.decode() for record in records]
            self.owned = {place.partition for place in consumer.assignment()}
        await consumer.stop()


MEMBERS: dict[str, type[GroupMember]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


def wait_owned(members: list[GroupMember], partitions: int) -> None:
    """Until each partition has one owner and every member has its share. TimeoutError after two minutes."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        owned = sorted(partition for member in members for partition in member.owned)
        if owned == list(range(partitions)) and all(member.owned for member in members):
            return
        for member in members:
            if member.failure is not None:
                raise member.failure
        time.sleep(POLL_S)
    raise TimeoutError(f"the group did not settle: {[sorted(member.owned) for member in members]}")


def wait_read(members: list[GroupMember], expected: set[str]) -> None:
    """Until the members together were given all of these. TimeoutError after two minutes."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        missing = expected - {value for member in members for value in member.values}
        if not missing:
            return
        time.sleep(POLL_S)
    raise TimeoutError(f"{len(missing)} records were not read: {sorted(missing)[:5]}")
