"""Compaction in whole brokers: the timer finds the log, clients read the remaining records, and checkpoints and metrics
are updated. No crash loses the last value of a key.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.broker.logs.cleaning.log_cleaner import LOGS_PER_STEP, LogCleaner
from kraft.broker.partition.log_waits import wait_open
from kraft.broker.partition.partition import Partition
from kraft.broker.roles.replica_manager import ReplicaManager
from kraft.seam import DialFailed
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import Record, encode_batch, iter_headers
from tests.stages.batches import read_all as read_log
from tests.stages.plane import EPOCH_MS, Plane, error, records, run, three

COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "2000",
    "min_cleanable_dirty_ratio": "0.1",
    "file_delete_delay_ms": "1000",
}
BOTH = {**COMPACTED, "cleanup_policy": "compact,delete", "retention_bytes": "3000"}
FAST = {"log_cleaner_backoff_ms": "50"}
SLOW = {"log_cleaner_backoff_ms": "3600000"}
"""Cleaner settings with which the timer never fires, so that each test starts its rounds itself."""


def keyed(*entries: tuple[str, str | None], timestamp: int = EPOCH_MS, **options: Any) -> bytearray:
    found = [Record(0, timestamp, key.encode(), None if value is None else value.encode()) for key, value in entries]
    return encode_batch(found, **options)


def manager(plane: Plane, broker_id: int = 1) -> ReplicaManager:
    found: ReplicaManager = plane.cluster.node(broker_id).broker.broker.replicas
    return found


def cleaner(plane: Plane, broker_id: int = 1) -> LogCleaner:
    return manager(plane, broker_id).logs.cleaner


def cleaned_to(partition: Partition) -> int:
    assert partition.directory is not None
    return partition.directory.cleaner_offsets.get((partition.topic, partition.index), 0)


def metric(plane: Plane, type: str, name: str, **tags: str) -> float:
    found = plane.cluster.node(1).metrics.value("kafka.log", type, name, **tags)
    assert found is not None
    return found


async def write_few_keys(
    plane: Plane, topic: str, count: int, *, keys: int = 5, first: int = 0, **options: Any
) -> dict[str, str]:
    """Write many values for few keys, each acknowledged. Return the last value of each key."""
    last: dict[str, str] = {}
    for number in range(first, first + count):
        key, value = f"k{number % keys}", f"value {number}"
        assert error(await plane.produce(topic, keyed((key, value)), **options)) is ErrorCode.NONE
        last[key] = value
    return last


async def read_all(plane: Plane, topic: str, broker_id: int = 1, *, offset: int = 0) -> list[Record]:
    """Read from an offset to the end of the log, like a consumer that continues after its last record."""
    found: list[Record] = []
    client = await plane.another_client(broker_id)
    while True:
        result = await plane.fetch(topic, offset, broker_id=broker_id, client=client)
        assert error(result) is ErrorCode.NONE
        if not result.records:
            return found
        found += [record for record in records(result.records) if record.offset >= offset]
        offset = max(header.next_offset for piece in result.records for _, header in iter_headers(piece))


def last_values(found: list[Record]) -> dict[str, str]:
    last = {record.key: record.value for record in found}
    return {key.decode(): value.decode() for key, value in last.items() if key is not None and value is not None}


async def segments_synced(plane: Plane, topic: str, broker_id: int = 1) -> None:
    """Wait until the closed segments are on the device."""
    log = opened(plane, topic, broker_id)
    await plane.until(lambda: log.recovery_point >= log.active.base_offset)


def opened(plane: Plane, topic: str, broker_id: int = 1) -> Any:
    log = plane.partition(topic, broker_id).log
    assert log is not None
    return log


async def alter(plane: Plane, kind: int, name: str, key: str, value: str) -> None:
    resource = messages.nested_class(messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), "resources")
    config = messages.nested_class(resource, "configs")
    wanted = messages.build(
        resource,
        resource_type=kind,
        resource_name=name,
        configs=[messages.build(config, name=key, config_operation=0, value=value)],
    )
    client = await plane.client()
    response = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[wanted], validate_only=False)
    assert response.responses[0].error_code == 0, response


def test_the_timer_compacts_a_log_and_a_consumer_reads_the_remaining_records() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        expected = await write_few_keys(plane, "orders", 100)
        partition = plane.partition("orders")
        await plane.until(lambda: cleaned_to(partition) == partition.log.active.base_offset)  # type: ignore[union-attr]
        found = await read_all(plane, "orders")
        assert len(found) < 40
        assert last_values(found) == expected
        assert [record.offset for record in found] == sorted({record.offset for record in found})

    run(test, combined=1, **FAST)


def test_the_cleaner_ignores_a_topic_without_compaction() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **{**COMPACTED, "cleanup_policy": "delete"})
        await write_few_keys(plane, "orders", 60)
        await segments_synced(plane, "orders")
        assert not await cleaner(plane).clean_dirtiest()
        assert len(await read_all(plane, "orders")) == 60

    run(test, combined=1, **SLOW)


def test_the_cleaner_chooses_the_dirtiest_log_first() -> None:
    async def test(plane: Plane) -> None:
        for topic in ("a", "b", "c"):
            await plane.create_topic(topic, **COMPACTED)
            await write_few_keys(plane, topic, 60)
            await segments_synced(plane, topic)
        marks = {topic: plane.partition(topic) for topic in ("a", "b", "c")}
        marks["a"].directory.cleaner_offsets.update({("a", 0): 30, ("c", 0): 15})  # type: ignore[union-attr]
        cleaned = []
        for _ in range(3):
            before = {topic: cleaned_to(mark) for topic, mark in marks.items()}
            assert await cleaner(plane).clean_dirtiest()
            cleaned += [topic for topic, mark in marks.items() if cleaned_to(mark) != before[topic]]
        assert cleaned == ["b", "c", "a"]
        assert not await cleaner(plane).clean_dirtiest()

    run(test, combined=1, **SLOW)


def test_examining_many_logs_for_compaction_lets_other_tasks_run() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=3 * LOGS_PER_STEP, **COMPACTED)
        for index in range(3 * LOGS_PER_STEP):
            assert not error(await plane.produce("orders", keyed(("k", "v")), index))
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            await trio.lowlevel.checkpoint()
            before = turns
            assert not await cleaner(plane).clean_dirtiest()
            assert turns - before >= 2
            nursery.cancel_scope.cancel()

    run(test, brokers=1, **SLOW)


def test_a_log_that_changed_since_the_cleaner_examined_it_is_examined_again() -> None:
    """Examining all logs takes long when many of their bytes are not in memory, so a log may change in that time."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        last = await write_few_keys(plane, "orders", 200)
        await segments_synced(plane, "orders")
        chosen = await cleaner(plane)._choose()
        assert chosen is not None
        assert await cleaner(plane).clean_dirtiest(), "another worker is faster"
        await plane.world.sleep_ms(2_000)  # the files that the compacted segment replaced are removed
        assert not await cleaner(plane)._clean(0, chosen)
        assert manager(plane).directories.are_all_online
        assert last_values(await read_all(plane, "orders")) == last

    run(test, brokers=1, **SLOW)


