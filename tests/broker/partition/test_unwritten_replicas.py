"""Replicas that were never written: they have no folder, no file and no open log until their first use.

Source: docs/decisions/19-blank-replicas.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.broker.following import leader_fetcher as fetcher
from kraft.storage.log_dir import CLEAN_SHUTDOWN
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.test_offsets import end_of_epoch
from tests.stages.plane import Plane, batch, error, run, three, values
from tests.stages.replicas import BROKERS, contents, new_leader, produce_numbers, restart, settled

NONE = ErrorCode.NONE
EARLIEST, LATEST = -2, -1
LONGER_THAN_ANY_TIMER_MS = 400_000


def names(plane: Plane, broker_id: int = 1, path: str = "/data") -> list[str]:
    """Return the names in a broker's log directory, except that of the metadata log."""
    disk = plane.cluster.node(broker_id).broker.broker.seam.disk
    return [name for name in disk.list(path) if name != "__cluster_metadata-0"]


def folders(plane: Plane, broker_id: int = 1, path: str = "/data") -> list[str]:
    disk = plane.cluster.node(broker_id).broker.broker.seam.disk
    return [name for name in names(plane, broker_id, path) if disk.is_directory(f"{path}/{name}")]


def open_files(plane: Plane, broker_id: int = 1) -> int:
    return plane.cluster.node(broker_id).broker.broker.replicas.logs.file_cache.open_files


def are_unwritten(plane: Plane, *brokers: int, topic: str = "orders", index: int = 0) -> bool:
    found = [plane.partition(topic, broker, index) for broker in brokers]
    return all(one.is_unwritten and one.log is None for one in found)


async def stop(plane: Plane, broker_id: int) -> None:
    plane.cluster.node(broker_id).request_stop()
    await plane.world.wait_ended(f"b{broker_id}")


async def delete(plane: Plane, *topics: str, broker_id: int = 1) -> None:
    row = messages.nested_class(messages.request_class(ApiKey.DELETE_TOPICS), "topics")
    client = await plane.client(broker_id)
    rows = [messages.build(row, name=topic) for topic in topics]
    answer = await client.ask(ApiKey.DELETE_TOPICS, 6, topics=rows, timeout=5000)
    assert [one.error_code for one in answer.responses] == [0] * len(topics)
    brokers = plane.cluster.broker_ids
    await plane.until(lambda: not any(plane.hosts(broker, topic) for broker in brokers for topic in topics))


# until the first append


@pytest.mark.slow
def test_an_unwritten_partition_has_no_folder_and_no_open_file_on_any_replica() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=5)
        await plane.world.sleep_ms(LONGER_THAN_ANY_TIMER_MS)
        for broker in BROKERS:
            assert not folders(plane, broker)
            assert not open_files(plane, broker)
            assert all(are_unwritten(plane, broker, index=index) for index in range(5))
        leaders = [plane.partition("orders", plane.leader("orders", index), index).leader for index in range(5)]
        assert all(leader is not None and leader.isr.committed == set(BROKERS) for leader in leaders)

    three(test)


def test_readers_find_an_unwritten_partition_empty_and_create_no_log() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        epoch = plane.partition("orders").leader_epoch
        for timestamp in (EARLIEST, LATEST):
            listed = await plane.list_offset("orders", timestamp)
            assert (listed.error_code, listed.offset) == (0, 0)
            assert listed.leader_epoch == epoch
        found = await plane.fetch("orders", 0, max_wait_ms=100)
        assert (error(found), found.high_watermark, found.log_start_offset, found.records) == (NONE, 0, 0, ())
        assert error(await plane.fetch("orders", 1)) == ErrorCode.OFFSET_OUT_OF_RANGE
        stale = await plane.fetch("orders", 0, leader_epoch=epoch + 1)
        assert error(stale) == ErrorCode.UNKNOWN_LEADER_EPOCH
        row = await end_of_epoch(plane, epoch)
        assert (error(row), row.leader_epoch, row.end_offset) == (NONE, epoch, 0)
        client = await plane.client()
        topic_class = messages.nested_class(messages.request_class(ApiKey.DESCRIBE_PRODUCERS), "topics")
        topic = messages.build(topic_class, name="orders", partition_indexes=(0,))
        (row,) = (await client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=(topic,))).topics[0].partitions
        assert (row.error_code, row.active_producers) == (0, ())
        assert are_unwritten(plane, 1)
        assert not folders(plane)

    run(test)


