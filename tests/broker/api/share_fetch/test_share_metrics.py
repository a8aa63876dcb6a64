"""The metrics of share groups, under Kafka's names, change with the requests of members (KIP-932, KIP-1103)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.broker.api.share_fetch.share_member import ACCEPT, REJECT, Share, ShareMember
from tests.broker.api.share_fetch.test_share_groups import GroupClient

LOCK_MS = 30_000
SERVER = "kafka.server"
PLACE = {"group": "g", "topic": "orders", "partition": "0"}
Value = Callable[..., float]


def measured(run: Any, test: Callable[[Share, ShareMember, Value], Awaitable[None]]) -> None:
    """Run a test with a member of a share group that begins at offset 0. `value(type, name, **tags)` is a metric of
    the leader."""

    async def main(world: Any, cluster: Any, _: Any) -> None:
        share = Share(world, cluster)
        await share.begin()
        metrics: Any = cluster.node(share.leader).metrics

        def value(type: str, name: str, /, **tags: str) -> float:
            return metrics.value(SERVER, type, name, **tags) or 0

        await test(share, ShareMember(share), value)

    run(main)


def test_share_fetches_and_acknowledgements_are_counted_by_topic(run: Any) -> None:
    async def test(share: Share, member: ShareMember, value: Value) -> None:
        def counts() -> list[float]:
            names = ("ShareFetch", "ShareAcknowledgement")
            kinds = [f"{kind}{name}RequestsPerSec" for name in names for kind in ("Total", "Failed")]
            assert [value("BrokerTopicMetrics", one) for one in kinds] == [
                value("BrokerTopicMetrics", one, topic="orders") for one in kinds
            ]
            return [value("BrokerTopicMetrics", one) for one in kinds]

        await share.append("a", "b")
        await member.fetch()
        assert counts() == [1, 0, 0, 0]
        await member.acquire()
        fetches = counts()[0]
        await member.acknowledge((0, 0, ACCEPT))
        assert counts() == [fetches, 0, 1, 0]
        await member.acknowledge((0, 1, ACCEPT), (5, 5, ACCEPT))
        assert counts() == [fetches, 0, 2, 1]

    measured(run, test)


def test_a_share_fetch_of_a_partition_that_cannot_be_read_is_counted_as_failed(run: Any) -> None:
    async def test(share: Share, member: ShareMember, value: Value) -> None:
        other = next(one for one in share.cluster.broker_ids if one != share.leader)
        member.client = await share.cluster.connect(other, member.seam)
        await member.fetch()
        metrics: Any = share.cluster.node(other).metrics
        assert metrics.value(SERVER, "BrokerTopicMetrics", "FailedShareFetchRequestsPerSec", topic="orders") == 1
        assert value("BrokerTopicMetrics", "FailedShareFetchRequestsPerSec") == 0

    measured(run, test)


def test_acknowledged_records_are_counted_by_type(run: Any) -> None:
    async def test(share: Share, member: ShareMember, value: Value) -> None:
        await share.append(*"abcdef")
        await member.acquire()
        await member.acknowledge((0, 2, ACCEPT), (3, 5, REJECT, ACCEPT, REJECT))
        types = ("Accept", "Release", "Reject", "Renew")
        found = [value("ShareGroupMetrics", "RecordAcknowledgementsPerSec", ackType=one) for one in types]
        assert found == [4, 0, 2, 0]

    measured(run, test)


def test_share_sessions_are_counted_until_they_end(run: Any) -> None:
    async def test(share: Share, member: ShareMember, value: Value) -> None:
        def counts() -> list[float]:
            names = ("ShareSessionsCount", "SharePartitionsCount", "ShareSessionEvictionsPerSec")
            return [value("ShareSessionCache", one) for one in names]

        other = ShareMember(share, "m2")
        await member.fetch()
        await other.fetch()
        assert counts() == [2, 2, 0]
        await other.respond(share_session_epoch=-1)
        assert counts() == [1, 1, 0]
        share.world.kill("member-m1")
        await share.world.sleep_ms(1_000)
        assert counts() == [0, 0, 1]

    measured(run, test)


def test_records_in_flight_and_expired_locks_are_counted_for_each_share_partition(run: Any) -> None:
    async def test(share: Share, member: ShareMember, value: Value) -> None:
        def counts() -> list[float]:
            names = ("InFlightMessageCount", "InFlightBatchCount", "AcquisitionLockTimeoutPerSec")
            return [value("SharePartitionMetrics", one, **PLACE) for one in names]

        await share.append(*"abcd")
        await member.acquire()
        assert value("ShareGroupMetrics", "PartitionLoadTimeMs") == 1
        assert counts() == [4, 1, 0]
        await member.acknowledge((1, 1, ACCEPT))
        assert counts() == [4, 3, 0]
        await share.world.sleep_ms(LOCK_MS + 100)
        assert counts() == [4, 3, 3]

    measured(run, test)


def test_share_fetches_that_wait_in_vain_are_counted(run: Any) -> None:
    async def test(share: Share, member: ShareMember, value: Value) -> None:
        await member.fetch(wait_ms=500)
        assert value("DelayedShareFetchMetrics", "ExpiresPerSec") == 1

    measured(run, test)


def test_writes_of_share_states_are_measured_at_the_share_coordinator(run: Any) -> None:
    async def test(share: Share, member: ShareMember, _: Value) -> None:
        metrics: Any = share.cluster.node(share.states.broker).metrics

        def value(name: str, **tags: str) -> float:
            return metrics.value(SERVER, "share-coordinator-metrics", name, **tags) or 0

        await share.append("a")
        await member.acquire()
        assert value("write-total") == 0
        await member.acknowledge((0, 0, ACCEPT))
        await share.world.sleep_ms(2_000)
        assert value("write-total") == 1
        assert value("write-rate") > 0
        assert value("write-latency-max") >= value("write-latency-avg") > 0
        assert value("num-partitions", state="active") > 0
        assert value("partition-load-time-max") > 0
        await share.world.sleep_ms(1_000)
        index = str(share.states.shard.partition.index)
        assert value("last-pruned-offset", topic="__share_group_state", partition=index) == 0
        share.states.shard.partition.log.advance_log_start(1)
        assert value("last-pruned-offset", topic="__share_group_state", partition=index) == 1

    measured(run, test)


def test_share_groups_and_their_rebalances_are_counted_at_the_group_coordinator(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        client = GroupClient(Share(world, cluster))
        names = [cluster.node(one).metrics for one in cluster.broker_ids]

        def value(name: str, **tags: str) -> float:
            return sum(one.value("kafka.coordinator.group", "group-coordinator-metrics", name, **tags) for one in names)

        def counts() -> list[float]:
            states = [value("share-group-count", state=state) for state in ("empty", "stable")]
            return [value("group-count", protocol="share"), *states]

        assert counts() == [0, 0, 0]
        await client.join("m1")
        assert counts() == [1, 0, 1]
        rebalances = value("share-group-rebalance-count")
        assert rebalances >= 2
        await client.beat("m1", -1)
        assert counts() == [1, 1, 0]
        assert value("share-group-rebalance-count") == rebalances + 1
        await world.sleep_ms(2_000)
        assert value("share-group-rebalance-rate") > 0
        assert value("consumer-group-rebalance-count") == 0

    run(test)
