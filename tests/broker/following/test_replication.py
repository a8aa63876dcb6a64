"""Three brokers: replication, in-sync sets, failover, truncation, durability."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.config.tables.replication import RACK_AWARE_SELECTOR
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.logs.test_compaction import alter
from tests.stages.plane import Plane, batch, error, three, values
from tests.stages.replicas import BROKERS, NONE, contents, new_leader, produce_numbers, restart, settled

TOPIC_CONFIG = 2


def test_an_acks_all_produce_is_answered_when_every_replica_has_the_batch() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(5):
            began_ns = plane.world.now_ns
            await produce_numbers(plane, 1, first=number)
            assert (plane.world.now_ns - began_ns) / 1e6 < 100
            ends = [plane.partition("orders", broker).log.log_end_offset for broker in BROKERS]
            assert ends == [number + 1] * 3
        assert plane.partition("orders", 1).high_watermark == 5
        assert contents(plane, 1) == contents(plane, 2) == contents(plane, 3)

    three(test)


@pytest.mark.parametrize("seed", range(5))
def test_the_records_of_a_killed_leader_survive_and_another_replica_leads_soon(seed: int) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 10)
        plane.world.kill("b1")
        began_ns = plane.world.now_ns
        leader = await new_leader(plane, without=1)
        await produce_numbers(plane, 1, first=10, broker_id=leader)
        assert (plane.world.now_ns - began_ns) / 1e6 < 200
        found = await plane.fetch("orders", 0, broker_id=leader)
        assert values(found.records) == [b"%d" % number for number in range(11)]
        await restart(plane, 1)
        await settled(plane)
        assert contents(plane, 1) == contents(plane, 2) == contents(plane, 3)

    three(test, seed=seed)


def test_a_response_with_not_leader_or_follower_names_the_current_leader() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        epoch = plane.partition("orders", 1).leader_epoch
        for version in (9, 10, 13):
            response = await plane.produce_many([("orders", [(0, batch("x"))])], broker_id=2, version=version)
            row = response.topics[0][2][0]
            assert error(row) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if version >= 10:
                assert row.current_leader == (1, epoch)
                assert [(node.node_id, node.port) for node in response.node_endpoints] == [(1, 9092)]
        answer = await plane.fetch_many([("orders", 0, 0)], broker_id=2, version=16, leader_epoch=epoch - 1)
        row = answer.topics[0][2][0]
        if epoch:
            assert error(row) == ErrorCode.FENCED_LEADER_EPOCH
            assert row.current_leader == (1, epoch)
            assert answer.node_endpoints[0].node_id == 1
        assert error(await plane.fetch("orders", 0, broker_id=2, version=10)) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    three(test)


# in-sync sets


def test_with_an_isr_below_min_isr_acks_all_produces_are_rejected_and_the_high_watermark_stays() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, min_insync_replicas="2")
        await produce_numbers(plane, 3)
        plane.world.kill("b2")
        plane.world.kill("b3")
        await plane.until(lambda: plane.partition("orders", 1).leader.isr.committed == {1})
        row = await plane.produce("orders", batch("refused"))
        assert error(row) == ErrorCode.NOT_ENOUGH_REPLICAS
        row = await plane.produce("orders", batch("lonely"), acks=1)
        assert (error(row), row.base_offset) == (NONE, 3)
        assert plane.partition("orders", 1).high_watermark == 3
        assert (await plane.fetch("orders", 3)).records == ()
        await restart(plane, 2)
        await plane.until(lambda: plane.partition("orders", 1).high_watermark == 4)
        await produce_numbers(plane, 1, first=4)

    three(test)


def test_a_waiting_produce_gets_an_error_when_too_few_replicas_stay_in_sync() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, min_insync_replicas="2")
        await produce_numbers(plane, 1)
        plane.world.isolate("b2")
        plane.world.isolate("b3")
        began_ns = plane.world.now_ns
        row = await plane.produce("orders", batch("unsure"), timeout_ms=2_000)
        assert error(row) == ErrorCode.REQUEST_TIMED_OUT
        assert 2_000 <= (plane.world.now_ns - began_ns) / 1e6 < 2_100

    three(test)


def test_an_unreachable_follower_leaves_the_isr_and_rejoins_when_it_is_reachable_again() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 3)
        plane.world.partition("b1", "b3")
        row = await plane.produce("orders", batch("3"), timeout_ms=60_000)
        assert error(row) == NONE, "the in-sync set shrank to those that answer"
        assert plane.partition("orders", 1).leader.isr.committed == {1, 2}
        plane.world.heal("b1", "b3")
        await settled(plane)
        assert contents(plane, 1) == contents(plane, 3)

    three(test, replica_lag_time_max_ms="3000")


def test_the_followers_of_an_idle_partition_stay_in_sync() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await plane.create_topic("other", leader=1)
        changes = plane.partition("orders", 1).state.partition_epoch
        for _ in range(20):
            await plane.world.sleep_ms(1_000)
            await plane.produce("other", batch("noise"))
        await produce_numbers(plane, 1)
        plane.cluster.node(1).broker.broker.replicas.roles.turns.check_lag()
        await plane.world.sleep_ms(1_000)
        assert plane.partition("orders", 1).state.partition_epoch == changes

    three(test, replica_lag_time_max_ms="3000")


# divergence


def test_an_unreplicated_tail_is_truncated_when_its_former_leader_returns() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 5)
        for other in ("b2", "b3", "c101"):
            plane.world.partition("b1", other)
        for number in range(7):
            row = await plane.produce("orders", batch(f"lost {number}"), acks=1)
            assert error(row) == NONE
        await plane.until(lambda: plane.leader("orders") in (2, 3))
        leader = await new_leader(plane, without=1)
        await produce_numbers(plane, 3, first=5, broker_id=leader)
        assert plane.partition("orders", 1).log.log_end_offset == 12
        plane.world.heal_all()
        await settled(plane)
        assert contents(plane, 1) == contents(plane, 2) == contents(plane, 3)
        found = await plane.fetch("orders", 0, broker_id=leader)
        assert values(found.records) == [b"%d" % number for number in range(8)]

    three(test)


def test_a_produce_that_waits_at_a_deposed_leader_is_not_acknowledged() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 1)
        for other in ("b2", "b3", "c101"):
            plane.world.partition("b1", other)
        rows: list[Any] = []

        async def unsure() -> None:
            rows.append(await plane.produce("orders", batch("unsure"), timeout_ms=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(unsure)
            await new_leader(plane, without=1)
            plane.world.heal_all()
            await plane.until(lambda: bool(rows))
        assert error(rows[0]) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    three(test)


@pytest.mark.parametrize("unclean", [False, True])
def test_an_unclean_election_happens_only_if_it_is_enabled(unclean: bool) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, unclean_leader_election_enable=str(unclean).lower())
        await produce_numbers(plane, 2)
        plane.world.kill("b2")
        plane.world.kill("b3")
        await plane.until(lambda: plane.partition("orders", 1).leader.isr.committed == {1})
        await produce_numbers(plane, 3, first=2)
        plane.world.kill("b1")
        plane.world.restart("b2")
        plane.world.restart("b3")
        await plane.world.sleep_ms(15_000)
        if not unclean:
            assert plane.leader("orders") in (-1, 1)
            await restart(plane, 1)
            await plane.until(lambda: plane.leader("orders") == 1)
            await settled(plane)
            assert len(contents(plane, 2)) == 5
            return
        leader = plane.leader("orders")
        assert leader in (2, 3)
        await plane.until(lambda: plane.partition("orders", leader).leader is not None)
        await produce_numbers(plane, 1, first=99, broker_id=leader)
        await restart(plane, 1)
        await settled(plane)
        assert contents(plane, 1) == contents(plane, 2) == contents(plane, 3)
        found = await plane.fetch("orders", 0, broker_id=leader)
        assert values(found.records) == [b"0", b"1", b"99"]

    three(test)


def test_a_follower_that_ends_below_the_leaders_log_start_restarts_at_that_log_start() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, internal_segment_bytes="500", retention_bytes="600")
        await produce_numbers(plane, 3)
        plane.world.kill("b3")
        await plane.until(lambda: 3 not in plane.partition("orders", 1).leader.isr.committed)
        for number in range(40):
            await plane.produce("orders", batch(f"{number}".ljust(100, ".")))
        await plane.world.sleep_ms(310_000)
        start = plane.partition("orders", 1).log.log_start_offset
        assert start > 3
        await restart(plane, 3)
        await settled(plane)
        assert plane.partition("orders", 3).log.log_start_offset == start
        assert contents(plane, 3) == contents(plane, 1)

    three(test)


# clients during elections


def test_a_new_leader_does_not_report_a_lower_end_offset_than_clients_have_seen() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 5)
        plane.world.partition("b2", "b3")
        plane.world.kill("b1")
        leader = await new_leader(plane, without=1)
        partition = plane.partition("orders", leader)
        seen: set[ErrorCode] = set()
        for _ in range(300):
            if partition.leader is None:
                break
            row = await plane.list_offset("orders", -1, broker_id=leader)
            seen.add(error(row))
            assert row.offset in (-1, 5)
            older = await plane.list_offset("orders", -1, broker_id=leader, version=4)
            assert error(older) in (NONE, ErrorCode.LEADER_NOT_AVAILABLE)
            if error(row) == NONE:
                break
            assert error(row) == ErrorCode.OFFSET_NOT_AVAILABLE
            await plane.world.sleep_ms(100)
            if len(seen) == 1:
                plane.world.heal("b2", "b3")
        assert seen == {ErrorCode.OFFSET_NOT_AVAILABLE, NONE}

    three(test)


def test_consumers_are_sent_to_a_replica_in_their_rack() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 3)
        row = await plane.fetch("orders", 0, rack_id="unknown")
        assert len(row.records) == 1
        replicas = plane.cluster.node(1).broker.broker.replicas
        replicas.host.racks.update({1: "here", 2: "there", 3: "there"})
        row = await plane.fetch("orders", 0, rack_id="there")
        assert (error(row), row.records, row.high_watermark) == (NONE, (), 3)
        assert row.preferred_read_replica in (2, 3)
        assert (await plane.fetch("orders", 0, rack_id="here")).preferred_read_replica == -1
        await plane.world.sleep_ms(1_000)
        near = await plane.fetch("orders", 0, broker_id=2, rack_id="there")
        assert values(near.records) == [b"0", b"1", b"2"]
        beyond = await plane.fetch("orders", 9, broker_id=2)
        assert error(beyond) == ErrorCode.OFFSET_OUT_OF_RANGE

    three(test, replica_selector_class=RACK_AWARE_SELECTOR)


# creation and deletion of topics


def test_a_recreated_topic_has_no_records_of_the_deleted_topic() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 3)
        plane.world.kill("b3")
        row = messages.nested_class(messages.request_class(ApiKey.DELETE_TOPICS), "topics")
        client = await plane.client(1)
        answer = await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[messages.build(row, name="orders")], timeout=5000)
        assert answer.responses[0].error_code == 0
        await plane.until(lambda: not plane.hosts(1, "orders"))
        await restart(plane, 3)
        await plane.create_topic("orders", leader=3)
        await plane.until(lambda: plane.partition("orders", 3).leader is not None)
        assert plane.partition("orders", 3).is_unwritten
        await produce_numbers(plane, 2, broker_id=3)
        assert plane.partition("orders", 3).log.log_end_offset == 2
        await settled(plane)
        names = plane.cluster.node(3).broker.broker.seam.disk.list("/data")
        assert [name for name in names if name.endswith("-stray")]
        names = plane.cluster.node(1).broker.broker.seam.disk.list("/data")
        assert [name for name in names if name.endswith("-delete")]
        await plane.world.sleep_ms(70_000)
        names = plane.cluster.node(1).broker.broker.seam.disk.list("/data")
        assert not [name for name in names if name.endswith("-delete")]

    three(test)


# durability


def test_a_clean_restart_of_every_broker_keeps_all_records() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 5, acks=1)
        for broker in BROKERS:
            plane.cluster.node(broker).request_stop()
            await plane.world.wait_ended(f"b{broker}")
            await restart(plane, broker)
            await plane.until(lambda: plane.leader("orders") in BROKERS)
            await plane.until(lambda broker=broker: plane.partition("orders", broker).log is not None, timeout_ms=5_000)
        await settled(plane)
        found = await plane.fetch("orders", 0, broker_id=plane.leader("orders"))
        assert values(found.records) == [b"%d" % number for number in range(5)]

    three(test)


@pytest.mark.parametrize("partitions", [1, 2])
def test_an_acks_all_produce_that_is_not_replicated_by_its_deadline_gets_request_timed_out(partitions: int) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=2, leader=1)
        for broker in (2, 3):
            plane.world.partition("b1", f"b{broker}")
        rows = [(index, batch("waits")) for index in range(partitions)]
        response = await plane.produce_many([("orders", rows)], timeout_ms=200)
        assert {error(result) for _, _, results in response.topics for result in results} == {
            ErrorCode.REQUEST_TIMED_OUT
        }
        assert plane.partition("orders", 1).log.log_end_offset == 1
        assert plane.partition("orders", 1).high_watermark == 0

    three(test)


def test_a_follower_closes_its_connection_to_a_former_incarnation_of_its_leader() -> None:
    """The leader's host lost power: its connection is dead without having been closed, and two fetches wait for
    responses on it."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 3)
        fetcher = plane.cluster.node(2).broker.broker.replicas.fetchers._fetchers[1]
        await plane.until(lambda: fetcher.connection is not None)
        before = fetcher.connection
        plane.world.power_off("b1")
        fetcher.changed(fetcher.followed(plane.partition("orders", 2)))
        fetcher.nudge()
        assert len(fetcher._in_flight) == 2
        await plane.world.sleep_ms(50)
        await restart(plane, 1)
        assert before.is_closed

    three(test)