def test_describe_log_dirs_lists_unwritten_replicas() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=2)
        client = await plane.client()
        answer = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
        (directory,) = answer.results
        assert [[(row.partition_index, row.partition_size) for row in one.partitions] for one in directory.topics] == [
            [(0, 0), (1, 0)]
        ]
        assert are_unwritten(plane, 1)

    run(test)


def test_the_first_append_creates_the_log_on_every_replica_of_its_partition_only() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=2, leader=1)
        began_ns = plane.world.now_ns
        await produce_numbers(plane, 1)
        assert (plane.world.now_ns - began_ns) / 1e6 < 100
        for broker in BROKERS:
            assert folders(plane, broker) == ["orders-0"]
            assert plane.partition("orders", broker).log.log_end_offset == 1
            assert are_unwritten(plane, broker, index=1)
        assert contents(plane, 1) == contents(plane, 2) == contents(plane, 3)
        assert plane.partition("orders").leader.isr.committed == set(BROKERS)

    three(test)


def test_a_consumer_waiting_at_an_unwritten_partition_gets_the_first_record() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        consumer = await plane.another_client()
        found: list[Any] = []

        async def wait() -> None:
            found.append(await plane.fetch("orders", 0, client=consumer, max_wait_ms=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await plane.world.sleep_ms(1_000)
            assert not found
            await produce_numbers(plane, 1)
            await plane.until(lambda: bool(found), 1_000)
        assert values(found[0].records) == [b"0"]

    run(test)


def test_an_unwritten_follower_that_was_down_creates_its_log_when_it_returns_and_joins() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        plane.world.kill("b3")
        await plane.until(lambda: plane.partition("orders").leader.isr.committed == {1, 2})
        await produce_numbers(plane, 3)
        await restart(plane, 3)
        await settled(plane)
        assert contents(plane, 1) == contents(plane, 3)

    three(test)


def test_an_unwritten_partition_changes_leaders_and_in_sync_sets_without_a_log() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for _ in range(2):
            victim = plane.leader("orders")
            plane.world.kill(f"b{victim}")
            leader = await new_leader(plane, without=victim)
            await restart(plane, victim)
            isr = lambda leader=leader: plane.partition("orders", leader).leader.isr.committed  # noqa: E731
            await plane.until(lambda isr=isr: isr() == set(BROKERS))
        assert are_unwritten(plane, *BROKERS)
        await produce_numbers(plane, 1, broker_id=leader)
        log = plane.partition("orders", leader).log
        assert log.epochs.entries == ((plane.partition("orders", leader).leader_epoch, 0),)

    three(test)


def test_an_unwritten_follower_starts_its_log_at_its_leaders_log_start() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, segment_bytes="1048576")
        plane.world.kill("b3")
        await plane.until(lambda: plane.partition("orders").leader.isr.committed == {1, 2})
        await produce_numbers(plane, 5)
        assert (await plane.delete_records("orders", 5)).error_code == 0
        await restart(plane, 3)
        await settled(plane)
        assert plane.partition("orders", 3).log.log_start_offset == 5

    three(test)


# starts and stops


@pytest.mark.parametrize("is_clean", [True, False])
def test_unwritten_replicas_open_no_log_at_start_and_do_not_prevent_a_clean_shutdown(is_clean: bool) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=5)
        if is_clean:
            await stop(plane, 1)
            assert CLEAN_SHUTDOWN in plane.world.host("b1").root.entries["data"].entries  # type: ignore[union-attr]
        else:
            plane.world.kill("b1")
        await restart(plane, 1)
        await plane.until(lambda: all(plane.partition("orders", 1, index).leader for index in range(5)))
        assert not folders(plane)
        assert error(await plane.produce("orders", batch("a"), 3)) == NONE
        assert folders(plane) == ["orders-3"]

    run(test, combined=0, controllers=1, brokers=1)


