"""Tests of each client library on one cluster of real processes: the rules of the clients' interface, and a workload
during which a node is killed.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
import trio

from kraft.client.admin import Admin
from kraft.sim.chaos.clients import ClientLibrary, OperationFailed, ProducerSettings, WorkloadConsumer, WorkloadProducer
from kraft.sim.chaos.clients.libraries import library_of
from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from kraft.sim.chaos.history import Function, HistoryEvent, HistoryEventType, HistoryRecorder, Place
from kraft.sim.chaos.scenarios.scenario import GROUP, TOPIC, Scenario, ScenarioWorkload
from kraft.sim.chaos.workloads import ClientWorkload
from kraft.sim.shapes import ClusterError
from tests.chaos.workloads.facts import acknowledged, completed, read_by, require_well_formed

LEAVES_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
"""Name of the library that leaves sockets open. kafka-python drops sockets whose connection was refused without closing
them; the garbage collector closes them."""
FOREIGN = [
    pytest.param("confluent-kafka", marks=pytest.mark.slow),
    pytest.param("kafka-python", marks=[pytest.mark.slow, LEAVES_SOCKETS]),
]
SETTINGS = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
}
LOOK_AGAIN_S = 0.05
POLL_MS = 200
PLACE = Place("orders", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(controllers=1, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["kraft", *FOREIGN])
def library(request: pytest.FixtureRequest) -> ClientLibrary:
    return library_of(request.param)


@pytest.fixture
def fresh(cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    reset(cluster)
    yield cluster
    gc.collect()


def reset(cluster: KafkaCluster) -> None:
    """Reset the cluster. A member that was closed while it joined a group had no member id yet and could not leave the
    group. Then this waits until that member's session expires."""

    def try_reset() -> bool:
        try:
            cluster.reset()
        except ClusterError as problem:
            if "NON_EMPTY_GROUP" not in str(problem):
                raise
            return False
        return True

    cluster.wait_until(try_reset)


async def wait_until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - a history sends no notifications
        await trio.sleep(LOOK_AGAIN_S)


# the interface


async def make_topic(library: ClientLibrary, bootstrap: str) -> None:
    admin = await library.admin(bootstrap, "admin")
    await admin.create_topic(PLACE.topic, 1, 3, {"min.insync.replicas": "2"})
    while True:
        try:
            [state] = await admin.partitions(PLACE.topic)
        except OperationFailed:  # the broker that answered has not received the metadata yet
            continue
        if len(state.isr) == 3:
            break
    assert state.leader in state.isr
    assert sorted(state.replicas) == [1, 2, 3]
    await admin.aclose()


def test_a_client_library_sends_and_reads_records_and_returns_end_offsets(
    library: ClientLibrary, fresh: KafkaCluster
) -> None:
    async def main() -> None:
        bootstrap = fresh.bootstrap_servers
        await make_topic(library, bootstrap)
        producer = await library.producer(bootstrap, "producer", ProducerSettings())
        assert [await producer.send(PLACE, b"%d" % number) for number in range(3)] == [0, 1, 2]
        await producer.aclose()
        consumer = await library.consumer(bootstrap, "consumer", None)
        assert await consumer.end_offsets([PLACE]) == {PLACE: 3}
        await consumer.assign([PLACE])
        found = []
        while consumer.position(PLACE) < 3:
            found += await consumer.poll(POLL_MS)
        assert [(each.place, each.offset, each.value) for each in found] == [
            (PLACE, number, b"%d" % number) for number in range(3)
        ]
        assert consumer.assignment() == (frozenset([PLACE]), 0)
        assert await consumer.poll(POLL_MS) == []
        await consumer.aclose()

    trio.run(main)


async def send_once_it_can(producer: WorkloadProducer, value: bytes) -> None:
    """Send records until one is acknowledged. On a busy machine a producer with a short timeout may still be searching
    for the leader."""
    while True:
        with suppress(OperationFailed):
            await producer.send(PLACE, value)
            return


def test_a_client_library_fails_a_too_large_record_and_reports_a_timed_out_one_as_unknown(
    library: ClientLibrary, fresh: KafkaCluster
) -> None:
    async def main() -> None:
        bootstrap = fresh.bootstrap_servers
        await make_topic(library, bootstrap)
        settings = ProducerSettings(delivery_timeout_ms=2_500, request_timeout_ms=1_000)
        producer = await library.producer(bootstrap, "producer", settings)
        await send_once_it_can(producer, b"first")
        with pytest.raises(OperationFailed) as large:
            await producer.send(PLACE, bytes(3_000_000))
        assert (large.value.type, large.value.error) == (HistoryEventType.FAIL, "MESSAGE_TOO_LARGE")
        for broker in fresh.broker_ids:
            await trio.to_thread.run_sync(fresh.pause, broker)
        with pytest.raises(OperationFailed) as late:
            await producer.send(PLACE, b"second")
        assert late.value.type is HistoryEventType.INFO
        await producer.aclose()
        await trio.to_thread.run_sync(fresh.mend)

    trio.run(main)


