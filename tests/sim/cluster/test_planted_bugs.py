"""Tests with bugs planted in a whole cluster, each of which breaks one rule, and the check that catches each bug; the
same schedule passes without the bug.

The cores have their own planted bugs (tests/raft, tests/control). These tests show that the observers see what real
nodes do. Each replacement here is used by one test; tests.bugbank.originals keeps a digest of the source that it
replaces.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from kraft.broker.partition.partition import Partition
from kraft.broker.replica.leader import LeaderState
from kraft.client import Producer
from kraft.control import FenceBrokers, FenceCause, FenceTarget
from kraft.control.brokers import fencing
from kraft.control.brokers.probing import ProbeOutcome, Probing
from kraft.control.partitions import partition_change, plans
from kraft.control.partitions.partition_change import Election
from kraft.controller.broker_sessions import Sessions
from kraft.controller.command_queue import CommandQueue
from kraft.quorum.listener_delivery import Delivery
from kraft.quorum.raft_driver import QuorumDriver
from kraft.raft import ballots, raft, transitions
from kraft.raft.state import Leader
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.cluster.stalls import StallWatch
from kraft.sim.workload.workload import TOPIC
from kraft.sim.world import WorldOptions
from kraft.storage.appending import AppendableLog
from kraft.storage.producers.producer_state import ProducerStates
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction, rule_from
from kraft.wire.rpc.quorum_messages import VoteRequest
from tests.bugbank.originals import plant
from tests.stages.checked_cluster import (
    Story,
    checks_of,
    die_together,
    kill_and_settle,
    play,
    produce,
    state_of,
    wait_whole,
)
from tests.stages.tables import replace_row


def caught(monkeypatch: pytest.MonkeyPatch, story: Story, planting: Any, **stage: Any) -> set[str]:
    """Return the findings with the planted bug, after the same schedule has passed without it."""
    clean = play(story, **stage)
    assert not clean, [str(finding) for finding in clean]
    return checks_of(play(story, bug=partial(planting, monkeypatch), **stage))


# K1 to K3: fences


async def a_broker_dies(cluster: SimCluster) -> None:
    await cluster.world.sleep_ms(1_500)
    await kill_and_settle(cluster, 2)


def test_checks_catch_fencing_after_a_single_failed_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: Probing, watch: Any, outcome: ProbeOutcome, now_ms: int) -> None:
        if outcome in (ProbeOutcome.REFUSED, ProbeOutcome.CLOSED, ProbeOutcome.OTHER):
            watch.proven_ms = now_ms

    assert "K1" in caught(monkeypatch, a_broker_dies, partial(plant, owner=Probing, name="_judge", twin=twin))


async def a_fence_names_a_connection_that_is_over(cluster: SimCluster) -> None:
    await cluster.world.sleep_ms(1_500)
    active, broker = cluster.watch.active_controller, cluster.image.brokers[2]
    assert active is not None
    controller = cluster.watch.nodes[active].node.controller
    assert controller is not None
    number = cluster.watch._connections[active, 2, broker.broker_epoch]
    target = FenceTarget(2, broker.broker_epoch, number - 1)
    controller.queue.submit_first(FenceBrokers(targets=(target,), cause=FenceCause.PROCESS_DIED))
    await cluster.world.sleep_ms(1_000)


def test_checks_catch_a_fence_that_does_not_name_the_brokers_current_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planting = partial(plant, owner=fencing, name="_is_due", twin=lambda *_: True)
    assert "K2" in caught(monkeypatch, a_fence_names_a_connection_that_is_over, planting)


async def a_broker_loses_power(cluster: SimCluster) -> None:
    """Cut the power of a broker. Only the session timeout reveals its death, measured by the controller's clock, which
    may be fast or slow."""
    await cluster.world.sleep_ms(2_500)  # the controller has received its heartbeats
    cluster.crash(3, lose_power=True, is_noticed=False)
    await cluster.world.sleep_ms(12_000)
    assert not cluster.image.is_alive(3)


FAST_BY_HALF_A_PERCENT, SLOW_BY_ONE = 12, 10
"""Seeds in which the clock of controller 101 is half a percent fast, and one percent slow."""
DRIFTING: dict[str, Any] = {"controllers": 1, "options": WorldOptions(drift_ppm_max=10_000)}


def test_checks_catch_a_broker_session_that_a_slow_controller_clock_ends_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the world's clock the session lasts longer than 9 s, but by the controller's slow clock it ends 60 ms too
    early."""
    original = Sessions.record_heartbeat

    def twin(self: Sessions, broker_id: int, broker_epoch: int, number: int, now_ms: int, *rest: Any) -> None:
        original(self, broker_id, broker_epoch, number, now_ms - 60, *rest)

    planting = partial(plant, owner=Sessions, name="record_heartbeat", twin=twin)
    assert not play(a_broker_loses_power, seed=FAST_BY_HALF_A_PERCENT, **DRIFTING)
    assert "K1" in caught(monkeypatch, a_broker_loses_power, planting, seed=SLOW_BY_ONE, **DRIFTING)