def test_after_a_clean_stop_a_leaders_log_stays_closed_until_a_read_or_retention_opens_it() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=3)
        for index in range(3):
            assert error(await plane.produce("orders", batch("a"), index)) == NONE
        await stop(plane, 1)
        await restart(plane, 1)
        await plane.until(lambda: all(plane.partition("orders", 1, index).state for index in range(3)))
        assert [plane.partition("orders", 1, index).log for index in range(3)] == [None] * 3
        assert values((await plane.fetch("orders", 0, 1, max_wait_ms=1_000)).records) == [b"a"]
        assert [plane.partition("orders", 1, index).log is None for index in range(3)] == [True, False, True]
        await plane.world.sleep_ms(40_000)  # after the first round of retention
        assert all(plane.partition("orders", 1, index).log is not None for index in range(3))

    run(test, combined=0, controllers=1, brokers=1)


def test_after_a_kill_every_log_with_a_folder_is_recovered_before_the_broker_is_ready() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=4)
        for index in (0, 2):
            assert error(await plane.produce("orders", batch("a"), index)) == NONE
        plane.world.kill("b1")
        await restart(plane, 1)
        opened = [plane.partition("orders", 1, index).log is not None for index in range(4)]
        assert opened == [True, False, True, False]

    run(test, combined=0, controllers=1, brokers=1)


@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 4, 6, 8, 12, 20])
def test_a_crash_at_any_moment_of_the_first_append_loses_no_acknowledged_record(
    after_ms: int, power_fails: bool
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", flush_messages="1")
        plane.world.slow_disk("b1", 1)
        client = await plane.client()
        answers: list[ErrorCode] = []

        async def produce() -> None:
            try:
                answers.append(error(await plane.produce("orders", batch("first"), client=client)))
            except (AssertionError, OSError, EOFError, ConnectionError, trio.BrokenResourceError):
                return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await plane.world.sleep_ms(after_ms)
            (plane.world.power_off if power_fails else plane.world.kill)("b1")
            nursery.cancel_scope.cancel()
        await restart(plane, 1)
        plane.world.slow_disk("b1", 0)
        await plane.until(
            lambda: plane.partition("orders").leader is not None or not plane.partition("orders").is_unwritten
        )
        client = await plane.another_client()
        assert error(await plane.produce("orders", batch("second"), client=client)) == NONE
        found = values((await plane.fetch("orders", 0, client=client)).records)
        assert found in ([b"second"], [b"first", b"second"])
        assert found[0] == b"first" or answers != [NONE]
        assert folders(plane) == ["orders-0"]

    run(test, combined=0, controllers=1, brokers=1)


# deletion and directories


def test_a_deleted_unwritten_topic_leaves_no_files_and_can_be_created_again() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=3)
        await delete(plane, "orders")
        await plane.create_topic("orders", partitions=1)
        await produce_numbers(plane, 2)
        assert folders(plane) == ["orders-0"]
        assert plane.partition("orders").log.log_end_offset == 2
        await delete(plane, "orders")
        await plane.create_topic("orders", partitions=1)
        assert are_unwritten(plane, 1)
        await produce_numbers(plane, 1)
        assert plane.partition("orders").log.log_end_offset == 1
        await plane.world.sleep_ms(70_000)
        assert folders(plane) == ["orders-0"]

    run(test)


def test_topics_deleted_in_one_delta_leave_no_hosted_replica() -> None:
    """The replicas of the first deleted topic must not be looked up under the id of the last one (found by simulation
    seed 20009 of 60 s)."""

    async def test(plane: Plane) -> None:
        for topic in ("orders", "payments", "refunds"):
            await plane.create_topic(topic, partitions=2)
        await produce_numbers(plane, 3)
        await delete(plane, "orders", "payments", "refunds")
        await plane.until(lambda: not folders(plane) or all(name.endswith("-delete") for name in folders(plane)))
        assert list(plane.cluster.node(1).broker.broker.replicas.hosted) == []

    run(test)


