"""The producer against whole brokers: delivery, batching, order with lost responses and lost leaders, back-pressure."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

from kraft.client import Delivery, DeliveryFailed, DeliveryReport, KafkaError, Producer
from kraft.client.admin import Admin, ElectionType
from kraft.client.core.partitioner import partition_for_key
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import iter_headers
from kraft.wire.reply_policy import ReplyAction
from tests.stages.clients_in_world import PLACE, Stage, run, three

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_as_sent_with_each_compression_type(codec: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(compression_type=codec) as producer:
            sent = await producer.send("orders", b"value" * 50, b"key", headers=[("h", b"1"), ("n", None)])
            assert await producer.send("orders", None, b"key", timestamp_ms=5) == DeliveryReport("orders", 0, 1, 5)
        async with stage.consumer() as consumer:
            await consumer.assign([PLACE], at="earliest")
            first, second = await consumer.poll(records_max=1), await consumer.poll(records_max=1)
        assert first[0][:4] == ("orders", 0, 0, sent.timestamp_ms)
        assert first[0][4:7] == (b"key", b"value" * 50, (("h", b"1"), ("n", None)))
        assert second[0][2:6] == (1, 5, b"key", None)

    run(test)


@pytest.mark.parametrize("timestamp_ms", [-2, 1 << 63, 1.5, "5"])
def test_an_invalid_timestamp_is_rejected_and_other_records_are_delivered(timestamp_ms: Any) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(linger_ms=20) as producer:
            before = await producer.enqueue("orders", b"before")
            with pytest.raises((ValueError, TypeError), match=f"timestamp_ms={timestamp_ms!r}: expected "):
                await producer.enqueue("orders", b"v", timestamp_ms=timestamp_ms)
            after = await producer.send("orders", b"after", timestamp_ms=-1)
            assert ((await before.wait()).offset, after.offset) == (0, 1)

    run(test)


def test_keys_decide_the_partition_and_records_without_a_key_use_all_partitions() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 4)
        async with stage.producer(batch_size=200) as producer:
            keyed = await producer.send("orders", b"v", b"customer-7")
            free = [await producer.send("orders", b"x" * 100) for _ in range(40)]
            chosen = await producer.send("orders", b"v", partition=3)
        assert keyed.partition == partition_for_key(b"customer-7", 4)
        assert {report.partition for report in free} == {0, 1, 2, 3}
        assert chosen.partition == 3

    run(test)


def test_records_within_linger_ms_are_sent_in_one_batch() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(linger_ms=20) as producer, trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(producer.send, "orders", b"%d" % number)
        answer = await stage.fetch("orders", 0)
        assert [header.record_count for data in answer.records for _, header in iter_headers(data)] == [10]

    run(test)


def test_flush_does_not_wait_for_linger_ms() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(linger_ms=60_000) as producer:
            delivery = await producer.enqueue("orders", b"v")
            await stage.world.sleep_ms(100)
            assert not delivery.is_done
            began_ns = stage.world.now_ns
            await producer.flush()
            assert delivery.is_done
            assert stage.world.now_ns - began_ns < 1e9

    run(test)


def test_closing_a_producer_delivers_queued_records_unless_an_exception_is_raised() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(linger_ms=1_000) as producer:
            delivered = [await producer.enqueue("orders", b"%d" % number) for number in range(3)]
        assert [d.outcome.offset for d in delivered] == [0, 1, 2]  # type: ignore[union-attr]
        with pytest.raises(LookupError):
            async with stage.producer(linger_ms=1_000) as producer:
                given_up = await producer.enqueue("orders", b"never")
                raise LookupError
        assert isinstance(given_up.outcome, DeliveryFailed)
        assert given_up.outcome.certain
        assert await stage.values() == [b"0", b"1", b"2"]

    run(test)


def test_a_producer_that_is_not_open_raises_runtime_error() -> None:
    async def test() -> None:
        producer = Producer(bootstrap_servers="localhost:9092")
        for use in (
            lambda: producer.send("orders", b"x"),
            lambda: producer.enqueue("orders", b"x"),
            lambda: producer.partitions_for("orders"),
            lambda: producer.flush(),
        ):
            with pytest.raises(RuntimeError, match=r"Producer is open only within `async with Producer\(\.\.\.\) as p"):
                await use()

    trio.run(test)


def test_sends_to_a_closed_producer_fail_and_waiting_sends_end() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        producer = stage.producer(buffer_memory=1_000)

        async def send_in_vain() -> None:
            """Send a record to a producer that is being closed. The first sender waits for buffer space then; the
            others come later."""
            for topic in ("orders", "orders", "unknown"):
                with pytest.raises(DeliveryFailed, match="closed") as told:
                    await producer.send(topic, b"x" * 400)
                assert told.value.certain

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as scope:
                    async with producer:
                        await producer.send("orders", b"first")
                        stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.DROP)
                        for _ in range(2):
                            await producer.enqueue("orders", b"x" * 400)
                        nursery.start_soon(send_in_vain)
                        await stage.world.sleep_ms(50)
                        scope.cancel()
                        await trio.lowlevel.checkpoint()
            with pytest.raises(DeliveryFailed, match="closed"):
                await producer.partitions_for("unknown")

    run(test)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_are_delivered_in_order_with_each_value_of_acks(acks: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(acks=acks) as producer:
            reports = [await producer.send("orders", b"%d" % number) for number in range(5)]
        assert [report.offset for report in reports] == ([-1] * 5 if acks == "0" else [0, 1, 2, 3, 4])
        await stage.world.sleep_ms(10)
        assert await stage.values() == [b"0", b"1", b"2", b"3", b"4"]

    run(test)


def test_a_producer_sees_a_topics_new_partitions_while_a_batch_of_another_topic_gets_no_response() -> None:
    async def test(stage: Stage) -> None:
        for topic in ("busy", "orders"):
            await stage.create_topic(topic)
        async with stage.producer(metadata_max_age_ms=300, delivery_timeout_ms=5_000) as producer:
            await producer.send("orders", b"first")
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.DROP, topic="busy")
            await producer.enqueue("busy", b"stuck")
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.topics.add_partitions("orders", 3)
            await stage.world.sleep_ms(1_000)
            assert await producer.partitions_for("orders") == (0, 1, 2)

    run(test)


def test_with_acks_0_records_go_to_the_new_leader_although_the_old_leader_is_alive() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", leader=1)
        async with stage.producer(acks=0) as producer:
            await producer.send("orders", b"first")
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.partitions.reassign({PLACE: [2, 3, 1]})
                await admin.partitions.elect_leaders(ElectionType.PREFERRED, [PLACE])
            await stage.until(lambda: stage.leader("orders") == 2)
            for number in range(100):
                await producer.send("orders", b"%d" % number)
                await stage.world.sleep_ms(20)
        found = await stage.values()
        assert b"99" in found
        assert len(found) > 50

    three(test)


def test_nothing_is_sent_to_a_new_leader_while_the_old_one_has_an_unanswered_request() -> None:
    """The new leader has no state of the producer. It would accept the second record as the first one of a sequence."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", leader=1)
        stage.fault_at(1, api_key=ApiKey.PRODUCE, action=ReplyAction.DROP, times=1)
        async with stage.producer(request_timeout_ms=3_000, metadata_max_age_ms=300) as producer:
            first = await producer.enqueue("orders", b"first")
            await stage.world.sleep_ms(100)
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.partitions.reassign({PLACE: [2, 3, 1]})
                await admin.partitions.elect_leaders(ElectionType.PREFERRED, [PLACE])
            await stage.until(lambda: stage.leader("orders") == 2)
            await stage.world.sleep_ms(600)
            second = await producer.send("orders", b"second")
            assert ((await first.wait()).offset, second.offset) == (0, 1)
        assert await stage.values() == [b"first", b"second"]

    three(test)


