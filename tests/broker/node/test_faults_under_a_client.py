"""This project's client under fault rules, in the simulator: every response may be lost, late or wrong, and every
record is nevertheless delivered once and in order.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.client import Consumer, Producer
from kraft.sim.world import World
from kraft.wire.reply_policy import ReplyPolicy, rule_from
from tests.stages.plane import Plane
from tests.stages.world_cluster import WorldCluster

RECORDS = 150
BROKERS = (1, 2, 3)

FAULTS: tuple[dict[str, Any], ...] = (
    {"api": "Produce", "action": "close"},
    {"api": "Produce", "action": "close", "after": True},
    {"api": "Produce", "action": "drop", "after": True},
    {"api": "Produce", "action": "drop"},
    {"api": "Produce", "action": "delay", "delay_ms": 700},
    {"api": "Produce", "action": "delay", "delay_ms": 700, "after": True},
    {"api": "Produce", "action": "error", "error": "NOT_LEADER_OR_FOLLOWER"},
    {"api": "Produce", "action": "error", "error": "REQUEST_TIMED_OUT", "after": True},
    {"api": "Produce", "action": "error", "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "after": True},
    {"api": "Metadata", "action": "close"},
    {"api": "Metadata", "action": "delay", "delay_ms": 300},
    {"api": "InitProducerId", "action": "error", "error": "COORDINATOR_LOAD_IN_PROGRESS"},
    {"api": "Fetch", "action": "close", "after": True},
    {"api": "Fetch", "action": "error", "error": "NOT_LEADER_OR_FOLLOWER"},
    {"api": "Fetch", "action": "error", "error": "FETCH_SESSION_ID_NOT_FOUND"},
    {"api": "Fetch", "action": "delay", "delay_ms": 400, "after": True},
    {"api": "ListOffsets", "action": "error", "error": "LEADER_NOT_AVAILABLE"},
    {"action": "close", "client_id": "app"},
)


async def make_trouble(world: World, policies: list[ReplyPolicy]) -> None:
    """Add one fault rule after another, each for one to three requests, until cancelled."""
    chance = world.random.stream("trouble")
    while True:
        rule = FAULTS[chance.below(len(FAULTS))]
        policies[chance.below(len(policies))].add(rule_from({**rule, "times": 1 + chance.below(3)}))
        await world.sleep_ms(20 + chance.below(200))


async def read_all(world: World, count: int) -> list[list[bytes]]:
    """Return the values of each partition, in order."""
    found: dict[int, list[bytes]] = {0: [], 1: []}
    settings = {"bootstrap_servers": "b1:9092,b2:9092,b3:9092", "seam": world.node("reader"), "client_id": "app"}
    async with Consumer(**settings) as consumer:
        await consumer.assign([("orders", 0), ("orders", 1)], at="earliest")
        while sum(map(len, found.values())) < count:
            for record in await consumer.poll():
                found[record.partition].append(record.value)
    return [found[0], found[1]]


@pytest.mark.parametrize("seed", range(4))
def test_the_client_delivers_every_record_once_and_in_order_despite_lost_requests_and_responses(seed: int) -> None:
    async def main(world: World) -> None:
        cluster = WorldCluster(world, controllers=1, brokers=3)
        cluster.replies = {broker_id: ReplyPolicy() for broker_id in BROKERS}
        cluster.start()
        await cluster.wait_ready()
        await Plane(world, cluster).create_topic("orders", partitions=2, min_insync_replicas="2")
        policies = [*cluster.replies.values()]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_trouble, world, policies)
            async with Producer(
                bootstrap_servers="b1:9092,b2:9092,b3:9092",
                seam=world.node("app"),
                client_id="app",
                request_timeout_ms=2_000,
                delivery_timeout_ms=120_000,
            ) as producer:
                for number in range(RECORDS):
                    await producer.enqueue("orders", b"%d" % number, partition=number % 2)
                    await world.sleep_ms(5)
                await producer.flush()
            found = await read_all(world, RECORDS)
            nursery.cancel_scope.cancel()
        assert found == [[b"%d" % number for number in range(first, RECORDS, 2)] for first in (0, 1)]
        assert sum(sum(policy.applied.values()) for policy in policies) > 5
        assert cluster.failures == []

    World(seed).run(main)
