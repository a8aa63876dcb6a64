"""Partitions without a replica that is known to be complete: the replica whose log reaches furthest is elected
(KIP-966).
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control import BrokerHeartbeat, ElectLeaderless
from kraft.control.decision import ReportedLogEnd
from kraft.image import RecoveryState
from kraft.image.events import BrokerRegistrationChange, PartitionChange
from kraft.image.partitions import NO_LEADER
from tests.stages.decided_cluster import Cluster, topic_id

KEY = (topic_id(1), 0)


def lost_partition(last_known: int = 3) -> Cluster:
    """Return a cluster of three brokers that are up again, with empty ISR and ELR, before any report of a log end."""
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (3, 1, 2))
    cluster.apply([PartitionChange(topic_id(1), 0, isr=(), leader=NO_LEADER, last_known_elr=(last_known,))])
    return cluster


def told(cluster: Cluster, broker_id: int, end: int, *, epoch: int = 0, **fields: Any) -> None:
    """Let the broker report this log end now."""
    partition_epoch = cluster.partition("orders").partition_epoch
    log_end = ReportedLogEnd(partition_epoch, epoch, end, cluster.now_ms)._replace(**fields)
    session = cluster.sessions[broker_id]
    cluster.sessions[broker_id] = session._replace(log_ends={KEY: log_end}, last_heard_ms=cluster.now_ms)


def heartbeat_with_log_end(cluster: Cluster, broker_id: int) -> int:
    """Decide a heartbeat that reports the partition; return the partition's leader afterwards."""
    epoch = cluster.epoch(broker_id)
    offset = cluster.image.offset
    command = BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch, metadata_offset=offset, log_ends=(KEY,))
    reply = cluster.decide_all(command)
    assert not reply.is_fenced
    return cluster.partition("orders").leader


def test_longest_log_is_elected_instead_of_the_last_leader_that_lost_records() -> None:
    cluster = lost_partition()
    told(cluster, 1, 141)
    told(cluster, 2, 140)
    told(cluster, 3, 5)
    assert heartbeat_with_log_end(cluster, 3) == 1
    after = cluster.partition("orders")
    assert (after.isr, after.elr, after.last_known_elr) == ((1,), (), ())
    assert after.leader_recovery_state is RecoveryState.RECOVERING


def test_recovery_prefers_a_higher_last_epoch_to_a_longer_log() -> None:
    cluster = lost_partition()
    told(cluster, 1, 200, epoch=3)
    told(cluster, 2, 120, epoch=4)
    told(cluster, 3, 0, epoch=-1)
    assert heartbeat_with_log_end(cluster, 1) == 2


@pytest.mark.parametrize("tells_epochs", [True, False], ids=["", "an older release"])
def test_recovery_ignores_a_log_that_diverged_from_the_last_known_leader(
    tells_epochs: bool,
) -> None:
    """Broker 1 led in epoch 4, whose records no other replica had. Then broker 3, still in epoch 3, led again, and
    later lost the end of its log."""
    cluster = lost_partition()
    told(cluster, 1, 321, epoch=4, epochs=((0, 0), (3, 132), (4, 313)) if tells_epochs else ())
    told(cluster, 2, 223, epoch=3, epochs=((0, 0), (3, 132)))
    told(cluster, 3, 473, epoch=3, epochs=((0, 0), (3, 132)))
    assert heartbeat_with_log_end(cluster, 1) == 3


@pytest.mark.parametrize(("began", "taken"), [(472, 3), (473, 1)])
def test_recovery_accepts_a_newer_epoch_that_starts_at_the_last_known_leaders_log_end(began: int, taken: int) -> None:
    cluster = lost_partition()
    told(cluster, 1, 600, epoch=5, epochs=((3, 132), (4, began), (5, 550)))
    told(cluster, 2, 140, epoch=3, epochs=((0, 0), (3, 132)))
    told(cluster, 3, 473, epoch=3, epochs=((0, 0), (3, 132)))
    assert heartbeat_with_log_end(cluster, 1) == taken


def test_recovery_excludes_no_log_if_the_last_known_leaders_log_is_empty() -> None:
    cluster = lost_partition()
    told(cluster, 1, 577, epoch=4, epochs=((0, 0), (3, 132), (4, 541)))
    told(cluster, 2, 544, epoch=4, epochs=((0, 0), (3, 132), (4, 541)))
    told(cluster, 3, 600, epoch=-1)
    assert heartbeat_with_log_end(cluster, 1) == 1


def test_recovery_prefers_the_last_known_leader_among_equal_logs() -> None:
    cluster = lost_partition(last_known=2)
    for broker_id in (1, 2, 3):
        told(cluster, broker_id, 10)
    assert heartbeat_with_log_end(cluster, 3) == 2


