"""Three brokers: replication, in-sync sets, failover, truncation."""

from __future__ import annotations

import pytest
from tests.data_plane.plane import Plane, batch, error, three, values

from kraft.wire.error_codes import ErrorCode


def test_acks_all_means_that_every_replica_has_it() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(5):
            began_ns = plane.world.now_ns
            result = await plane.produce("orders", batch(f"{number}"), acks=-1)
            assert error(result) == ErrorCode.NONE
            assert (plane.world.now_ns - began_ns) / 1e6 < 100
            ends = [plane.partition("orders", broker).log.log_end_offset for broker in (1, 2, 3)]
            assert ends == [number + 1] * 3
        assert plane.partition("orders", 1).high_watermark == 5

    three(test)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leaders_records_survive_and_another_leads_soon(seed: int) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(10):
            await plane.produce("orders", batch(f"{number}"))
        plane.world.kill("b1")
        began_ns = plane.world.now_ns
        await plane.until(lambda: plane.leader("orders") in (2, 3))
        leader = plane.leader("orders")
        while True:
            result = await plane.produce("orders", batch("after"), broker_id=leader)
            if error(result) == ErrorCode.NONE:
                break
            await plane.world.sleep_ms(5)
        assert (plane.world.now_ns - began_ns) / 1e6 < 300
        found = await plane.fetch("orders", 0, broker_id=leader)
        assert values(found.records) == [b"%d" % number for number in range(10)] + [b"after"]

    three(test, seed=seed)
