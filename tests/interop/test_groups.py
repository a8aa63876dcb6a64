"""Foreign consumer groups cannot tell the difference: sharing, every assignor, static members, commits, kills."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.clusters import LocalCluster, running
from tests.interop.members import MEMBERS, SESSION_MS, wait_owned, wait_read

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

PARTITIONS = 4
RECORDS = 200
KILLS = 3
ASSIGNORS = [(name, assignor) for name, member in MEMBERS.items() for assignor in member.assignors]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def produce(cluster: LocalCluster, topic: str, prefix: str, count: int = RECORDS) -> set[str]:
    """Acknowledged records on all partitions; their values."""
    failures: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    values = [f"{prefix}-{number}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, None, number % PARTITIONS, lambda error, _message: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None] * count
    return set(values)


def coordinator(cluster: LocalCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(30)
    node: int = described.coordinator.id
    return node


@pytest.mark.parametrize(("name", "assignor"), ASSIGNORS)
def test_two_members_share_a_topic_and_each_record_is_read_once(
    cluster: LocalCluster, name: str, assignor: str
) -> None:
    topic = group = f"share-{name}-{assignor}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    first = MEMBERS[name](cluster.bootstrap, topic, group, assignor=assignor)
    wait_owned([first], PARTITIONS)
    second = MEMBERS[name](cluster.bootstrap, topic, group, assignor=assignor)
    wait_owned([first, second], PARTITIONS)
    expected = produce(cluster, topic, "shared")
    wait_read([first, second], expected)
    assert sorted(first.values + second.values) == sorted(expected)
    assert first.values
    assert second.values
    second.stop()
    wait_owned([first], PARTITIONS)
    first.stop()


@pytest.mark.parametrize("name", MEMBERS)
def test_a_group_goes_on_where_it_stopped(cluster: LocalCluster, name: str) -> None:
    topic = group = f"resume-{name}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    old = produce(cluster, topic, "old")
    first = MEMBERS[name](cluster.bootstrap, topic, group)
    wait_read([first], old)
    first.stop()
    new = produce(cluster, topic, "new")
    second = MEMBERS[name](cluster.bootstrap, topic, group)
    wait_read([second], new)
    second.stop()
    assert set(second.values) == new, "nothing that was committed is read again"


@pytest.mark.parametrize("name", MEMBERS)
def test_a_static_member_that_returns_moves_no_partition(cluster: LocalCluster, name: str) -> None:
    topic = group = f"static-{name}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    stays = MEMBERS[name](cluster.bootstrap, topic, group, instance_id="stays")
    returns = MEMBERS[name](cluster.bootstrap, topic, group, instance_id="returns")
    wait_owned([stays, returns], PARTITIONS)
    held, moved = set(stays.owned), set(returns.owned)
    returns.stop()
    again = MEMBERS[name](cluster.bootstrap, topic, group, instance_id="returns")
    deadline = time.monotonic() + SESSION_MS / 1000
    while again.owned != moved and time.monotonic() < deadline:
        assert stays.owned == held
        time.sleep(0.05)
    assert (stays.owned, again.owned) == (held, moved)
    stays.stop()
    again.stop()


@pytest.mark.parametrize("name", MEMBERS)
def test_no_record_is_lost_to_a_group_whose_coordinator_is_killed(cluster: LocalCluster, name: str) -> None:
    topic = group = f"kills-{name}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    members = [MEMBERS[name](cluster.bootstrap, topic, group) for _ in range(2)]
    wait_owned(members, PARTITIONS)
    expected = produce(cluster, topic, "before")
    for number in range(KILLS):
        killed = coordinator(cluster, group)
        cluster.kill(killed)
        expected |= produce(cluster, topic, f"round{number}")
        wait_read(members, expected)
        cluster.start(killed)
        cluster.wait_in_sync(topic, 3)
        cluster.wait_in_sync("__consumer_offsets", 3)
    for member in members:
        member.stop()
    late = produce(cluster, topic, "late")
    successor = MEMBERS[name](cluster.bootstrap, topic, group)
    wait_read([successor], late)
    successor.stop()


def test_groups_are_listed_described_and_deleted_by_an_administrator(cluster: LocalCluster) -> None:
    topic = group = "administered"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    member = MEMBERS["confluent-kafka"](cluster.bootstrap, topic, group)
    wait_owned([member], PARTITIONS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    listed = {row.group_id: row.state for row in admin.list_consumer_groups().result(30).valid}
    assert listed[group] == confluent_kafka.ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([group])[group].result(30)
    (told,) = described.members
    assert {place.partition for place in told.assignment.topic_partitions} == set(range(PARTITIONS))
    member.stop()
    place = confluent_kafka.TopicPartition(topic, 0, 7)
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [place])
    admin.alter_consumer_group_offsets([wanted])[group].result(30)
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0)])
    offsets = admin.list_consumer_group_offsets([asked])[group].result(30)
    assert offsets.topic_partitions[0].offset == 7
    admin.delete_consumer_groups([group])[group].result(30)
    assert group not in {row.group_id for row in admin.list_consumer_groups().result(30).valid}
