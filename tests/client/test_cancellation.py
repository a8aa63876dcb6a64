"""Clients that are cancelled at every checkpoint in turn. No acknowledged record is lost or duplicated, and no reader
skips a record.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from kraft.client import DeliveryReport
from kraft.seam import Seam
from tests.stages.clients_in_world import PLACE, Stage, cancelled_at, run

STEPS_MAX = 2_000
TURNS = 3


def test_cancelling_a_producer_at_any_checkpoint_loses_and_duplicates_no_record() -> None:
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


def test_a_producer_works_on_after_a_cancelled_send() -> None:
    async def test(stage: Stage) -> None:
        topics = [f"orders-{turn}" for turn in range(TURNS)]
        for topic in topics:
            await stage.create_topic(topic)
        reports: dict[str, dict[bytes, DeliveryReport]] = {topic: {} for topic in topics}
        async with stage.producer(batch_size=80, buffer_memory=600) as producer:

            async def work(topic: str, step: int) -> None:
                """Send records; the calls wait for metadata, for buffer space and for the acknowledgement."""
                values = [b"%d/%d" % (step, number) for number in range(10)]
                deliveries = [(value, await producer.enqueue(topic, value, partition=0)) for value in values]
                for value, delivery in deliveries:
                    reports[topic][value] = await delivery.wait()
                reports[topic][b"%d" % step] = await producer.send(topic, b"%d" % step, partition=0)

            # the producer continues in the state that the last cancellation left; each topic is new to it
            for topic in topics:
                step = 0
                while await cancelled_at(step, partial(work, topic, step)):
                    step += 1
                    assert step < STEPS_MAX
                assert step > 5
                assert b"%d" % step in reports[topic]
        for topic, sent in reports.items():
            found = await stage.values((topic, 0))
            assert [value for value, count in Counter(found).items() if count > 1] == []
            assert {value: found[report.offset] for value, report in sent.items()} == {v: v for v in sent}

    run(test)


def test_cancelling_poll_at_any_checkpoint_skips_and_repeats_no_record() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        total = 1_000
        async with stage.producer(batch_size=200) as producer:
            for number in range(total):
                await producer.enqueue("orders", b"%d" % number)
        read: list[int] = []
        async with stage.consumer(max_partition_fetch_bytes=1_000) as consumer:
            await consumer.assign([PLACE], at="earliest")

            async def work() -> None:
                """Read alternately with `poll` and by iteration, over more than one fetch."""
                for number in range(10):
                    if len(read) < total and number % 3:
                        read.append((await anext(consumer)).offset)
                    elif len(read) < total:
                        read.extend([record.offset for record in await consumer.poll(records_max=7)])

            turns: list[int] = []
            while len(read) < total:
                step = 0
                while await cancelled_at(step, work):
                    step += 1
                    assert step < STEPS_MAX
                assert read == list(range(len(read)))
                turns.append(step)
            assert len(turns) >= TURNS, turns
            assert max(turns) > 5, turns
        assert read == list(range(total))

    run(test)


def test_cancelling_a_consumer_at_any_checkpoint_leaves_no_task_behind() -> None:
    """The consumer is cancelled during its start, an offset lookup or a read."""

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
