"""The broker's metrics: topics, replicas, followers, logs and waiting requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from kraft.broker.partition.hosted import HostedReplicas
from kraft.broker.partition.partition import Partition
from kraft.broker.roles import replica_metrics as replicas
from kraft.broker.serving.metrics.text import LINES_PER_STEP, text_in_steps
from kraft.wire.api_keys import ApiKey
from tests.stages.plane import Plane, batch, error, run

TOPICS, REPLICAS = "BrokerTopicMetrics", "ReplicaManager"


def value(plane: Plane, type: str, name: str, *, broker_id: int = 1, group: str = "kafka.server", **tags: str) -> float:
    return plane.cluster.node(broker_id).metrics.value(group, type, name, **tags) or 0


def test_topic_metrics_count_produce_and_fetch_requests_and_rejected_ones() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", max_message_bytes="200", cleanup_policy="delete")
        assert not error(await plane.produce("orders", batch("a")))
        await plane.fetch("orders", 0)
        large, broken, old = batch("x" * 300), batch("b"), batch("c")
        broken[-1] ^= 1
        old[16] = 1
        for refused in (large, broken, old):
            assert error(await plane.produce("orders", refused))
        counts = {
            "TotalProduceRequestsPerSec": 3,
            "FailedProduceRequestsPerSec": 3,
            "BytesRejectedPerSec": len(large),
            "InvalidMessageCrcRecordsPerSec": 1,
            "InvalidMagicNumberRecordsPerSec": 1,
        }
        for tags in ({}, {"topic": "orders"}):
            assert {name: value(plane, TOPICS, name, **tags) for name in counts} == counts
            assert value(plane, TOPICS, "TotalFetchRequestsPerSec", **tags) >= 1

    run(test, combined=1)


def test_an_out_of_order_sequence_number_counts_in_the_metric_of_invalid_sequences() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for sequence in (0, 7):
            await plane.produce("orders", batch("a", producer_id=5, producer_epoch=0, base_sequence=sequence))
        assert value(plane, TOPICS, "InvalidOffsetOrSequenceRecordsPerSec", topic="orders") == 1
        assert value(plane, REPLICAS, "ProducerIdCount") == 1

    run(test, combined=1)


def test_isr_shrinks_and_expansions_are_counted_by_the_leader() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        assert not error(await plane.produce("orders", batch("a")))
        # its session ends or it lags; the first of the two to be noticed removes it from the ISR
        plane.world.pause("b2")
        await plane.until(lambda: plane.partition("orders").state.isr == (1,), 60_000)  # type: ignore[union-attr]
        assert value(plane, REPLICAS, "UnderReplicatedPartitions") == 1
        plane.world.resume("b2")
        await plane.until(lambda: set(plane.partition("orders").state.isr) == {1, 2}, 60_000)  # type: ignore[union-attr]
        assert value(plane, REPLICAS, "IsrExpandsPerSec") == 1
        assert value(plane, REPLICAS, "UnderReplicatedPartitions") == 0

    run(test, controllers=1, brokers=2)


def test_a_follower_that_stops_fetching_shows_in_the_isr_metrics() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        partition = plane.partition("orders")
        assert not error(await plane.produce("orders", batch("a")))
        plane.cluster.node(2).broker.broker.replicas.fetchers.stop(plane.partition("orders", 2))  # type: ignore[union-attr]
        await plane.produce("orders", batch("b"), acks=1)
        await plane.until(lambda: partition.state.isr == (1,), 120_000)  # type: ignore[union-attr]
        assert value(plane, REPLICAS, "IsrShrinksPerSec") == 1

    run(test, controllers=1, brokers=2)


def test_metrics_show_the_fetch_rate_and_lag_of_a_follower() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        assert not error(await plane.produce("orders", batch("a")))
        labels = {"clientId": "broker-2-fetcher", "brokerHost": "b1", "brokerPort": "9092"}
        assert value(plane, "FetcherStats", "RequestsPerSec", broker_id=2, **labels) > 0
        assert value(plane, "FetcherStats", "BytesPerSec", broker_id=2, **labels) > 0
        await plane.world.sleep_ms(5_000)
        assert value(plane, "ReplicaFetcherManager", "MinFetchRate", broker_id=2, clientId="Replica") > 0
        (followed,) = (
            one
            for fetcher in plane.cluster.node(2).broker.broker.replicas.fetchers  # type: ignore[union-attr]
            for one in fetcher.all_followed
        )
        followed.leader_high_watermark = followed.state.fetch_offset + 7
        assert value(plane, "ReplicaFetcherManager", "MaxLag", broker_id=2, clientId="Replica") == 7
        tags = {"clientId": "broker-2-fetcher", "topic": "orders", "partition": "0"}
        assert value(plane, "FetcherLagMetrics", "ConsumerLag", broker_id=2, **tags) == 7
        assert not error(await plane.produce("orders", batch("b")))
        await plane.until(lambda: value(plane, "ReplicaFetcherManager", "MaxLag", broker_id=2, clientId="Replica") == 0)

    run(test, controllers=1, brokers=2)


def test_waiting_requests_are_counted_by_kind_of_delayed_operation() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)

        def waiting(kind: str) -> float:
            return value(plane, "DelayedOperationPurgatory", "PurgatorySize", delayedOperation=kind)

        assert waiting("Produce") == 0
        plane.world.pause("b2")
        async with trio.open_nursery() as nursery:
            other = await plane.another_client()

            async def fetch() -> None:
                await plane.fetch("orders", 0, max_wait_ms=2_000, client=other)

            async def produce() -> None:
                await plane.produce("orders", batch("a"), timeout_ms=300)

            nursery.start_soon(fetch)
            nursery.start_soon(produce)
            await plane.until(lambda: waiting("Produce") == 1)
            await plane.until(lambda: waiting("Fetch") >= 1)
            plane.world.resume("b2")

    run(test, controllers=1, brokers=2)


def test_metrics_of_logs_and_partitions_are_shown_only_on_request() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        assert not error(await plane.produce("orders", batch("a", "b")))
        tags = {"topic": "orders", "partition": "0"}
        assert value(plane, "Log", "LogEndOffset", group="kafka.log", **tags) == 2
        assert value(plane, "Log", "Size", group="kafka.log", **tags) == plane.partition("orders").log.size_bytes  # type: ignore[union-attr]
        assert value(plane, "Log", "NumLogSegments", group="kafka.log", **tags) == 1
        shown = {"InSyncReplicasCount": 2, "ReplicasCount": 2, "UnderReplicated": 0, "AtMinIsr": 0, "UnderMinIsr": 0}
        assert {name: value(plane, "Partition", name, group="kafka.cluster", **tags) for name in shown} == shown
        metrics = plane.cluster.node(1).metrics
        name = b'kafka_log_log_logendoffset{partition="0",topic="orders"} 2.0'
        assert name not in metrics.exposition()
        assert name in metrics.exposition(partitions=True)

    run(test, controllers=1, brokers=2)


def test_the_log_flush_metric_measures_the_duration_of_each_sync() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", flush_messages="1")
        before = value(plane, "LogFlushStats", "LogFlushRateAndTimeMs", group="kafka.log")
        assert not error(await plane.produce("orders", batch("a")))
        assert value(plane, "LogFlushStats", "LogFlushRateAndTimeMs", group="kafka.log") > before

    run(test, combined=1)


def test_a_failed_log_directory_is_shown_in_the_metrics() -> None:
    async def test(plane: Plane) -> None:
        def offline(directory: str) -> float:
            return value(plane, "LogManager", "LogDirectoryOffline", group="kafka.log", logDirectory=directory)

        await plane.create_topic("orders", partitions=4)
        assert (offline("/data"), offline("/more")) == (0, 0)
        assert value(plane, "LogManager", "remainingLogsToRecover", group="kafka.log", dir="/more") == 0
        plane.world.fail_directory("b1", "/more")
        for index in range(4):
            await plane.produce("orders", batch("a"), index, acks=1)
        await plane.until(lambda: offline("/more") == 1)
        assert offline("/data") == 0
        assert value(plane, "LogManager", "OfflineLogDirectoryCount", group="kafka.log") == 1

    run(test, controllers=1, brokers=1, log_dirs="/data,/more")


def test_bytes_of_a_reassignment_are_counted_at_leader_and_follower() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", factor=1, leader=1)
        sent = batch("a" * 1_000)
        assert not error(await plane.produce("orders", sent))
        assert value(plane, REPLICAS, "ReassigningPartitions") == 0
        plane.world.pause("b2")
        client = await plane.client(1)
        topics = [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}]
        await client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=10_000)
        await plane.until(lambda: value(plane, REPLICAS, "ReassigningPartitions") == 1)
        assert value(plane, REPLICAS, "UnderReplicatedPartitions") == 0, "what is only being added does not count"
        plane.world.resume("b2")
        await plane.until(lambda: value(plane, REPLICAS, "ReassigningPartitions") == 0, 60_000)
        assert value(plane, TOPICS, "ReassignmentBytesInPerSec", broker_id=2, topic="orders") == len(sent)
        assert value(plane, TOPICS, "ReassignmentBytesOutPerSec", topic="orders") >= len(sent)

    run(test, controllers=1, brokers=2)


def test_an_evicted_fetch_session_is_counted_in_the_metrics() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=2)

        async def open_session(indexes: range) -> None:
            client = await plane.another_client()
            requested = [("orders", index, 0) for index in indexes]
            await plane.fetch_many(requested, client=client, session_epoch=0)

        await open_session(range(1))
        assert value(plane, "FetchSessionCache", "NumIncrementalFetchSessions") == 1
        await plane.world.sleep_ms(200_000)
        await open_session(range(2))
        assert value(plane, "FetchSessionCache", "NumIncrementalFetchPartitionsCached") == 2
        assert value(plane, "FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec") == 1

    run(test, combined=1, max_incremental_fetch_session_cache_slots="1")


def test_a_metrics_scrape_scans_all_replicas_once_and_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    monkeypatch.setattr(replicas, "PIECES_PER_STEP", 10)
    everyone = HostedReplicas.__iter__

    def counted(hosted: HostedReplicas) -> Iterator[Partition]:
        nonlocal taken
        for partition in everyone(hosted):
            taken += 1
            yield partition

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=101)
        node = plane.cluster.node(1)
        await plane.until(lambda: len(node.broker.broker.replicas.hosted) == 101)  # type: ignore[union-attr]
        monkeypatch.setattr(HostedReplicas, "__iter__", counted)
        before, most, text = taken, 0, ""
        for piece in text_in_steps(node.metrics, partitions=False):
            most, before = max(most, taken - before), taken
            text += piece
        assert taken == 101
        assert most <= 11, "the first of a step is taken before the step in front of it ends"
        assert "kafka_server_replicamanager_partitioncount 101.0\n" in text

    run(test, combined=1)


def test_metrics_of_partitions_are_written_in_pieces_that_fit_into_a_step() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=LINES_PER_STEP + 1)
        pieces = list(text_in_steps(plane.cluster.node(1).metrics, partitions=True))
        samples = [sum(not line.startswith("#") for line in piece.splitlines()) for piece in pieces]
        assert sum(samples) > 6 * LINES_PER_STEP, "six metrics per partition"
        assert max(samples) <= LINES_PER_STEP

    run(test, combined=1)
