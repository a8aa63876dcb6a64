"""AlterPartition: the table of its errors, in order, and the effects of an accepted proposal."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control import AlterPartition
from kraft.control.commands import PartitionProposal, ProposedMember
from kraft.control.replies import AlteredPartitionReply
from kraft.image import RecoveryState
from kraft.image.events import BrokerRegistrationChange, Partition, PartitionChange
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire.error_codes import ErrorCode
from tests.stages.decided_cluster import Cluster, directory_id, topic_id


def cluster_of_three() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (1, 2, 3), (2, 3, 1))
    return cluster


def placed_cluster() -> Cluster:
    """Return a cluster whose replicas are assigned to these log directories."""
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    replicas = (1, 2, 3)
    placed = tuple(directory_id(one) for one in replicas)
    cluster.add_topic("orders", Partition(topic_id(1), 0, replicas, replicas, leader=1, directories=placed))
    return cluster


def proposal(cluster: Cluster, *isr: int, **changed: Any) -> PartitionProposal:
    state = cluster.partition("orders", changed.get("partition_id", 0) if changed.get("partition_id", 0) < 2 else 0)
    members = tuple(ProposedMember(one, cluster.epoch(one) if one in cluster.image.brokers else -1) for one in isr)
    whole = PartitionProposal(topic_id(1), 0, state.leader_epoch, state.partition_epoch, members)
    return whole._replace(**changed)


def alter(cluster: Cluster, *proposals: PartitionProposal, sender: int = 1, **changed: Any) -> Any:
    fields = {"broker_epoch": cluster.epoch(sender), **changed}
    return cluster.decide_all(AlterPartition(broker_id=sender, partitions=proposals, **fields))


def answer(cluster: Cluster, *isr: int, sender: int = 1, **changed: Any) -> AlteredPartitionReply:
    reply = alter(cluster, proposal(cluster, *isr, **changed), sender=sender)
    assert reply.error_code is ErrorCode.NONE
    only: AlteredPartitionReply = reply.partitions[0]
    return only


def test_accepted_alter_partition_changes_the_isr_and_returns_the_new_epoch() -> None:
    cluster = cluster_of_three()
    told = answer(cluster, 1, 3)
    assert told == AlteredPartitionReply(
        topic_id=topic_id(1), partition_id=0, leader=1, leader_epoch=0, isr=(1, 3), partition_epoch=1
    )
    assert cluster.partition("orders").isr == (1, 3)


def test_replica_in_an_offline_directory_may_not_join_the_isr() -> None:
    cluster = placed_cluster()
    answer(cluster, 1, 2)
    here = directory_id(3)
    broker = cluster.image.brokers[3]
    cluster.apply([BrokerRegistrationChange(3, broker.broker_epoch, log_dirs=(LOST_DIRECTORY,))])
    assert answer(cluster, 1, 2, 3).error_code is ErrorCode.INELIGIBLE_REPLICA
    cluster.apply([BrokerRegistrationChange(3, broker.broker_epoch, log_dirs=(here,))])
    assert answer(cluster, 1, 2, 3).isr == (1, 2, 3)


def test_replica_whose_directory_is_going_offline_may_leave_but_not_join_the_isr() -> None:
    cluster = placed_cluster()
    answer(cluster, 1, 2)
    cluster.directories_going_offline = frozenset({directory_id(3)})
    assert answer(cluster, 1, 2, 3).error_code is ErrorCode.INELIGIBLE_REPLICA
    cluster.directories_going_offline = frozenset({directory_id(2)})
    assert answer(cluster, 1, 2, 3).isr == (1, 2, 3), "who is in sync is not judged by this"


def test_joining_replica_leads_at_once_if_the_leaders_directory_is_going_offline() -> None:
    cluster = placed_cluster()
    answer(cluster, 1)
    cluster.directories_going_offline = frozenset({directory_id(1)})
    assert answer(cluster, 1, 3).error_code is ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition("orders")
    assert (state.leader, state.isr) == (3, (1, 3)), "the loss itself takes the old leader out"


def test_proposed_isr_is_stored_in_the_order_of_the_replica_assignment() -> None:
    cluster = cluster_of_three()
    answer(cluster, 1)
    assert answer(cluster, 3, 1, 2).isr == (1, 2, 3)


def test_alter_partition_that_changes_nothing_writes_nothing() -> None:
    cluster = cluster_of_three()
    decision = cluster.decide(
        AlterPartition(broker_id=1, broker_epoch=cluster.epoch(1), partitions=(proposal(cluster, 1, 2, 3),))
    )
    assert decision.events == ()
    assert decision.reply.partitions[0].partition_epoch == 0


def test_alter_partition_with_a_stale_broker_epoch_is_rejected_as_a_whole() -> None:
    cluster = cluster_of_three()
    for wrong in (cluster.epoch(1) - 1, cluster.epoch(1) + 100):
        reply = alter(cluster, proposal(cluster, 1, 2), broker_epoch=wrong)
        assert (reply.error_code, reply.partitions) == (ErrorCode.STALE_BROKER_EPOCH, ())
    assert cluster.partition("orders").isr == (1, 2, 3)


MATRIX: list[tuple[dict[str, Any], tuple[int, ...], int, ErrorCode]] = [
    ({"topic_id": topic_id(9)}, (1, 2), 1, ErrorCode.UNKNOWN_TOPIC_ID),
    ({"partition_id": 7}, (1, 2), 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"leader_epoch": 1}, (1, 2), 1, ErrorCode.NOT_CONTROLLER),
    ({"partition_epoch": 1}, (1, 2), 1, ErrorCode.NOT_CONTROLLER),
    ({"leader_epoch": -1}, (1, 2), 1, ErrorCode.FENCED_LEADER_EPOCH),
    ({}, (1, 2), 2, ErrorCode.INVALID_REQUEST),
    ({"partition_epoch": -1}, (1, 2), 1, ErrorCode.INVALID_UPDATE_VERSION),
    ({}, (1, 4), 1, ErrorCode.INVALID_REQUEST),
    ({}, (1, 1), 1, ErrorCode.INVALID_REQUEST),
    ({}, (2, 3), 1, ErrorCode.INVALID_REQUEST),
    ({}, (), 1, ErrorCode.INVALID_REQUEST),
    ({"leader_recovery_state": 1}, (1,), 1, ErrorCode.INVALID_REQUEST),
    ({"leader_recovery_state": 7}, (1,), 1, ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("changed", "isr", "sender", "expected"), MATRIX)
def test_each_invalid_alter_partition_proposal_is_rejected_with_its_error_code(
    changed: dict[str, Any], isr: tuple[int, ...], sender: int, expected: ErrorCode
) -> None:
    cluster = cluster_of_three()
    assert answer(cluster, *isr, sender=sender, **changed).error_code is expected
    assert cluster.partition("orders").isr == (1, 2, 3)


@pytest.mark.parametrize("kind", ["fenced", "shutting down", "unregistered", "being fenced", "old epoch"])
def test_alter_partition_with_an_ineligible_member_is_rejected(kind: str) -> None:
    cluster = cluster_of_three()
    answer(cluster, 1)
    members = proposal(cluster, 1, 2).new_isr
    if kind == "fenced":
        cluster.fence(2)
    elif kind == "shutting down":
        cluster.apply([BrokerRegistrationChange(2, cluster.epoch(2), in_controlled_shutdown=True)])
    elif kind == "unregistered":
        cluster.image = cluster.image.__class__(
            **{
                **{name: getattr(cluster.image, name) for name in cluster.image.__dataclass_fields__},
                "brokers": cluster.image.brokers.remove(2),
            }
        )
    elif kind == "being fenced":
        cluster.being_fenced = frozenset((2,))
    else:
        members = (members[0], ProposedMember(2, cluster.epoch(2) - 1))
    assert answer(cluster, 1, 2, new_isr=members).error_code is ErrorCode.INELIGIBLE_REPLICA


def test_alter_partition_accepts_a_member_with_an_unknown_epoch() -> None:
    cluster = cluster_of_three()
    members = (ProposedMember(1, -1), ProposedMember(2, -1))
    assert answer(cluster, new_isr=members).error_code is ErrorCode.NONE


def recovering() -> Cluster:
    cluster = cluster_of_three()
    change = PartitionChange(topic_id(1), 0, isr=(1,), leader=1, leader_recovery_state=RecoveryState.RECOVERING)
    cluster.apply([change])
    return cluster


def test_recovering_leader_may_not_have_followers_in_the_isr() -> None:
    cluster = recovering()
    assert answer(cluster, 1, 2, leader_recovery_state=1).error_code is ErrorCode.INVALID_REQUEST


def test_alter_partition_records_the_leaders_recovery() -> None:
    cluster = recovering()
    told = answer(cluster, 1, leader_recovery_state=0)
    assert (told.error_code, told.leader_recovery_state) == (ErrorCode.NONE, 0)
    assert cluster.partition("orders").leader_recovery_state is RecoveryState.RECOVERED


def test_alter_partition_that_completes_a_reassignment_reports_a_new_leader() -> None:
    cluster = cluster_of_three()
    cluster.apply([PartitionChange(topic_id(1), 0, isr=(1,), replicas=(2, 3, 1), adding=(2, 3), removing=(1,))])
    told = answer(cluster, 1, 2, 3)
    assert told.error_code is ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.leader, partition.isr) == ((2, 3), 2, (2, 3))


def test_each_alter_partition_proposal_succeeds_or_fails_alone() -> None:
    cluster = cluster_of_three()
    reply = alter(cluster, proposal(cluster, 1, 2), proposal(cluster, 1, 2, topic_id=topic_id(9)))
    assert [one.error_code for one in reply.partitions] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


def test_alter_partition_rejects_a_partition_named_a_second_time() -> None:
    cluster = cluster_of_three()
    reply = alter(cluster, proposal(cluster, 1, 2), proposal(cluster, 1, 3))
    assert [one.error_code for one in reply.partitions] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_large_alter_partition_is_answered_once_after_its_slices() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    cluster.add_topic("orders", *[(1, 2)] * 2_500)
    proposals = tuple(proposal(cluster, 1)._replace(partition_id=index) for index in range(2_500))
    command = AlterPartition(broker_id=1, broker_epoch=cluster.epoch(1), partitions=proposals)
    decision = cluster.decide(command)
    assert len(decision.events) == 1_000
    reply = cluster.decide_all(decision.follow_up)
    assert [one.partition_id for one in reply.partitions] == list(range(2_500))
    assert {one.error_code for one in reply.partitions} == {ErrorCode.NONE}
