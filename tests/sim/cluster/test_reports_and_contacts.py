"""Tests with bugs planted in whole clusters, and the checks that find them; the same schedule passes without the bug.

The bugs are in end offsets that brokers report to clients (D3), in producer ids (M17), in candidates and leaders of the
quorum (R14 and R18), and in the ISR proposals that a controller accepts (M8).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from kraft.broker.api import list_offsets
from kraft.broker.coordinator.producer_id_blocks import ProducerIds
from kraft.client import Consumer, Producer
from kraft.control import AlterPartition
from kraft.control.commands import PartitionProposal, ProposedMember
from kraft.control.decide import COMMANDS
from kraft.control.partitions import isr
from kraft.raft import leader as raft_leader
from kraft.raft import timers
from kraft.raft.identity import Identity, OwnMembership, VoterSet
from kraft.raft.state import NEVER
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.workload.workload import TOPIC
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.originals import plant
from tests.sim.cluster.test_planted_bugs import caught
from tests.stages.checked_cluster import kill_and_settle, play, produce, state_of, wait_whole
from tests.stages.tables import replace_row

LOG = (TOPIC, 0)


# D3: ends reported to clients


async def reported_end(cluster: SimCluster) -> int:
    """Return the end of the partition as reported to a consumer."""
    seam = cluster.world.node("consumer")
    async with Consumer(bootstrap_servers=cluster.shape.bootstrap_servers, seam=seam) as consumer:
        return (await consumer.offsets([LOG], timeout_ms=15_000))[LOG]


async def a_leader_follows_that_knows_less(cluster: SimCluster) -> None:
    """Kill a leader when both followers have the newest record, and neither knows that it is committed. The next leader
    receives no fetch of the other follower for a while."""
    await produce(cluster, 3)
    await wait_whole(cluster)
    world, first = cluster.world, state_of(cluster).leader
    others = [broker for broker in state_of(cluster).isr if broker != first]

    def is_ahead() -> bool:
        marks = [cluster.marks(broker, TOPIC, 0) for broker in (first, *others)]
        return marks == [(4, 4), (3, 4), (3, 4)]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, cluster, 1)
        assert await cluster.wait_until(is_ahead, 1_000, poll_ms=1)
        for other in others:
            world.partition(host_name(first), host_name(other))
    assert await reported_end(cluster) == 4
    world.partition(*(host_name(other) for other in others))
    await kill_and_settle(cluster, first)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reported_end, cluster)
        await world.sleep_ms(2_000)
        world.heal_all()


def test_checks_catch_a_leader_that_reports_a_lower_end_offset_than_its_predecessor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planting = partial(plant, owner=list_offsets, name="not_available", twin=lambda *_: ErrorCode.NONE)
    assert caught(monkeypatch, a_leader_follows_that_knows_less, planting) == {"D3"}


# M17: producer ids


async def two_producers(cluster: SimCluster) -> None:
    """Start two idempotent producers, each of which requests an id from the only broker."""
    for number in range(2):
        async with Producer(
            bootstrap_servers=cluster.shape.bootstrap_servers, seam=cluster.world.node(f"producer {number}")
        ) as producer:
            await producer.send(TOPIC, b"%d" % number, partition=0)


def test_checks_catch_a_producer_id_allocated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ProducerIds.take_nowait

    def twin(self: ProducerIds) -> int | None:
        taken = original(self)
        if taken is not None:
            self._next = taken
        return taken

    planting = partial(plant, owner=ProducerIds, name="take_nowait", twin=twin)
    assert "M17" in caught(monkeypatch, two_producers, planting, brokers=1)


# R14 and R18: voters and their leader


async def a_broker_misses_its_leader(cluster: SimCluster) -> None:
    """Restart a broker that then receives no response of the active controller for a while."""
    await kill_and_settle(cluster, 1)
    cluster.start(1)
    await wait_whole(cluster)
    leader = cluster.watch.active_controller
    assert leader is not None
    cluster.world.partition_one_way(host_name(leader), host_name(1))
    await cluster.world.sleep_ms(6_000)
    cluster.world.heal_all()
    await wait_whole(cluster)


def test_checks_catch_an_observer_that_becomes_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Identity.membership_among

    def twin(self: Identity, voters: VoterSet) -> OwnMembership:
        return original(self, voters)._replace(is_voter=True)

    planting = partial(plant, owner=Identity, name="membership_among", twin=twin)
    assert "R14" in caught(monkeypatch, a_broker_misses_its_leader, planting, brokers=1)


async def a_leader_receives_no_fetches(cluster: SimCluster) -> None:
    leader = cluster.watch.active_controller
    assert leader is not None
    for other in cluster.shape.controller_ids:
        if other != leader:
            cluster.world.partition(host_name(leader), host_name(other))
    await cluster.world.sleep_ms(8_000)
    cluster.world.heal_all()
    await cluster.world.sleep_ms(2_000)


async def a_leader_is_frozen(cluster: SimCluster) -> None:
    """Freeze a leader. After the freeze it considers itself leader until it receives a message of a newer epoch."""
    leader = cluster.watch.active_controller
    assert leader is not None
    cluster.world.pause(host_name(leader))
    await cluster.world.sleep_ms(8_000)
    cluster.world.resume(host_name(leader))
    await cluster.world.sleep_ms(2_000)


def test_checks_catch_a_leader_that_does_not_resign_without_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    original = raft_leader.tick_leader

    def twin(core: Any, leader: Any) -> None:
        leader.check_quorum_deadline_ms = NEVER
        original(core, leader)

    def planting(patch: pytest.MonkeyPatch) -> None:
        plant(patch, raft_leader, "tick_leader", twin, timers)

    assert caught(monkeypatch, a_leader_receives_no_fetches, planting, brokers=0) == {"R18"}


def test_checks_accept_a_frozen_leader_that_could_not_resign() -> None:
    assert not play(a_leader_is_frozen, brokers=0)


# M8: accepted proposals


async def a_proposal_is_old(cluster: SimCluster) -> None:
    """Send a stale ISR proposal, which names the partition epoch before the last change."""
    await kill_and_settle(cluster, state_of(cluster).isr[-1])
    active, topic, state = cluster.watch.active_controller, cluster.image.topics.get(TOPIC), state_of(cluster)
    assert active is not None
    assert topic is not None
    controller, brokers = cluster.watch.nodes[active].node.controller, cluster.image.brokers
    assert controller is not None
    alone = (ProposedMember(state.leader, brokers[state.leader].broker_epoch),)
    proposal = PartitionProposal(topic.topic_id, 0, state.leader_epoch, state.partition_epoch - 1, alone)
    epoch = brokers[state.leader].broker_epoch
    controller.queue.submit(AlterPartition(broker_id=state.leader, broker_epoch=epoch, partitions=(proposal,)))
    await cluster.world.sleep_ms(500)


def test_checks_catch_a_controller_accepting_a_stale_isr_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    original = isr.decide_alter_partition

    def twin(image: Any, context: Any, command: AlterPartition) -> Any:
        current = [image.topics.get_by_id(each.topic_id).partition(each.partition_id) for each in command.partitions]
        partitions = tuple(
            each._replace(leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch)
            for each, state in zip(command.partitions, current, strict=True)
        )
        return original(image, context, replace(command, partitions=partitions))

    def planting(patch: pytest.MonkeyPatch) -> None:
        plant(patch, isr, "decide_alter_partition", twin)
        replace_row(patch, COMMANDS, AlterPartition, twin)

    assert "M8b" in caught(monkeypatch, a_proposal_is_old, planting)