def test_recovery_waits_one_session_timeout_for_replicas_without_a_report() -> None:
    cluster = lost_partition()
    told(cluster, 2, 7)
    told(cluster, 3, 5)
    since_ms = cluster.now_ms
    assert heartbeat_with_log_end(cluster, 3) == NO_LEADER
    cluster.now_ms += cluster.context().session_timeout_ms - 1
    told(cluster, 3, 5, since_ms=since_ms)
    assert heartbeat_with_log_end(cluster, 3) == NO_LEADER
    cluster.now_ms += 1
    assert heartbeat_with_log_end(cluster, 3) == 2


def test_recovery_waits_for_the_last_known_leader() -> None:
    cluster = lost_partition()
    told(cluster, 1, 7)
    told(cluster, 2, 7)
    cluster.now_ms += 2 * cluster.context().session_timeout_ms
    assert heartbeat_with_log_end(cluster, 1) == NO_LEADER
    told(cluster, 3, 7)
    cluster.fence(3)
    assert heartbeat_with_log_end(cluster, 1) == NO_LEADER


@pytest.mark.parametrize("stale", ["partition epoch", "incarnation"])
def test_recovery_ignores_outdated_reports_and_those_of_earlier_incarnations(stale: str) -> None:
    cluster = lost_partition()
    told(cluster, 2, 7)
    told(cluster, 3, 5)
    told(cluster, 1, 141)
    if stale == "partition epoch":
        told(cluster, 1, 141, partition_epoch=cluster.partition("orders").partition_epoch - 1)
    else:
        cluster.sessions[1] = cluster.sessions[1]._replace(broker_epoch=cluster.epoch(1) - 1)
    assert heartbeat_with_log_end(cluster, 3) == NO_LEADER


def test_recovery_never_elects_a_replica_of_a_fenced_broker() -> None:
    cluster = lost_partition()
    told(cluster, 1, 141)
    told(cluster, 2, 7)
    told(cluster, 3, 5)
    cluster.fence(1)
    cluster.now_ms += cluster.context().session_timeout_ms
    assert heartbeat_with_log_end(cluster, 3) == 2


def test_recovery_elects_a_leader_when_the_last_replica_is_unfenced() -> None:
    cluster = lost_partition()
    cluster.fence(3)
    told(cluster, 1, 141)
    told(cluster, 2, 141)
    told(cluster, 3, 5)
    command = BrokerHeartbeat(broker_id=3, broker_epoch=cluster.epoch(3), metadata_offset=cluster.image.offset)
    decision = cluster.decide(command)
    assert isinstance(decision.events[0], BrokerRegistrationChange)
    assert cluster.partition("orders").leader == 1


def test_recovery_elects_a_sole_replica_without_a_comparison_of_log_ends() -> None:
    cluster = Cluster()
    cluster.add_brokers(1)
    cluster.add_topic("orders", (1,))
    cluster.apply([PartitionChange(topic_id(1), 0, isr=(), leader=NO_LEADER, last_known_elr=(1,))])
    cluster.decide_all(ElectLeaderless())
    assert cluster.partition("orders").leader == 1


@pytest.mark.parametrize("rest", [{"elr": (3,)}, {"last_known_elr": (3, 1)}])
def test_recovery_elects_no_replica_without_exactly_one_last_known_leader(
    rest: dict[str, tuple[int, ...]],
) -> None:
    cluster = lost_partition()
    cluster.apply([PartitionChange(topic_id(1), 0, **rest)])  # type: ignore[arg-type]
    cluster.fence(3)
    told(cluster, 1, 141)
    told(cluster, 2, 141)
    assert heartbeat_with_log_end(cluster, 1) == NO_LEADER


def test_heartbeat_starts_elections_only_for_the_partitions_whose_log_ends_it_reports() -> None:
    cluster = Cluster()
    cluster.add_brokers(1, 2, 3)
    cluster.add_topic("orders", (3, 1, 2), (3, 1, 2), (3, 1, 2))
    for index in range(3):
        cluster.apply([PartitionChange(topic_id(1), index, isr=(), leader=NO_LEADER, last_known_elr=(3,))])
    ends = {(topic_id(1), index): ReportedLogEnd(1, 0, 7, cluster.now_ms) for index in range(3)}
    for broker_id in (1, 2, 3):
        cluster.sessions[broker_id] = cluster.sessions[broker_id]._replace(log_ends=ends)
    command = BrokerHeartbeat(
        broker_id=1,
        broker_epoch=cluster.epoch(1),
        metadata_offset=cluster.image.offset,
        log_ends=((topic_id(1), 2), (topic_id(1), 0), (topic_id(1), 2)),
    )
    decision = cluster.decide(command)
    assert decision.events == ()
    decision = cluster.decide(decision.follow_up)
    assert decision.follow_up is None
    assert [event.partition_id for event in decision.events if isinstance(event, PartitionChange)] == [2, 0]
    assert [cluster.partition("orders", index).leader for index in range(3)] == [3, NO_LEADER, 3]
