"""Group members of foreign libraries behind one interface. Each member runs in the background until it is stopped."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as KafkaPythonCooperative
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KafkaPythonRoundRobin
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as KafkaPythonSticky
from kafka.errors import KafkaConnectionError

from tests.interop.background import Background
from tests.interop.programs import FRANZ_GO, JAVA, KAFKAJS, Program, converse

POLL_S = 0.1
SESSION_MS = 6_000
AIOKAFKA_STOP_S = 5
RECONNECT_MS_MAX = 300
"""Maximum reconnect backoff for librdkafka in ms. By default librdkafka waits up to ten seconds for a broker that was
killed several times."""
WAIT_SECONDS_MAX = 60


class GroupMember(ABC):
    """A running group member; subclasses implement `consume`. `values` has all received values in order, and `owned`
    the currently assigned partitions."""

    assignors: ClassVar[dict[str, Any]]
    can_be_static: ClassVar[bool] = True

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        instance_id: str | None = None,
        assignor: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.assignor = self.assignors[assignor or next(iter(self.assignors))]
        self.values: list[str] = []
        self.owned: set[int] = set()
        self._work = Background(self.consume)

    @property
    def failure(self) -> BaseException | None:
        return self._work.failure

    @abstractmethod
    def consume(self, stop: threading.Event) -> None:
        """Poll until the event `stop` is set, then commit and leave the group."""

    def stop(self) -> None:
        self._work.stop()


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
            "session.timeout.ms": self.session_ms,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": self.assignor,
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
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


class ConfluentConsumerMember(GroupMember):
    """A member with the consumer group protocol (KIP-848). A topic `^…` is a regular expression."""

    assignors: ClassVar[dict[str, Any]] = {"uniform": "uniform", "range": "range"}

    def consume(self, stop: threading.Event) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": "consumer",
            "group.remote.assignor": self.assignor,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
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
        "cooperative-sticky": KafkaPythonCooperative,
    }

    def consume(self, stop: threading.Event) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(self.assignor,),
        )
        # kafka-python 3.0.12 permanently loses an assignment if it joined before it knew the topic: the leader assigns
        # again when the metadata arrives, and if a poll times out at that moment, the SyncGroup response is never
        # applied. It also raises if the broker that it happens to contact is dead at that moment.
        while not stop.is_set():
            with suppress(KafkaConnectionError):
                consumer.partitions_for_topic(self.topic)
                break
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
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(self.assignor,),
        )
        await consumer.start()
        while not stop.is_set():
            for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                self.values += [record.value.decode() for record in records]
            self.owned = {place.partition for place in consumer.assignment()}
        # aiokafka 0.14.0 retries its commit endlessly if it is stopped while it knows no coordinator, because it no
        # longer looks for one. Such a member is removed after its session timeout, like a crashed one.
        with suppress(TimeoutError):
            await asyncio.wait_for(consumer.stop(), AIOKAFKA_STOP_S)


class ProgramMember(GroupMember):
    """A member that is a separate process. The program uses the same names of assignors as this module."""

    program: ClassVar[Program]

    def consume(self, stop: threading.Event) -> None:
        words = ["member", self.bootstrap, self.topic, self.group, self.assignor, str(self.session_ms)]
        if self.instance_id is not None:
            words.append(self.instance_id)
        converse((*self.program.command, *words), stop, self._heard)

    def _heard(self, line: str) -> None:
        verb, *rest = line.split()
        if verb == "read":
            self.values += rest
        else:
            self.owned = set(map(int, rest))


def _named(*assignors: str) -> dict[str, Any]:
    return {assignor: assignor for assignor in assignors}


class JavaMember(ProgramMember):
    program = JAVA
    assignors: ClassVar[dict[str, Any]] = _named("range", "roundrobin", "sticky", "cooperative-sticky")


class JavaConsumerMember(ProgramMember):
    """A member with the consumer group protocol (KIP-848). A topic `^…` is a regular expression."""

    program = JAVA
    assignors: ClassVar[dict[str, Any]] = {"uniform": "broker:uniform", "range": "broker:range"}


class KafkaJSMember(ProgramMember):
    program = KAFKAJS
    assignors: ClassVar[dict[str, Any]] = _named("roundrobin")
    can_be_static = False  # version 2.2.4 of the library never sends an instance id


class FranzGoMember(ProgramMember):
    program = FRANZ_GO
    assignors: ClassVar[dict[str, Any]] = _named("range", "roundrobin", "sticky", "cooperative-sticky")


MEMBERS: dict[str, type[GroupMember]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
    "kafkajs": KafkaJSMember,
    "franz-go": FranzGoMember,
    "java": JavaMember,
}


CONSUMER_MEMBERS: dict[str, type[GroupMember]] = {
    "confluent-kafka": ConfluentConsumerMember,
    "java": JavaConsumerMember,
}
"""Members that use the consumer group protocol."""


def wait_owned(members: list[GroupMember], partitions: int) -> None:
    """Wait until each partition has one owner and every member has its share of partitions. Raise TimeoutError after a
    minute."""
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
    """Wait until the members together have received all of these values. Raise TimeoutError after a minute."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        missing = expected - {value for member in members for value in member.values}
        if not missing:
            return
        time.sleep(POLL_S)
    raise TimeoutError(f"{len(missing)} records were not read: {sorted(missing)[:5]}")
