"""Tests of the blocking client's metadata, offsets and coordinators, against scripted brokers that reject requests or
hang, and against a real cluster whose leader is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import confluent_kafka
import pytest

from kraft.client.core.records import CommittedOffset, KafkaError
from kraft.client.core.topology import LeaderAndEpoch
from kraft.client.spark.blocking.cluster import MAX_TIMESTAMP, SyncCluster
from kraft.client.spark.blocking.retries import BrokerUnreachable, ClusterUnreachable, RetriableError
from kraft.client.spark.settings import EARLIEST, LATEST, ConnectionSettings
from kraft.seam import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.client.spark.scripted_brokers import TOPIC, TOPIC_ID, Brokers, scripted_brokers
from tests.client.spark.topic_records import create_topic, numbered, write_records
from tests.stages.started_clusters import LocalCluster

PARTITION = (TOPIC, 0)
NOWHERE = Address("127.0.0.1", 1)


def knowing(brokers: Brokers, *, timeout_ms: int = 5_000) -> SyncCluster:
    return SyncCluster(ConnectionSettings(bootstrap=brokers.bootstrap, request_timeout_ms=timeout_ms))


def test_sync_cluster_refresh_stores_brokers_topics_topic_ids_and_leaders() -> None:
    with scripted_brokers(Brokers(leader=1, leader_epoch=4), 2) as brokers, knowing(brokers) as cluster:
        topic = cluster.wait_topics([TOPIC])[TOPIC]
        assert (topic.topic_id, topic.leaders) == (TOPIC_ID, {0: LeaderAndEpoch(1, 4)})
        assert [broker.address for broker in cluster.brokers.values()] == brokers.addresses
        assert cluster.cluster_id == "scripted"


def test_sync_cluster_ignores_an_older_leader_epoch_unless_the_topic_was_recreated() -> None:
    with scripted_brokers(Brokers(leader=1, leader_epoch=4), 2) as brokers, knowing(brokers) as cluster:
        cluster.refresh([TOPIC])
        brokers.leader, brokers.leader_epoch = 0, 3
        cluster.refresh([TOPIC])
        assert cluster.leader_of(PARTITION) == LeaderAndEpoch(1, 4)
        brokers.topic_id = None
        cluster.refresh([TOPIC])
        assert cluster.leader_of(PARTITION) == LeaderAndEpoch(0, 3)


def test_sync_cluster_uses_another_broker_if_one_hangs_on_a_request_that_any_can_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kraft.client.spark.blocking.cluster.METADATA_TIMEOUT_MS", 100)
    with scripted_brokers(Brokers(hung={0}), 2) as brokers, knowing(brokers) as cluster:
        cluster.refresh([TOPIC])
        cluster.refresh([TOPIC])
        assert {*brokers.asked} == {(1, ApiKey.METADATA)}


def test_sync_cluster_error_without_a_reachable_broker_names_each_address_and_its_failure() -> None:
    settings = ConnectionSettings(bootstrap=(NOWHERE, replace(NOWHERE, port=2)), request_timeout_ms=500)
    with SyncCluster(settings) as cluster, pytest.raises(ClusterUnreachable) as caught:
        cluster.wait_topics([TOPIC])
    text = str(caught.value)
    assert "within 500 ms (bootstrap 127.0.0.1:1,127.0.0.1:2)" in text
    assert "no connection to 127.0.0.1:1 (Connection refused); no connection to 127.0.0.1:2" in text


def test_sync_cluster_error_for_an_unreachable_leader_names_bootstrap_and_advertised_address() -> None:
    with scripted_brokers(Brokers(leader=1), 2) as brokers, knowing(brokers, timeout_ms=1_000) as cluster:
        brokers.advertised[1] = NOWHERE
        with pytest.raises(BrokerUnreachable) as caught:
            cluster.list_offsets({PARTITION: LATEST})
    text = str(caught.value)
    assert f"broker 1 could not be reached within 1000 ms at its advertised address {NOWHERE}" in text
    assert f"(bootstrap {brokers.addresses[0]},{brokers.addresses[1]})" in text
    assert "advertised.listeners" in text


def test_list_offsets_is_retried_when_the_leader_has_moved() -> None:
    moved = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE]
    with scripted_brokers(Brokers(offsets={LATEST: 9}, offset_errors=moved)) as brokers, knowing(brokers) as cluster:
        assert cluster.list_offsets({PARTITION: LATEST})[PARTITION].offset == 9
        assert [key for _, key in brokers.asked] == [ApiKey.METADATA, ApiKey.LIST_OFFSETS] * 3


def test_list_offsets_raises_a_nonretriable_error_at_once() -> None:
    refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with scripted_brokers(Brokers(offset_errors=refused)) as brokers, knowing(brokers) as cluster:
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: t-0"):
            cluster.list_offsets({PARTITION: LATEST})
        assert [key for _, key in brokers.asked] == [ApiKey.METADATA, ApiKey.LIST_OFFSETS]


def test_list_offsets_of_a_leaderless_partition_retries_until_the_request_timeout() -> None:
    with scripted_brokers(Brokers(leader=-1)) as brokers, knowing(brokers, timeout_ms=1_000) as cluster:
        with pytest.raises(KafkaError, match="t-0 has no leader now"):
            cluster.list_offsets({PARTITION: LATEST})
        assert len(brokers.asked) > 1


def test_sync_cluster_error_for_a_missing_topic_or_partition_comes_before_the_request_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kraft.client.spark.blocking.cluster.MISSING_TOPIC_MS", 50)
    with scripted_brokers(Brokers()) as brokers, knowing(brokers, timeout_ms=600_000) as cluster:
        with pytest.raises(KafkaError, match="no partition t-7"):
            cluster.list_offsets({(TOPIC, 7): LATEST})
        brokers.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match="topic t: it does not exist"):
            cluster.wait_topics([TOPIC])
        with pytest.raises(RetriableError):
            cluster.leader_of(PARTITION)


def test_closing_a_sync_cluster_closes_all_its_connections() -> None:
    with scripted_brokers(Brokers()) as brokers:
        with knowing(brokers) as cluster:
            cluster.refresh([TOPIC])
            link = cluster.link(0)
        assert link.is_closed


# a real cluster


@pytest.fixture
def real(cluster: LocalCluster) -> Iterator[SyncCluster]:
    addresses = tuple(Address(host, port) for host, port in cluster.addresses)
    with SyncCluster(ConnectionSettings(bootstrap=addresses)) as known:
        yield known


@pytest.mark.interop
def test_list_offsets_finds_the_log_ends_and_offsets_by_time_and_the_newest_timestamp(
    cluster: LocalCluster, real: SyncCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=4)
    write_records(cluster.bootstrap, topic, numbered(40, partitions=4, timestamp_ms=1_000))
    partitions = [(topic, index) for index in range(4)]

    def offsets(target: int) -> list[int]:
        return [at.offset for at in real.list_offsets(dict.fromkeys(partitions, target)).values()]

    assert offsets(EARLIEST) == [0, 0, 0, 0]
    assert offsets(LATEST) == [10, 10, 10, 10]
    assert offsets(MAX_TIMESTAMP) == [9, 9, 9, 9]
    assert offsets(1_020) == [5, 5, 5, 5]
    assert offsets(2_000) == [-1, -1, -1, -1]
    newest = real.list_offsets({partitions[0]: 1_020})[partitions[0]]
    assert (newest.timestamp_ms, newest.leader_epoch) == (1_020, 0)


@pytest.mark.interop
def test_sync_cluster_refresh_of_all_topics_includes_new_topics(
    cluster: LocalCluster, real: SyncCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=3, replication_factor=3)
    real.wait_topics([topic])
    real.refresh(None)
    assert list(real.topics[topic].leaders) == [0, 1, 2]
    assert len(real.brokers) == 3


@pytest.mark.interop
def test_sync_cluster_commits_offsets_of_a_group_without_members(
    cluster: LocalCluster, real: SyncCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=2)
    done = real.offset_commit(
        topic, {(topic, 0): CommittedOffset(7, -1, "spark 1"), (topic, 1): CommittedOffset(8, -1, "spark 2")}
    )
    assert done == {(topic, 0): ErrorCode.NONE, (topic, 1): ErrorCode.NONE}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    asked = [confluent_kafka.TopicPartition(topic, index) for index in range(2)]
    committed = consumer.committed(asked, timeout=20)
    consumer.close()
    assert [(one.offset, one.metadata) for one in committed] == [(7, "spark 1"), (8, "spark 2")]
    assert real.find_coordinator(topic) in real.brokers


@pytest.mark.interop
def test_sync_cluster_commit_for_a_group_with_members_is_rejected_per_partition(
    cluster: LocalCluster, real: SyncCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    try:
        assert real.offset_commit(topic, {(topic, 0): CommittedOffset(7)}) == {(topic, 0): ErrorCode.UNKNOWN_MEMBER_ID}
    finally:
        consumer.close()


@pytest.mark.interop
def test_list_offsets_succeeds_at_the_new_leader_after_the_leader_was_killed(
    cluster: LocalCluster, real: SyncCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1, replication_factor=3)
    write_records(cluster.bootstrap, topic, numbered(5))
    cluster.wait_in_sync(topic, 3)
    real.wait_topics([topic])
    before = real.leader_of((topic, 0))
    with cluster.killed(before.node_id):
        assert real.list_offsets({(topic, 0): LATEST})[topic, 0].offset == 5
        after = real.leader_of((topic, 0))
    assert after.node_id != before.node_id
    assert after.epoch > before.epoch