def test_every_replica_compacts_its_own_log_and_all_keep_the_same_last_values() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, **COMPACTED)
        expected = await write_few_keys(plane, "orders", 90)
        for broker in (1, 2, 3):
            await plane.until(lambda broker=broker: cleaned_to(plane.partition("orders", broker)) > 60)  # type: ignore[misc]
        for broker in (2, 3):
            plane.world.kill(f"b{broker - 1}")
            await plane.until(lambda broker=broker: plane.leader("orders") not in range(1, broker))  # type: ignore[misc]
            leader = plane.leader("orders")
            await plane.until(lambda leader=leader: plane.partition("orders", leader).leader is not None)  # type: ignore[misc]
            await plane.world.sleep_ms(100)
            assert last_values(await read_all(plane, "orders", leader)) == expected

    three(test, unclean_leader_election_enable="true", **FAST)


def test_a_follower_with_an_empty_log_copies_a_compacted_log_with_offset_gaps() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, **COMPACTED)
        expected = await write_few_keys(plane, "orders", 90)
        await plane.until(lambda: cleaned_to(plane.partition("orders", 1)) > 60)
        plane.world.kill("b3")
        plane.world.wipe("b3")
        plane.world.restart("b3")
        await plane.world.sleep_ms(20)
        await plane.cluster.wait_ready(60_000)
        await plane.until(lambda: plane.partition("orders", 1).leader.isr.committed == {1, 2, 3})  # type: ignore[union-attr]
        plane.world.kill("b1")
        plane.world.kill("b2")
        await plane.until(lambda: plane.leader("orders") == 3)
        await plane.world.sleep_ms(100)
        found = await read_all(plane, "orders", 3)
        assert len(found) < 60
        assert last_values(found) == expected

    three(test, **FAST)


