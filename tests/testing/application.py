"""An application as users write it: it uses Python's own time and randomness, and does not know about simulated
worlds.
"""

from __future__ import annotations

import random
import secrets
import time
import uuid

import trio

from kraft.client import Consumer, Producer


async def sell(bootstrap_servers: str, count: int) -> list[str]:
    """Produce orders with own ids and times; return the ids that were acknowledged."""
    ids = []
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for _ in range(count):
            order = f"{uuid.uuid4()} {time.time()} {random.random()} {secrets.token_hex(4)}"
            await producer.send("orders", order.encode())
            ids.append(order)
            await trio.sleep(random.uniform(0.01, 0.1))
    return ids


async def bill(bootstrap_servers: str, count: int) -> list[str]:
    """Consume this many orders as a group member."""
    async with Consumer(
        bootstrap_servers=bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        await consumer.subscribe(["orders"])
        found: list[str] = []
        while len(found) < count:
            found += [record.value.decode() for record in await consumer.poll() if record.value is not None]
    return found
