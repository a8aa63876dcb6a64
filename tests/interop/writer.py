"""A producer that writes numbered values to all partitions of a topic, for tests of groups."""

from __future__ import annotations

import confluent_kafka

from tests.interop.members import RECONNECT_MS_MAX

PARTITIONS = 4
RECORDS = 200


class Writer:
    """Writes to all partitions. All tests share one producer, because librdkafka needs half a second to start one."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"enable.idempotence": True, "reconnect.backoff.max.ms": RECONNECT_MS_MAX}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})

    def write(self, topic: str, prefix: str, count: int = RECORDS) -> set[str]:
        """Write values, and return them once all are acknowledged."""
        failures: list[object] = []
        values = [f"{prefix}-{number}" for number in range(count)]
        for number, value in enumerate(values):
            partition = number % PARTITIONS
            self._producer.produce(topic, value, None, partition, lambda error, _message: failures.append(error))
        assert self._producer.flush(30) == 0
        assert failures == [None] * count
        return set(values)
