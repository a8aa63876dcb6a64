"""Our consumer with `group_protocol="consumer"` (KIP-848) on Apache Kafka: members that join, leave, crash and return,
also together with members of librdkafka.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.client import CommitFailed, Consumer, KafkaError, RebalanceListener
from kraft.client.core.records import TopicPartition
from kraft.sim.chaos.apache.kafka_files import QUICK_NODE_JVM
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from kraft.wire.error_codes import ErrorCode
from tests.bench.kafka import free_port, layout_running
from tests.interop.own_members import NEXT_GENERATION, SECONDS, Member, at_work, fill, make_topic, until

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries emit warnings

SETTINGS = (
    "offsets.topic.num.partitions=4",
    "group.consumer.heartbeat.interval.ms=300",
    "group.consumer.min.heartbeat.interval.ms=300",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.session.timeout.ms=3000",
    "group.consumer.assignment.interval.ms=0",
    "group.consumer.min.assignment.interval.ms=0",
    "group.consumer.max.size=3",
)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    layout = KafkaLayout.plain(free_port(), is_single=True)
    with layout_running(layout, SETTINGS, QUICK_NODE_JVM) as cluster:
        yield cluster.bootstrap


def member(bootstrap: str, topic: str, **settings: Any) -> Member:
    return Member(bootstrap, f"group-{topic}", [topic], group_protocol="consumer", **settings)


def places(*members: Member) -> list[TopicPartition]:
    return [(record.partition, record.offset) for one in members for record in one.read]  # type: ignore[misc]


@pytest.mark.parametrize("assignor", ["uniform", "range", None])
async def test_every_partition_has_one_owner_while_three_members_join_and_leave(
    bootstrap: str, assignor: str | None
) -> None:
    topic = make_topic(bootstrap, 6)
    every = {(topic, number) for number in range(6)}
    first, second, third = (member(bootstrap, topic, client_id=name, group_remote_assignor=assignor) for name in "abc")
    await fill(bootstrap, topic, 300)
    async with at_work(first) as nursery:
        await until(lambda: len(first.read) == 300)
        assert first.held == every
        nursery.start_soon(second.work)
        await until(lambda: len(first.held) == 3 and len(second.held) == 3)
        nursery.start_soon(third.work)
        await until(lambda: {len(one.held) for one in (first, second, third)} == {2})
        assert first.held | second.held | third.held == every
        await fill(bootstrap, topic, 300)
        await until(lambda: len(places(first, second, third)) >= 600)
        await second.stop()
        await third.stop()
        await until(lambda: first.held == every)
        await fill(bootstrap, topic, 300)
        await until(lambda: len(places(first, second, third)) >= 900)
    read = places(first, second, third)
    assert (len(read), len(set(read))) == (900, 900), first.events + second.events + third.events
    assert "lost" not in {kind for one in (first, second, third) for kind, _ in one.events}
    assert all(len(partitions) < 6 for kind, partitions in first.events[:-1] if kind == "revoked")


async def test_a_crashed_members_partitions_move_when_its_session_expires(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    stays, crashes = (member(bootstrap, topic, auto_commit_interval_ms=100) for _ in range(2))
    async with at_work(stays) as nursery:
        nursery.start_soon(crashes.work)
        await until(lambda: len(stays.held) == 2 and len(crashes.held) == 2)
        await fill(bootstrap, topic, 100)
        await until(lambda: len(places(stays, crashes)) == 100)
        group = crashes.consumer._group
        assert group is not None
        group._member.leave = lambda: None  # type: ignore[union-attr, method-assign]  # it dies without a word
        await crashes.stop()
        await until(lambda: len(stays.held) == 4)
        await fill(bootstrap, topic, 100)
        await until(lambda: len(set(places(stays, crashes))) == 200)


async def test_a_static_member_that_returns_in_time_gets_its_partitions_without_a_rebalance(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    stays = member(bootstrap, topic, group_instance_id="a")
    leaves, returns = (member(bootstrap, topic, group_instance_id="b") for _ in range(2))
    async with at_work(stays) as nursery:
        nursery.start_soon(leaves.work)
        await until(lambda: len(stays.held) == 2 and len(leaves.held) == 2)
        seen, had = len(stays.events), leaves.held
        await leaves.stop()
        nursery.start_soon(returns.work)
        await until(lambda: len(returns.held) == 2)
        await trio.sleep(1)
        assert (returns.held, len(stays.events)) == (had, seen)


async def test_a_second_member_with_the_instance_id_of_a_running_one_is_refused(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    running = member(bootstrap, topic, group_instance_id="a")
    async with at_work(running):
        await until(lambda: len(running.held) == 4)
        settings = {"group_id": f"group-{topic}", "group_instance_id": "a", **NEXT_GENERATION}
        async with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            await consumer.subscribe([topic])
            with pytest.raises(KafkaError, match=r"another running member has the group\.instance\.id a") as refused:
                await consumer.poll()
        assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
        await trio.sleep(1)
        assert len(running.held) == 4


@pytest.mark.parametrize(
    ("settings", "topics", "code", "advice"),
    [
        ({"group_remote_assignor": "absent"}, None, ErrorCode.UNSUPPORTED_ASSIGNOR, "assignor absent: set"),
        ({}, "^(", ErrorCode.INVALID_REGULAR_EXPRESSION, "use the syntax of RE2"),
    ],
)
async def test_a_rejected_setting_is_an_error_that_says_what_to_do(
    bootstrap: str, settings: dict[str, Any], topics: str | None, code: ErrorCode, advice: str
) -> None:
    topic = make_topic(bootstrap)
    async with Consumer(
        bootstrap_servers=bootstrap, group_id=f"group-{topic}", **(NEXT_GENERATION | settings)
    ) as consumer:
        await consumer.subscribe(topics or [topic])
        with trio.fail_after(SECONDS), pytest.raises(KafkaError, match=re.escape(advice)) as refused:
            await consumer.poll()
    assert refused.value.code is code


async def test_a_member_beyond_the_maximum_size_of_the_group_is_refused(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    members = [member(bootstrap, topic) for _ in range(3)]
    async with at_work(*members):
        await until(lambda: all(one.held for one in members))
        async with Consumer(bootstrap_servers=bootstrap, group_id=f"group-{topic}", **NEXT_GENERATION) as consumer:
            await consumer.subscribe([topic])
            with pytest.raises(KafkaError, match=r"raise the brokers' group\.consumer\.max\.size"):
                await consumer.poll()


async def test_the_broker_resolves_a_pattern_and_adds_topics_that_are_created_later(bootstrap: str) -> None:
    prefix = f"pattern-{uuid.uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{prefix}-a", 2, 1)])[f"{prefix}-a"].result(20)
    one = Member(bootstrap, prefix, f"^{prefix}-.*", group_protocol="consumer")
    async with at_work(one):
        await until(lambda: len(one.held) == 2)
        admin.create_topics([NewTopic(f"{prefix}-b", 3, 1)])[f"{prefix}-b"].result(20)
        await until(lambda: len(one.held) == 5)


async def test_a_compiled_pattern_is_resolved_by_the_client(bootstrap: str) -> None:
    prefix = f"compiled-{uuid.uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{prefix}-a", 2, 1)])[f"{prefix}-a"].result(20)
    pattern = re.compile(rf"{prefix}-(?!c).*")  # RE2 has no lookahead
    one = Member(bootstrap, prefix, pattern, group_protocol="consumer", metadata_max_age_ms=200)
    async with at_work(one):
        await until(lambda: len(one.held) == 2)
        for name in (f"{prefix}-b", f"{prefix}-c"):
            admin.create_topics([NewTopic(name, 3, 1)])[name].result(20)
        await until(lambda: len(one.held) == 5)
        assert {topic for topic, _ in one.held} == {f"{prefix}-a", f"{prefix}-b"}


async def test_a_running_consumer_changes_its_subscription_without_leaving(bootstrap: str) -> None:
    topics = [make_topic(bootstrap, 2) for _ in range(2)]
    one = member(bootstrap, topics[0])
    async with at_work(one):
        await until(lambda: len(one.held) == 2)
        before = one.consumer.group_metadata()
        await one.consumer.subscribe(topics, listener=one)
        await until(lambda: len(one.held) == 4)
        await one.consumer.subscribe(f"^{topics[1]}$", listener=one)
        await until(lambda: {topic for topic, _ in one.held} == {topics[1]})
        await one.consumer.subscribe([topics[0]], listener=one)
        await until(lambda: {topic for topic, _ in one.held} == {topics[0]})
        after = one.consumer.group_metadata()
        assert after.member_id == before.member_id
        assert after.generation > before.generation
    assert "lost" not in {kind for kind, _ in one.events}


async def test_a_listener_commits_on_revoke_and_the_new_owner_continues_there(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 2)
    await fill(bootstrap, topic, 200)
    committed: dict[TopicPartition, int] = {}

    class Committing(RebalanceListener):
        async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            committed.update({one: consumer.position(one) for one in partitions})
            await consumer.commit({one: consumer.position(one) for one in partitions})

    group = f"group-{topic}"
    other = member(bootstrap, topic)
    settings = {"group_id": group, "enable_auto_commit": False, **NEXT_GENERATION}
    with trio.fail_after(SECONDS):
        async with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            await consumer.subscribe([topic], listener=Committing())
            read = 0
            while read < 200:
                read += len(await consumer.poll())
            async with at_work(other):
                while not other.held:
                    await consumer.poll(timeout_ms=100)
                (place,) = other.held
                assert committed[place] > 0
                found = await other.consumer.committed([place])
                assert found[place] is not None
                assert found[place].offset == committed[place]  # type: ignore[union-attr]
                assert other.read == []


async def test_an_application_that_exceeds_max_poll_interval_loses_its_partitions_and_can_rejoin(
    bootstrap: str,
) -> None:
    topic = make_topic(bootstrap, 2)
    group = f"group-{topic}"
    other = member(bootstrap, topic, max_poll_interval_ms=2_000)
    lost: list[frozenset[TopicPartition]] = []

    class Listener(RebalanceListener):
        async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
            lost.append(partitions)

    with trio.fail_after(SECONDS):
        settings = {"group_id": group, "max_poll_interval_ms": 2_000, **NEXT_GENERATION}
        async with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            await consumer.subscribe([topic], listener=Listener())
            while not consumer.assignment:
                await consumer.poll(timeout_ms=100)
            async with at_work(other):
                await until(lambda: len(other.held) == 2)
                with pytest.raises(CommitFailed):
                    await consumer.commit({(topic, 0): 0})
                while len(consumer.assignment) != 1 or not lost:
                    await consumer.poll(timeout_ms=100)
                assert len(lost[0]) == 2


async def test_our_members_share_a_group_with_a_librdkafka_member(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    ours = member(bootstrap, topic)
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{topic}",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    found: list[Any] = []
    held: list[Any] = []
    stopped = threading.Event()

    def read() -> None:
        while not stopped.is_set():
            found.extend(message for message in theirs.consume(100, 0.1) if message.error() is None)
            held[:] = theirs.assignment()
        theirs.close()

    theirs.subscribe([topic])
    async with at_work(ours) as nursery:
        nursery.start_soon(trio.to_thread.run_sync, read)
        await until(lambda: len(ours.held) == 2 and len(held) == 2)
        await fill(bootstrap, topic, 200)
        await until(lambda: len(found) + len(ours.read) >= 200)
        stopped.set()
        await until(lambda: len(ours.held) == 4)
    read_by_all = [(m.partition(), m.offset()) for m in found] + places(ours)
    assert len(read_by_all) == len(set(read_by_all)) == 200


async def test_a_group_moves_from_the_classic_protocol_to_the_other_without_losing_offsets(bootstrap: str) -> None:
    topic = make_topic(bootstrap, 4)
    classic = Member(bootstrap, f"group-{topic}", [topic], partition_assignment_strategy="range")
    modern = member(bootstrap, topic)
    await fill(bootstrap, topic, 100)
    async with at_work(classic) as nursery:
        await until(lambda: len(classic.read) == 100)
        nursery.start_soon(modern.work)
        await until(lambda: len(classic.held) == 2 and len(modern.held) == 2)
        await classic.stop()
        await until(lambda: len(modern.held) == 4)
        await fill(bootstrap, topic, 100)
        await until(lambda: len(places(classic, modern)) == 200)
        await modern.stop()
    assert len(set(places(classic, modern))) == 200