@pytest.mark.parametrize("slots", [0, 1000])
def test_a_lagging_partition_does_not_fill_every_response_to_a_followers_fetches(slots: int) -> None:
    """A response has room for one batch. Which partition comes first in it is decided by the follower if there is no
    session, and by the leader otherwise."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("busy", 2, leader=1)
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 1)  # until the logs are created

        async def keep_busy() -> None:
            client = await plane.another_client()
            while True:
                assert error(await plane.produce("busy", batch("more"), 1, acks=1, client=client)) == NONE

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(keep_busy)
            await plane.world.sleep_ms(50)
            for number in range(1, 6):
                await produce_numbers(plane, 1, first=number, timeout_ms=100)
            ends = [plane.partition("busy", broker, 1).log.log_end_offset for broker in BROKERS]
            assert max(ends[1:]) < ends[0] - 10, "the followers have caught up: nothing was in the way"
            nursery.cancel_scope.cancel()

    settings = {"replica_fetch_response_max_bytes": "1", "max_incremental_fetch_session_cache_slots": f"{slots}"}
    three(test, **settings)


def test_a_metadata_delta_applied_while_a_broker_stops_raises_no_error() -> None:
    """A stopping broker may apply a delta after its last task has ended and before its nursery has. The nursery rejects
    new tasks in that time."""

    async def test(plane: Plane) -> None:
        replicas = plane.cluster.node(1).broker.broker.replicas
        nursery = replicas._nursery
        nursery.cancel_scope.cancel()
        while nursery.child_tasks:
            replicas.loop.start_task(trio.lowlevel.checkpoint)
            await trio.lowlevel.checkpoint()
        for _ in range(10):
            replicas.loop.start_task(trio.lowlevel.checkpoint)
            await trio.lowlevel.checkpoint()

    three(test)


def test_an_idle_follower_rejoins_the_isr_after_its_leader_discarded_its_reported_offset() -> None:
    """The follower's fetch session does not name an unchanged partition again. The new incarnation of the follower may
    fetch before its leader learns that the previous incarnation's log was lost. Without a fix such a follower would
    never be proposed (found by simulation seed 30035 of 60 s)."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 1)
        await settled(plane)
        leader = plane.leader("orders")
        follower, other = (one for one in BROKERS if one != leader)
        partition = plane.partition("orders", leader)
        state = partition.state
        directories = tuple(
            LOST_DIRECTORY if replica == follower else directory
            for replica, directory in zip(state.replicas, state.directories, strict=True)
        )
        isr = tuple(one for one in state.isr if one != follower)
        epoch = state.partition_epoch + 1
        partition.keep_leading(state._replace(isr=isr, directories=directories, partition_epoch=epoch))
        assert partition.leader.has_not_reported(follower)
        assert not partition.leader.has_not_reported(other)
        await plane.until(lambda: not partition.leader.has_not_reported(follower))

    three(test)


def test_setting_flush_messages_to_1_also_syncs_the_records_written_before() -> None:
    """A leader counts itself up to its synced offset. Without this sync, a new leader of a partition without appends
    would never commit its unsynced records (found by simulation seed 30095 of 60 s)."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 3)
        await settled(plane)
        assert plane.partition("orders", 1).log.synced_end_offset < 3
        await alter(plane, TOPIC_CONFIG, "orders", "flush.messages", "1")
        for broker in BROKERS:
            await plane.until(lambda: plane.partition("orders", broker).log.synced_end_offset == 3)  # noqa: B023

    three(test)