def test_the_cleaner_checkpoint_survives_a_clean_stop_and_a_crash() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", flush_messages="1", **COMPACTED)
        expected = await write_few_keys(plane, "orders", 60)
        await segments_synced(plane, "orders")
        assert await cleaner(plane).clean_dirtiest()
        mark = cleaned_to(plane.partition("orders"))
        assert mark == opened(plane, "orders").active.base_offset > 0
        for end in (plane.world.kill, plane.world.power_off):
            end("b1")
            plane.world.restart("b1")
            await plane.world.sleep_ms(20)
            await plane.cluster.wait_ready(60_000)
            await plane.until(lambda: plane.partition("orders").log is not None)
            assert cleaned_to(plane.partition("orders")) == mark
            assert last_values(await read_all(plane, "orders")) == expected

    run(test, combined=1, **SLOW)


@pytest.mark.parametrize("seed", range(12))
def test_a_power_loss_at_any_moment_of_compaction_loses_no_acknowledged_last_value(seed: int) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", flush_messages="1", **COMPACTED)
        expected: dict[str, str] = {}
        for life in range(4):
            expected |= await write_few_keys(plane, "orders", 30, first=life * 30, client=await plane.another_client())
            await plane.world.sleep_ms(7 * seed + 13 * life)
            plane.world.power_off("b1") if seed % 2 else plane.world.kill("b1")
            plane.world.restart("b1")
            await plane.world.sleep_ms(20)
            await plane.cluster.wait_ready(60_000)
            await plane.until(lambda: plane.partition("orders").log is not None)
            assert last_values(await read_all(plane, "orders")) == expected
        await plane.until(lambda: cleaned_to(plane.partition("orders")) > 60)

    run(test, combined=1, seed=seed, log_cleaner_backoff_ms="10")


