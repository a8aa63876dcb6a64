"""The consumer against whole brokers: start positions, current positions, and records that must not be returned."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from kraft.client import Consumer, KafkaError, LogTruncated
from kraft.client.admin import Admin
from kraft.client.cluster import Cluster, parse_bootstrap
from kraft.client.connections import Disconnected, Links, TimedOut
from kraft.seam import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.broker.api.fetch.test_fetch import write_in_transaction, write_marker
from tests.stages.clients_in_world import PLACE, Stage, run, three
from tests.stages.plane import batch
from tests.stages.world_cluster import BROKER_PORT

OTHER = ("orders", 1)
TIME_MS = 1_750_000_000_000


async def fill(stage: Stage, count: int, *, partition: int = 0) -> None:
    """Write records with the values 0, 1, …, one second apart, in batches of three."""
    async with stage.producer(batch_size=250) as producer:
        for number in range(count):
            stamp = TIME_MS + 1_000 * number
            await producer.enqueue("orders", b"%d" % number, partition=partition, timestamp_ms=stamp)


async def offsets(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [record.offset for record in await consumer.poll(records_max=count - len(found))]
    return found


ONE_NODE: dict[str, Any] = {
    "combined": 1,
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
}


def test_a_subscription_with_one_invalid_topic_name_reads_the_other_topics() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 3)
        async with stage.consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["orders", "what/ever"])
            with pytest.raises(KafkaError, match="topic what/ever is not available") as told:
                await consumer.poll(timeout_ms=30_000)
            assert told.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert await offsets(consumer, 3) == [0, 1, 2]

    run(test, **ONE_NODE)


def test_topic_errors_of_a_replaced_subscription_are_not_raised_by_poll() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 3)
        async with stage.consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["what/ever"])
            await stage.world.sleep_ms(2_000)
            await consumer.subscribe(["orders"])
            assert await offsets(consumer, 3) == [0, 1, 2]

    run(test, **ONE_NODE)


def test_poll_raises_the_error_of_an_invalid_topic_once_per_subscribe_call() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.consumer(group_id="billing", metadata_max_age_ms=500) as consumer:
            for _ in range(2):
                await consumer.subscribe(["orders", "what/ever"])
                with pytest.raises(KafkaError, match="topic what/ever is not available"):
                    await consumer.poll(timeout_ms=30_000)
                assert await consumer.poll(timeout_ms=5_000) == [], "it has refreshed the metadata ten times"

    run(test, **ONE_NODE)


def test_a_topic_with_an_authorization_error_is_reported_and_read_once_allowed() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 3)
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        stage.fault(api_key=ApiKey.METADATA, action=ReplyAction.ERROR, error=error, times=1)
        async with stage.consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(KafkaError, match="topic orders is not available") as told:
                await consumer.poll(timeout_ms=30_000)
            assert told.value.code is error
            assert await offsets(consumer, 3) == [0, 1, 2]

    run(test, **ONE_NODE)


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_an_invalid_offset_or_time_is_rejected_and_the_consumer_reads_on(offset: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 3)
        async with stage.consumer() as consumer:
            await consumer.assign([PLACE], at=0)
            with pytest.raises(ValueError, match=f"offset {offset}: expected 0 or more"):
                consumer.seek(PLACE, offset)
            for at in (offset, {PLACE: offset}):
                with pytest.raises(ValueError, match=f"offset {offset}: expected 0 or more"):
                    await consumer.assign([PLACE], at=at)
            with pytest.raises(ValueError, match=f"{offset}: expected earliest, latest or a time"):
                await consumer.offsets([PLACE], at=offset)
            with pytest.raises(ValueError, match=f"{offset}: expected earliest, latest or a time"):
                await consumer.seek_to([PLACE], at=offset)
            assert await offsets(consumer, 3) == [0, 1, 2]

    run(test)


def test_a_consumer_starts_at_the_position_given_to_assign() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        await fill(stage, 10)
        for at, expected in (("earliest", [0, 1]), (7, [7, 8]), ({PLACE: 4}, [4, 5])):
            async with stage.consumer() as consumer:
                await consumer.assign([PLACE], at=at)
                assert await offsets(consumer, 2) == expected
        async with stage.consumer() as consumer:
            await consumer.assign([PLACE, OTHER], at="latest")
            assert await consumer.poll(timeout_ms=200) == []
            assert (consumer.position(PLACE), consumer.position(OTHER)) == (10, 0)

    run(test)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("latest", 10)])
def test_assign_without_a_start_position_uses_auto_offset_reset(policy: str, expected: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer(auto_offset_reset=policy) as consumer:
            await consumer.assign([PLACE])
            with pytest.raises(KafkaError, match="still being found"):
                consumer.position(PLACE)
            await consumer.poll(timeout_ms=300, records_max=1)
            assert consumer.position(PLACE) == expected + (1 if policy == "earliest" else 0)

    run(test)


@pytest.mark.parametrize(("back", "expected"), [("PT5S", 9), ("PT25S", 7), ("P1D", 0), ("P99999D", 0)])
def test_a_reset_by_duration_starts_at_the_first_record_within_that_duration_before_now(
    back: str, expected: int
) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        now_ms = stage.world.node("consumer").clock.wall_ms()
        async with stage.producer() as producer:
            for age in range(9, -1, -1):
                await producer.send("orders", b"", partition=0, timestamp_ms=now_ms - 10_000 * age)
        async with stage.consumer(auto_offset_reset=f"by_duration:{back}") as consumer:
            await consumer.assign([PLACE])
            assert await offsets(consumer, 1) == [expected]
            await stage.delete_records("orders", 9)
            consumer.seek(PLACE, 2)
            assert await offsets(consumer, 1) == [9]

    run(test)


def test_a_reset_by_duration_skips_no_record_written_during_the_lookup() -> None:
    """If no record is at or after the time, the consumer starts at the log end as it was before the lookup by time."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        slow = {"api_key": ApiKey.LIST_OFFSETS, "action": ReplyAction.DELAY, "delay_ms": 200}
        async with stage.producer() as producer, stage.consumer(auto_offset_reset="by_duration:PT1M") as consumer:
            for _ in range(3):
                await producer.send("orders", b"old", partition=0, timestamp_ms=TIME_MS - 3_600_000)
            stage.fault(**slow)
            await consumer.assign([PLACE])
            await stage.world.sleep_ms(300)
            await producer.send("orders", b"new", partition=0)
            assert [record.offset for record in await consumer.poll(timeout_ms=5_000)] == [3]

    run(test)


