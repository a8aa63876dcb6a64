"""How long a large consumer group of the protocol of KIP-848 needs until its assignment is stable.

The members are our consumers, for both clusters. Stable means: each partition is owned by one member, and the members
own equally many, give or take one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack

import trio
from confluent_kafka.admin import AdminClient

from kraft.client import Consumer
from kraft.client.core.records import TopicPartition
from tests.bench.contest import Figures
from tests.stages.started_clusters import LocalCluster

MEMBERS, LATE_MEMBERS = 200, 20
PARTITIONS = 440
TOPIC, GROUP = "members", "members"
STABLE_SECONDS_MAX = 180
LOOK_EACH_S = 0.02
SETTINGS = {"group_protocol": "consumer", "enable_auto_commit": False, "fetch_max_wait_ms": 5_000}
"""An idle fetch waits long, so that fetches of empty partitions do not take the processors."""


def measure(cluster: LocalCluster) -> Figures:
    """Return the seconds until the group is stable after all members joined, and after the coordinator's broker was
    killed while more members joined."""
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    cluster.wait_in_sync(TOPIC, 3)
    return trio.run(_measure, cluster)


async def _measure(cluster: LocalCluster) -> Figures:
    async with AsyncExitStack() as stack:
        members = [await _opened(stack, cluster.bootstrap) for _ in range(MEMBERS + LATE_MEMBERS)]
        first, late = members[:MEMBERS], members[MEMBERS:]
        joined_s = await _join_until_stable([], first)
        await trio.to_thread.run_sync(_kill_coordinator, cluster)
        killed_s = await _join_until_stable(first, late)
    return {"members-join": joined_s, "members-killed": killed_s}


async def _opened(stack: AsyncExitStack, bootstrap: str) -> Consumer:
    return await stack.enter_async_context(Consumer(bootstrap_servers=bootstrap, group_id=GROUP, **SETTINGS))


async def _join_until_stable(present: list[Consumer], joining: list[Consumer]) -> float:
    """Let these consumers join, all at once. Return the seconds until the whole group is stable."""
    began = trio.current_time()
    with trio.fail_after(STABLE_SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            for consumer in joining:
                await consumer.subscribe([TOPIC])
            for consumer in (*present, *joining):
                nursery.start_soon(_poll, consumer)
            while not is_stable(consumer.assignment for consumer in (*present, *joining)):  # noqa: ASYNC110
                await trio.sleep(LOOK_EACH_S)
            nursery.cancel_scope.cancel()
    return trio.current_time() - began


async def _poll(consumer: Consumer) -> None:
    while True:
        await consumer.poll()


def is_stable(assignments: Iterable[frozenset[TopicPartition]]) -> bool:
    """Return whether each partition is owned by one member, and no member owns two more than another."""
    owned = list(assignments)
    sizes = [len(partitions) for partitions in owned]
    is_each_once = sum(sizes) == len(frozenset().union(*owned)) == PARTITIONS
    return is_each_once and max(sizes) - min(sizes) <= 1


def _kill_coordinator(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([GROUP], request_timeout=10)[GROUP].result()
    cluster.kill(described.coordinator.id)
