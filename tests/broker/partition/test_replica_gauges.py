"""The gauges of replicas: they count the partitions that the metadata assign to a broker, whether or not their logs are
open.
"""

from __future__ import annotations

from tests.stages.plane import Plane, batch, error, run

NAMES = ("LeaderCount", "UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "AtMinIsrPartitionCount")


def gauges(plane: Plane) -> dict[str, float | None]:
    metrics = plane.cluster.node(1).metrics
    return {name: metrics.value("kafka.server", "ReplicaManager", name) for name in NAMES}


def test_a_led_partition_counts_in_the_replica_gauges_before_its_log_is_opened() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("short", leader=1, min_insync_replicas="2")
        await plane.create_topic("enough", leader=1, min_insync_replicas="1")
        for topic in ("short", "enough"):
            assert not error(await plane.produce(topic, batch("a")))
        plane.world.kill("b2")
        await plane.until(lambda: plane.partition("short").state.isr == (1,))  # type: ignore[union-attr]
        expected = dict(zip(NAMES, (2, 2, 1, 1), strict=True))
        assert gauges(plane) == expected
        await plane.stop(1)
        plane.cluster.start(1)
        await plane.until(lambda: "b1" in plane.cluster.started and plane.cluster.started["b1"].node is not None)
        await plane.until(lambda: gauges(plane)["LeaderCount"] == 2)
        assert plane.partition("short").log is plane.partition("enough").log is None
        assert gauges(plane) == expected

    run(test, controllers=1, brokers=2)