def test_a_reset_by_duration_starts_at_the_log_end_if_no_record_is_new_enough() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        await stage.world.sleep_ms(60_000)
        async with stage.consumer(auto_offset_reset="by_duration:PT1S") as consumer:
            await consumer.assign([PLACE])
            assert await consumer.poll(timeout_ms=300) == []
            assert consumer.position(PLACE) == 10

    run(test)


def test_a_partition_without_a_leader_does_not_delay_the_other_partitions() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", factor=1, leader=1)
        await stage.create_topic("payments", factor=1, leader=2)
        await fill(stage, 3)
        stage.world.kill(stage.cluster.name(2))
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([PLACE, ("payments", 0)])
            with trio.fail_after(10):
                assert await offsets(consumer, 3) == [0, 1, 2]
            await consumer.seek_to([PLACE, ("payments", 0)], at=TIME_MS + 1_000)
            with trio.fail_after(10):
                assert await offsets(consumer, 2) == [1, 2]

    three(test)


def test_a_position_lookup_is_retried_until_a_broker_is_reachable() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 3)
        async with stage.consumer(default_api_timeout_ms=2_000) as consumer:
            await consumer.assign([PLACE], at="latest")
            stage.world.isolate("consumer")
            await consumer.seek_to([PLACE], at="earliest")
            assert await consumer.poll(timeout_ms=10_000) == []
            stage.world.heal_all()
            with trio.fail_after(10):
                assert await offsets(consumer, 3) == [0, 1, 2]

    run(test)


