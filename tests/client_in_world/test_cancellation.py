"""Cancelled at its k-th checkpoint, for every k: nothing acknowledged is lost or doubled, nothing read is skipped."""

from __future__ import annotations

from collections import Counter
from functools import partial

from kraft.client import DeliveryReport
from kraft.seam import Seam

from .stage import PLACE, Stage, cancelled_at, run

STEPS_MAX = 2_000


def test_a_producer_that_is_cancelled_anywhere_loses_and_doubles_nothing() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        reports: dict[bytes, DeliveryReport] = {}

        async def work(step: int) -> None:
            async with stage.producer(batch_size=80) as producer:
                for number in range(3):
                    value = b"%d/awaited/%d" % (step, number)
                    reports[value] = await producer.send("orders", value)
                queued = {b"%d/queued/%d" % (step, number): None for number in range(6)}
                deliveries = {value: await producer.enqueue("orders", value) for value in queued}
                await producer.flush()
                for value, delivery in deliveries.items():
                    reports[value] = await delivery.wait()

        step = 0
        while await cancelled_at(step, partial(work, step)):
            step += 1
            assert step < STEPS_MAX
        assert step > 10
        await stage.world.sleep_ms(1_000)
        found = await stage.values()
        assert [value for value, count in Counter(found).items() if count > 1] == []
        assert {value: found[report.offset] for value, report in reports.items()} == {v: v for v in reports}

    run(test)


def test_a_producer_goes_on_after_a_cancelled_send() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(batch_size=80) as producer:
            step, reports = 0, {b"first": await producer.send("orders", b"first")}

            async def work() -> None:
                value = b"%d" % step
                reports[value] = await producer.send("orders", value)

            cancelled = 0
            for step in range(1, 40):
                cancelled += await cancelled_at(step % 4, work)
            assert 0 < cancelled < 39
        found = await stage.values()
        assert [value for value, count in Counter(found).items() if count > 1] == []
        assert {value: found[report.offset] for value, report in reports.items()} == {v: v for v in reports}

    run(test)


def test_a_poll_that_is_cancelled_anywhere_skips_and_repeats_nothing() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        total = 300
        async with stage.producer(batch_size=200) as producer:
            for number in range(total):
                await producer.enqueue("orders", b"%d" % number)
        read: list[int] = []
        async with stage.consumer(max_partition_fetch_bytes=1_000) as consumer:
            await consumer.assign([PLACE], at="earliest")

            async def take_many() -> None:
                read.extend([record.offset for record in await consumer.poll(records_max=7)])

            async def take_one() -> None:
                read.append((await anext(consumer)).offset)

            cancelled = turn = 0
            while len(read) < total:
                turn += 1
                assert turn < STEPS_MAX
                cancelled += await cancelled_at(turn % 5, take_one if turn % 3 else take_many)
            assert cancelled > 10
        assert read == list(range(total))

    run(test)


def test_leaving_and_starting_anywhere_leaves_no_task_behind() -> None:
    """A consumer that is cancelled while it starts, looks for offsets or reads ends with its block."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer() as producer:
            await producer.send("orders", b"0")
        seam: Seam = stage.world.node("consumer")

        async def work() -> None:
            async with stage.consumer("consumer") as consumer:
                assert consumer is not None
                await consumer.assign([PLACE], at="earliest")
                assert (await consumer.poll())[0].value == b"0"
                await consumer.seek_to([PLACE], at=0)
                assert (await consumer.poll())[0].value == b"0"

        step = 0
        while await cancelled_at(step, work):
            step += 1
            assert step < STEPS_MAX
        assert step > 5
        assert seam.network.stats.connections == 0

    run(test)
