"""Blocking calls by which a test writes records and reads them back."""

from __future__ import annotations

import trio

from kraft.client import Consumer, DeliveryFailed, Producer

TIMEOUT_MS = 20_000


def send(servers: str, topic: str, values: list[bytes], *, timeout_ms: int = TIMEOUT_MS) -> list[bytes]:
    """Send these records one after the other with acks=all until one fails. Return the acknowledged ones."""
    acked: list[bytes] = []

    async def run() -> None:
        timeouts = {"delivery_timeout_ms": timeout_ms, "request_timeout_ms": min(timeout_ms, 5_000)}
        async with Producer(bootstrap_servers=servers, max_block_ms=timeout_ms, **timeouts) as producer:
            try:
                for value in values:
                    await producer.send(topic, value)
                    acked.append(value)
            except DeliveryFailed:
                return

    trio.run(run)
    return acked


def read(servers: str, topic: str, count: int) -> list[bytes]:
    """Return the values of a topic with one partition from its first offset, once there are `count` values."""
    values: list[bytes] = []

    async def run() -> None:
        with trio.fail_after(TIMEOUT_MS / 1000):
            async with Consumer(bootstrap_servers=servers, group_id="read", auto_offset_reset="earliest") as consumer:
                await consumer.subscribe([topic])
                while len(values) < count:
                    values.extend(record.value or b"" for record in await consumer.poll(timeout_ms=100))

    trio.run(run)
    return values