def test_reset_policy_none_raises_one_error_and_a_seek_continues() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 5)
        async with stage.consumer(auto_offset_reset="none") as consumer:
            await consumer.assign([PLACE])
            with pytest.raises(KafkaError, match=r"auto.offset.reset is none: seek"):
                await consumer.poll()
            assert await consumer.poll(timeout_ms=2_000) == []
            consumer.seek(PLACE, 3)
            assert await offsets(consumer, 2) == [3, 4]
            consumer.seek(PLACE, 99)
            with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
                await consumer.poll()
            assert await consumer.poll(timeout_ms=3_000) == []

    run(test)


def test_a_position_outside_the_log_is_reset_by_auto_offset_reset() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([PLACE], at=500)
            assert await offsets(consumer, 2) == [0, 1]
            await stage.delete_records("orders", 6)
            consumer.seek(PLACE, 2)
            assert await offsets(consumer, 2) == [6, 7]

    run(test)


def test_a_consumer_seeks_to_a_timestamp() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer() as consumer:
            assert await consumer.offsets([PLACE], at=TIME_MS + 4_500) == {PLACE: 5}
            assert await consumer.offsets([PLACE], at=TIME_MS + 90_000) == {PLACE: -1}
            await consumer.assign([PLACE], at="latest")
            await consumer.seek_to([PLACE], at=TIME_MS + 3_000)
            assert await offsets(consumer, 1) == [3]
            await consumer.seek_to([PLACE], at="earliest")
            assert await offsets(consumer, 1) == [0]
            await consumer.seek_to([PLACE], at=TIME_MS + 90_000)
            await consumer.poll(timeout_ms=100)
            assert consumer.position(PLACE) == 10

    run(test)


def test_a_paused_partition_returns_no_records_until_resumed() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        await fill(stage, 6)
        await fill(stage, 6, partition=1)
        async with stage.consumer() as consumer:
            await consumer.assign([PLACE, OTHER], at="earliest")
            await consumer.poll(records_max=1)
            consumer.pause([PLACE])
            assert consumer.paused == {PLACE}
            read = {record.partition for _ in range(3) for record in await consumer.poll(timeout_ms=700)}
            assert read == {1}
            consumer.resume([PLACE])
            assert {record.partition for record in await consumer.poll()} == {0}

    run(test)


def test_polling_a_closed_consumer_raises_an_error() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.consumer() as consumer:
            await consumer.assign([PLACE], at="earliest")
        with trio.fail_after(10), pytest.raises(RuntimeError, match="the consumer is closed"):
            await consumer.poll()

    run(test)


def test_a_consumer_that_is_not_open_raises_runtime_error() -> None:
    async def test() -> None:
        consumer = Consumer(bootstrap_servers="localhost:9092", group_id="billing")
        for use in (
            lambda: consumer.poll(),
            lambda: consumer.assign([]),
            lambda: consumer.assign([PLACE], at="earliest"),
            lambda: consumer.subscribe(["orders"]),
            lambda: consumer.offsets([PLACE]),
            lambda: consumer.committed([PLACE]),
        ):
            with pytest.raises(RuntimeError, match=r"Consumer is open only within `async with Consumer\(\.\.\.\) as c"):
                await use()

    trio.run(test)


def test_polling_without_subscription_or_assignment_raises_an_error() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.consumer(group_id="billing") as consumer:
            for begin in (None, lambda: consumer.assign([PLACE]), lambda: consumer.subscribe(["orders"])):
                if begin is not None:
                    await begin()
                    assert await consumer.poll(timeout_ms=100) == []
                    await consumer.unsubscribe()
                with trio.fail_after(10), pytest.raises(RuntimeError, match="subscribe or assign first"):
                    await consumer.poll()
                with trio.fail_after(10), pytest.raises(RuntimeError, match="subscribe or assign first"):
                    await anext(consumer)

    run(test, **ONE_NODE)