def test_records_appended_after_a_truncation_count_as_dirty_for_the_cleaner() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        await write_few_keys(plane, "orders", 60)
        await segments_synced(plane, "orders")
        assert await cleaner(plane).clean_dirtiest()
        partition = plane.partition("orders")
        assert partition.log is not None
        assert partition.directory is not None
        assert partition.directory.storage is not None
        before = cleaned_to(partition)
        partition.log.truncate_to(before // 2, EPOCH_MS)
        await manager(plane).checkpoints.write_recovery_points_of(partition.directory)
        assert cleaned_to(partition) == partition.log.active.base_offset < before
        assert partition.directory.storage.read_cleaner_offsets() == {("orders", 0): cleaned_to(partition)}

    run(test, combined=1, **SLOW)


@pytest.mark.parametrize("seed", range(4))
def test_compacting_replicas_that_are_killed_repeatedly_agree_on_every_last_value(seed: int) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        expected: dict[str, str] = {}
        for life in range(4):
            victim = 1 + (seed + life) % 3
            expected |= await write_few_keys_to_current_leader(plane, 25, first=life * 25)
            plane.world.power_off(f"b{victim}") if (seed + life) % 2 else plane.world.kill(f"b{victim}")
            expected |= await write_few_keys_to_current_leader(plane, 5, first=1000 + life * 5)
            plane.world.restart(f"b{victim}")
            await plane.world.sleep_ms(20)
            await plane.cluster.wait_ready(60_000)
            await plane.until(lambda: isr(plane) == {1, 2, 3}, 60_000)
        await plane.world.sleep_ms(1_000)
        for broker in (1, 2, 3):
            assert cleaned_to(plane.partition("orders", broker)) > 50
            assert last_values(stored(opened(plane, "orders", broker))) == expected

    three(test, seed=seed, **FAST)


async def write_few_keys_to_current_leader(plane: Plane, count: int, *, first: int) -> dict[str, str]:
    """Write like `write_few_keys`, but send each record to the current leader until it is acknowledged."""
    last: dict[str, str] = {}
    for number in range(first, first + count):
        key, value = f"k{number % 5}", f"value {number}"
        acknowledged = False
        while not acknowledged:
            with trio.move_on_after(1):
                acknowledged = await try_to_produce(plane, keyed((key, value)))
            await plane.world.sleep_ms(0 if acknowledged else 5)
        last[key] = value
    return last


async def try_to_produce(plane: Plane, data: bytearray) -> bool:
    """Send a batch to the current leader. Return whether it was acknowledged."""
    leader = plane.leader("orders")
    if leader < 0:
        return False
    try:
        client = await plane.another_client(leader)
        return error(await plane.produce("orders", data, broker_id=leader, client=client)) is ErrorCode.NONE
    except (DialFailed, ConnectionError):
        return False


def isr(plane: Plane) -> set[int]:
    leader = plane.leader("orders")
    state = plane.partition("orders", leader).leader if leader > 0 and plane.is_up(leader) else None
    return set() if state is None else set(state.isr.committed)


def stored(log: Any) -> list[Record]:
    """Return the records of one replica."""
    return records([read_log(log)])


def test_damaged_bytes_make_only_the_log_that_contains_them_uncleanable() -> None:
    async def test(plane: Plane) -> None:
        for topic in ("orders", "others"):
            await plane.create_topic(topic, **COMPACTED)
            await write_few_keys(plane, topic, 60)
            await segments_synced(plane, topic)
        damage(plane, opened(plane, "orders").segments[0].log.path)
        assert sorted([await cleaner(plane).clean_dirtiest() for _ in range(3)]) == [False, False, True]
        tags = {"logDirectory": "/data"}
        assert metric(plane, "LogCleanerManager", "uncleanable-partitions-count", **tags) == 1
        assert metric(plane, "LogCleanerManager", "uncleanable-bytes", **tags) > 1000
        assert (cleaned_to(plane.partition("orders")), cleaned_to(plane.partition("others")) > 0) == (0, True)
        assert not plane.partition("orders").is_offline
        assert error(await plane.produce("orders", keyed(("a", "1")))) is ErrorCode.NONE

    run(test, combined=1, **SLOW)


def damage(plane: Plane, path: str, position: int = 70) -> None:
    """Change a byte of a record directly in the log's file."""
    node: Any = plane.world.host("b1").root
    for name in path.strip("/").split("/"):
        node = node.entries[name]
    node.data[position] ^= 1


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_damaged_header_found_by_the_cleaner_takes_the_replica_offline_if_another_could_lead(
    nodes: int,
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, **COMPACTED, max_compaction_lag_ms="1000")
        await write_few_keys(plane, "orders", 60)
        path = opened(plane, "orders").segments[0].log.path
        await plane.stop(1)
        damage(plane, path, position=16)
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        partition = plane.partition("orders")
        await wait_open(partition)
        await plane.until(lambda: partition.state is not None and 1 in partition.state.isr)
        assert not await cleaner(plane).clean_dirtiest()
        assert partition.is_offline is (nodes > 1)
        assert plane.is_up(1)
        if nodes == 1:
            assert error(await plane.produce("orders", keyed(("a", "1")))) is ErrorCode.NONE

    run(test, combined=nodes, **SLOW)


def test_cleaner_metrics_have_kafkas_names() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", max_compaction_lag_ms="10000", **COMPACTED)
        await write_few_keys(plane, "orders", 60)
        await segments_synced(plane, "orders")
        await plane.world.sleep_ms(15_000)
        assert metric(plane, "LogCleanerManager", "time-since-last-run-ms") >= 14_000
        assert await cleaner(plane).clean_dirtiest()
        assert metric(plane, "LogCleanerManager", "time-since-last-run-ms") < 500
        assert metric(plane, "LogCleanerManager", "max-dirty-percent") == 100
        assert 0 < metric(plane, "LogCleaner", "cleaner-recopy-percent") < 50
        assert metric(plane, "LogCleaner", "max-buffer-utilization-percent") == 0
        assert metric(plane, "LogCleaner", "max-clean-time-secs") == 0
        assert 4 <= metric(plane, "LogCleaner", "max-compaction-delay-secs") <= 10
        assert metric(plane, "LogCleaner", "DeadThreadCount") == 0
        assert not await cleaner(plane).clean_dirtiest()
        assert metric(plane, "LogCleanerManager", "max-dirty-percent") == 0

    run(test, combined=1, **SLOW)


def test_the_cleaners_rate_of_reading_and_writing_is_limited() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        await write_few_keys(plane, "orders", 80)
        await segments_synced(plane, "orders")
        began_ns = plane.world.now_ns
        assert await cleaner(plane).clean_dirtiest()
        took_ms = (plane.world.now_ns - began_ns) / 1e6
        io_bytes = cleaner(plane).state.last_rounds[0].stats.io_bytes
        assert io_bytes / 1000 * 0.9 < took_ms / 1000 < io_bytes / 1000 * 1.2

    run(test, combined=1, log_cleaner_io_max_bytes_per_second="1000", **SLOW)


def test_nothing_is_compacted_until_log_cleaner_threads_is_above_0() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        await write_few_keys(plane, "orders", 60)
        await plane.world.sleep_ms(2000)
        assert cleaned_to(plane.partition("orders")) == 0
        await alter(plane, 4, "", "log.cleaner.threads", "2")
        await plane.until(lambda: cleaned_to(plane.partition("orders")) > 0)
        await alter(plane, 4, "", "log.cleaner.threads", "0")
        await plane.world.sleep_ms(200)
        mark = cleaned_to(plane.partition("orders"))
        await write_few_keys(plane, "orders", 60)
        await plane.world.sleep_ms(2000)
        assert cleaned_to(plane.partition("orders")) == mark

    run(test, combined=1, log_cleaner_threads="0", **FAST)


def test_a_broker_with_a_disabled_log_cleaner_compacts_nothing() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        await write_few_keys(plane, "orders", 60)
        await plane.world.sleep_ms(2000)
        assert cleaned_to(plane.partition("orders")) == 0

    run(test, combined=1, log_cleaner_enable="false", **FAST)


def test_cleaner_threads_share_the_dedupe_buffer_and_the_rate_limit() -> None:
    async def test(plane: Plane) -> None:
        settings = cleaner(plane).settings
        assert (settings.threads, settings.backoff_ms) == (4, 70)
        assert (settings.limits.map_bytes_max, settings.limits.read_bytes) == (125_000, 100_000)
        assert settings.bytes_per_second_max == 250.0

    run(
        test,
        combined=1,
        log_cleaner_threads="4",
        log_cleaner_backoff_ms="70",
        log_cleaner_dedupe_buffer_size="1000000",
        log_cleaner_io_buffer_load_factor="0.5",
        log_cleaner_io_buffer_size="800000",
        log_cleaner_io_max_bytes_per_second="1000",
    )


def test_a_log_with_compaction_and_retention_is_also_trimmed() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **BOTH)
        await write_few_keys(plane, "orders", 100, keys=100)
        await manager(plane).logs.maintenance.apply_retention()
        log = opened(plane, "orders")
        assert log.log_start_offset > 0
        assert 3000 <= log.size_bytes < 5100
        await segments_synced(plane, "orders")
        assert await cleaner(plane).clean_dirtiest()
        assert last_values(await read_all(plane, "orders", offset=log.log_start_offset))["k99"] == "value 99"

    run(test, combined=1, **SLOW)