def test_lost_responses_neither_lose_nor_duplicate_nor_reorder_records() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        deliveries: list[Delivery] = []
        async with stage.producer(batch_size=50) as producer:
            await producer.send("orders", b"first")
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.CLOSE, after=True, times=3)
            for number in range(40):
                deliveries.append(await producer.enqueue("orders", b"%d" % number))
        assert await stage.values() == [b"first", *(b"%d" % number for number in range(40))]
        assert [d.outcome.offset for d in deliveries] == list(range(1, 41))  # type: ignore[union-attr]

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_transient_produce_error_is_retried_in_order(code: ErrorCode) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(batch_size=50) as producer:
            await producer.send("orders", b"first")
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.ERROR, error=code, times=2)
            for number in range(20):
                await producer.enqueue("orders", b"%d" % number)
        assert await stage.values() == [b"first", *(b"%d" % number for number in range(20))]

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_records_stay_in_order_if_the_leader_rejects_only_the_first_batch(code: ErrorCode) -> None:
    """This happens at a broker that has not yet learned that it is the leader. It has no state of the producer, and
    would accept the next batch as the first one."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.ERROR, error=code, times=1)
        async with stage.producer(batch_size=50) as producer:
            deliveries = [await producer.enqueue("orders", b"%d" % number) for number in range(20)]
        assert [d.outcome.offset for d in deliveries] == list(range(20))  # type: ignore[union-attr]
        assert await stage.values() == [b"%d" % number for number in range(20)]

    run(test)


def test_a_producer_finds_a_recreated_topic_by_its_new_id() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer() as producer:
            await producer.send("orders", b"old")
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.topics.delete("orders")
            await stage.create_topic("orders")
            report = await producer.send("orders", b"new")
        assert report.offset == 0
        assert await stage.values() == [b"new"]

    run(test)


def test_batches_after_a_permanently_rejected_batch_are_delivered() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(batch_size=50) as producer:
            await producer.send("orders", b"first")
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.ERROR, error=ErrorCode.INVALID_RECORD, times=1)
            deliveries = [await producer.enqueue("orders", b"%d" % number) for number in range(10)]
        failed = [number for number, d in enumerate(deliveries) if isinstance(d.outcome, DeliveryFailed)]
        assert failed
        assert all(d.outcome.certain for d in deliveries if isinstance(d.outcome, DeliveryFailed))
        assert await stage.values() == [b"first", *(b"%d" % n for n in range(10) if n not in failed)]

    run(test)


def test_a_batch_that_is_too_large_for_the_topic_is_split() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", max_message_bytes="1000")
        async with stage.producer(batch_size=10_000, linger_ms=10) as producer:
            deliveries = [await producer.enqueue("orders", b"%03d" % number * 30) for number in range(30)]
            too_large = await producer.enqueue("orders", b"x" * 2_000)
        assert [d.outcome.offset for d in deliveries] == list(range(30))  # type: ignore[union-attr]
        assert isinstance(too_large.outcome, DeliveryFailed)
        assert too_large.outcome.code is ErrorCode.MESSAGE_TOO_LARGE
        assert await stage.values() == [b"%03d" % number * 30 for number in range(30)]

    run(test)


def test_a_full_buffer_blocks_the_sender_for_at_most_max_block_ms() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(buffer_memory=1_000, max_block_ms=500, request_timeout_ms=2_000) as producer:
            await producer.send("orders", b"first")
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.DELAY, delay_ms=1_000, times=1)
            waiting = [await producer.enqueue("orders", b"x" * 300) for _ in range(2)]
            began_ns = stage.world.now_ns
            with pytest.raises(DeliveryFailed, match=r"buffer.memory=1000 within max.block.ms=500") as told:
                for _ in range(3):
                    await producer.enqueue("orders", b"y" * 300)
            assert told.value.certain
            assert (stage.world.now_ns - began_ns) / 1e6 == pytest.approx(500, abs=60)
            await waiting[0].wait()
            await producer.send("orders", b"z" * 300)

    run(test)


def test_a_sender_waiting_for_buffer_space_does_not_wait_for_linger_ms() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(buffer_memory=1_000, linger_ms=50_000) as producer:
            with trio.fail_after(10):
                deliveries = [await producer.enqueue("orders", b"x" * 300) for _ in range(10)]
            assert sum(delivery.is_done for delivery in deliveries) >= 7

    run(test)


def test_max_block_ms_covers_both_metadata_and_buffer_space() -> None:
    async def test(stage: Stage) -> None:
        for topic in ("orders", "payments"):
            await stage.create_topic(topic)
        async with stage.producer(buffer_memory=1_000, max_block_ms=500) as producer:
            await producer.send("orders", b"first")
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.DELAY, delay_ms=2_000, times=1)
            for _ in range(2):
                await producer.enqueue("orders", b"x" * 400)
            stage.fault(api_key=ApiKey.METADATA, action=ReplyAction.DELAY, delay_ms=300, times=1)
            began_ns = stage.world.now_ns
            with pytest.raises(DeliveryFailed, match="no room"):
                await producer.enqueue("payments", b"y" * 400)
            assert (stage.world.now_ns - began_ns) / 1e6 == pytest.approx(500, abs=60)

    run(test)


def test_a_record_that_can_never_be_sent_is_rejected_at_once() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(max_request_size=1_000) as producer:
            with pytest.raises(DeliveryFailed, match=r"max.request.size is 1000"):
                await producer.send("orders", b"x" * 1_000)
            with pytest.raises(KafkaError, match="partitions 0 to 0, not 5"):
                await producer.send("orders", b"x", partition=5)
            await producer.send("orders", b"small")
            with pytest.raises(DeliveryFailed, match=r"max.request.size is 1000"):
                await producer.send("orders", b"x" * 1_000)
            with pytest.raises(TypeError, match="are bytes or None"):
                await producer.send("orders", "text", partition=0)  # type: ignore[arg-type]
        assert await stage.values() == [b"small"]

    run(test)


@pytest.mark.parametrize("slow_ms", [0, 70])
def test_sending_to_a_missing_topic_fails_after_max_block_ms(slow_ms: int) -> None:
    async def test(stage: Stage) -> None:
        if slow_ms:
            stage.fault(api_key=ApiKey.METADATA, action=ReplyAction.DELAY, delay_ms=slow_ms)
        async with stage.producer(max_block_ms=300) as producer:
            began_ns = stage.world.now_ns
            with pytest.raises(KafkaError, match="topic nowhere"):
                await producer.send("nowhere", b"x")
            assert 250 < (stage.world.now_ns - began_ns) / 1e6 < 2_000

    run(test, auto_create_topics_enable="false")


def test_queuing_a_record_takes_no_longer_than_delivery_timeout_ms() -> None:
    async def test(stage: Stage) -> None:
        nobody = Producer(bootstrap_servers="b1:31999", delivery_timeout_ms=3_000, seam=stage.world.node("producer"))
        started_ns = stage.world.now_ns
        async with nobody as producer:
            with pytest.raises(DeliveryFailed, match=r"no broker answered within 3000 ms") as told:
                await producer.send("orders", b"x")
        assert told.value.certain
        assert (stage.world.now_ns - started_ns) / 1e6 < 3_100

    run(test)


def test_a_batch_without_a_response_fails_and_may_be_in_the_log() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(delivery_timeout_ms=800, request_timeout_ms=300) as producer:
            await producer.send("orders", b"first")
            stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.DROP, after=True, times=20)
            with pytest.raises(DeliveryFailed) as told:
                await producer.send("orders", b"lost answer")
            assert not told.value.certain
            stage.cluster.replies[1].clear()
            last = await producer.send("orders", b"after")
        found = await stage.values()
        assert Counter(found) == Counter([b"first", b"lost answer", b"after"])
        assert found[last.offset] == b"after"

    run(test)


@pytest.mark.parametrize("seed", range(4))
def test_every_record_arrives_once_and_in_order_if_the_leader_crashes_with_requests_in_flight(seed: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(batch_size=60) as producer:
            await producer.send("orders", b"first")
            deliveries = []
            for number in range(120):
                deliveries.append(await producer.enqueue("orders", b"%d" % number))
                if number == 60:
                    stage.world.kill(stage.cluster.name(stage.leader("orders")))
                if number % 7 == seed:
                    await stage.world.sleep_ms(1)
            reports = [await delivery.wait() for delivery in deliveries]
        assert [report.offset for report in reports] == list(range(1, 121))
        assert await stage.values() == [b"first", *(b"%d" % number for number in range(120))]

    three(test, seed=seed)


def test_a_producer_waits_for_a_topic_that_is_being_created() -> None:
    """The broker answers UNKNOWN_TOPIC_OR_PARTITION until the topic exists."""

    async def test(stage: Stage) -> None:
        async with stage.producer() as producer:
            assert (await producer.send("new", b"first")).offset == 0
        async with stage.consumer() as consumer:
            await consumer.assign([("newer", 0)], at="earliest")
            async with stage.producer() as producer:
                await producer.send("newer", b"second")
            assert [record.value for record in await consumer.poll()] == [b"second"]

    three(test)


def test_sending_to_a_topic_that_cannot_be_created_fails() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("pay.ments")
        async with stage.producer(max_block_ms=2_000) as producer:
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION: topic pay_ments is not available"):
                await producer.send("pay_ments", b"v")
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
                await producer.send("pay/ments", b"v")

    run(test)
