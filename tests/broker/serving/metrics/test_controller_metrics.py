"""The controller's metrics: counts of the metadata, the work of the command queue, broker sessions."""

from __future__ import annotations

from tests.stages.plane import Plane, batch, error, run

CONTROLLER_ID = 101


def value(plane: Plane, name: str, type: str = "KafkaController", **tags: str) -> float | None:
    return plane.cluster.node(CONTROLLER_ID).metrics.value("kafka.controller", type, name, **tags)


def test_the_controller_counts_brokers_topics_and_partitions() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=3)
        assert value(plane, "GlobalTopicCount") == 1
        assert value(plane, "GlobalPartitionCount") == 3
        assert (value(plane, "ActiveBrokerCount"), value(plane, "FencedBrokerCount")) == (2, 0)
        assert value(plane, "ActiveControllerCount") == 1
        assert value(plane, "BrokerRegistrationState", broker="2") == 30
        assert value(plane, "NewActiveControllersCount") == 1
        committed = value(plane, "LastCommittedRecordOffset")
        assert committed == value(plane, "LastAppliedRecordOffset")
        assert value(plane, "LastAppliedRecordTimestamp") > 0  # type: ignore[operator]
        assert value(plane, "LastAppliedRecordLagMs") == 0
        since = value(plane, "TimeSinceLastHeartbeatReceivedMs", broker="1")
        assert since is not None
        assert 0 <= since < 10_000

    run(test, controllers=1, brokers=2)


def test_a_partition_without_a_leader_counts_as_offline_until_its_broker_is_back() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", partitions=2, factor=1, leader=1)
        assert (value(plane, "OfflinePartitionsCount"), value(plane, "PreferredReplicaImbalanceCount")) == (0, 0)
        plane.world.kill("b1")
        await plane.until(lambda: value(plane, "OfflinePartitionsCount") == 2)
        assert value(plane, "PreferredReplicaImbalanceCount") == 2
        assert value(plane, "FencedBrokerCount") == 1
        assert value(plane, "BrokerRegistrationState", broker="1") == 10
        plane.cluster.start(1)
        await plane.until(lambda: value(plane, "OfflinePartitionsCount") == 0)
        assert value(plane, "PreferredReplicaImbalanceCount") == 0

    run(test, controllers=1, brokers=2)


def test_an_election_of_a_replica_that_was_not_in_sync_counts_as_unclean() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, unclean_leader_election_enable="true")
        assert not error(await plane.produce("orders", batch("a")))
        assert value(plane, "UncleanLeaderElectionsPerSec", "ControllerStats") == 0
        plane.world.kill("b2")
        await plane.until(lambda: plane.partition("orders").state.isr == (1,))  # type: ignore[union-attr]
        plane.world.kill("b1")
        plane.cluster.start(2)
        await plane.until(lambda: value(plane, "UncleanLeaderElectionsPerSec", "ControllerStats") == 1, 600_000)

    run(test, controllers=1, brokers=2)


def test_a_broker_that_stops_sending_heartbeats_counts_as_a_timed_out_heartbeat() -> None:
    async def test(plane: Plane) -> None:
        assert value(plane, "TimedOutBrokerHeartbeatCount") == 0
        plane.world.pause("b2")
        await plane.until(lambda: value(plane, "FencedBrokerCount") == 1, 60_000)
        assert value(plane, "TimedOutBrokerHeartbeatCount") == 1

    run(test, controllers=1, brokers=2)


def test_controller_commands_are_counted_with_their_queue_and_processing_time() -> None:
    async def test(plane: Plane) -> None:
        before = value(plane, "EventQueueOperationsStartedCount") or 0
        await plane.create_topic("orders")
        started = value(plane, "EventQueueOperationsStartedCount") or 0
        assert started > before
        assert value(plane, "EventQueueTimeMs", "ControllerEventManager") == started
        assert (value(plane, "EventQueueProcessingTimeMs", "ControllerEventManager") or 0) >= started
        assert value(plane, "EventQueueOperationsTimedOutCount") == 0

    run(test, controllers=1, brokers=1)