def test_creating_an_existing_topic_has_an_unknown_outcome_in_each_client_library(
    library: ClientLibrary, fresh: KafkaCluster
) -> None:
    async def main() -> None:
        admin = await library.admin(fresh.bootstrap_servers, "admin")
        await admin.create_topic("twice", 1, 3, {})
        with pytest.raises(OperationFailed) as again:
            await admin.create_topic("twice", 1, 3, {})
        assert (again.value.type, again.value.error) == (HistoryEventType.INFO, "TOPIC_ALREADY_EXISTS")
        await admin.delete_topic("twice")
        with pytest.raises(OperationFailed) as gone:
            await admin.delete_topic("twice")
        assert (gone.value.type, gone.value.error) == (HistoryEventType.INFO, "UNKNOWN_TOPIC_OR_PARTITION")
        with pytest.raises(OperationFailed) as invalid:
            await admin.create_topic("no spaces", 1, 3, {})
        assert invalid.value.type is HistoryEventType.FAIL
        await admin.aclose()

    trio.run(main)


async def member_of(library: ClientLibrary, bootstrap: str) -> WorkloadConsumer:
    """Open a member of the group that has read the only record and committed its offset."""
    consumer = await library.consumer(bootstrap, "member", GROUP)
    await consumer.subscribe([PLACE.topic])
    while not await consumer.poll(POLL_MS):
        pass
    assert consumer.assignment()[0] == {PLACE}
    assert consumer.assignment()[1] > 0
    await consumer.commit({PLACE: 1})
    return consumer


@pytest.mark.parametrize("leaves", [True, False])
def test_a_closed_consumer_leaves_its_group_and_a_consumer_dropped_without_close_does_not(
    library: ClientLibrary, fresh: KafkaCluster, leaves: bool
) -> None:
    async def main() -> None:
        bootstrap = fresh.bootstrap_servers
        await make_topic(library, bootstrap)
        producer = await library.producer(bootstrap, "producer", ProducerSettings())
        await producer.send(PLACE, b"only")
        await producer.aclose()
        consumer = await member_of(library, bootstrap)
        await consumer.aclose(leaves=leaves)
        async with Admin(bootstrap_servers=bootstrap) as admin:
            group = await admin.groups.describe(GROUP)
            stays = not leaves and library.name != "kafka-python"
            assert len(group.members) == stays

    trio.run(main)


# a workload


@dataclass
class Played:
    """The results of a workload that ran once and is used by several tests."""

    history: HistoryRecorder
    workload: ClientWorkload
    is_complete: bool
    threads: list[str]


@pytest.fixture(scope="module")
def played(cluster: KafkaCluster, library: ClientLibrary) -> Played:
    reset(cluster)
    played = trio.run(play, cluster, library)
    gc.collect()
    return played


def has_met_all(events: list[HistoryEvent]) -> bool:
    """Return whether members have joined, polled and committed, and topics were created and deleted."""
    created = {event.values["topic"] for event in completed(events, Function.CREATE_TOPIC)}
    deleted = {event.values["topic"] for event in completed(events, Function.DELETE_TOPIC)}
    return bool(completed(events, Function.COMMIT)) and len(polling_members(events)) > 2 and bool(created & deleted)


def polling_members(events: list[HistoryEvent]) -> set[str]:
    names = {event.process for event in completed(events, Function.POLL)}
    return {name for name in names if name.startswith("member")}


async def play(cluster: KafkaCluster, library: ClientLibrary) -> Played:
    """Run a workload. When its clients have begun to work, kill the leader of a partition and restart it. Continue
    until each client has done an operation of each kind."""
    now = trio.current_time
    history = HistoryRecorder(lambda: int(now() * 1e9))
    scenario = Scenario(
        name="test",
        title="Test",
        workload=ScenarioWorkload(
            producers=3, rate=20, value_bytes=50, group_members=2, group_churn_s=3.0, topic_churn=2
        ),
    )
    workload = ClientWorkload(library, cluster.bootstrap_servers, scenario, history, random.Random(1), lambda _: None)
    await workload.prepare()
    until = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workload.run, until)
        await wait_until(lambda: len(acknowledged(history.events)) > 20)
        leader = await trio.to_thread.run_sync(cluster.leader, TOPIC)
        assert leader is not None
        await trio.to_thread.run_sync(cluster.kill, leader)
        assert await workload.settle(60)
        await trio.to_thread.run_sync(cluster.mend)
        assert await workload.settle(60)
        await wait_until(lambda: workload.rebalances > 2 and has_met_all(history.events))
        until.set()
    complete = await workload.read_everything(60)
    return Played(history, workload, complete, [thread.name for thread in threading.enumerate()])


def test_a_workload_has_a_well_formed_history(played: Played) -> None:
    require_well_formed(played.history.events)


def test_a_workload_reads_each_acknowledged_record_at_its_acknowledged_offset(played: Played) -> None:
    assert played.is_complete
    sent = acknowledged(played.history.events)
    assert {place for place, _ in sent} == {Place(TOPIC, number) for number in range(3)}
    assert sent.items() <= read_by(played.history.events).items()
    assert sent.items() & read_by(played.history.events, "reader-0").items()


def test_group_members_of_a_workload_join_and_leave_while_it_runs(played: Played) -> None:
    events = played.history.events
    members = polling_members(events)
    assert len(members) > 2
    assigned = [event for event in completed(events, Function.ASSIGN) if event.process in members]
    assert len(assigned) > 2
    for event in completed(events, Function.COMMIT):
        assert event.values["group"] == GROUP


def test_a_workload_creates_and_deletes_topics(played: Played) -> None:
    created = completed(played.history.events, Function.CREATE_TOPIC)
    deleted = completed(played.history.events, Function.DELETE_TOPIC)
    assert {event.values["topic"] for event in created} & {event.values["topic"] for event in deleted}


def test_a_workload_leaves_no_client_thread_running(played: Played) -> None:
    own = ("producer", "reader", "member", "churn", "final", "preparer")
    assert not [name for name in played.threads if name.startswith(own)]
