"""The controller's decisions about ElectLeaders and about the balance of preferred leaders."""

from __future__ import annotations

from typing import Any

from kraft.control import RebalanceLeaders
from kraft.control.partitions.elections import is_imbalanced
from kraft.image.events import PartitionChange
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_requests import elections
from tests.stages.decided_cluster import Cluster, topic_id

PREFERRED, UNCLEAN = 0, 1


def cluster_of_three(*partitions: tuple[int, ...]) -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", *(partitions or ((1, 2, 3), (1, 2, 3))))
    return cluster


def move(cluster: Cluster, index: int, **fields: Any) -> None:
    cluster.apply([PartitionChange(topic_id(1), index, **fields)])


def elect(cluster: Cluster, kind: int, *asked: Any, everything: bool = False) -> dict[tuple[str, int], int]:
    response = cluster.admin(ApiKey.ELECT_LEADERS, election_type=kind, topic_partitions=None if everything else asked)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


def test_requested_preferred_election_elects_the_preferred_leader() -> None:
    cluster = cluster_of_three()
    move(cluster, 0, leader=2)
    move(cluster, 1, leader=3)
    assert elect(cluster, PREFERRED, elections("orders", 0)) == {("orders", 0): ErrorCode.NONE}
    assert [cluster.partition("orders", index).leader for index in (0, 1)] == [1, 3]


def test_elect_leaders_answers_each_partition_separately() -> None:
    cluster = cluster_of_three()
    move(cluster, 1, leader=2, isr=(2, 3))
    asked = (elections("orders", 0, 1, 7), elections("gone", 0))
    assert elect(cluster, PREFERRED, *asked) == {
        ("orders", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("orders", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("orders", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_elect_leaders_for_all_partitions_omits_those_that_need_no_election() -> None:
    cluster = cluster_of_three()
    move(cluster, 1, leader=2)
    assert elect(cluster, PREFERRED, everything=True) == {("orders", 1): ErrorCode.NONE}


def test_requested_unclean_election_elects_any_active_replica() -> None:
    cluster = cluster_of_three((1, 2))
    move(cluster, 0, leader=-1, isr=(), elr=(1,), last_known_elr=(1,))
    cluster.fence(1)
    assert elect(cluster, UNCLEAN, elections("orders", 0)) == {("orders", 0): ErrorCode.NONE}
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())


def test_unclean_elect_leaders_request_is_answered_not_needed_if_the_partition_has_a_leader() -> None:
    assert elect(cluster_of_three(), UNCLEAN, elections("orders", 0)) == {("orders", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_requested_election_without_an_active_replica_fails() -> None:
    cluster = cluster_of_three((1, 2))
    move(cluster, 0, leader=-1, isr=(), elr=(1,), last_known_elr=(1,))
    cluster.fence(1, 2)
    expected = {("orders", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert elect(cluster, UNCLEAN, elections("orders", 0)) == expected


def test_elect_leaders_needs_alter_permission_on_the_cluster_and_a_known_election_type() -> None:
    cluster = cluster_of_three()
    assert cluster.admin(ApiKey.ELECT_LEADERS, election_type=9).error_code == ErrorCode.INVALID_REQUEST
    cluster.authorize = lambda *_: False
    response = cluster.admin(ApiKey.ELECT_LEADERS, election_type=PREFERRED)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_rebalance_moves_leadership_only_to_in_sync_preferred_replicas_and_in_slices() -> None:
    cluster = cluster_of_three(*[(1, 2, 3)] * 1_500)
    for index in range(1_500):
        move(cluster, index, leader=2, isr=(2, 3) if index < 10 else (1, 2, 3))
    assert is_imbalanced(cluster.image)
    decision = cluster.decide(RebalanceLeaders())
    assert len(decision.events) == 1_000
    cluster.decide_all(decision.follow_up)
    leaders = [cluster.partition("orders", index).leader for index in range(1_500)]
    assert leaders == [2] * 10 + [1] * 1_490