def test_one_task_may_poll_a_consumer_while_another_task_assigns_its_partitions() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 1)
        async with stage.consumer() as consumer, trio.open_nursery() as nursery:
            await consumer.assign([PLACE], at="latest")
            nursery.start_soon(partial(consumer.assign, [PLACE], at="earliest"))
            found = []
            with trio.fail_after(10):
                while not found:
                    found = await consumer.poll(timeout_ms=1)
        assert len(found) == 1

    run(test, **ONE_NODE)


def test_a_connection_still_being_dialled_is_closed_with_its_client() -> None:
    async def test(stage: Stage) -> None:
        seam = stage.world.node("client")
        links = Links(seam, client_id="client")
        stage.fault(api_key=ApiKey.API_VERSIONS, action=ReplyAction.DELAY, delay_ms=50)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def dial() -> None:
                    with pytest.raises(Disconnected, match="the client is closed"):
                        await links.get(Address(stage.cluster.name(1), BROKER_PORT), "metadata")

                await stage.world.sleep_ms(20)
                links.close()
            await stage.until(lambda: seam.network.stats.connections == 0)

    run(test)


def test_a_consumer_without_auto_creation_creates_no_topics() -> None:
    async def test(stage: Stage) -> None:
        settings = {"allow_auto_create_topics": False, "default_api_timeout_ms": 500, "metadata_max_age_ms": 300}
        async with stage.consumer(**settings) as consumer:
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: topic nowhere"):
                await consumer.assign([("nowhere", 0)])
            with pytest.raises(TimedOut, match="no offsets of nowhere-0"):
                await consumer.offsets([("nowhere", 0)])
            await stage.create_topic("orders")
            await consumer.assign([PLACE], at="earliest")
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.topics.delete("orders")
                assert await consumer.poll(timeout_ms=3_000) == []
                assert await admin.topics.list() == ()

    run(test)


def test_metadata_requests_avoid_a_hanging_broker_after_a_timeout() -> None:
    async def test(stage: Stage) -> None:
        cluster = Cluster(parse_bootstrap(stage.bootstrap), stage.world.node("client"), client_id="client")
        for _ in range(6):
            await cluster.refresh([])
        stage.world.pause(stage.cluster.name(1))
        began_ns = stage.world.now_ns
        for _ in range(9):
            await cluster.refresh([], timeout_ms=60_000)
        assert (stage.world.now_ns - began_ns) / 1e9 < 10  # three of the lookups go to the broker that hangs, 2 s each
        cluster.close()

    three(test)


def test_lag_and_position_follow_the_returned_records() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer() as consumer:
            await consumer.assign([PLACE], at="earliest")
            assert consumer.lag(PLACE) is None
            await consumer.poll(records_max=4)
            assert (consumer.position(PLACE), consumer.lag(PLACE)) == (4, 6)
            with pytest.raises(KeyError, match="orders-1 is not assigned"):
                consumer.position(OTHER)

    run(test)


def test_iteration_returns_every_record_in_order_over_batches_and_fetches() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        await fill(stage, 50)
        await fill(stage, 50, partition=1)
        read: dict[int, list[int]] = {0: [], 1: []}
        async with stage.consumer(max_partition_fetch_bytes=600) as consumer:
            await consumer.assign([PLACE, OTHER], at="earliest")
            async for record in consumer:
                read[record.partition].append(record.offset)
                assert consumer.position((record.topic, record.partition)) == record.offset + 1
                if sum(map(len, read.values())) == 100:
                    break
        assert read == {0: list(range(50)), 1: list(range(50))}

    run(test)


def test_an_idle_partition_does_not_delay_records_of_a_busy_one() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        await fill(stage, 400)
        async with stage.consumer(max_partition_fetch_bytes=1_000, fetch_max_wait_ms=10_000) as consumer:
            await consumer.assign([PLACE, OTHER], at="earliest")
            began_ns = stage.world.now_ns
            assert await offsets(consumer, 400) == list(range(400))
            assert (stage.world.now_ns - began_ns) / 1e6 < 10_000

    run(test)