def test_a_topic_deleted_while_its_first_log_is_created_leaves_no_folder() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        plane.world.slow_disk("b1", 200)
        producer = await plane.another_client()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: plane.produce("orders", batch("a"), client=producer))
            await plane.until(lambda: plane.partition("orders").blocking.locked())
            assert are_unwritten(plane, 1)
            await delete(plane, "orders")
            plane.world.slow_disk("b1", 0)
        await plane.world.sleep_ms(70_000)
        assert not folders(plane)

    run(test, combined=0, controllers=1, brokers=1)


def test_an_unwritten_replica_goes_offline_with_its_directory() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", 2, leader=1)
        replicas = plane.cluster.node(1).broker.broker.replicas
        (lost,) = [index for index in (0, 1) if plane.partition("orders", 1, index).directory.path == "/more"]
        plane.world.fail_directory("b1", "/more")
        answer = await plane.produce("orders", batch("a"), lost, timeout_ms=1_000)
        assert error(answer) in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await plane.until(lambda: not replicas.directories.are_all_online)
        await plane.until(lambda: plane.leader("orders", lost) in (2, 3))
        assert plane.partition("orders", 1, lost).is_offline
        assert are_unwritten(plane, 1, index=1 - lost)

    three(test, log_dirs="/data,/more")


def test_a_twice_recreated_topic_keeps_its_folder_when_the_first_topics_folder_is_removed_late() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await produce_numbers(plane, 3)
        await stop(plane, 1)
        await restart(plane, 1)
        found: list[Any] = []

        async def produce() -> None:
            found.append(await plane.produce("orders", batch("a")))

        async with trio.open_nursery() as nursery:
            first = plane.partition("orders")
            async with first.blocking:  # a blocking call is in progress in its folder
                for _ in range(2):
                    await delete(plane, "orders")
                    assert folders(plane) == ["orders-0"]
                    await plane.create_topic("orders")
                nursery.start_soon(produce)
                await plane.world.sleep_ms(200)
            await plane.until(lambda: bool(found))
        assert error(found[0]) == NONE
        await plane.world.sleep_ms(LONGER_THAN_ANY_TIMER_MS)
        assert folders(plane) == ["orders-0"]
        await stop(plane, 1)
        await restart(plane, 1)
        assert values((await plane.fetch("orders", 0)).records) == [b"a"]

    run(test)


# many partitions


async def write_to_each_of_20(plane: Plane) -> None:
    await plane.create_topic("orders", partitions=20, leader=1)
    for index in range(20):
        assert error(await plane.produce("orders", batch("a"), index)) == NONE


def test_a_follower_with_more_partitions_than_fit_into_one_fetch_request_fetches_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "SESSION_PARTITIONS_MAX", 3)

    async def test(plane: Plane) -> None:
        await write_to_each_of_20(plane)
        plane.world.kill("b2")
        await restart(plane, 2)
        leads = [plane.partition("orders", 1, index) for index in range(20)]
        await plane.until(lambda: all(one.leader.isr.committed == set(BROKERS) for one in leads))

    three(test)


def test_a_follower_without_a_fetch_session_names_all_partitions_in_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "SESSION_PARTITIONS_MAX", 3)

    async def test(plane: Plane) -> None:
        await write_to_each_of_20(plane)

    three(test, max_incremental_fetch_session_cache_slots="0")


def test_a_follower_without_a_fetch_session_long_polls_when_there_is_nothing_to_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []
    honest = fetcher.LeaderFetcher._send_now

    def send_now(self: fetcher.LeaderFetcher, *arguments: Any) -> None:
        sent.append(self.leader_id)
        honest(self, *arguments)

    monkeypatch.setattr(fetcher.LeaderFetcher, "_send_now", send_now)

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 1)
        await plane.world.sleep_ms(1_000)
        sent.clear()
        await plane.world.sleep_ms(5_000)
        assert len(sent) <= 2 * 5_000 / 500 + 2, "two followers, each of whose polls lasts 500 ms"

    three(test, max_incremental_fetch_session_cache_slots="0")
