"""A coordinator's responses while it loads, and the state that it loads.

Source: docs/decisions/14-group-coordinator.md.
"""

from __future__ import annotations

from typing import Any

import trio

from kraft.broker.coordinator.group_coordinators import groups_in_steps
from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.durable import EMPTY_STATE
from kraft.broker.group.records import GroupKey, GroupLogEntry, OffsetKey, OffsetValue, encode_entry
from kraft.broker.group.shard import GroupSettings
from kraft.storage.append import AppendOrigin
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import Record, encode_batch, read_header
from tests.broker.coordinator.member import Member


def shard_of(cluster: Any, member: Member) -> Any:
    """Return the shard that keeps the member's group."""
    shards = cluster.node(member.broker).broker.broker.groups.shards.values()
    (shard,) = [one for one in shards if one.machine is not None and member.group in one.machine.groups]
    return shard


def cut_off(world: Any, cluster: Any, broker: int) -> None:
    """Cut the followers off from this broker, so that its high watermark does not move."""
    for other in cluster.broker_ids:
        if other != broker:
            world.partition(cluster.name(broker), cluster.name(other))


def test_an_offsets_partition_with_an_uncommitted_end_answers_load_in_progress(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(1) is ErrorCode.NONE
        shard = shard_of(cluster, member)
        owner = cluster.node(member.broker).broker.broker.groups
        cut_off(world, cluster, member.broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.commit, 2)
            await world.sleep_ms(50)
            nursery.cancel_scope.cancel()
        await member.find()
        owner.reload(shard)
        started_ns = world.now_ns
        reply = await member.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": None}])
        waited_ms = (world.now_ns - started_ns) / 1e6
        assert reply.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert 400 < waited_ms < 700, "it waits a moment first"
        assert await member.heartbeat() is ErrorCode.NONE, "so that members stay"
        assert (await member.ask(ApiKey.LIST_GROUPS)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await member.commit(3) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.heal_all()
        while owner.shards[shard.partition.index].state is ShardState.LOADING:
            await world.sleep_ms(10)
        assert await member.committed() == 2, "what was in the log and is committed now"
        assert await member.heartbeat() is ErrorCode.NONE

    run(test, replica_lag_time_max_ms="60000")


def test_offsets_of_a_topic_deleted_during_loading_are_removed(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        for topic in ("orders", "others"):
            assert await member.commit(1, topic=topic) is ErrorCode.NONE
        shard = shard_of(cluster, member)
        owner = cluster.node(member.broker).broker.broker.groups
        cut_off(world, cluster, member.broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.commit, 2)
            await world.sleep_ms(50)
            nursery.cancel_scope.cancel()
        await member.find()
        owner.reload(shard)
        client = await cluster.connect(member.broker, member.seam)
        deleted = await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "others"}], timeout=5_000)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        await world.sleep_ms(200)
        assert owner.shards[shard.partition.index].state is ShardState.LOADING
        world.heal_all()
        while owner.shards[shard.partition.index].state is ShardState.LOADING:
            await world.sleep_ms(10)
        await world.sleep_ms(200)
        newest = owner.shards[shard.partition.index].machine.newest
        assert set(newest.offsets_of("g")) == {("orders", 0)}

    run(test, topics=("orders", "others"), replica_lag_time_max_ms="60000")


def test_iterating_over_groups_with_many_offsets_lets_other_tasks_run() -> None:
    """Otherwise a broker with many offsets would be blocked when a topic is deleted or offsets expire."""
    state = EMPTY_STATE.with_entries(
        GroupLogEntry(OffsetKey(f"g{number % 100}", "orders", number), OffsetValue(1, -1, "", 1))
        for number in range(10_000)
    )
    machine = GroupCoordinator(GroupSettings(), state, 10_000)
    groups: list[str] = []
    looked_at: list[int] = []

    async def others() -> None:
        while len(groups) < 100:
            looked_at.append(len(groups))
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            async for group in groups_in_steps(machine):
                groups.append(group)

    trio.run(main)
    assert sorted(groups) == sorted(machine.group_ids())
    assert len(looked_at) > 1
    assert not [number for number in looked_at if number % 20], "after two thousand offsets"


