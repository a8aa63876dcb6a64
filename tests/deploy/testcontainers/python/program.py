"""Start the image with testcontainers, produce one record and consume it."""

from __future__ import annotations

import os

from confluent_kafka import Consumer, Producer
from testcontainers.kafka import KafkaContainer

with KafkaContainer(os.environ["IMAGE"]).with_kraft() as kafka:
    servers = kafka.get_bootstrap_server()
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", key=b"one", value=b"from Python")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "python", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    record = consumer.poll(60)
    assert record is not None
    assert record.error() is None
    assert (record.key(), record.value()) == (b"one", b"from Python")
    consumer.close()
print("python: one record produced and consumed")
