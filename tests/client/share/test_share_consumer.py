"""The share consumer on pykraft's brokers, in virtual time: acknowledgements, locks, and what becomes of records when a
consumer leaves.
"""

from __future__ import annotations

from tests.client.share.share_consumers import GROUP, alone, begin, fill, numbers, share_consumer
from tests.stages.clients_in_world import Stage


def test_a_share_consumer_reads_every_record_once() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, partitions=2)
        await fill(stage, range(100))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert consumer.acquisition_lock_ms is None
            found: list[int] = []
            while len(found) < 100:
                found += numbers(await consumer.poll())
            assert sorted(found) == list(range(100))
            assert consumer.assignment == {("orders", 0), ("orders", 1)}
            assert await consumer.poll(timeout_ms=2_500) == []
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert await consumer.poll(timeout_ms=5_000) == []

    alone(test)
