"""Topics and records that a test prepares and inspects, in simulated and in real clusters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from kraft.client import KafkaError
from kraft.client.admin import Admin, ConfigResource, ResourceType
from kraft.sim.shapes import ClusterError
from kraft.sim.simulated_cluster import SimulatedCluster
from kraft.testing import KafkaCluster
from kraft.wire.error_codes import ErrorCode


async def retention_of(servers: str, topic: str) -> str | None:
    async with Admin(bootstrap_servers=servers) as admin:
        told = await admin.configs.describe(ConfigResource(ResourceType.TOPIC, topic))
    return {entry.name: entry.value for entry in told}["retention.ms"]


def test_preparing_topics_in_a_simulated_cluster_works_despite_request_faults() -> None:
    with SimulatedCluster(seed=3) as cluster:

        async def main() -> None:
            await cluster.create_topic("orders", partitions=2, settings={"retention.ms": 60_000})
            cluster.fail_next("Produce", code="NOT_LEADER_OR_FOLLOWER", times=None)
            cluster.drop("Fetch", client="somebody", times=None)
            reports = await cluster.produce("orders", ["pear", b"apple"], key=b"k", partition=1)
            assert [(report.partition, report.offset) for report in reports] == [(1, 0), (1, 1)]
            await cluster.produce("orders", [b"plum"], partition=0)
            assert [record.value for record in await cluster.records("orders")] == [b"plum", b"pear", b"apple"]
            assert [record.key for record in await cluster.records("orders", partition=1)] == [b"k", b"k"]
            assert await retention_of(cluster.bootstrap_servers, "orders") == "60000"
            assert cluster.isr("orders", 1) == [1, 2, 3]

        cluster.run(main)


def test_topics_of_a_real_cluster_can_be_prepared_from_sync_and_async_tests(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()

    def prepare() -> None:
        real_cluster.produce("orders", ["apple"])
        assert real_cluster.records("orders")[-1].value == b"apple"

    async def within() -> None:
        prepare()

    real_cluster.create_topic("orders", settings={"retention.ms": 60_000, "cleanup.policy": "delete"})
    prepare()
    asyncio.run(within())
    trio.run(within)
    assert [record.offset for record in real_cluster.records("orders")] == [0, 1, 2]
    assert trio.run(retention_of, real_cluster.bootstrap_servers, "orders") == "60000"


def test_a_failed_topic_preparation_gives_the_reason(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    real_cluster.create_topic("orders")
    with pytest.raises(KafkaError) as refused:
        real_cluster.create_topic("orders")
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError):
        real_cluster.records("nothing")
    with pytest.raises(ClusterError, match="no partition 7"):
        real_cluster.records("orders", partition=7)
    with pytest.raises(ClusterError, match="a list of bytes or texts"):
        real_cluster.produce("orders", b"apple")  # type: ignore[arg-type]
    wrong: Any = {"retention.ms": 1.5}
    with pytest.raises(ClusterError, match="a text or a whole number"):
        real_cluster.create_topic("pears", settings=wrong)


def test_cluster_settings_may_be_given_as_numbers_and_booleans() -> None:
    settings: dict[str, str | int] = {"num.partitions": 5, "auto.create.topics.enable": False, "log.retention.ms": "9"}
    shape = SimulatedCluster(seed=1, settings=settings).shape
    assert {name: shape.overrides[name] for name in settings} == {
        "num.partitions": "5",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "9",
    }
