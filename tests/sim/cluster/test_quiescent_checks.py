"""Tests that the quiescent checks find wrong state of replicas, and changes by a restart. The tests make the errors by
hand, because other checks would find a bug that causes them before a run is quiescent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest

from kraft.broker.partition.partition import Partition
from kraft.broker.serving.purgatory import Deadlines
from kraft.client import Producer
from kraft.image.partitions import NO_LEADER
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.quiescent_checks import QuiescentChecks
from kraft.sim.cluster.shape import host_name
from kraft.sim.workload.workload import TOPIC
from kraft.storage.log import Log
from tests.bugbank.originals import plant
from tests.stages.checked_cluster import checks_of, kill_and_settle, play, produce, state_of, wait_whole

Tamper = Callable[[Partition, Log], object]
UNKNOWN_TOPIC = UUID(int=9)


def replica(cluster: SimCluster, broker: int) -> tuple[Partition, Log]:
    node = cluster.watch.nodes[broker].node.broker
    assert node is not None
    partition = node.broker.replicas.find(TOPIC, 0)
    assert partition is not None
    assert partition.log is not None
    return partition, partition.log


async def look_at(cluster: SimCluster, *, tamper: Tamper, of_leader: bool = False, is_idempotent: bool = True) -> None:
    """Run the quiescent checks on three equal replicas, one of which was tampered with."""
    if is_idempotent:
        seam = cluster.world.node("producer")
        async with Producer(bootstrap_servers=cluster.shape.bootstrap_servers, seam=seam) as producer:
            await producer.send(TOPIC, b"1", partition=0)
    else:
        await produce(cluster, 1)
    await wait_whole(cluster)
    state, quiescent_checks = state_of(cluster), QuiescentChecks(cluster)
    tamper(*replica(cluster, state.leader if of_leader else state.isr[-1]))
    quiescent_checks.compare("now")
    assert quiescent_checks.compared == 3
    assert quiescent_checks.with_producers == 3 * is_idempotent or log_starts(cluster) != {0}


def index_entry(log: Log, relative_offset: int, position: int) -> None:
    """Write this entry to the offset index of the only segment of a log."""
    log.segments[0].index.append(relative_offset, position)
    log.segments[0].index.write_tail()


def log_starts(cluster: SimCluster) -> set[int]:
    return {replica(cluster, broker)[1].log_start_offset for broker in cluster.shape.broker_ids}


def test_quiescent_checks_accept_unchanged_replicas() -> None:
    for is_idempotent in (False, True):
        assert not play(partial(look_at, tamper=lambda partition, log: None, is_idempotent=is_idempotent))


@pytest.mark.parametrize(
    ("check", "tamper"),
    [
        ("D6", lambda partition, log: setattr(log, "log_end_offset", 2)),
        ("D7", lambda partition, log: log.epochs.clear()),
        ("D7", lambda partition, log: log.epochs.assign(7, 1)),
        ("T3", lambda partition, log: log.producers.entries.clear()),
        ("M10", lambda partition, log: setattr(partition, "topic_id", UNKNOWN_TOPIC)),
        ("D13", lambda partition, log: index_entry(log, 1, 0)),
        ("D13", lambda partition, log: index_entry(log, 0, 7)),
    ],
    ids=[
        "an end",
        "an epoch that is forgotten",
        "an epoch without records",
        "a producer",
        "a topic",
        "an index entry with another offset",
        "an index entry that leads into a batch",
    ],
)
def test_checks_catch_replica_state_that_differs_from_its_log(check: str, tamper: Tamper) -> None:
    assert checks_of(play(partial(look_at, tamper=tamper))) == {check}


def test_quiescent_checks_accept_and_count_a_correct_offset_index_entry() -> None:
    looks: list[QuiescentChecks] = []

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 1)
        await wait_whole(cluster)
        index_entry(replica(cluster, 1)[1], 0, 0)
        looks.append(QuiescentChecks(cluster))
        looks[0].compare("now")

    assert not play(story)
    assert looks[0].indexed == 1


async def many_records_then_no_requests(cluster: SimCluster) -> None:
    await produce(cluster, 30)
    await wait_whole(cluster)
    look = QuiescentChecks(cluster)
    look.compare("now")
    assert look.parked


def test_checks_catch_answered_requests_that_stay_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each produce request has a timeout of seconds. With the bug it stays on the timer after it was answered."""
    assert not play(many_records_then_no_requests)
    plant(monkeypatch, Deadlines, "remove", lambda self, operation: None)
    assert checks_of(play(many_records_then_no_requests)) == {"N3"}


def test_checks_catch_requests_waiting_for_memory_without_clients() -> None:
    async def story(cluster: SimCluster) -> None:
        memory = cluster.watch.nodes[1].node.gates.memory
        memory.when_free(memory.total_bytes, lambda: None)
        QuiescentChecks(cluster).compare("now")

    assert checks_of(play(story)) == {"N3"}


def test_quiescent_checks_accept_an_epoch_without_records_only_if_the_replica_leads_in_it() -> None:
    def assign(own: int, partition: Partition, log: Log) -> None:
        assert partition.leader is not None
        partition.leader.leader_epoch = 7
        log.epochs.assign(own, 1)

    assert not play(partial(look_at, tamper=partial(assign, 7), of_leader=True))
    assert checks_of(play(partial(look_at, tamper=partial(assign, 6), of_leader=True))) == {"D7"}


def test_a_replica_with_an_empty_log_may_remember_its_last_leader_epoch() -> None:
    def empty(partition: Partition, log: Log) -> None:
        log.epochs.assign(7, 1)
        log.epochs.truncate_from_start(1)
        log.log_start_offset = 1

    assert not play(partial(look_at, tamper=empty))


async def leaders_that_write_nothing(cluster: SimCluster) -> None:
    """Let two brokers lead one after the other, without writes; the first leader is cut off, and returns as a
    follower."""
    await produce(cluster, 3)
    await kill_and_settle(cluster, state_of(cluster).leader)
    world, leader = cluster.world, state_of(cluster).leader
    for other in cluster.shape.node_ids:
        if other != leader:
            world.partition(host_name(leader), host_name(other))
    assert await cluster.wait_until(lambda: state_of(cluster).leader not in (leader, NO_LEADER), 20_000)
    world.heal_all()
    for node in cluster.down:
        cluster.start(node)
    await wait_whole(cluster)
    await QuiescentChecks(cluster).run()


def test_leaders_without_writes_leave_no_epoch_in_the_epoch_cache() -> None:
    assert not play(leaders_that_write_nothing)


async def a_log_is_shorter_after_a_start(cluster: SimCluster, *, is_cut: bool) -> None:
    """Let the sole replica lose a batch while its broker is down."""
    await produce(cluster, 3)
    await wait_whole(cluster)
    start, path = cluster.start, replica(cluster, 1)[1].segments[-1].log.path

    def cut_and_start(node: int) -> None:
        if node == 1 and is_cut:
            file = cluster.world.node(host_name(1)).disk.open(path)
            file.truncate(file.size - 1)
        start(node)

    cluster.start = cut_and_start  # type: ignore[method-assign, assignment]
    await QuiescentChecks(cluster).run()


def test_checks_catch_a_log_changed_by_a_restart() -> None:
    assert not play(partial(a_log_is_shorter_after_a_start, is_cut=False), brokers=1)
    assert "D12" in checks_of(play(partial(a_log_is_shorter_after_a_start, is_cut=True), brokers=1))