async def the_only_member_in_sync_dies(cluster: SimCluster) -> None:
    """Cut the followers off until the ISR has only the leader, then kill the leader."""
    leader = state_of(cluster).leader
    for other in cluster.shape.broker_ids:
        if other != leader:
            cluster.world.partition(host_name(leader), host_name(other))
    assert await cluster.wait_until(lambda: state_of(cluster).isr == (leader,), 10_000)
    await kill_and_settle(cluster, leader)
    cluster.world.heal_all()
    await cluster.world.sleep_ms(1_000)


LONELY = {"replica.lag.time.max.ms": "1000", "min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


def test_checks_catch_an_unclean_election_after_a_fast_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    def always_unclean(self: Any, located: Any) -> Election:
        return Election.UNCLEAN

    original = plans.leave_partitions

    def twin(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{**options, "may_be_unclean": True})

    def planting(patch: pytest.MonkeyPatch) -> None:
        plant(patch, plans.ElectionSettings, "unclean_election", always_unclean)
        plant(patch, fencing, "leave_partitions", twin)

    assert "K3" in caught(monkeypatch, the_only_member_in_sync_dies, planting, overrides=LONELY)


# K4: pre-votes


async def a_voter_loses_its_leader(cluster: SimCluster) -> None:
    """Let one follower receive nothing from the leader for longer than its fetch timeout, while the other follower
    receives everything. Their logs are equal."""
    await cluster.world.sleep_ms(1_000)
    leader = cluster.watch.active_controller
    assert leader is not None
    voter = next(node for node in cluster.shape.controller_ids if node != leader)
    cluster.world.partition(host_name(leader), host_name(voter))
    await cluster.world.sleep_ms(4_000)
    cluster.world.heal_all()
    await cluster.world.sleep_ms(500)


def test_checks_catch_a_pre_vote_that_raises_the_epoch_of_the_voter(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ballots.handle_vote

    def twin(core: Any, token: int, request: VoteRequest) -> None:
        if request.pre_vote:
            transitions.to_unattached(core, core.epoch + 1)
        original(core, token, request)

    def planting(patch: pytest.MonkeyPatch) -> None:
        plant(patch, ballots, "handle_vote", twin)
        replace_row(patch, raft._REQUESTS, VoteRequest, twin)

    assert "K4" in caught(monkeypatch, a_voter_loses_its_leader, planting, brokers=0)


def test_checks_catch_a_pre_vote_granted_despite_leader_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(core: Any) -> bool:
        return not isinstance(core.role, Leader)

    planting = partial(plant, owner=ballots, name="grants_pre_vote", twin=twin)
    assert "K4b" in caught(monkeypatch, a_voter_loses_its_leader, planting, brokers=0)


# K6: speed


async def a_broker_is_killed(cluster: SimCluster) -> None:
    await cluster.world.sleep_ms(1_500)
    cluster.crash(2, lose_power=False, is_noticed=True)
    await cluster.world.sleep_ms(1_000)


async def a_broker_is_killed_when_a_standby_has_just_taken_over(cluster: SimCluster) -> None:
    await cluster.world.sleep_ms(1_500)
    first = cluster.watch.active_controller
    assert first is not None
    cluster.crash(first, lose_power=False, is_noticed=True)
    assert await cluster.wait_until(lambda: cluster.watch.active_controller not in (None, first), 1_000, poll_ms=1)
    cluster.crash(2, lose_power=False, is_noticed=True)
    await cluster.world.sleep_ms(1_000)


@pytest.mark.parametrize("story", [a_broker_is_killed, a_broker_is_killed_when_a_standby_has_just_taken_over])
def test_checks_catch_a_controller_that_fences_only_after_the_session_timeout(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twin(self: Probing, watch: Any, at_ms: int) -> None:
        watch.is_suspect = False

    planting = partial(plant, owner=Probing, name="_suspect", twin=twin)
    assert caught(monkeypatch, story, planting) == {"K6"}


# K7: eligible leader replicas


async def one_after_the_other_dies(cluster: SimCluster) -> None:
    """Kill the members of the ISR one after the other. The second member loses what it had written and restarts; then
    the last member is killed."""
    await produce(cluster, 20)
    third, second, first = state_of(cluster).isr
    await kill_and_settle(cluster, first)
    before = cluster.image.brokers[second]
    await kill_and_settle(cluster, second, lose_power=True)
    cluster.start(second)
    while cluster.image.brokers[second].broker_epoch == before.broker_epoch:
        await cluster.world.sleep_ms(0.2)
    cluster.crash(third, lose_power=False, is_noticed=False)
    await cluster.world.sleep_ms(1_000)


def test_checks_catch_a_replica_left_in_the_elr_after_an_unclean_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    original = partition_change._keep_eligible

    def twin(old: Any, draft: Any, enough: int, unclean_restarted: frozenset[int]) -> None:
        original(old, draft, enough, frozenset())

    planting = partial(plant, owner=partition_change, name="_keep_eligible", twin=twin)
    assert "K7" in caught(monkeypatch, one_after_the_other_dies, planting)


async def all_die_and_the_leader_loses_power(cluster: SimCluster) -> None:
    await produce(cluster, 20)
    await die_together(cluster, lose_power=True)


def test_checks_catch_electing_the_last_known_leader_without_checking_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def twin(_image: Any, _context: Any, _topic_id: Any, _index: Any, state: Any, may_lead: Any) -> int:
        last = state.last_known_elr[0] if len(state.last_known_elr) == 1 else -1
        return last if not state.elr and may_lead(last, None) else -1

    planting = partial(plant, owner=plans, name="choose_furthest", twin=twin)
    assert "M5" in caught(monkeypatch, all_die_and_the_leader_loses_power, planting)


async def writes_go_on_with_one_in_sync(cluster: SimCluster) -> None:
    first, second = [broker for broker in state_of(cluster).isr if broker != state_of(cluster).leader]
    await kill_and_settle(cluster, first)
    await kill_and_settle(cluster, second)
    await produce(cluster, 3, acks="1")


def test_checks_catch_a_high_watermark_that_advances_under_min_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LeaderState._advance

    def twin(self: LeaderState, *arguments: Any) -> bool:
        kept, self.effective_min_isr = self.effective_min_isr, 1
        moved = original(self, *arguments)
        self.effective_min_isr = kept
        return moved

    planting = partial(plant, owner=LeaderState, name="_advance", twin=twin)
    assert "K7" in caught(monkeypatch, writes_go_on_with_one_in_sync, planting)


# D: partitions


async def some_writes(cluster: SimCluster) -> None:
    await produce(cluster, 20)
    await wait_whole(cluster)


def test_checks_catch_a_high_watermark_that_ignores_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: LeaderState, *_: Any) -> bool:
        moved, self.high_watermark = self.high_watermark < self.log_end_offset, self.log_end_offset
        return moved

    planting = partial(plant, owner=LeaderState, name="_advance", twin=twin)
    assert "D4" in caught(monkeypatch, some_writes, planting)


def test_checks_catch_an_acknowledgement_before_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Partition.settle

    def twin(self: Partition) -> None:
        while self.waiting:
            self.waiting.popleft()[1].acknowledged(self, ErrorCode.NONE)
        original(self)

    planting = partial(plant, owner=Partition, name="settle", twin=twin)
    assert "D11" in caught(monkeypatch, some_writes, planting)


async def writes_that_wait(cluster: SimCluster) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(StallWatch(cluster, lambda: 0).run)
        await produce(cluster, 3, acks="1")
        await cluster.world.sleep_ms(4_000)
        nursery.cancel_scope.cancel()


def test_checks_catch_a_leader_whose_high_watermark_no_longer_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: LeaderState, *_: Any) -> bool:
        return False

    planting = partial(plant, owner=LeaderState, name="_advance", twin=twin)
    assert caught(monkeypatch, writes_that_wait, planting) == {"L6"}


# T1 and T2: batches of idempotent producers


async def an_answer_is_lost(cluster: SimCluster) -> None:
    """Drop the response to a produce request: the batch is written, and retried."""
    rule = rule_from({"api": "Produce", "action": ReplyAction.DROP, "times": 1, "after": True})
    servers, seam = cluster.shape.bootstrap_servers, cluster.world.node("producer")
    async with Producer(bootstrap_servers=servers, request_timeout_ms=1_000, seam=seam) as producer:
        await producer.send(TOPIC, b"1", partition=0)
        cluster.replies[state_of(cluster).leader].add(rule)
        await producer.send(TOPIC, b"2", partition=0)
        await producer.send(TOPIC, b"3", partition=0)


def test_checks_catch_a_leader_that_appends_a_retried_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    planting = partial(plant, owner=ProducerStates, name="check", twin=lambda *_: None)
    assert {"T1", "T2"} <= caught(monkeypatch, an_answer_is_lost, planting)


# R and M: votes and replies sent before they are durable, and uncommitted records


async def the_active_controller_dies(cluster: SimCluster) -> None:
    await kill_and_settle(cluster, cluster.watch.active_controller or 0)


def test_checks_catch_a_vote_sent_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    original = QuorumDriver._carry_out

    def twin(self: QuorumDriver, ready: Any) -> None:
        for answer in ready.answers:
            self._answers.give(answer)
        original(self, ready._replace(answers=()))

    planting = partial(plant, owner=QuorumDriver, name="_carry_out", twin=twin)
    assert {"R3", "R19"} <= caught(monkeypatch, the_active_controller_dies, planting)


def test_checks_catch_metadata_published_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: Delivery, offset: int) -> Any:
        told = [batch for batch in self._tail if batch.base_offset >= offset]
        return told, len(told)

    planting = partial(plant, owner=Delivery, name="_committed_from", twin=twin)
    assert "M9" in caught(monkeypatch, some_writes, planting)


def test_checks_catch_a_controller_reply_sent_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(self: CommandQueue, parked: Any) -> None:
        parked.asked.waiter.reply(parked.reply)

    planting = partial(plant, owner=CommandQueue, name="_park", twin=twin)
    assert "M9" in caught(monkeypatch, some_writes, planting)


# D5: the recovery point


async def a_segment_is_rolled(cluster: SimCluster) -> None:
    seam = cluster.world.node("producer")
    async with Producer(bootstrap_servers=cluster.shape.bootstrap_servers, seam=seam) as producer:
        for _ in range(12):
            await producer.send(TOPIC, bytes(100_000), partition=0)


def test_checks_catch_a_recovery_point_raised_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    original = AppendableLog._roll

    def twin(self: Any, now_ms: int) -> None:
        original(self, now_ms)
        self.recovery_point = max(self.recovery_point, self.active.base_offset)

    planting = partial(plant, owner=AppendableLog, name="_roll", twin=twin)
    assert "D5" in caught(monkeypatch, a_segment_is_rolled, planting, overrides={"log.segment.bytes": "1048576"})
