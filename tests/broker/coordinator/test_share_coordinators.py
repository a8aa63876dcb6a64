"""Share coordinators on whole brokers: the RPCs of share partition state, failover, pruning, deleted topics."""

from __future__ import annotations

from typing import Any

from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.share_states import ShareStates

ACKED = 2


def batches(row: Any) -> list[tuple[int, int, int, int]]:
    return [(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in row.state_batches]


def test_the_state_of_a_share_partition_is_read_as_it_was_written(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        assert await states.initialize(3, state_epoch=0) is ErrorCode.NONE
        assert await states.write(4, (6, 9, ACKED, 1)) is ErrorCode.NONE
        row = await states.read()
        assert (row.state_epoch, row.start_offset, batches(row)) == (0, 4, [(6, 9, ACKED, 1)])
        row = await states.summary()
        assert (row.leader_epoch, row.start_offset, row.delivery_complete_count) == (0, 4, 0)

    run(test)


def test_a_start_offset_of_minus_2_deletes_a_state_of_an_older_epoch(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        await states.initialize(3, state_epoch=4)
        for state_epoch, left in ((4, 3), (5, -1)):
            assert await states.initialize(-2, state_epoch=state_epoch) is ErrorCode.NONE
            assert (await states.summary()).start_offset == left

    run(test)


def test_the_topic_of_share_states_is_created_with_kafkas_settings(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        await states.find()
        assert states.image.topics.by_name["__share_group_state"].partition_count == 50
        assert dict(states.image.topic_configs("__share_group_state")) == {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "2",
            "retention.ms": "-1",
            "segment.bytes": "104857600",
        }

    run(test)


def test_an_acknowledged_write_survives_the_death_of_the_share_coordinator(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        await states.initialize(0)
        await states.read(3)
        assert await states.write(0, (2, 5, ACKED, 1), leader_epoch=3) is ErrorCode.NONE
        dead = states.broker
        world.kill(cluster.name(dead))
        row = await states.read(3)
        assert states.broker != dead
        assert batches(row) == [(2, 5, ACKED, 1)]
        assert await states.write(0, leader_epoch=2) is ErrorCode.FENCED_LEADER_EPOCH

    run(test)


def test_malformed_and_unknown_share_partitions_are_refused(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        assert (await states.read()).error_code == ErrorCode.INVALID_REQUEST
        await states.initialize(0)
        assert await states.write(0, (5, 2, ACKED, 1)) is ErrorCode.INVALID_REQUEST
        assert await states.write(0, (2, 5, 1, 1)) is ErrorCode.INVALID_REQUEST
        client = await cluster.connect(states.broker, states.seam)
        topics = [{"topic_id": states.topic_id, "partitions": [{"partition": 7, "leader_epoch": 0}]}]
        answered = await client.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, group_id="g", topics=topics)
        assert answered.results[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


def test_a_key_that_names_no_share_partition_has_no_coordinator(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        client = await cluster.connect(cluster.broker_ids[0], world.node("asker"))
        for key in (
            "g",
            "g:AAAAAAAAAAAAAAAAAAAAAA",
            "g:short:0",
            ":AAAAAAAAAAAAAAAAAAAAAA:0",
            "g:AAAAAAAAAAAAAAAAAAAAAA:x",
        ):
            answered = await client.ask(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=[key])
            assert answered.coordinators[0].error_code == ErrorCode.INVALID_REQUEST, key

    run(test)


def test_records_that_newer_ones_replace_are_deleted(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        await states.initialize(0)
        for offset in range(1, 8):
            await states.write(offset)
        log = states.shard.partition.log
        assert log.log_start_offset == 0
        await world.sleep_ms(10_000)
        assert log.log_start_offset == 6
        assert log.log_end_offset == 8
        world.kill(cluster.name(states.broker))
        assert (await states.read()).start_offset == 7

    run(
        test,
        share_coordinator_snapshot_update_records_per_snapshot="2",
        share_coordinator_state_topic_prune_interval_ms="2000",
    )


def test_a_quiet_share_partition_does_not_keep_old_records(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        await states.initialize(0)
        await states.write(5, (7, 8, ACKED, 1))
        log = states.shard.partition.log
        await world.sleep_ms(20_000)
        assert (log.log_start_offset, log.log_end_offset) == (2, 3)
        world.kill(cluster.name(states.broker))
        assert batches(await states.read()) == [(7, 8, ACKED, 1)]

    run(
        test,
        share_coordinator_cold_partition_snapshot_interval_ms="5000",
        share_coordinator_state_topic_prune_interval_ms="2000",
    )


def test_the_states_of_a_deleted_topic_are_deleted(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        states = ShareStates(world, cluster)
        await states.initialize(0)
        shard = states.shard
        client = await cluster.connect(cluster.broker_ids[0], states.seam)
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders", "topic_id": None}], timeout=10_000)
        await world.sleep_ms(2_000)
        assert shard.machine.states == {}
        assert shard.partition.log.log_end_offset == 2

    run(test)