def test_a_compaction_round_is_abandoned_when_retention_trims_its_log() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **BOTH)
        expected = await write_few_keys(plane, "orders", 80, keys=80)
        await segments_synced(plane, "orders")
        outcome: list[bool] = []

        async def clean() -> None:
            outcome.append(await cleaner(plane).clean_dirtiest())

        manager(plane).loop.start_task(clean)
        await plane.world.sleep_ms(1)
        await manager(plane).logs.maintenance.apply_retention()
        await plane.until(lambda: bool(outcome))
        assert outcome == [False]
        assert cleaned_to(plane.partition("orders")) == 0
        start = opened(plane, "orders").log_start_offset
        left = last_values(await read_all(plane, "orders", offset=start))
        assert left == {key: value for key, value in expected.items() if int(key[1:]) >= start}
        await plane.world.sleep_ms(3000)
        assert not any("cleaned" in name or "swap" in name or "deleted" in name for name in folder(plane, "orders-0"))

    run(test, combined=1, **SLOW)


def test_an_abandoned_compaction_round_leaves_none_of_its_files() -> None:
    """A remaining `.cleaned` file would make recovery discard the segments of a later round."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **{**BOTH, "retention_bytes": "-1"})
        expected: dict[str, str] = {}
        given_up = 0
        for moment_ms in range(10, 300, 20):
            expected |= await write_few_keys(plane, "orders", 60, first=100 * moment_ms)
            await segments_synced(plane, "orders")
            plane.world.slow_disk("b1", 20)
            outcome: list[bool] = []

            async def clean(outcome: list[bool] = outcome) -> None:
                outcome.append(await cleaner(plane).clean_dirtiest())

            manager(plane).loop.start_task(clean)
            await plane.world.sleep_ms(moment_ms)
            log = opened(plane, "orders")
            log.advance_log_start(log.segments[1].base_offset)
            await manager(plane).logs.maintenance.apply_retention()
            await plane.until(lambda outcome=outcome: bool(outcome))
            given_up += not outcome[0]
            assert not [name for name in folder(plane, "orders-0") if name.endswith((".cleaned", ".swap"))]
            plane.world.slow_disk("b1", 0)
        assert given_up > 5
        assert last_values(await read_all(plane, "orders", offset=log.log_start_offset)) == expected

    run(test, combined=1, **SLOW)


def folder(plane: Plane, name: str) -> list[str]:
    node: Any = plane.world.host("b1").root
    return list(node.entries["data"].entries[name].entries)


def test_a_topic_deleted_during_its_compaction_round_is_removed() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        await write_few_keys(plane, "orders", 80)
        await segments_synced(plane, "orders")
        outcome: list[bool] = []

        async def clean() -> None:
            outcome.append(await cleaner(plane).clean_dirtiest())

        manager(plane).loop.start_task(clean)
        client = await plane.client()
        row = messages.nested_class(messages.request_class(ApiKey.DELETE_TOPICS), "topics")
        wanted = messages.build(row, name="orders")
        response = await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[wanted], timeout=5000)
        assert response.responses[0].error_code == 0
        await plane.until(lambda: bool(outcome))
        await plane.world.sleep_ms(2000)
        assert not [name for name in plane.world.host("b1").root.entries["data"].entries if name.startswith("orders")]  # type: ignore[union-attr]

    run(test, combined=1, **SLOW)


def test_many_writes_of_few_keys_leave_a_small_compacted_log() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", **COMPACTED)
        sizes = []
        for round in range(6):
            expected = await write_few_keys(plane, "orders", 100, keys=10, first=round * 100)
            await plane.world.sleep_ms(300)
            sizes.append(opened(plane, "orders").size_bytes)
            assert last_values(await read_all(plane, "orders")) == expected
        assert max(sizes) < 6000, "10 keys, and a segment that is not closed yet"

    run(test, combined=1, **FAST)
