"""The real clients: a confluent-kafka producer and a consumer, each in a thread of its own, from begin to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.demo.ledger import Acknowledgement, Ledger

RATE = 200
"""Records per second."""
FLUSH_SECONDS_MAX = 30.0
DRAIN_SECONDS_MAX = 20.0


class WritingClient(threading.Thread):
    """Writes numbered records, idempotent and with acks=all, at a steady rate."""

    def __init__(self, bootstrap: str, topic: str, ledger: Ledger, clock: Callable[[], float]) -> None:
        super().__init__(name="producer", daemon=True)
        settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "delivery.timeout.ms": 60_000,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self._topic = topic
        self._ledger = ledger
        self._clock = clock
        self._ending = threading.Event()

    def run(self) -> None:
        start = self._clock()
        while not self._ending.is_set():
            due = start + self._ledger.sent / RATE
            wait = due - self._clock()
            if wait > 0:
                self._producer.poll(min(wait, 0.05))
                continue
            number = self._ledger.sent
            self._producer.produce(self._topic, b"%d" % number, b"%d" % number, on_delivery=self._delivered)
            self._ledger.sent += 1
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        if left:
            self._ledger.failed.append(
                f"{left} records were still unacknowledged {FLUSH_SECONDS_MAX:g} s after the end"
            )

    def finish(self) -> None:
        """Stop writing, and wait until everything is acknowledged or given up."""
        self._ending.set()
        self.join()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._ledger.failed.append(str(error))
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes)
        assert partition is not None
        assert offset is not None
        self._ledger.acknowledged.append(Acknowledgement(int(value), partition, offset, self._clock()))


class ReadingClient(threading.Thread):
    """Reads everything from the begin, as it comes."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, ledger: Ledger) -> None:
        super().__init__(name="consumer", daemon=True)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._ledger = ledger
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(500, 0.1):
                value = message.value()
                if message.error() is None and isinstance(value, bytes):
                    self._ledger.read.append((message.partition() or 0, int(value)))
        self._consumer.close()

    def finish(self) -> None:
        """Read on until all that was acknowledged is there, or time is up; then end."""
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while self._ledger.lost() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._ending.set()
        self.join()