def test_requests_received_while_an_offsets_partition_loads_are_answered_afterwards(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(7) is ErrorCode.NONE
        cluster.node(member.broker).broker.broker.groups.reload(shard_of(cluster, member))
        assert await member.committed() == 7

    run(test)


def test_loading_an_offsets_partition_skips_control_batches_and_records_of_other_releases(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(7) is ErrorCode.NONE
        shard = shard_of(cluster, member)
        newer = [Record(0, 1, b"\0\x11newer", b"\0\0what"), Record(0, 1, encode_entry(_offset(8)).key, b"\0\x7fwhat")]
        for record in newer:
            batch = encode_batch([record])
            shard.partition.append_as_leader(memoryview(batch), read_header(batch), 1, AppendOrigin.COORDINATOR)
        cluster.node(member.broker).broker.broker.groups.reload(shard)
        assert await member.committed() == 7
        assert await member.commit(8) is ErrorCode.NONE

    run(test)


def test_an_offsets_partition_with_an_unreadable_record_is_not_coordinated(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        shard = shard_of(cluster, member)
        batch = encode_batch([Record(0, 1, encode_entry(GroupLogEntry(GroupKey("x"), None)).key + b"tail", None)])
        shard.partition.append_as_leader(memoryview(batch), read_header(batch), 1, AppendOrigin.COORDINATOR)
        cluster.node(member.broker).broker.broker.groups.reload(shard)
        await world.sleep_ms(100)
        assert await member.heartbeat() is ErrorCode.NOT_COORDINATOR

    run(test)


def test_an_offsets_partition_with_a_damaged_log_is_coordinated_by_another_broker(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        for offset in range(30):
            assert await member.commit(offset) is ErrorCode.NONE
        shard, broker = shard_of(cluster, member), member.broker
        node: Any = world.host(cluster.name(broker)).root
        for name in shard.partition.log.active.log.path.strip("/").split("/"):
            node = node.entries[name]
        node.data[16] = 9  # the magic of the first batch
        cluster.node(broker).broker.broker.groups.reload(shard)
        await world.sleep_ms(100)
        assert await member.find() != broker
        assert await member.committed() == 29
        assert world.is_running(cluster.name(broker))

    run(test, offsets_load_buffer_size="1000")


def _offset(offset: int) -> GroupLogEntry:
    return GroupLogEntry(OffsetKey("g", "orders", 0), OffsetValue(offset, -1, "", 1))


def test_a_large_offsets_log_is_loaded_completely(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        shard = shard_of(cluster, member)
        for first in range(0, 3_000, 500):
            records = [
                Record(
                    0, 1, *encode_entry(GroupLogEntry(OffsetKey(f"group-{number}", "orders", 0), _offset(number).value))
                )
                for number in range(first, first + 500)
            ]
            batch = encode_batch(records)
            shard.partition.append_as_leader(memoryview(batch), read_header(batch), 1, AppendOrigin.COORDINATOR)
        owner = cluster.node(member.broker).broker.broker.groups
        owner.reload(shard)
        reloaded = owner.shards[shard.partition.index]
        while reloaded.state is ShardState.LOADING:
            await world.sleep_ms(10)
        assert len(reloaded.machine.groups) == 3_001
        assert reloaded.machine.committed.offsets_of("group-2999")["orders", 0].offset == 2_999

    run(test, offsets_load_buffer_size="20000")


def test_offsets_are_not_loaded_from_a_damaged_batch(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        for offset in range(200, 210):
            assert await member.commit(offset) is ErrorCode.NONE
        first, shard = member.broker, shard_of(cluster, member)
        place = f"__consumer_offsets-{shard.partition.index}"
        data = world.host(cluster.name(first)).root.entries["data"].entries[place].entries[f"{0:020d}.log"].data
        at = data.rindex((209).to_bytes(8, "big"))
        data[at + 7] ^= 1  # the record claims value version 208 now, and is otherwise unchanged
        cluster.node(first).broker.broker.groups.reload(shard)
        for _ in range(100):
            if await member.find() != first:
                break
            await world.sleep_ms(10)
        assert await member.committed() == 209
        assert shard.partition.is_offline
        assert world.is_running(cluster.name(first))

    run(test)


def test_groups_in_a_damaged_log_stay_unavailable_until_another_broker_can_load_them(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        for offset in range(200, 210):
            assert await member.commit(offset) is ErrorCode.NONE
        first, shard = member.broker, shard_of(cluster, member)
        node, partition = cluster.node(first), shard.partition
        others = [one for one in cluster.broker_ids if one != first]
        for other in others:
            world.kill(cluster.name(other))
        while partition.state.isr != (first,):
            await world.sleep_ms(10)
        place = f"__consumer_offsets-{partition.index}"
        data = world.host(cluster.name(first)).root.entries["data"].entries[place].entries[f"{0:020d}.log"].data
        data[data.rindex((209).to_bytes(8, "big")) + 7] ^= 1
        node.broker.broker.groups.reload(shard)
        await world.sleep_ms(1_000)
        assert await member.heartbeat() is ErrorCode.NOT_COORDINATOR
        assert not partition.is_offline
        assert partition.leader is not None
        cluster.start(*others)
        while not partition.is_offline:
            await world.sleep_ms(10)
        while await member.find() == first:
            await world.sleep_ms(10)
        assert await member.committed() == 209
        assert world.is_running(cluster.name(first))

    run(test)


def truncate_nothing(replicas: Any, partition: Any) -> None:
    """Make the follower run a truncation that removes nothing, as when a suspected divergence does not exist."""
    followed = [found for one in replicas.fetchers if (found := one.followed(partition)) is not None]
    followed[0]._truncate(partition.log.log_end_offset, fully=False)


def test_a_new_leader_loads_groups_after_the_truncation_of_its_log(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(7) is ErrorCode.NONE
        first, led = member.broker, shard_of(cluster, member).partition
        followers = [cluster.node(one).broker.broker.replicas for one in cluster.broker_ids if one != first]
        partitions = [replicas.find(led.topic, led.index) for replicas in followers]
        for replicas, partition in zip(followers, partitions, strict=True):
            await partition.blocking.acquire()  # the truncation takes its time
            truncate_nothing(replicas, partition)
        world.kill(cluster.name(first))
        while not any(partition.leads for partition in partitions):
            await world.sleep_ms(10)
        await world.sleep_ms(1_000)
        assert not any(partition.leader for partition in partitions)
        for partition in partitions:
            partition.blocking.release()
        await world.sleep_ms(1_000)
        await member.find()
        assert await member.heartbeat() is ErrorCode.NONE
        assert await member.committed() == 7

    run(test)
