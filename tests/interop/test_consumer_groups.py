"""Foreign consumers with the consumer group protocol (KIP-848) work as with Kafka.

Sharing, both server-side assignors, static members, regular expressions, commits, kills, and migration of groups from
and to the classic protocol. All members of one group use the same library.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.members import (
    CONSUMER_MEMBERS,
    MEMBERS,
    POLL_S,
    WAIT_SECONDS_MAX,
    GroupMember,
    wait_owned,
    wait_read,
)
from tests.interop.programs import JAVA, install_tools
from tests.interop.writer import PARTITIONS, Writer
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

KILLS = 2
SESSION_MS = 6_000
SETTINGS = (
    "group.min.session.timeout.ms=1000",
    "group.consumer.min.session.timeout.ms=1000",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=500",
)
ASSIGNORS = [(name, assignor) for name, member in CONSUMER_MEMBERS.items() for assignor in member.assignors]
UNSUPPORTED_SECONDS_MAX = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    install_tools()
    with running(settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def writer(cluster: LocalCluster) -> Writer:
    return Writer(cluster.bootstrap)


Join = Callable[..., GroupMember]
"""Function that starts a group member and returns it, given the library's name, the topic, the group, and options.
With `classic=True`, the member uses the classic protocol."""


@pytest.fixture
def join(cluster: LocalCluster) -> Iterator[Join]:
    """A function that starts members. They are stopped at the end of the test, even if it fails."""
    members: list[GroupMember] = []

    def join(name: str, topic: str, group: str, *, classic: bool = False, **options: Any) -> GroupMember:
        kinds = MEMBERS if classic else CONSUMER_MEMBERS
        members.append(kinds[name](cluster.bootstrap, topic, group, **options))
        return members[-1]

    yield join
    for member in members:
        member.stop()


def create(cluster: LocalCluster, *topics: str) -> None:
    for topic in topics:
        cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3)


def describe(cluster: LocalCluster, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(30)


@pytest.mark.parametrize(("name", "assignor"), ASSIGNORS)
def test_two_members_share_a_topic_and_each_record_is_read_once_while_they_join_and_leave(
    cluster: LocalCluster, writer: Writer, join: Join, name: str, assignor: str
) -> None:
    topic = group = f"share-{name}-{assignor}"
    create(cluster, topic)
    first = join(name, topic, group, assignor=assignor)
    wait_owned([first], PARTITIONS)
    expected = writer.write(topic, "alone")
    second = join(name, topic, group, assignor=assignor)
    expected |= writer.write(topic, "joining")
    wait_owned([first, second], PARTITIONS)
    described = describe(cluster, group)
    assert described.type == confluent_kafka.ConsumerGroupType.CONSUMER
    assert described.partition_assignor == assignor
    expected |= writer.write(topic, "shared")
    wait_read([first, second], expected)
    second.stop()
    expected |= writer.write(topic, "left")
    wait_owned([first], PARTITIONS)
    wait_read([first, second], expected)
    assert sorted(first.values + second.values) == sorted(expected)
    assert second.values
    first.stop()


@pytest.mark.parametrize("name", CONSUMER_MEMBERS)
def test_a_consumer_group_continues_at_its_committed_offsets(
    cluster: LocalCluster, writer: Writer, join: Join, name: str
) -> None:
    topic = group = f"resume-{name}"
    create(cluster, topic)
    old = writer.write(topic, "old")
    first = join(name, topic, group)
    wait_read([first], old)
    first.stop()
    new = writer.write(topic, "new")
    second = join(name, topic, group)
    wait_read([second], new)
    second.stop()
    assert set(second.values) == new, "nothing that was committed is read again"


@pytest.mark.parametrize("name", CONSUMER_MEMBERS)
def test_a_static_member_that_returns_causes_no_partition_to_move(cluster: LocalCluster, join: Join, name: str) -> None:
    topic = group = f"static-{name}"
    create(cluster, topic)
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


@contextmanager
def java_program(cluster: LocalCluster, topic: str, group: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a member that a test can kill."""
    words = ["member", cluster.bootstrap, topic, group, "broker:uniform", str(SESSION_MS)]
    with subprocess.Popen((*JAVA.command, *words), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as program:
        try:
            yield program
        finally:
            program.kill()


def wait_share(member: GroupMember, count: int) -> None:
    """Wait until the member has this number of partitions. Raise TimeoutError after a minute."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(member.owned) != count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the member has {len(member.owned)} partitions, not {count}")
        time.sleep(POLL_S)


def test_the_partitions_of_a_killed_member_go_to_the_others(cluster: LocalCluster, writer: Writer, join: Join) -> None:
    topic = group = "killed-member"
    create(cluster, topic)
    stays = join("confluent-kafka", topic, group)
    wait_share(stays, PARTITIONS)
    with java_program(cluster, topic, group) as victim:
        wait_share(stays, PARTITIONS // 2)
        victim.kill()
        victim.wait()
    expected = writer.write(topic, "after")
    wait_share(stays, PARTITIONS)
    wait_read([stays], expected)
    stays.stop()


@pytest.mark.parametrize(("name", "assignor"), ASSIGNORS)
def test_a_consumer_group_loses_no_record_when_its_coordinator_is_killed(
    cluster: LocalCluster, writer: Writer, join: Join, name: str, assignor: str
) -> None:
    topic = group = f"kills-{name}-{assignor}"
    create(cluster, topic)
    members = [join(name, topic, group, assignor=assignor) for _ in range(2)]
    wait_owned(members, PARTITIONS)
    expected = writer.write(topic, "before")
    for number in range(KILLS):
        with cluster.killed(describe(cluster, group).coordinator.id):
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
def test_joining_and_leaving_members_miss_no_record_while_leaders_are_killed(
    cluster: LocalCluster, writer: Writer, join: Join, name: str, assignor: str
) -> None:
    topic = group = f"churn-{name}-{assignor}"
    create(cluster, topic)
    stays, *others = everyone = [join(name, topic, group, assignor=assignor) for _ in range(2)]
    wait_owned(everyone, PARTITIONS)
    expected = writer.write(topic, "before")
    for partition in range(KILLS):
        killed = cluster.leader(topic, partition)
        if others:
            others.pop().stop()
        else:
            others.append(join(name, topic, group, assignor=assignor))
            everyone.append(others[0])
        with cluster.killed(killed):
            expected |= writer.write(topic, f"round{partition}")
            wait_owned([stays, *others], PARTITIONS)
            wait_read(everyone, expected)
        cluster.wait_in_sync(topic, 3)
        cluster.wait_in_sync("__consumer_offsets", 3)


@pytest.mark.parametrize("name", CONSUMER_MEMBERS)
def test_a_regular_expression_subscribes_to_existing_and_to_later_topics(
    cluster: LocalCluster, writer: Writer, join: Join, name: str
) -> None:
    group = f"regex-{name}"
    create(cluster, f"{group}-a", f"other-{group}-a")
    expected = writer.write(f"{group}-a", "existing")
    writer.write(f"other-{group}-a", "other")
    member = join(name, f"^{group}-.*", group)
    wait_read([member], expected)
    create(cluster, f"{group}-b")
    expected |= writer.write(f"{group}-b", "later")
    wait_read([member], expected)
    member.stop()
    assert set(member.values) == expected


@pytest.mark.parametrize("name", CONSUMER_MEMBERS)
def test_a_group_migrates_to_the_consumer_protocol_and_back_under_load(
    cluster: LocalCluster, writer: Writer, join: Join, name: str
) -> None:
    topic = group = f"migrates-{name}"
    create(cluster, topic)
    members = [join(name, topic, group, classic=True) for _ in range(2)]
    everyone = list(members)
    wait_owned(members, PARTITIONS)
    expected = writer.write(topic, "classic")
    for step, classic in enumerate((False, False, True, True)):
        members.pop(0).stop()
        expected |= writer.write(topic, f"left{step}")
        members.append(join(name, topic, group, classic=classic))
        everyone.append(members[-1])
        expected |= writer.write(topic, f"joined{step}")
        wait_owned(members, PARTITIONS)
        wait_read(everyone, expected)
        if step == 1:
            assert describe(cluster, group).type == confluent_kafka.ConsumerGroupType.CONSUMER
    assert describe(cluster, group).type == confluent_kafka.ConsumerGroupType.CLASSIC
    assert sorted(value for member in everyone for value in member.values) == sorted(expected)


def test_a_foreign_admin_client_lists_describes_and_deletes_a_consumer_group(cluster: LocalCluster, join: Join) -> None:
    topic = group = "administered"
    create(cluster, topic)
    member = join("confluent-kafka", topic, group)
    wait_owned([member], PARTITIONS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    types = {confluent_kafka.ConsumerGroupType.CONSUMER}
    listed = {row.group_id: row for row in admin.list_consumer_groups(types=types).result(30).valid}
    assert listed[group].type == confluent_kafka.ConsumerGroupType.CONSUMER
    described = describe(cluster, group)
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    (told,) = described.members
    assert {place.partition for place in told.assignment.topic_partitions} == set(range(PARTITIONS))
    assert {place.partition for place in told.target_assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(30)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    member.stop()
    place = confluent_kafka.TopicPartition(topic, 0, 7)
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [place])
    admin.alter_consumer_group_offsets([wanted])[group].result(30)
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0)])
    offsets = admin.list_consumer_group_offsets([asked])[group].result(30)
    assert offsets.topic_partitions[0].offset == 7
    admin.delete_consumer_groups([group])[group].result(30)
    assert group not in {row.group_id for row in admin.list_consumer_groups().result(30).valid}


def test_a_consumer_gets_an_error_while_the_brokers_do_not_serve_the_protocol() -> None:
    with running(settings=["group.coordinator.rebalance.protocols=classic"]) as started:
        settings = {"bootstrap.servers": started.bootstrap, "group.id": "new", "group.protocol": "consumer"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(["orders"])
        message = consumer.poll(UNSUPPORTED_SECONDS_MAX)
        error = None if message is None else message.error()
        consumer.close()
    assert error is not None
    assert error.fatal() or error.code() == confluent_kafka.KafkaError._FATAL
    assert "not supported" in error.str()