def test_read_committed_skips_aborted_records_and_stops_before_open_transactions() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await stage.produce("orders", batch("plain"))
        write_in_transaction(stage, "orders", 1, 0, "kept")
        write_in_transaction(stage, "orders", 2, 0, "dropped")
        write_marker(stage, "orders", 2, commit=False)
        write_marker(stage, "orders", 1, commit=True)
        write_in_transaction(stage, "orders", 3, 0, "open")
        async with stage.consumer(isolation_level="read_committed") as consumer:
            await consumer.assign([PLACE], at="earliest")
            assert [record.value for record in await consumer.poll()] == [b"plain", b"kept"]
            assert await consumer.poll(timeout_ms=600) == []
            assert (consumer.position(PLACE), consumer.lag(PLACE)) == (5, 0)
        async with stage.consumer() as consumer:
            await consumer.assign([PLACE], at="earliest")
            assert [record.value for record in await consumer.poll()] == [
                b"plain",
                b"kept",
                b"dropped",
                b"open",
            ]

    run(test)


def test_a_consumer_reads_from_the_replica_in_its_rack_and_from_the_leader_after_its_crash() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", leader=1)
        await fill(stage, 20)
        near = 3
        async with stage.consumer(client_rack="rack-3", fetch_max_wait_ms=100) as consumer:
            await consumer.assign([PLACE], at="earliest")
            assert await offsets(consumer, 20) == list(range(20))
            stage.fault_at(1, api_key=ApiKey.FETCH, action=ReplyAction.CLOSE, client_id="pykraft-consumer")
            await fill(stage, 20)
            assert await offsets(consumer, 20) == list(range(20, 40))
            stage.cluster.replies[1].clear()
            stage.world.kill(stage.cluster.name(near))
            await fill(stage, 5)
            assert await offsets(consumer, 5) == list(range(40, 45))

    three(
        test,
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
        per_node={1: {"broker.rack": "rack-1"}, 2: {"broker.rack": "rack-2"}, 3: {"broker.rack": "rack-3"}},
    )


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_transient_fetch_errors_are_retried_without_an_exception(code: ErrorCode) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 60)
        async with stage.consumer(max_partition_fetch_bytes=400) as consumer:
            await consumer.assign([PLACE], at="earliest")
            first = await offsets(consumer, 5)
            stage.fault(api_key=ApiKey.FETCH, action=ReplyAction.ERROR, error=code, times=2)
            assert first + await offsets(consumer, 55) == list(range(60))

    run(test)


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_reading_continues_where_the_log_diverges_after_an_unclean_election(policy: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", leader=1, unclean_leader_election_enable="true", min_insync_replicas="1")
        await fill(stage, 5)
        async with stage.consumer(auto_offset_reset=policy) as consumer:
            await consumer.assign([PLACE], at="earliest")
            assert await offsets(consumer, 5) == [0, 1, 2, 3, 4]
            for follower in ("b2", "b3"):
                stage.world.partition("b1", follower)
            # the record is acknowledged once the followers, which do not have it, are removed from the ISR
            await fill(stage, 5)
            assert stage.isr("orders") == [1]
            assert await offsets(consumer, 5) == [5, 6, 7, 8, 9]
            stage.world.kill("b1")
            await stage.until(lambda: stage.leader("orders") in (2, 3), 60_000)
            await fill(stage, 3)
            if policy == "none":
                with pytest.raises(LogTruncated, match="truncated to 5, 10 was next: seek"):
                    await consumer.poll()
                consumer.seek(PLACE, 5)
            assert await offsets(consumer, 3) == [5, 6, 7]

    three(test)


def test_a_consumer_skips_no_record_when_the_leader_crashes() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 60)
        async with stage.consumer(max_partition_fetch_bytes=400) as consumer:
            await consumer.assign([PLACE], at="earliest")
            first = await offsets(consumer, 20)
            stage.world.kill(stage.cluster.name(stage.leader("orders")))
            await fill(stage, 10)
            assert first + await offsets(consumer, 50) == list(range(70))

    three(test)
