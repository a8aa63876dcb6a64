"""Compaction of the offsets topic while groups commit, at the coordinator and at its followers."""

from __future__ import annotations

from typing import Any

from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.member import Member

ROUNDS, COMMITS = 6, 150
SEGMENT_BYTES = 2_000
SETTLED_MS = 500
"""Time in milliseconds in which every cleaner completes a round."""
TOPIC = "__consumer_offsets"
CLEANS_OFTEN = {"offsets_topic_num_partitions": "1", "log_cleaner_backoff_ms": "50"}


async def shorten_segments(cluster: Any, member: Member) -> None:
    """Lower the segment size of the offsets topic, for segments that begin from now on."""
    resource = messages.nested_class(messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), "resources")
    config = messages.nested_class(resource, "configs")
    wanted = {"internal.segment.bytes": SEGMENT_BYTES, "file.delete.delay.ms": 0}
    rows = [messages.build(config, name=name, config_operation=0, value=str(value)) for name, value in wanted.items()]
    client = await cluster.connect(cluster.broker_ids[0], member.seam)
    asked = messages.build(resource, resource_type=2, resource_name=TOPIC, configs=rows)
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[asked], validate_only=False)
    assert answer.responses[0].error_code == ErrorCode.NONE


def sizes(cluster: Any) -> list[int]:
    """Return the size in bytes of the offsets partition's log, by broker."""
    replicas = [cluster.node(broker_id).broker.broker.replicas for broker_id in cluster.broker_ids]
    return [one.find(TOPIC, 0).log.size_bytes for one in replicas]


def test_compaction_keeps_the_offsets_topic_small_and_the_next_coordinator_loads_it(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await shorten_segments(cluster, member)
        last, found = [0, 0], []
        for number in range(ROUNDS * COMMITS):
            last[number % 2] = number
            assert await member.commit(number, partition=number % 2) is ErrorCode.NONE
            if number % COMMITS == 0:
                await world.sleep_ms(SETTLED_MS)
                found += sizes(cluster)
        assert max(found) < 2 * SEGMENT_BYTES, "two offsets, a group, and a segment that is not closed yet"
        first = member.broker
        world.kill(cluster.name(first))
        await world.sleep_ms(1_000)
        await member.find()
        assert member.broker != first
        assert [await member.committed(partition=index) for index in (0, 1)] == last

    run(test, **CLEANS_OFTEN)
