"""A simulated cluster for transactional producers, and readers of their committed records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kraft.client import Producer
from kraft.client.admin import Admin, FeatureChange
from kraft.client.core.records import TopicPartition
from tests.stages.clients_in_world import PLACE, Stage, run

SETTINGS = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "2",
    "offsets_topic_replication_factor": "1",
    "offsets_topic_num_partitions": "2",
    "group_initial_rebalance_delay_ms": "0",
}
ID = "payments"
V1, V2 = 0, 2
LEVELS = pytest.mark.parametrize("level", [V1, V2])
PRODUCER = "pykraft-producer"


def at_level(level: int, test: Callable[[Stage], Awaitable[Any]], *, seed: int = 1, **layout: Any) -> None:
    """Run the test in a cluster with this transaction.version and a topic `orders` of two partitions. The cluster has
    one node unless `layout` gives others."""

    async def main(stage: Stage) -> None:
        if level != V2:
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.nodes.update_features({"transaction.version": level}, change=FeatureChange.SAFE_DOWNGRADE)
        await stage.create_topic("orders", 2)
        await test(stage)

    run(main, seed=seed, **(SETTINGS | layout))


def machine(producer: Producer) -> Any:
    assert producer._transactions is not None
    return producer._transactions.machine


async def committed(stage: Stage, place: TopicPartition = PLACE) -> list[bytes | None]:
    """Return the values that a read_committed reader gets, up to the last stable offset."""
    async with stage.consumer("reader", isolation_level="read_committed") as consumer:
        end = (await consumer.offsets([place], at="latest"))[place]
        await consumer.assign([place], at="earliest")
        found: list[bytes | None] = []
        while consumer.position(place) < end:
            found += [record.value for record in await consumer.poll(timeout_ms=1_000)]
    return found


async def until_stable(stage: Stage, place: TopicPartition = PLACE) -> None:
    """Wait until no transaction is open in the partition."""
    async with (
        stage.consumer("watcher") as plain,
        stage.consumer("watcher-2", isolation_level="read_committed") as strict,
    ):
        with trio.fail_after(20):
            while await plain.offsets([place], at="latest") != await strict.offsets([place], at="latest"):
                await stage.world.sleep_ms(10)
