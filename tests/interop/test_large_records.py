"""Records far above the default limit, mixed with small ones, over many partitions. So frames of widely varying lengths
follow one another on the connections of clients and followers.
"""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.stages.started_clusters import running

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

SIZES = (100, 1_000, 300_000, 1_200_000, 3_000_000, 8_000_000)
RECORDS, PARTITIONS = 120, 10
LIMIT_BYTES = 30_000_000
READ_SECONDS_MAX = 60


def test_records_of_widely_varying_sizes_are_replicated_and_read() -> None:
    chance = random.Random(1)
    values = {str(index): chance.randbytes(chance.choice(SIZES)) for index in range(RECORDS)}
    with running(settings=[f"message.max.bytes={LIMIT_BYTES}"]) as cluster:
        cluster.create_topic("large", partitions=PARTITIONS, replication_factor=3)
        cluster.wait_in_sync("large", 3)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "message.max.bytes": LIMIT_BYTES, "acks": "all", "log_level": 0}
        )
        refused: list[object] = []
        for key, value in values.items():
            producer.produce(
                "large",
                value,
                key,
                int(key) % PARTITIONS,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert producer.flush(90) == 0
        assert refused == []
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "large",
                "fetch.message.max.bytes": LIMIT_BYTES,
                "receive.message.max.bytes": 10 * LIMIT_BYTES,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("large", index, 0) for index in range(PARTITIONS)])
        read: dict[str, bytes | None] = {}
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(read) < RECORDS and time.monotonic() < deadline:
            for message in consumer.consume(10, 1.0):
                assert message.error() is None
                key = message.key()
                assert isinstance(key, bytes)
                read[key.decode()] = message.value()
        consumer.close()
        assert read == values
        for node in (1, 2, 3):
            assert " ERROR " not in (cluster.folder / str(node) / "node.log").read_text()
