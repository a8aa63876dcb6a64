"""The last look finds what replicas remember wrongly of their logs, and what a start changes. What is wrong is made by
hand: a bug that does it would be found by others before a run is at rest."""

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
from kraft.sim.cluster.last_look import LastLook
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
    """The last look at three equal replicas, of which one has been tampered with."""
    if is_idempotent:
        seam = cluster.world.node("producer")
        async with Producer(bootstrap_servers=cluster.shape.bootstrap_servers, seam=seam) as producer:
            await producer.send(TOPIC, b"1", partition=0)
    else:
        await produce(cluster, 1)
    await wait_whole(cluster)
    state, last_look = state_of(cluster), LastLook(cluster)
    tamper(*replica(cluster, state.leader if of_leader else state.isr[-1]))
    last_look.compare("now")
    assert last_look.compared == 3
    assert last_look.with_producers == 3 * is_idempotent or log_starts(cluster) != {0}


def index_entry(log: Log, relative_offset: int, position: int) -> None:
    """Write this entry to the offset index of the log's only segment."""
    log.segments[0].index.append(relative_offset, position)
    log.segments[0].index.write_tail()


def log_starts(cluster: SimCluster) -> set[int]:
    return {replica(cluster, broker)[1].log_start_offset for broker in cluster.shape.broker_ids}


def test_nothing_is_wrong_with_replicas_that_were_left_alone() -> None:
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
        "an epoch that nobody wrote in",
        "a producer",
        "a topic",
        "an index entry with another offset",
        "an index entry that leads into a batch",
    ],
)
def test_what_a_replica_remembers_wrongly_is_found(check: str, tamper: Tamper) -> None:
    assert checks_of(play(partial(look_at, tamper=tamper))) == {check}


def test_an_index_entry_that_names_a_batch_is_counted() -> None:
    looks: list[LastLook] = []

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 1)
        await wait_whole(cluster)
        index_entry(replica(cluster, 1)[1], 0, 0)
        looks.append(LastLook(cluster))
        looks[0].compare("now")

    assert not play(story)
    assert looks[0].indexed == 1


async def many_records_then_nobody_asks(cluster: SimCluster) -> None:
    await produce(cluster, 30)
    await wait_whole(cluster)
    look = LastLook(cluster)
    look.compare("now")
    assert look.parked


def test_requests_that_wait_though_they_were_answered_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each produce has a time-out of seconds, and none of them takes itself off the timer."""
    assert not play(many_records_then_nobody_asks)
    plant(monkeypatch, Deadlines, "remove", lambda self, operation: None)
    assert checks_of(play(many_records_then_nobody_asks)) == {"N3"}


def test_requests_that_wait_for_memory_when_nobody_asks_are_found() -> None:
    async def story(cluster: SimCluster) -> None:
        memory = cluster.watch.nodes[1].node.gates.memory
        memory.when_free(memory.total_bytes, lambda: None)
        LastLook(cluster).compare("now")

    assert checks_of(play(story)) == {"N3"}


def test_the_epoch_in_which_a_replica_leads_may_begin_where_its_log_ends_and_no_other() -> None:
    def assign(own: int, partition: Partition, log: Log) -> None:
        assert partition.leader is not None
        partition.leader.leader_epoch = 7
        log.epochs.assign(own, 1)

    assert not play(partial(look_at, tamper=partial(assign, 7), of_leader=True))
    assert checks_of(play(partial(look_at, tamper=partial(assign, 6), of_leader=True))) == {"D7"}


def test_a_log_of_which_all_is_deleted_may_remember_the_last_epoch_in_which_it_was_led() -> None:
    def empty(partition: Partition, log: Log) -> None:
        log.epochs.assign(7, 1)
        log.epochs.truncate_from_start(1)
        log.log_start_offset = 1

    assert not play(partial(look_at, tamper=empty))


async def leaders_that_write_nothing(cluster: SimCluster) -> None:
    """Two of them, one after the other; the first one is cut off, and comes back to follow."""
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
    await LastLook(cluster).run()


def test_leaders_that_write_nothing_leave_no_epoch_behind() -> None:
    assert not play(leaders_that_write_nothing)


async def a_log_is_shorter_after_a_start(cluster: SimCluster, *, is_cut: bool) -> None:
    """Of the only replica, a batch goes while its broker is down."""
    await produce(cluster, 3)
    await wait_whole(cluster)
    start, path = cluster.start, replica(cluster, 1)[1].segments[-1].log.path

    def cut_and_start(node: int) -> None:
        if node == 1 and is_cut:
            file = cluster.world.node(host_name(1)).disk.open(path)
            file.truncate(file.size - 1)
        start(node)

    cluster.start = cut_and_start  # type: ignore[method-assign, assignment]
    await LastLook(cluster).run()


def test_a_log_that_is_not_what_it_was_before_a_start_is_found() -> None:
    assert not play(partial(a_log_is_shorter_after_a_start, is_cut=False), brokers=1)
    assert "D12" in checks_of(play(partial(a_log_is_shorter_after_a_start, is_cut=True), brokers=1))
