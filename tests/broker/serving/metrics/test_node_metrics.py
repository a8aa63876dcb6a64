"""The metrics of every node: its quorum, its applied metadata, its connections, its event loop."""

from __future__ import annotations

from typing import Any

from kraft.broker.api.api_versions import SOFTWARE_CHARS_MAX
from kraft.broker.serving.metrics.rates import SAMPLES, Rates
from kraft.broker.serving.metrics.requests import OTHER, SOFTWARE_MAX
from kraft.quorum.counters import QuorumMeasures
from kraft.raft.ready import Leadership
from kraft.wire.api_keys import ApiKey
from tests.stages.broker_harness import BrokerHarness, StillClock
from tests.stages.plane import Plane, run

MS = 1_000_000


def value(node: Any, type: str, name: str, **tags: str) -> float | None:
    found: float | None = node.metrics.value("kafka.server", type, name, **tags)
    return found


def test_the_metrics_of_the_quorum_leader_and_of_an_observer_show_their_quorum_state() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        controller, broker = plane.cluster.node(101), plane.cluster.node(1)
        for node, state in ((controller, "leader"), (broker, "observer")):
            assert value(node, "raft-metrics", "current-state", current_state=state) == 1
            assert value(node, "raft-metrics", "current-leader") == 101
            assert value(node, "raft-metrics", "number-of-voters") == 1
            assert value(node, "raft-metrics", "uncommitted-voter-change") == 0
            assert value(node, "raft-metrics", "log-end-epoch") == value(node, "raft-metrics", "current-epoch")
            assert value(node, "MetadataLoader", "CurrentControllerId") == 101
        assert value(controller, "raft-metrics", "number-of-observers") == 1
        assert value(controller, "raft-metrics", "current-vote") == 101
        assert value(controller, "raft-metrics", "append-records-rate") > 0
        assert controller.quorum.measures.commit_ms.count > 0
        assert value(broker, "raft-metrics", "fetch-records-rate") > 0
        assert value(broker, "raft-channel-metrics", "request-total") > 0
        assert value(broker, "raft-channel-metrics", "incoming-byte-total") > 0
        level = value(broker, "MetadataLoader", "FinalizedLevel", featureName="metadata.version")
        assert level == value(broker, "MetadataLoader", "CurrentMetadataVersion") > 0
        assert value(broker, "broker-metadata-metrics", "last-applied-record-timestamp") > 0
        cluster_id = broker.identity.cluster_id
        assert value(broker, "KafkaServer", "ClusterId", cluster_id=cluster_id) == 1

    async def settled(plane: Plane) -> None:
        await plane.world.sleep_ms(3_000)  # rates need samples that are a second apart
        await test(plane)

    run(settled, controllers=1, brokers=1)


def test_metrics_show_the_size_and_age_of_the_latest_metadata_snapshot() -> None:
    async def test(plane: Plane) -> None:
        node = plane.cluster.node(1)
        assert value(node, "SnapshotEmitter", "LatestSnapshotGeneratedBytes") == 0
        node.publisher.snapshot()
        await plane.until(lambda: value(node, "SnapshotEmitter", "LatestSnapshotGeneratedBytes") > 0)
        await plane.world.sleep_ms(500)
        assert 400 < value(node, "SnapshotEmitter", "LatestSnapshotGeneratedAgeMs") < 1_000

    run(test, combined=1)


def test_commit_and_election_latencies_are_measured_from_begin_to_end() -> None:
    measures = QuorumMeasures()
    measures.lead(Leadership(None, 1, is_local=False), 10 * MS)
    measures.lead(Leadership(None, 2, is_local=False), 20 * MS)
    measures.lead(Leadership(1, 2, is_local=True), 25 * MS)
    assert list(measures.election_ms.samples) == [15]
    measures.append(1, end_offset=1, now_ns=30 * MS)
    measures.append(2, end_offset=3, now_ns=31 * MS)
    measures.commit(3, 34 * MS)
    measures.append(1, end_offset=4, now_ns=40 * MS)
    measures.lead(Leadership(2, 3, is_local=False), 41 * MS)
    measures.commit(4, 60 * MS)  # committed by another leader
    assert list(measures.commit_ms.samples) == [4]
    assert measures.appended == 4


def test_client_software_names_create_a_bounded_number_of_metric_series_of_bounded_length() -> None:
    harness = BrokerHarness()
    long = "x" * (2 * SOFTWARE_CHARS_MAX)
    for number in range(SOFTWARE_MAX + 5):
        fields = {"client_software_name": f"{number:03}{long}", "client_software_version": f"1.{long}"}
        harness.connect().ask(ApiKey.API_VERSIONS, 3, **fields)
    shown = {
        dict(name.tags)["clientSoftwareName"]: value
        for name, value in harness.metrics.readings()
        if (name.type, name.name) == ("socket-server-metrics", "connections")
    }
    assert len(shown) == SOFTWARE_MAX + 1
    assert shown.pop(OTHER) == 5
    assert {len(name) for name in shown} == {SOFTWARE_CHARS_MAX}


def test_connections_are_counted_by_listener_and_client() -> None:
    harness = BrokerHarness()
    client = harness.connect()
    fields = {"client_software_name": "kafka-orders", "client_software_version": "4.1"}
    client.ask(ApiKey.API_VERSIONS, 3, **fields)
    harness.connect("OUTSIDE")
    tags = {"clientSoftwareName": "kafka-orders", "clientSoftwareVersion": "4.1", "listener": "PLAINTEXT"}
    assert value(harness, "socket-server-metrics", "connections", **tags) == 1
    assert value(harness, "socket-server-metrics", "connection-count", listener="OUTSIDE") == 1
    assert harness.metrics.value("kafka.network", "RequestChannel", "ResponseQueueSize") == 0


def test_requests_that_wait_for_the_broker_to_be_unfenced_count_in_the_request_queue_metric() -> None:
    harness = BrokerHarness(held=True)
    client = harness.connect()
    client.send(ApiKey.METADATA, 1, b"\xff\xff\xff\xff")
    assert harness.metrics.value("kafka.network", "RequestChannel", "RequestQueueSize") == 1


def test_a_rate_metric_covers_the_last_30_seconds() -> None:
    clock, count = StillClock(), 0
    rates = Rates(clock)  # type: ignore[arg-type]
    rate = rates.of(lambda: count)
    assert rate() == 0
    for _ in range(SAMPLES):
        clock.now_ms += 1_000
        count += 500
        rates.second_over()
    assert rate() == 500
    for _ in range(SAMPLES):
        clock.now_ms += 1_000
        rates.second_over()
    assert rate() == 0
