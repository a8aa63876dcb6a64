"""Reassignment: new replicas are added and catch up before old ones are removed; cancellation; rejected requests."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft.control import FenceBrokers, FenceCause, FenceTarget
from kraft.control.commands import AlterPartition, PartitionProposal, ProposedMember
from kraft.control.decision import EVENTS_PER_COMMAND_MAX
from kraft.control.partitions.reassignments import PARTITIONS_PER_SLICE
from kraft.image import PartitionState
from kraft.image.events import Config, Partition, PartitionChange
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_requests import more_partitions, reassigned
from tests.stages.decided_cluster import Cluster, directory_id, topic_id

ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS


def cluster_of(brokers: int = 5, *partitions: Partition | tuple[int, ...]) -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(*range(1, brokers + 1))
    cluster.add_topic("orders", *(partitions or ((1, 2, 3),)))
    return cluster


def move(cluster: Cluster, *targets: tuple[int, ...] | None, **fields: Any) -> list[int]:
    """Reassign partitions 0, 1, … of `orders`; return their error codes."""
    response = cluster.admin(ALTER, topics=[reassigned("orders", dict(enumerate(targets)))], **fields)
    assert response.error_code == ErrorCode.NONE
    return [one.error_code for topic in response.responses for one in topic.partitions]


def in_sync(cluster: Cluster, *members: int, index: int = 0) -> int:
    """Let the leader propose this in-sync set; return the error code."""
    state = cluster.partition("orders", index)
    proposal = PartitionProposal(
        topic_id(1),
        index,
        state.leader_epoch,
        state.partition_epoch,
        tuple(ProposedMember(member, cluster.epoch(member)) for member in members),
    )
    command = AlterPartition(broker_id=state.leader, broker_epoch=cluster.epoch(state.leader), partitions=(proposal,))
    reply = cluster.decide_all(command)
    return int(reply.partitions[0].error_code)


def listed(cluster: Cluster, **fields: Any) -> dict[tuple[str, int], tuple[Any, ...]]:
    response = cluster.admin(LIST, **{"topics": None, **fields})
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in response.topics
        for one in topic.partitions
    }


def test_reassignment_adds_new_replicas_and_removes_old_ones_once_the_target_is_in_sync() -> None:
    cluster = cluster_of()
    assert move(cluster, (4, 5, 3)) == [ErrorCode.NONE]
    state = cluster.partition("orders")
    assert (state.replicas, state.isr, state.leader) == ((4, 5, 3, 1, 2), (1, 2, 3), 1)
    assert listed(cluster) == {("orders", 0): ((4, 5, 3, 1, 2), (4, 5), (1, 2))}
    assert in_sync(cluster, 1, 2, 3, 4) == ErrorCode.NONE
    assert cluster.partition("orders").is_reassigning
    epoch = cluster.partition("orders").leader_epoch
    assert in_sync(cluster, 1, 2, 3, 4, 5) == ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition("orders")
    assert (state.replicas, state.leader, state.is_reassigning) == ((4, 5, 3), 4, False)
    assert set(state.isr) == {3, 4, 5}
    assert state.leader_epoch == epoch + 1
    assert listed(cluster) == {}


def test_leader_epoch_rises_when_a_replica_is_dropped_even_if_the_leader_stays() -> None:
    cluster = cluster_of()
    assert move(cluster, (1, 2)) == [ErrorCode.NONE]
    state = cluster.partition("orders")
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1, 2), (1, 2), 1, 1)


def test_reassignment_to_a_reordered_or_smaller_in_sync_set_completes_at_once() -> None:
    cluster = cluster_of(3, (1, 2, 3), (1, 2, 3))
    assert move(cluster, (3, 1, 2), (3, 2)) == [ErrorCode.NONE, ErrorCode.NONE]
    assert cluster.partition("orders", 0).replicas == (3, 1, 2)
    assert cluster.partition("orders", 1)[:3] == ((3, 2), (2, 3), 3)
    assert listed(cluster) == {}


def test_reassignment_to_fewer_replicas_waits_until_all_of_them_are_in_sync() -> None:
    cluster = cluster_of(3, Partition(topic_id(1), 0, (1, 2, 3), (1, 3), leader=1))
    assert move(cluster, (1, 2)) == [ErrorCode.NONE]
    assert cluster.partition("orders").removing == (3,)
    assert in_sync(cluster, 1, 2, 3) == ErrorCode.NONE
    assert cluster.partition("orders").replicas == (1, 2)


def test_repeated_reassignment_to_the_same_target_changes_nothing() -> None:
    cluster = cluster_of()
    move(cluster, (4, 2, 3))
    before = cluster.partition("orders")
    assert move(cluster, (4, 2, 3)) == [ErrorCode.NONE]
    assert cluster.partition("orders") == before


def test_replica_being_added_is_still_listed_as_adding_after_a_second_target_that_contains_it() -> None:
    cluster = cluster_of()
    move(cluster, (1, 2, 4))
    assert move(cluster, (1, 2, 3, 4)) == [ErrorCode.NONE]
    assert listed(cluster) == {("orders", 0): ((1, 2, 3, 4), (4,), ())}
    assert in_sync(cluster, 1, 2, 3, 4) == ErrorCode.NONE
    assert listed(cluster) == {}


def test_second_reassignment_starts_from_all_present_replicas() -> None:
    cluster = cluster_of()
    move(cluster, (1, 2, 4))
    assert move(cluster, (1, 2, 5)) == [ErrorCode.NONE]
    assert listed(cluster) == {("orders", 0): ((1, 2, 5, 3, 4), (5,), (3, 4))}


def test_cancelled_reassignment_restores_the_original_replicas() -> None:
    cluster = cluster_of()
    before = cluster.partition("orders")
    move(cluster, (4, 5, 3))
    assert in_sync(cluster, 1, 2, 3, 4) == ErrorCode.NONE
    assert move(cluster, None) == [ErrorCode.NONE]
    after = cluster.partition("orders")
    assert set(after.replicas) == set(before.replicas)
    assert (set(after.isr), after.leader, after.is_reassigning) == ({1, 2, 3}, 1, False)
    assert after.leader_epoch > before.leader_epoch


def test_cancelling_a_reassignment_that_is_not_running_is_rejected() -> None:
    cluster = cluster_of()
    assert move(cluster, None) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def test_cancel_that_leaves_an_empty_isr_is_rejected_unless_unclean_elections_are_allowed() -> None:
    cluster = cluster_of()
    move(cluster, (4, 2, 3))
    cluster.apply([PartitionChange(topic_id(1), 0, isr=(4,), leader=4)])
    assert move(cluster, None) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert cluster.partition("orders").is_reassigning
    cluster.apply([Config(2, "orders", "unclean.leader.election.enable", "true")])
    assert move(cluster, None) == [ErrorCode.NONE]
    after = cluster.partition("orders")
    assert (after.leader, after.isr, int(after.leader_recovery_state)) == (2, (2,), 1)
    assert 4 not in after.replicas


def test_unclean_cancel_of_a_reassignment_keeps_no_removed_replica_as_last_known_leader() -> None:
    cluster = cluster_of()
    move(cluster, (4, 2, 3))
    cluster.apply([Config(2, "orders", "unclean.leader.election.enable", "true")])
    cluster.apply([PartitionChange(topic_id(1), 0, isr=(4,), leader=4)])
    cluster.fence(1, 2, 3)
    assert move(cluster, None) == [ErrorCode.NONE]
    after = cluster.partition("orders")
    assert after.leader == -1
    assert set(after.last_known_elr) | set(after.elr) <= set(after.replicas)
    assert after.last_known_elr or after.elr


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_reassignment_target_is_rejected(target: tuple[int, ...], code: ErrorCode) -> None:
    cluster = cluster_of()
    before = cluster.image
    assert move(cluster, target) == [code]
    assert cluster.image.topics == before.topics


def test_reassignment_answers_each_partition_separately() -> None:
    cluster = cluster_of(5, (1, 2, 3), (1, 2, 3))
    topics = [reassigned("orders", {0: (4, 2, 3), 1: (9,), 7: (1,)}), reassigned("gone", {0: (1,)})]
    response = cluster.admin(ALTER, topics=topics)
    assert {(t.name, p.partition_index): p.error_code for t in response.responses for p in t.partitions} == {
        ("orders", 0): ErrorCode.NONE,
        ("orders", 1): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_reassignment_of_a_partition_named_twice_is_rejected_both_times() -> None:
    cluster = cluster_of()
    topics = [reassigned("orders", {0: (4, 2, 3)}), reassigned("orders", {0: (5, 2, 3)})]
    response = cluster.admin(ALTER, topics=topics)
    assert [p.error_code for t in response.responses for p in t.partitions] == [ErrorCode.INVALID_REQUEST] * 2
    assert not cluster.partition("orders").is_reassigning


def test_reassignment_that_changes_the_replication_factor_is_rejected_if_disallowed() -> None:
    cluster = cluster_of()
    assert move(cluster, (1, 2), allow_replication_factor_change=False) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert move(cluster, (4, 2, 3), allow_replication_factor_change=False) == [ErrorCode.NONE]
    assert move(cluster, (5, 2, 3), allow_replication_factor_change=False) == [ErrorCode.NONE]
    assert move(cluster, (5, 2, 3, 4), allow_replication_factor_change=False) == [ErrorCode.INVALID_REPLICATION_FACTOR]


def test_reassigned_replicas_keep_their_directories_and_new_ones_get_one() -> None:
    cluster = Cluster()
    for broker in (1, 2, 3, 4):
        cluster.add_broker(broker, directories=2)
    held = tuple(directory_id(broker, 1) for broker in (1, 2, 3))
    cluster.add_topic("orders", Partition(topic_id(1), 0, (1, 2, 3), (1, 2, 3), leader=1, directories=held))
    move(cluster, (4, 3, 2))
    state = cluster.partition("orders")
    assert [state.directory_of(broker) for broker in (1, 2, 3)] == list(held)
    assert state.directory_of(4) in (directory_id(4, 0), directory_id(4, 1))
    assert in_sync(cluster, 1, 2, 3, 4) == ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition("orders")
    assert (state.replicas, len(state.directories)) == ((4, 3, 2), 3)
    assert state.directory_of(3) == held[2]


def test_reassignment_survives_the_death_of_a_new_replica_and_completes_on_its_return() -> None:
    cluster = cluster_of()
    move(cluster, (4, 2, 3))
    assert in_sync(cluster, 1, 2, 3) == ErrorCode.NONE
    target = FenceTarget(4, cluster.epoch(4), cluster.sessions[4].connection_number)
    cluster.decide_all(FenceBrokers(targets=(target,), cause=FenceCause.PROCESS_DIED))
    assert cluster.partition("orders").is_reassigning
    assert in_sync(cluster, 1, 2, 3, 4) == ErrorCode.INELIGIBLE_REPLICA
    assert move(cluster, None) == [ErrorCode.NONE]
    assert set(cluster.partition("orders").replicas) == {1, 2, 3}


def test_death_of_the_last_old_in_sync_replica_does_not_complete_a_reassignment() -> None:
    cluster = cluster_of(4, Partition(topic_id(1), 0, (1, 2), (1, 2), leader=1))
    move(cluster, (1, 3))
    target = FenceTarget(2, cluster.epoch(2), cluster.sessions[2].connection_number)
    cluster.decide_all(FenceBrokers(targets=(target,), cause=FenceCause.PROCESS_DIED))
    state = cluster.partition("orders")
    assert (state.isr, state.replicas, state.removing) == ((1,), (1, 3, 2), (2,))
    assert in_sync(cluster, 1, 3) == ErrorCode.NONE
    assert cluster.partition("orders").replicas == (1, 3)


def test_create_partitions_on_a_topic_being_reassigned_is_rejected() -> None:
    cluster = cluster_of()
    move(cluster, (4, 2, 3))
    response = cluster.admin(ApiKey.CREATE_PARTITIONS, topics=[more_partitions("orders", 5)])
    assert response.results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_list_reassignments_returns_only_requested_partitions_being_reassigned() -> None:
    cluster = cluster_of(5, (1, 2, 3), (1, 2, 3), (1, 2, 3))
    move(cluster, (4, 2, 3), (5, 2, 3))
    part = listing("orders", 1, 2, 9)
    assert list(listed(cluster, topics=[part, listing("gone", 0)])) == [("orders", 1)]
    assert len(listed(cluster)) == 2


def listing(topic: str, *indexes: int) -> dict[str, Any]:
    return {"name": topic, "partition_indexes": indexes}


def test_large_reassignment_is_decided_in_slices_and_answered_once() -> None:
    count = 2 * PARTITIONS_PER_SLICE + 1
    cluster = cluster_of(4, *((1, 2, 3) for _ in range(count)))
    command = cluster.admin_request(ALTER, topics=[reassigned("orders", dict.fromkeys(range(count), (4, 2, 3)))])
    first = cluster.decide(command)
    assert (len(first.events), first.reply) == (PARTITIONS_PER_SLICE, None)
    reply = cluster.decide_all(first.follow_up)
    assert [one.error_code for one in reply.responses[0].partitions] == [ErrorCode.NONE] * count
    assert len(listed(cluster)) == count


def test_reassignment_request_that_is_too_large_is_rejected() -> None:
    cluster = cluster_of()
    wanted = dict.fromkeys(range(EVENTS_PER_COMMAND_MAX + 1), (1,))
    response = cluster.admin(ALTER, topics=[reassigned("orders", wanted)])
    assert response.error_code == ErrorCode.POLICY_VIOLATION


def test_reassignment_requests_need_permission() -> None:
    cluster = cluster_of()
    cluster.authorize = lambda _requester, operation, _type, _name: operation == "DESCRIBE"
    response = cluster.admin(ALTER, topics=[reassigned("orders", {0: (4, 2, 3)})])
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster.authorize = lambda _requester, operation, _type, _name: operation == "ALTER"
    assert cluster.admin(LIST, topics=None).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("seed", range(30))
def test_isr_keeps_an_old_member_until_the_reassignment_target_is_in_sync(seed: int) -> None:
    draw = random.Random(seed)
    cluster = cluster_of(6, (1, 2, 3))
    cluster.apply([Config(2, "orders", "min.insync.replicas", str(1 + seed % 3))])
    for _ in range(60):
        before = cluster.partition("orders")
        random_step(draw, cluster, before)
        after = cluster.partition("orders")
        check_step(before, after)


def random_step(draw: random.Random, cluster: Cluster, state: PartitionState) -> None:
    kind = draw.choice(("move", "cancel", "expand", "expand", "shrink", "fence", "unfence"))
    if kind == "move":
        move(cluster, tuple(draw.sample(range(1, 7), draw.choice((1, 2, 3, 4)))))
    elif kind == "cancel":
        move(cluster, None)
    elif kind == "fence":
        broker = draw.randrange(1, 7)
        if not cluster.image.brokers[broker].fenced:
            target = FenceTarget(broker, cluster.epoch(broker), cluster.sessions[broker].connection_number)
            cluster.decide_all(FenceBrokers(targets=(target,), cause=FenceCause.PROCESS_DIED))
    elif kind == "unfence":
        unfence_all(cluster)
    elif state.leader >= 0:
        up = [one for one in state.replicas if not cluster.image.brokers[one].fenced]
        if kind == "expand":
            in_sync(cluster, *{*state.isr, draw.choice(up)})
        else:
            in_sync(cluster, *{state.leader, *draw.sample(state.isr, draw.randint(0, len(state.isr)))})


def unfence_all(cluster: Cluster) -> None:
    from kraft.control import ElectLeaderless
    from kraft.image.events import BrokerRegistrationChange

    for broker in cluster.image.sorted_brokers():
        if broker.fenced:
            cluster.apply([BrokerRegistrationChange(broker.broker_id, broker.broker_epoch, fenced=False)])
    cluster.decide_all(ElectLeaderless())


def check_step(before: PartitionState, after: PartitionState) -> None:
    assert len(set(after.replicas)) == len(after.replicas)
    assert set(after.isr) | set(after.elr) | set(after.last_known_elr) <= set(after.replicas)
    assert after.isr or after.elr or after.last_known_elr
    assert after.leader == -1 or after.leader in after.isr
    assert set(after.adding) <= set(after.replicas)
    assert set(after.removing) <= set(after.replicas)
    dropped = set(before.replicas) - set(after.replicas)
    if dropped and (before.isr or after.isr):
        assert after.isr, "removals leave an in-sync replica"
        assert after.leader_epoch > before.leader_epoch
    elif before.isr and after.isr:
        assert set(after.isr) & {*before.isr, *before.elr}, "a complete replica is still in sync"
