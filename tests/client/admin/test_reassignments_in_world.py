"""Reassignments in a simulated cluster: data is moved, no record is lost, and a failed move can be cancelled."""

from __future__ import annotations

from functools import partial

import pytest

from kraft.client import Consumer, KafkaError, Producer
from kraft.client.admin import ConfigChange, ConfigOperation, ConfigResource, NewTopic, ResourceType
from kraft.image import PartitionState
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_client import Stage, play

PART = ("t", 0)
SOON_MS = 10_000


def state(stage: Stage) -> PartitionState:
    topic = stage.cluster.image.topics.get("t")
    assert topic is not None
    return topic.partition(0)


async def values(stage: Stage) -> list[int]:
    seam = stage.cluster.world.node("consumer")
    async with Consumer(bootstrap_servers=stage.bootstrap_servers, auto_offset_reset="earliest", seam=seam) as consumer:
        await consumer.assign([PART])
        found: list[int] = []
        while len(found) < 3:
            found += [int(record.value or b"") for record in await consumer.poll(timeout_ms=1_000)]
        return found


async def settled(stage: Stage) -> bool:
    return await stage.cluster.wait_until(lambda: not state(stage).is_reassigning, SOON_MS)


def test_a_reassigned_partition_keeps_all_its_records() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        await stage.produce("t", {1: 0, 2: 1, 3: 2})
        assert await stage.admin.partitions.reassign({PART: [3, 4]}) == {PART: None}
        assert await settled(stage)
        assert (state(stage).replicas, set(state(stage).isr)) == ((3, 4), {3, 4})
        assert await values(stage) == [0, 1, 2]
        assert await stage.admin.partitions.reassignments() == {}
        dirs = {one.broker: one.replicas for one in await stage.admin.nodes.log_dirs()}
        assert [bool(dirs[broker]) for broker in (1, 2, 3, 4)] == [False, False, True, True]

    play(work, brokers=4)


def test_a_reassignment_to_a_dead_broker_stays_listed_and_can_be_cancelled() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        await stage.produce("t", {1: 0, 2: 1, 3: 2})
        stage.cluster.crash(3, lose_power=False, is_noticed=True)
        assert await stage.admin.partitions.reassign({PART: [1, 3]}) == {PART: None}
        (moving,) = (await stage.admin.partitions.reassignments([PART])).values()
        assert (moving.adding, moving.removing, moving.target) == ((3,), (2,), (1, 3))
        assert await stage.admin.partitions.reassign({PART: None}) == {PART: None}
        assert await stage.admin.partitions.reassignments() == {}
        assert set(state(stage).replicas) == {1, 2}
        again = (await stage.admin.partitions.reassign({PART: None}))[PART]
        assert again is not None
        assert again.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    play(work, brokers=3)


def test_a_reassignment_continues_after_the_broker_restarts_and_controller_and_leader_change() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        await stage.produce("t", {1: 0, 2: 1, 3: 2})
        stage.cluster.crash(3, lose_power=False, is_noticed=True)
        await stage.admin.partitions.reassign({PART: [3, 2]})
        stage.cluster.crash(1, lose_power=False, is_noticed=True)
        assert await stage.cluster.wait_until(lambda: state(stage).leader == 2, SOON_MS)
        stage.cluster.crash(101, lose_power=True, is_noticed=True)
        stage.cluster.start(101)
        stage.cluster.start(3)
        assert await settled(stage)
        assert state(stage).replicas == (3, 2)
        assert await values(stage) == [0, 1, 2]

    play(work, brokers=3)


def test_deleting_a_topic_ends_its_reassignment() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1]}))
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        await stage.admin.partitions.reassign({PART: [2]})
        await stage.admin.topics.delete("t")
        assert await stage.admin.partitions.reassignments() == {}

    play(work)


def test_an_invalid_reassignment_target_is_rejected_with_kafkas_error() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        results = await stage.admin.partitions.reassign({PART: [1, 9], ("t", 5): [1], ("gone", 0): [1]})
        assert {partition: problem and problem.code for partition, problem in results.items()} == {
            PART: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        fewer = await stage.admin.partitions.reassign({PART: [1]}, allow_replication_factor_change=False)
        problem = fewer[PART]
        assert isinstance(problem, KafkaError)
        assert problem.code is ErrorCode.INVALID_REPLICATION_FACTOR

    play(work)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_reassignment_takes_at_least_as_long_as_its_throttle_requires(side: str) -> None:
    async def work(stage: Stage, rate: int = 0) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1]}))
        async with Producer(bootstrap_servers=stage.bootstrap_servers, seam=stage.cluster.world.node("p")) as producer:
            for _ in range(5):
                await producer.send("t", bytes(200_000), partition=0)
        if rate:
            named = ConfigChange(ConfigOperation.SET, f"{side}.replication.throttled.replicas", "*")
            await stage.admin.configs.alter(ConfigResource(ResourceType.TOPIC, "t"), [named])
            slow = ConfigChange(ConfigOperation.SET, f"{side}.replication.throttled.rate", str(rate))
            for broker in ("1", "2"):
                await stage.admin.configs.alter(ConfigResource(ResourceType.BROKER, broker), [slow])
        began_ms = stage.cluster.world.now_ns // 1_000_000
        await stage.admin.partitions.reassign({PART: [2]})
        assert await stage.cluster.wait_until(lambda: not state(stage).is_reassigning, 60_000)
        took_ms = stage.cluster.world.now_ns // 1_000_000 - began_ms
        assert took_ms > 4_000 if rate else took_ms < 2_000

    play(work)
    play(partial(work, rate=100_000))
