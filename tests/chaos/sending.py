"""Sends single records to a cluster with confluent-kafka."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer

TOPIC = "orders"


def send(bootstrap: str, timeout_ms: int = 20_000) -> int:
    """Send one record to partition 0, acknowledged by all in-sync replicas; return its offset. KafkaException if that
    takes longer than `timeout_ms`."""
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0}
    producer = Producer({**settings, "delivery.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms})
    found: list[int | KafkaException] = []
    producer.produce(
        TOPIC,
        b"one",
        partition=0,
        on_delivery=lambda error, message: found.append(message.offset() if error is None else KafkaException(error)),
    )
    producer.flush()
    (outcome,) = found
    if isinstance(outcome, KafkaException):
        raise outcome
    return outcome
