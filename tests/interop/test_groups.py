"""Foreign consumer groups work as with Kafka: sharing, every assignor, static members, commits, broker kills.

All members of one group use the same library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.members import MEMBERS, SESSION_MS, GroupMember, wait_owned, wait_read
from tests.interop.programs import install_tools
from tests.interop.writer import PARTITIONS, Writer
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

KILLS = 2
KILLS_SESSION_MS = 2_000
"""Session timeout of members. A member that leaves or is replaced while the coordinator dies is removed only after this
time."""
ASSIGNORS = [(name, assignor) for name, member in MEMBERS.items() for assignor in member.assignors]
STATIC = [name for name, member in MEMBERS.items() if member.can_be_static]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    install_tools()
    with running(settings=["group.min.session.timeout.ms=1000"]) as started:
        yield started


Join = Callable[..., GroupMember]
"""Function that starts a group member and returns it, given the library's name, the topic, the group, and options."""


@pytest.fixture
def join(cluster: LocalCluster) -> Iterator[Join]:
    """A function that starts members. They are stopped at the end of the test, even if it fails: the next cluster may
    use the same ports."""
    members: list[GroupMember] = []

    def join(name: str, topic: str, group: str, **options: Any) -> GroupMember:
        members.append(MEMBERS[name](cluster.bootstrap, topic, group, **options))
        return members[-1]

    yield join
    for member in members:
        member.stop()


@pytest.fixture(scope="module")
def writer(cluster: LocalCluster) -> Writer:
    return Writer(cluster.bootstrap)


def coordinator(cluster: LocalCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(30)
    node: int = described.coordinator.id
    return node


@pytest.mark.parametrize(("name", "assignor"), ASSIGNORS)
def test_two_members_share_a_topic_and_each_record_is_read_once(
    cluster: LocalCluster, writer: Writer, join: Join, name: str, assignor: str
) -> None:
    topic = group = f"share-{name}-{assignor}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    first = join(name, topic, group, assignor=assignor)
    wait_owned([first], PARTITIONS)
    second = join(name, topic, group, assignor=assignor)
    wait_owned([first, second], PARTITIONS)
    expected = writer.write(topic, "shared")
    wait_read([first, second], expected)
    assert sorted(first.values + second.values) == sorted(expected)
    assert first.values
    assert second.values
    second.stop()
    wait_owned([first], PARTITIONS)
    first.stop()


@pytest.mark.parametrize("name", MEMBERS)
def test_a_foreign_group_continues_at_its_committed_offsets(
    cluster: LocalCluster, writer: Writer, join: Join, name: str
) -> None:
    topic = group = f"resume-{name}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    old = writer.write(topic, "old")
    first = join(name, topic, group)
    wait_read([first], old)
    first.stop()
    new = writer.write(topic, "new")
    second = join(name, topic, group)
    wait_read([second], new)
    second.stop()
    assert set(second.values) == new, "nothing that was committed is read again"


@pytest.mark.parametrize("name", STATIC)
def test_a_foreign_static_member_that_returns_causes_no_partition_to_move(
    cluster: LocalCluster, join: Join, name: str
) -> None:
    topic = group = f"static-{name}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    stays = join(name, topic, group, instance_id="stays")
    returns = join(name, topic, group, instance_id="returns")
    wait_owned([stays, returns], PARTITIONS)
    held, moved = set(stays.owned), set(returns.owned)
    returns.stop()
    again = join(name, topic, group, instance_id="returns")
    deadline = time.monotonic() + SESSION_MS / 1000
    while again.owned != moved and time.monotonic() < deadline:
        assert stays.owned == held
        time.sleep(0.05)
    assert (stays.owned, again.owned) == (held, moved)
    stays.stop()
    again.stop()


@pytest.mark.parametrize(("name", "assignor"), ASSIGNORS)
def test_a_foreign_group_loses_no_record_when_its_coordinator_is_killed(
    cluster: LocalCluster, writer: Writer, join: Join, name: str, assignor: str
) -> None:
    topic = group = f"kills-{name}-{assignor}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    options = {"assignor": assignor, "session_ms": KILLS_SESSION_MS}
    members = [join(name, topic, group, **options) for _ in range(2)]
    wait_owned(members, PARTITIONS)
    expected = writer.write(topic, "before")
    for number in range(KILLS):
        with cluster.killed(coordinator(cluster, group)):
            expected |= writer.write(topic, f"round{number}")
            wait_read(members, expected)
        cluster.wait_in_sync(topic, 3)
        cluster.wait_in_sync("__consumer_offsets", 3)
    for member in members:
        member.stop()
    late = writer.write(topic, "late")
    successor = join(name, topic, group, assignor=assignor)
    wait_read([successor], late)
    successor.stop()


@pytest.mark.parametrize(("name", "assignor"), ASSIGNORS)
def test_joining_and_leaving_foreign_members_miss_no_record_while_leaders_are_killed(
    cluster: LocalCluster, writer: Writer, join: Join, name: str, assignor: str
) -> None:
    topic = group = f"churn-{name}-{assignor}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    options = {"assignor": assignor, "session_ms": KILLS_SESSION_MS}
    stays, *others = everyone = [join(name, topic, group, **options) for _ in range(2)]
    wait_owned(everyone, PARTITIONS)
    expected = writer.write(topic, "before")
    for partition in range(KILLS):
        killed = cluster.leader(topic, partition)
        if others:
            others.pop().stop()
        else:
            others.append(join(name, topic, group, **options))
            everyone.append(others[0])
        with cluster.killed(killed):
            expected |= writer.write(topic, f"round{partition}")
            wait_owned([stays, *others], PARTITIONS)
            wait_read(everyone, expected)
        cluster.wait_in_sync(topic, 3)
        cluster.wait_in_sync("__consumer_offsets", 3)


def test_foreign_admin_clients_list_describe_and_delete_groups(cluster: LocalCluster, join: Join) -> None:
    topic = group = "administered"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
    member = join("confluent-kafka", topic, group)
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
