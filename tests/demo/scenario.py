"""The scenario: three controllers and three brokers, a client that writes and one that reads, and three kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraft.deploy.launch.control import LocalCluster
from tests.demo.clients import ReadingClient, WritingClient
from tests.demo.ledger import Ledger

TOPIC = "demo"
PARTITIONS = 3
CALM_SECONDS = 2.5
"""Between two events."""
KAFKA_BROKER_MS = 10_600
KAFKA_CONTROLLER_MS = 2_600
"""What Apache Kafka 4.3 needs on a machine with two cores, measured in the same way."""


@dataclass(slots=True)
class Kill:
    """One kill -9, and what it cost. Times are in seconds since the start of writing."""

    node_id: int
    role: str
    time: float
    partitions: frozenset[int]
    kafka_ms: int
    restarted: float = 0.0
    topic_gap_ms: float | None = None
    write_gap_ms: float = 0.0

    @property
    def gap_ms(self) -> float:
        """The figure that Kafka's stands beside."""
        return self.write_gap_ms if self.topic_gap_ms is None else self.topic_gap_ms


@dataclass(slots=True)
class Scenario:
    """The run of the demo against a cluster that is up."""

    cluster: LocalCluster
    tell: Callable[[str], None]
    ledger: Ledger = field(default_factory=Ledger)
    kills: list[Kill] = field(default_factory=list)
    duration: float = 0.0
    _start: float = 0.0

    def run(self) -> None:
        """Create the topic, write and read, kill and restart, and settle the accounts."""
        self._create(TOPIC, PARTITIONS, replicas=3)
        self._wait_led()
        self._start = time.monotonic()
        writer = WritingClient(self.cluster.bootstrap_servers, TOPIC, self.ledger, self._now)
        reader = ReadingClient(self.cluster.bootstrap_servers, TOPIC, PARTITIONS, self.ledger)
        writer.start()
        reader.start()
        time.sleep(CALM_SECONDS)
        self._kill_leader()
        self._kill_controller()
        self._kill_leader()
        writer.finish()
        reader.finish()
        self.duration = self._now()
        ends = [kill.time for kill in self.kills[1:]] + [self.duration]
        for kill, end in zip(self.kills, ends, strict=True):
            kill.write_gap_ms = self.ledger.gap_ms(kill.time, min(end, self._last_write()), kill.partitions)

    def _kill_leader(self) -> None:
        leaders = self._leaders()
        node_id = leaders[0]
        led = frozenset(number for number, leader in leaders.items() if leader == node_id)
        self._kill(Kill(node_id, "leading broker", self._now(), led, KAFKA_BROKER_MS))
        time.sleep(CALM_SECONDS)
        self._restart()
        time.sleep(CALM_SECONDS)

    def _kill_controller(self) -> None:
        everything = frozenset(range(PARTITIONS))
        kill = Kill(self._active_controller(), "active controller", self._now(), everything, KAFKA_CONTROLLER_MS)
        self._kill(kill)
        kill.topic_gap_ms = self._time_until_topics_can_be_created()
        time.sleep(CALM_SECONDS)
        self._restart()
        time.sleep(CALM_SECONDS)

    def _kill(self, kill: Kill) -> None:
        pid = int((self.cluster.folder.node(kill.node_id) / "pid").read_text())
        kill.time = self._now()
        os.kill(pid, signal.SIGKILL)
        self.kills.append(kill)
        acknowledged = len(self.ledger.acknowledged)
        self.tell(
            f"{kill.time:6.2f} s  kill -9 {pid}: node {kill.node_id}, the {kill.role}  ({acknowledged} acknowledged)"
        )

    def _restart(self) -> None:
        kill = self.kills[-1]
        kraft("start", str(kill.node_id), "--data", self.cluster.folder.path)
        kill.restarted = self._now()
        self.tell(f"{kill.restarted:6.2f} s  node {kill.node_id} is back")

    def _time_until_topics_can_be_created(self) -> float:
        """Milliseconds since the last kill until a new topic is accepted."""
        attempt = 0
        while True:
            try:
                self._create(f"after-kill-{attempt}", 1, replicas=3, timeout_s=0.5)
            except KafkaException:
                attempt += 1
                if self._now() > self.kills[-1].time + 30:
                    raise
                continue
            return (self._now() - self.kills[-1].time) * 1000

    def _create(self, topic: str, partitions: int, *, replicas: int, timeout_s: float = 10.0) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        new = NewTopic(topic, partitions, replicas, config={"min.insync.replicas": "2"})
        admin.create_topics([new], operation_timeout=timeout_s, request_timeout=timeout_s)[topic].result()

    def _wait_led(self) -> None:
        deadline = time.monotonic() + 10
        while len(self._leaders()) < PARTITIONS and time.monotonic() < deadline:
            time.sleep(0.02)

    def _leaders(self) -> dict[int, int]:
        """Partition → leader, of those that have one."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        metadata = admin.list_topics(TOPIC, timeout=10)
        partitions = metadata.topics[TOPIC].partitions
        return {number: part.leader for number, part in partitions.items() if part.leader >= 0}

    def _active_controller(self) -> int:
        answer = json.loads(kraft("quorum", "--bootstrap", self.cluster.bootstrap_servers, "--json"))
        return int(answer["leader"])

    def _last_write(self) -> float:
        return max((ack.time for ack in self.ledger.acknowledged), default=0.0)

    def _now(self) -> float:
        return time.monotonic() - self._start


def kraft(*arguments: str | Path) -> str:
    """Run the kraft command; what it prints."""
    command = [sys.executable, "-m", "kraft.deploy.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"kraft {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout
