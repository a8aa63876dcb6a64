"""The share consumer on pykraft's brokers, in virtual time: acknowledgements, locks, and what becomes of records when a
consumer leaves.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.client import Acknowledgement, AcknowledgementFailed, KafkaError, ShareConsumer, ShareRecord
from kraft.wire.api_keys import CLIENT_APIS, ApiKey, ApiVersionRange
from kraft.wire.error_codes import ErrorCode
from tests.client.share.share_consumers import GROUP, LOCK_MS, alone, begin, fill, numbers, share_consumer
from tests.stages.clients_in_world import PLACE, Stage
from tests.stages.tables import replace_row

ACCEPT, RELEASE, REJECT, RENEW = Acknowledgement
EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}


async def read(consumer: ShareConsumer, count: int, **options: Any) -> list[ShareRecord]:
    """Poll until at least `count` records have been returned. An explicit consumer must acknowledge them in one go."""
    found: list[ShareRecord] = []
    while len(found) < count:
        found += await consumer.poll(**options)
    return found


async def left(stage: Stage, timeout_ms: int = 1_000, **settings: Any) -> list[ShareRecord]:
    """Return the records that another consumer gets within this time, and release them."""
    async with share_consumer(stage, "other", **settings) as consumer:
        await consumer.subscribe(["orders"])
        found: list[ShareRecord] = []
        while records := await consumer.poll(timeout_ms=timeout_ms):
            found += records
        return found


# delivery


def test_a_share_consumer_reads_every_record_once() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, partitions=2)
        await fill(stage, range(100))
        async with share_consumer(stage) as consumer:
            assert consumer.member_id == ""
            assert consumer.acquisition_lock_ms is None
            await consumer.subscribe(["orders"])
            found = await read(consumer, 100)
            assert sorted(numbers(found)) == list(range(100))
            assert {record.delivery_count for record in found} == {1}
            assert consumer.assignment == {("orders", 0), ("orders", 1)}
            assert consumer.acquisition_lock_ms == LOCK_MS
            assert len(consumer.member_id) == 22
            assert await consumer.poll(timeout_ms=2 * LOCK_MS) == []
        assert await left(stage, 2 * LOCK_MS) == []

    alone(test)


def test_iteration_accepts_a_record_when_the_next_is_asked_for() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(100))
        found: list[int] = []
        async with share_consumer(stage) as consumer:
            await consumer.subscribe("orders")
            async for record in consumer:
                found.append(record.offset)
                if len(found) == 60:
                    break
        assert found == list(range(60))
        assert numbers(await left(stage)) == list(range(59, 100))

    alone(test)


def test_poll_returns_at_most_records_max_and_accepts_the_records_before() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(10))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert numbers(await consumer.poll(records_max=3)) == [0, 1, 2]
            assert numbers(await consumer.poll(records_max=4)) == [3, 4, 5, 6]
        assert numbers(await left(stage)) == [3, 4, 5, 6, 7, 8, 9]

    alone(test)


def test_commit_accepts_all_returned_records_and_returns_the_result_of_each_partition() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, partitions=2)
        await fill(stage, range(40))
        async with share_consumer(stage) as consumer:
            assert await consumer.commit() == {}
            await consumer.subscribe(["orders"])
            await read(consumer, 40)
            results = await consumer.commit()
            assert results
            assert set(results.values()) == {None}
            assert await consumer.commit() == {}
        assert await left(stage) == []

    alone(test)


def test_acknowledgements_of_a_slow_iteration_are_sent_while_it_goes_on() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(10))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            found = [(await anext(consumer)).offset for _ in range(5)]
            await stage.world.sleep_ms(300)
            stage.world.isolate("reader")
        stage.world.heal_all()
        assert found == [0, 1, 2, 3, 4]
        assert numbers(await left(stage, 3 * LOCK_MS)) == [4, 5, 6, 7, 8, 9]

    alone(test)


def test_buffered_records_whose_lock_has_run_out_are_not_returned_from_the_buffer() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(10))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            first = await anext(consumer)
            await stage.world.sleep_ms(LOCK_MS + 100)
            second = await anext(consumer)
            assert (first.offset, first.delivery_count) == (0, 1)
            assert (second.offset, second.delivery_count) == (0, 2)

    alone(test)


def test_record_limit_acquires_no_more_records_than_asked_for() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(10), linger_ms=100)
        async with share_consumer(stage, share_acquire_mode="record_limit", max_poll_records=3) as consumer:
            await consumer.subscribe(["orders"])
            assert numbers(await consumer.poll()) == [0, 1, 2]
            assert numbers(await left(stage)) == [3, 4, 5, 6, 7, 8, 9]

    alone(test)


def test_record_limit_fetches_from_every_partition_in_turn() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, partitions=3)
        await fill(stage, range(60))
        settings: dict[str, Any] = {"share_acquire_mode": "record_limit", "max_poll_records": 7}
        async with share_consumer(stage, **settings) as consumer:
            await consumer.subscribe(["orders"])
            assert sorted(numbers(await read(consumer, 60))) == list(range(60))

    alone(test)


def test_offsets_without_records_are_acknowledged_as_gaps() -> None:
    """The markers of transactions take offsets, but no application gets them."""

    async def test(stage: Stage) -> None:
        await begin(stage)
        async with stage.producer(transactional_id="writer") as producer:
            for number in range(3):
                async with producer.transaction():
                    await producer.send("orders", b"%d" % number)
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert numbers(await read(consumer, 3)) == [0, 1, 2]
            assert await consumer.commit() == {PLACE: None}
            node: Any = stage.cluster.node(1)
            topic_id = node.publisher.image.topics.get("orders").topic_id
            share = node.broker.broker.shares.find(GROUP, (topic_id, 0))
            assert share.state.start_offset == share.state.end_offset == 6

    alone(test, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1")


# explicit acknowledgements


def test_each_explicit_acknowledgement_has_its_effect() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(6))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            for record in await read(consumer, 6):
                consumer.acknowledge(record, (ACCEPT, RELEASE, REJECT)[record.offset % 3])
            assert await consumer.commit() == {PLACE: None}
            again = await consumer.poll()
            assert [(record.offset, record.delivery_count) for record in again] == [(1, 2), (4, 2)]
            for record in again:
                consumer.acknowledge(record)
        assert await left(stage) == []

    alone(test)


def test_a_record_that_is_released_again_and_again_is_archived_at_its_last_delivery() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, share_delivery_count_limit="3")
        await fill(stage, [7])
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            counts: list[int] = []
            while records := await consumer.poll(timeout_ms=1_000):
                counts += [record.delivery_count for record in records]
                consumer.acknowledge(records[0], RELEASE)
            assert counts == [1, 2, 3]

    alone(test)


def test_poll_needs_an_acknowledgement_of_every_record_in_explicit_mode() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            records = await read(consumer, 3)
            consumer.acknowledge(records[0])
            with pytest.raises(RuntimeError, match="2 records have no acknowledgement"):
                await consumer.poll()
            with pytest.raises(RuntimeError, match="2 records have no acknowledgement"):
                await anext(consumer)
            assert await consumer.commit() == {PLACE: None}
            for record in records[1:]:
                consumer.acknowledge(record)
            assert await consumer.poll(timeout_ms=500) == []

    alone(test)


def test_a_second_acknowledgement_replaces_the_first_until_it_is_sent() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(1))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            (record,) = await consumer.poll()
            consumer.acknowledge(record, REJECT)
            consumer.acknowledge(record, RELEASE)
            assert await consumer.commit() == {PLACE: None}
            with pytest.raises(ValueError, match="offset 0 of orders-0 cannot be acknowledged"):
                consumer.acknowledge(record, ACCEPT)
            (again,) = await consumer.poll()
            assert again.delivery_count == 2
            consumer.acknowledge(again)

    alone(test)


def test_records_that_unsubscribe_has_released_need_no_acknowledgement() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            first, second = await read(consumer, 2)
            consumer.acknowledge(first)
            await consumer.unsubscribe()
            with pytest.raises(ValueError, match="offset 1 of orders-0 cannot be acknowledged"):
                consumer.acknowledge(second)
            await consumer.subscribe(["orders"])
            (again,) = await consumer.poll()
            assert again.offset == 1
            consumer.acknowledge(again)
            assert await consumer.commit() == {PLACE: None}

    alone(test)


def test_acknowledge_in_implicit_mode_is_refused() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(1))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            (record,) = await consumer.poll()
            with pytest.raises(RuntimeError, match="share_acknowledgement_mode"):
                consumer.acknowledge(record)

    alone(test)


def test_iteration_in_explicit_mode_sends_each_acknowledgement() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(9))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            async for record in consumer:
                consumer.acknowledge(record, REJECT if record.offset == 3 else ACCEPT)
                if record.offset == 5:
                    break
        assert numbers(await left(stage)) == [6, 7, 8]

    alone(test)


# locks


def test_an_acknowledgement_after_the_lock_has_run_out_fails() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            await read(consumer, 2)
            await stage.world.sleep_ms(LOCK_MS + 500)
            error = (await consumer.commit())[PLACE]
            assert error is not None
            assert error.code is ErrorCode.INVALID_RECORD_STATE
            assert "orders-0" in str(error)
            again = await consumer.poll()
            assert {record.delivery_count for record in again} == {2}

    alone(test)


def test_a_failed_commit_nowait_is_raised_by_the_next_poll() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            await read(consumer, 2)
            await stage.world.sleep_ms(LOCK_MS + 500)
            consumer.commit_nowait()
            with pytest.raises(AcknowledgementFailed, match="the lock of a record has run out") as failed:
                while True:
                    await consumer.poll()
            assert failed.value.code is ErrorCode.INVALID_RECORD_STATE
            assert failed.value.partition == PLACE

    alone(test)


def test_a_failed_acknowledgement_of_poll_is_reported_by_the_next_commit() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            await read(consumer, 2)
            await stage.world.sleep_ms(LOCK_MS + 500)
            await read(consumer, 2)
            error = (await consumer.commit())[PLACE]
            assert error is not None
            assert error.code is ErrorCode.INVALID_RECORD_STATE
            assert await consumer.commit() == {}

    alone(test)


def test_a_renewed_record_is_returned_again_and_stays_locked() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            first, second = await read(consumer, 2)
            consumer.acknowledge(second)
            for _ in range(5):
                await stage.world.sleep_ms(LOCK_MS * 0.7)
                consumer.acknowledge(first, RENEW)
                assert await consumer.poll() == [first]
            consumer.acknowledge(first)
            assert await consumer.commit() == {PLACE: None}
        assert await left(stage) == []

    alone(test)


def test_a_record_renewed_by_commit_may_be_acknowledged_without_a_poll() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(1))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            (record,) = await consumer.poll()
            for _ in range(3):
                await stage.world.sleep_ms(LOCK_MS * 0.7)
                consumer.acknowledge(record, RENEW)
                assert await consumer.commit() == {PLACE: None}
            consumer.acknowledge(record, ACCEPT)
            assert await consumer.commit() == {PLACE: None}
            assert await consumer.poll(timeout_ms=2 * LOCK_MS) == []

    alone(test)


def test_a_renewal_that_comes_too_late_fails_and_the_record_is_delivered_again() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(1))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            (record,) = await consumer.poll()
            await stage.world.sleep_ms(LOCK_MS + 500)
            consumer.acknowledge(record, RENEW)
            error = (await consumer.commit())[PLACE]
            assert error is not None
            assert error.code is ErrorCode.INVALID_RECORD_STATE
            (again,) = await consumer.poll()
            assert again.delivery_count == 2
            consumer.acknowledge(again)

    alone(test)


# other versions


def test_version_1_of_the_requests_delivers_and_acknowledges(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        replace_row(monkeypatch, CLIENT_APIS, key, ApiVersionRange(int(key), 1, 1, 1))

    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            records = await read(consumer, 3)
            with pytest.raises(KafkaError, match="cannot renew locks"):
                consumer.acknowledge(records[0], RENEW)
            for record, kind in zip(records, (ACCEPT, RELEASE, REJECT), strict=True):
                consumer.acknowledge(record, kind)
            assert await consumer.commit() == {PLACE: None}
            (again,) = await consumer.poll()
            assert (again.offset, again.delivery_count) == (1, 2)
            consumer.acknowledge(again)
        async with share_consumer(stage, share_acquire_mode="record_limit") as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(KafkaError, match="record_limit needs ShareFetch in version 2"):
                await consumer.poll()

    alone(test)


# errors of the application


def test_poll_without_a_subscription_is_an_error() -> None:
    async def test(stage: Stage) -> None:
        async with share_consumer(stage) as consumer:
            with pytest.raises(RuntimeError, match="subscribe first"):
                await consumer.poll()
            await consumer.subscribe(["orders"])
            await consumer.subscribe([])
            with pytest.raises(RuntimeError, match="subscribe first"):
                await consumer.poll()
        with pytest.raises(RuntimeError, match="the share consumer is closed"):
            await consumer.poll()

    alone(test)


def test_a_closed_share_consumer_rejects_every_call() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll()) == 2
        with trio.fail_after(1):
            with pytest.raises(RuntimeError, match="the share consumer is closed"):
                await consumer.commit()
            with pytest.raises(RuntimeError, match="the share consumer is closed"):
                consumer.commit_nowait()
            with pytest.raises(RuntimeError, match="the share consumer is closed"):
                await consumer.subscribe(["orders"])
            await consumer.unsubscribe()
            with pytest.raises(RuntimeError, match="the share consumer is closed"):
                await consumer.poll()

    alone(test)


def test_polls_that_do_not_wait_get_records_too() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(5))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            found: list[int] = []
            with trio.fail_after(10):
                while len(found) < 5:
                    found += numbers(await consumer.poll(timeout_ms=0))
                    await stage.world.sleep_ms(20)
            assert found == [0, 1, 2, 3, 4]

    alone(test)


def test_renewed_records_are_returned_in_portions_before_others() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(8))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            records = await consumer.poll(records_max=5)
            for record in records:
                consumer.acknowledge(record, RENEW)
            assert numbers(await consumer.poll(records_max=2)) == [0, 1]
            for record in records[:2]:
                consumer.acknowledge(record)
            for number in (2, 3):
                record = await anext(consumer)
                assert numbers([record]) == [number]
                consumer.acknowledge(record)
            assert numbers(await consumer.poll()) == [4]
            consumer.acknowledge(records[4])
            for number in (5, 6):
                record = await anext(consumer)
                assert numbers([record]) == [number]
                consumer.acknowledge(record, RENEW)
                await consumer.commit()
                assert await anext(consumer) == record
                consumer.acknowledge(record)

    alone(test)


def test_a_share_consumer_is_open_only_within_its_block() -> None:
    consumer = ShareConsumer(bootstrap_servers="localhost:9092", group_id="jobs")
    with pytest.raises(RuntimeError, match="ShareConsumer is open only within"):
        consumer.commit_nowait()
