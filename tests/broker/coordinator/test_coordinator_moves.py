"""A group coordinator that dies, stops or is cut off from other brokers: acknowledged commits survive, and only the
current coordinator answers clients.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.member import Member

OFFSETS_TOPIC = "__consumer_offsets"


def test_an_acknowledged_offset_commit_survives_a_power_loss_of_its_coordinator(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(42) is ErrorCode.NONE
        first = member.broker
        world.power_off(cluster.name(first))
        assert await member.find() != first
        assert await member.committed() == 42
        assert await member.committed(stable=True) == 42

    run(test)


def test_a_group_continues_at_its_new_coordinator_without_a_rebalance(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        world.kill(cluster.name(member.broker))
        await member.find()
        assert await member.heartbeat() is ErrorCode.NONE
        assert (await member.sync()).assignment == b"everything"
        assert await member.commit(7) is ErrorCode.NONE

    run(test)


def test_offset_commits_survive_a_failure_of_each_broker_in_turn(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        for round_number in range(4):
            assert await member.commit(round_number) is ErrorCode.NONE
            dead = member.broker
            world.power_off(cluster.name(dead))
            await member.find()
            assert await member.committed() == round_number
            cluster.start(dead)
            await cluster.wait_ready()
            await world.sleep_ms(500)

    run(test)


def test_a_clean_stop_of_the_coordinator_answers_parked_requests(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        other = Member(world, cluster, world.node("client"))
        await other.find()
        replies: list[Any] = []

        async def join() -> None:
            replies.append(await other.join())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)
            await world.sleep_ms(50)
            assert not replies, "it waits for the first member to rejoin"
            cluster.node(member.broker).request_stop()
            while not replies:
                await world.sleep_ms(10)
            nursery.cancel_scope.cancel()
        assert replies[0].error_code == ErrorCode.NOT_COORDINATOR
        await other.find()
        assert other.broker != member.broker

    run(test)


def test_a_coordinator_without_in_sync_followers_acknowledges_no_commit(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(1) is ErrorCode.NONE
        others = [broker for broker in cluster.broker_ids if broker != member.broker]
        old = cluster.name(member.broker)
        for name in [cluster.name(node) for node in (*others, *cluster.controller_ids)]:
            world.partition(old, name)
        assert await member.commit(2) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "after offsets.commit.timeout.ms"
        assert await member.committed() == 1, "an uncommitted state is not returned"
        await world.sleep_ms(12_000)
        newer = Member(world, cluster, member.seam)
        newer.member_id, newer.generation = member.member_id, member.generation
        cluster.broker_ids.remove(member.broker)
        await newer.find()
        assert newer.broker in others
        assert await newer.committed() == 1

    run(test, replica_lag_time_max_ms="60000")


def test_a_broker_that_lost_the_offsets_partition_answers_not_coordinator(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.find()
        wrong = next(broker for broker in cluster.broker_ids if broker != member.broker)
        client = await cluster.connect(wrong, member.seam)
        reply = await client.ask(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
        assert reply.error_code == ErrorCode.NOT_COORDINATOR
        reply = await client.ask(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}])
        assert reply.groups[0].error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_record_that_a_client_wrote_to_the_offsets_topic_is_loaded_and_the_group_continues(run: Any) -> None:
    """The client has the permission to write to the internal topic. After its record, the coordinator loads the state
    again from the log."""

    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(1) is ErrorCode.NONE
        shards = cluster.node(member.broker).broker.broker.groups.shards
        shard = next(one for one in shards.values() if one.machine is not None and one.machine.groups)
        partition = shard.partition
        from kraft.broker.coordinator.shard_driver import encode_entries
        from kraft.broker.group.records import GroupLogEntry, OffsetKey, OffsetValue, encode_entry
        from kraft.wire.records import read_header
        from kraft.wire.records.compression import Compression

        foreign = GroupLogEntry(OffsetKey("g", "orders", 1), OffsetValue(99, -1, "", 1))
        batch = encode_entries(encode_entry, [foreign], 1, Compression.NONE)
        partition.append_as_leader(memoryview(batch), read_header(batch), 1)
        cluster.node(member.broker).broker.broker.replicas.loop.request_pass()
        assert await member.commit(2) is ErrorCode.NOT_COORDINATOR
        assert await member.commit(3) is ErrorCode.NONE
        assert (await member.committed(), await member.committed(partition=1)) == (3, 99)

    run(test)


def test_members_have_their_full_session_timeout_after_a_coordinator_move(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await world.sleep_ms(9_000)
        world.kill(cluster.name(member.broker))
        await member.find()
        await world.sleep_ms(9_000)
        assert await member.heartbeat() is ErrorCode.NONE
        await world.sleep_ms(10_100)
        assert await member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    run(partial(test))
