"""The metrics of share groups, under Kafka's names, change with the requests of members (KIP-932, KIP-1103)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kraft.wire.api_keys import ApiKey
from tests.broker.api.share_fetch.share_member import ACCEPT, REJECT, RELEASE, Share, ShareMember
from tests.broker.api.share_fetch.test_share_groups import GroupClient

LOCK_MS = 30_000
RECORD_LOCKS_MAX = 2_000
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


def histogram_of(share: Share, type: str, name: str, labels: str) -> tuple[float, float]:
    """Return the count and the sum of a histogram of the leader, as a scraper reads them."""
    metrics: Any = share.cluster.node(share.leader).metrics
    text = metrics.exposition(partitions=True).decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(f"kafka_server_{type}_{name}"))
    count, total = (found[f"kafka_server_{type}_{name}_{part}{{{labels}}}"] for part in ("count", "sum"))
    return float(count), float(total)


def fetch_measures(share: Share) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return (count, sum) of the percentages of acquirable partitions, and of the times until one was acquirable."""
    names = ("requesttopicpartitionsfetchratio", "topicpartitionsacquiretimems")
    ratio, waits = (histogram_of(share, "sharegroupmetrics", name, 'group="g"') for name in names)
    return ratio, waits


async def fetch_unknown_partition(member: ShareMember) -> None:
    """Fetch from one more partition, which the broker does not lead, in the member's session."""
    assert member.client is not None
    partitions = [{"partition_index": 9, "acknowledgement_batches": []}]
    await member.client.ask(
        ApiKey.SHARE_FETCH,
        2,
        group_id="g",
        member_id=member.name,
        share_session_epoch=member.epoch,
        topics=[{"topic_id": member.topic_id, "partitions": partitions}],
        max_wait=0,
        min_bytes=1,
        max_bytes=1_000_000,
        max_records=500,
        batch_size=500,
    )


async def fill(share: Share, member: ShareMember) -> None:
    """Append as many records as a share partition may have in flight, and acquire all."""
    await share.append(*["value"] * RECORD_LOCKS_MAX)
    found = await member.acquire(max_records=RECORD_LOCKS_MAX)
    assert len(found.values) == RECORD_LOCKS_MAX


def test_the_percentage_of_partitions_that_a_share_fetch_could_acquire_is_measured_by_group(run: Any) -> None:
    async def test(share: Share, member: ShareMember, _: Value) -> None:
        await fill(share, member)
        assert fetch_measures(share)[0] == (1, 100)
        await member.fetch()
        assert fetch_measures(share)[0] == (2, 100)
        await member.acknowledge((0, RECORD_LOCKS_MAX - 1, ACCEPT))
        await member.fetch()
        assert fetch_measures(share)[0] == (3, 200)
        await fetch_unknown_partition(member)
        assert fetch_measures(share)[0] == (4, 250)

    measured(run, test)


def test_the_time_until_a_share_fetch_could_acquire_a_partition_is_measured_by_group(run: Any) -> None:
    async def test(share: Share, member: ShareMember, _: Value) -> None:
        await fill(share, member)
        count, loading_ms = fetch_measures(share)[1]
        assert count == 1
        await member.fetch(wait_ms=500)
        count, waited_ms = fetch_measures(share)[1]
        assert (count, waited_ms - loading_ms >= 500) == (2, True)
        await member.acknowledge((0, RECORD_LOCKS_MAX - 1, ACCEPT))
        await member.fetch(wait_ms=500)
        count, total_ms = fetch_measures(share)[1]
        assert (count, total_ms - waited_ms) == (3, 0)

    measured(run, test)


def test_a_share_fetch_that_waits_for_many_bytes_ends_its_acquire_time_when_a_partition_has_room(run: Any) -> None:
    async def test(share: Share, member: ShareMember, _: Value) -> None:
        await share.append("a")
        await member.acquire()
        before = fetch_measures(share)
        await member.fetch(wait_ms=500, min_bytes=100_000)
        after = fetch_measures(share)
        assert after[0] == (before[0][0] + 1, before[0][1] + 100)
        assert after[1] == (before[1][0] + 1, before[1][1])

    measured(run, test)


def test_meters_of_a_group_end_with_its_last_share_session_on_the_broker(run: Any) -> None:
    async def test(share: Share, member: ShareMember, value: Value) -> None:
        await member.fetch()
        assert value("ShareGroupMetrics", "RequestTopicPartitionsFetchRatio", group="g") == 1
        await member.respond(share_session_epoch=-1)
        await share.world.sleep_ms(1_000)
        assert value("ShareGroupMetrics", "RequestTopicPartitionsFetchRatio", group="g") == 0

    measured(run, test)


def test_sizes_of_batches_that_are_new_in_flight_are_measured_for_each_share_partition(run: Any) -> None:
    def sizes(share: Share) -> tuple[float, float]:
        labels = 'group="g",partition="0",topic="orders"'
        return histogram_of(share, "sharepartitionmetrics", "inflightbatchmessagecount", labels)

    async def test(share: Share, member: ShareMember, _: Value) -> None:
        await share.append("a", "b", "c")
        await share.append("d", "e")
        assert (await member.acquire(batch_size=1)).acquired == [(0, 2, 1), (3, 4, 1)]
        assert sizes(share) == (2, 5)
        await member.acknowledge((0, 2, RELEASE))
        assert (await member.acquire()).acquired == [(0, 2, 2)]
        assert sizes(share) == (2, 5)
        await member.acknowledge((1, 1, ACCEPT))
        await member.respond(share_session_epoch=-1)
        await share.world.sleep_ms(1_000)
        member.epoch = 0
        await member.acquire()
        loaded = [(0, 0), (1, 1), (2, 2), (3, 4)]
        assert sizes(share) == (len(loaded), 5)

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
