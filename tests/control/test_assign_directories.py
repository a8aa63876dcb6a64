"""AssignReplicasToDirs: a replica that is in no directory leaves ISR and ELR; one that is back may lead again."""

from __future__ import annotations

from uuid import UUID

from kraft.control import AssignReplicasToDirs
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.control.test_brokers import heartbeat
from tests.stages.decided_cluster import Cluster, directory_id, topic_id

ORDERS = topic_id(1)


def three_brokers() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (1, 2, 3), (2, 3, 1))
    return cluster


def assign(cluster: Cluster, broker_id: int, directory: UUID, partition: int = 0, *, epoch: int | None = None) -> int:
    command = AssignReplicasToDirs(
        broker_id=broker_id,
        broker_epoch=cluster.epoch(broker_id) if epoch is None else epoch,
        assignments=((ORDERS, partition, directory),),
    )
    return int(cluster.decide_all(command).error_code)


def test_leader_whose_replica_is_in_no_directory_leaves_the_isr_and_another_leads_in_a_new_epoch() -> None:
    cluster = three_brokers()
    before = cluster.partition("orders")
    assert assign(cluster, 1, LOST_DIRECTORY) == ErrorCode.NONE
    after = cluster.partition("orders")
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.directory_of(1) == LOST_DIRECTORY
    assert cluster.partition("orders", 1).leader == 2
    assert 1 in cluster.partition("orders", 1).isr


def test_follower_whose_replica_is_in_no_directory_leaves_the_isr_and_the_leader_stays() -> None:
    cluster = three_brokers()
    assign(cluster, 3, LOST_DIRECTORY)
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (1, (1, 2))


def test_replica_in_no_directory_does_not_enter_the_elr_when_the_isr_becomes_too_small() -> None:
    cluster = three_brokers()
    cluster.admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[_min_isr_2()])
    for broker_id in (3, 2):
        assign(cluster, broker_id, LOST_DIRECTORY)
    assign(cluster, 1, LOST_DIRECTORY)
    state = cluster.partition("orders")
    assert (state.leader, state.isr, state.elr) == (-1, (), ())
    for broker_id in (1, 2, 3):
        cluster.decide_all(heartbeat(cluster, broker_id, want_fence=True))
        cluster.decide_all(heartbeat(cluster, broker_id))
        assign(cluster, broker_id, directory_id(broker_id))
    assert cluster.partition("orders").leader == -1, "an empty log must not lead without an unclean election"


def _min_isr_2() -> dict[str, object]:
    return {
        "resource_type": 2,
        "resource_name": "orders",
        "configs": [{"name": "min.insync.replicas", "config_operation": 0, "value": "2"}],
    }


def test_replica_that_was_in_no_directory_leads_again_only_once_it_is_in_a_directory() -> None:
    cluster = Cluster()
    cluster.add_broker(1)
    cluster.add_topic("orders", (1,))
    assign(cluster, 1, LOST_DIRECTORY)
    assert cluster.partition("orders").leader == -1
    cluster.decide_all(heartbeat(cluster, 1, want_fence=True))
    cluster.decide_all(heartbeat(cluster, 1))
    assert cluster.partition("orders").leader == -1
    assert assign(cluster, 1, directory_id(1)) == ErrorCode.NONE
    assert cluster.partition("orders").leader == 1


def test_assignment_of_an_already_known_directory_changes_nothing() -> None:
    cluster = three_brokers()
    assign(cluster, 1, directory_id(1))
    state = cluster.partition("orders")
    assert (state.leader, state.isr, state.directory_of(1)) == (1, (1, 2, 3), directory_id(1))
    offset = cluster.image.offset
    assign(cluster, 1, directory_id(1))
    assert cluster.image.offset == offset


def test_directory_assignments_of_old_incarnations_or_unknown_partitions_are_ignored() -> None:
    cluster = three_brokers()
    assert assign(cluster, 1, LOST_DIRECTORY, epoch=0) == ErrorCode.STALE_BROKER_EPOCH
    assert assign(cluster, 1, LOST_DIRECTORY, partition=7) == ErrorCode.NONE
    assert cluster.partition("orders").leader == 1


def test_many_directory_assignments_are_decided_in_slices_with_one_reply() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    cluster.add_topic("orders", *[(1, 2)] * 2_500)
    command = AssignReplicasToDirs(
        broker_id=1,
        broker_epoch=cluster.epoch(1),
        assignments=tuple((ORDERS, index, LOST_DIRECTORY) for index in range(2_500)),
    )
    decision = cluster.decide(command)
    assert len(decision.events) == 1_000
    assert decision.follow_up is not None
    assert cluster.decide_all(decision.follow_up).error_code == ErrorCode.NONE
    assert all(cluster.partition("orders", index).leader == 2 for index in range(2_500))
