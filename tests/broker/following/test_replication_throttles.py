"""Replication throttles, at leader and follower: a replica out of sync is limited to the rate, and a replica in sync is
not.
"""

from __future__ import annotations

import pytest

from kraft.broker.partition.replication_quota import ReplicationQuota, is_throttled
from kraft.config import NodeConfig
from tests.stages.broker_harness import PROPERTIES
from tests.stages.plane import Plane, batch, error, three

RATE = 100_000
RECORD = "x" * 10_000
LEADER, FOLLOWER = "leader", "follower"


class StillClock:
    now_ms = 50_000

    def monotonic_ms(self) -> int:
        return self.now_ms


def quota(rate: int, **settings: str) -> tuple[ReplicationQuota, StillClock]:
    clock = StillClock()
    given = {key.replace("_", "."): value for key, value in settings.items()}
    config = NodeConfig.parse({**PROPERTIES, "leader.replication.throttled.rate": str(rate), **given})
    return ReplicationQuota(config, clock, "leader.replication.throttled.rate"), clock  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [((), False), (("*",), True), (("3:1",), True), (("3:2", "3:1"), True), (("3:2", "1:1", "13:1", "3:11"), False)],
)
def test_a_replica_is_throttled_if_the_throttled_replicas_list_contains_it(
    replicas: tuple[str, ...], expected: bool
) -> None:
    assert is_throttled(replicas, 3, 1) is expected


def test_the_replication_rate_is_measured_over_the_quota_windows() -> None:
    measured, clock = quota(1_000, replication_quota_window_num="3")
    assert not measured.is_exceeded
    measured.record(1_000)
    assert not measured.is_exceeded
    measured.record(1_500)
    assert measured.is_exceeded
    assert measured.measured_rate == 2_500
    clock.now_ms += 2_000
    assert measured.is_exceeded
    clock.now_ms += 500
    assert not measured.is_exceeded
    measured.record(10_000)
    clock.now_ms += 1_000
    assert measured.is_exceeded
    clock.now_ms += 2_000
    assert not measured.is_exceeded
    assert measured.measured_rate == 0


def test_an_unset_throttle_rate_does_not_limit_and_rate_0_stops_throttled_replicas() -> None:
    free, _ = quota(2**63 - 1)
    free.record(2**60)
    assert not free.is_exceeded
    stopped, _ = quota(0)
    assert stopped.is_exceeded


async def fall_behind(plane: Plane, side: str, records: int) -> None:
    """Write this many records while broker 3 is down, then start it. The topic's replicas are throttled."""
    await plane.create_topic("orders", leader=1, **{f"{side}_replication_throttled_replicas": "*"})
    plane.world.kill("b3")
    await plane.until(lambda: 3 not in plane.partition("orders").state.isr)
    for _ in range(records):
        assert not error(await plane.produce("orders", batch(RECORD)))
    del plane.cluster.started["b3"]
    plane.cluster.start(3)
    await plane.cluster.wait_ready()


def settings(side: str) -> dict[str, str]:
    return {f"{side}_replication_throttled_rate": str(RATE)}


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_a_throttled_replica_catches_up_no_faster_than_the_throttle_rate(side: str) -> None:
    async def test(plane: Plane) -> None:
        await fall_behind(plane, side, 200)
        began_ns = plane.world.now_ns
        await plane.until(lambda: 3 in plane.partition("orders").state.isr, 60_000)
        seconds = (plane.world.now_ns - began_ns) / 1e9
        # bytes that were sent to the in-sync replica while this replica was down are counted too, if they are within
        # the windows
        assert 2_000_000 / RATE * 0.6 < seconds < 2_000_000 / RATE * 2

    three(test, replica_fetch_max_bytes="50000", **settings(side))


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_a_replica_that_the_throttled_replicas_list_does_not_contain_is_not_throttled(side: str) -> None:
    async def test(plane: Plane) -> None:
        await fall_behind(plane, {LEADER: FOLLOWER, FOLLOWER: LEADER}[side], 100)
        assert await plane.until(lambda: 3 in plane.partition("orders").state.isr, 5_000) < 3_000

    three(test, **settings(side))


@pytest.mark.parametrize("side", [LEADER, FOLLOWER])
def test_an_acknowledgement_never_waits_for_a_replication_throttle(side: str) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, **{f"{side}_replication_throttled_replicas": "*"})
        began_ns = plane.world.now_ns
        for _ in range(100):
            assert not error(await plane.produce("orders", batch(RECORD)))
        assert (plane.world.now_ns - began_ns) / 1e9 < 1_000_000 / RATE / 3
        assert set(plane.partition("orders").state.isr) == {1, 2, 3}

    three(test, **settings(side))


def test_a_fetcher_with_a_throttled_partition_continues_fetching_its_other_partitions() -> None:
    async def test(plane: Plane) -> None:
        await fall_behind(plane, FOLLOWER, 100)
        await plane.create_topic("others", leader=1)
        for _ in range(20):
            assert not error(await plane.produce("others", batch("x")))
        assert 3 in plane.partition("others").state.isr
        assert 3 not in plane.partition("orders").state.isr

    three(test, replica_fetch_max_bytes="50000", **settings(FOLLOWER))
