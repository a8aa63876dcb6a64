"""Consumers with `group_protocol="consumer"` (KIP-848) on pykraft's brokers, in virtual time: members that join, leave,
crash, stall and return.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.broker.api.context import Handler
from kraft.broker.api.table import HANDLERS, HandlerParts
from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.client import CommitFailed, CommittedOffset, Consumer, KafkaError, RebalanceListener
from kraft.client.core.records import ConsumerRecord, TopicPartition
from kraft.wire import messages
from kraft.wire.api_keys import CLIENT_APIS, ApiKey, ApiVersionRange
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from kraft.wire.server import Request
from tests.client.group_consumers import EVERY, FAST, NEXT_GENERATION, GroupConsumer, at_work, fill
from tests.stages.clients_in_world import PLACE, Stage, Test, cancelled_at, run, three
from tests.stages.tables import replace_row

GROUPS = {
    "offsets_topic_num_partitions": "3",
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_min_heartbeat_interval_ms": "300",
    "group_consumer_session_timeout_ms": "6000",
    "group_consumer_min_session_timeout_ms": "6000",
    "group_consumer_assignment_interval_ms": "0",
    "group_consumer_min_assignment_interval_ms": "0",
}
SETTINGS: dict[str, Any] = {"group_id": "billing", **NEXT_GENERATION}
MANUAL: dict[str, Any] = {**SETTINGS, "enable_auto_commit": False}
HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
STEPS_MAX = 2_000


def alone(test: Test, **settings: Any) -> None:
    run(test, offsets_topic_replication_factor="1", **(GROUPS | settings))


def member(stage: Stage, name: str, topics: Any = ("orders",), **settings: Any) -> GroupConsumer:
    return GroupConsumer(stage, name, topics, group_protocol="consumer", **settings)


def refuse(stage: Stage, key: ApiKey, code: ErrorCode, times: int = 1) -> None:
    stage.fault(api_key=key, action=ReplyAction.ERROR, error=code, times=times)


def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets every heartbeat that reaches a broker from now on."""
    requests: list[Any] = []
    make_real = HANDLERS[HEARTBEAT]

    def make(parts: HandlerParts) -> Handler:
        handle = make_real(parts)

        def answer(request: Request, session: Session) -> Steps | None:
            requests.append(messages.decode_request(HEARTBEAT, request.api_version, request.body))
            return handle(request, session)

        return answer

    replace_row(monkeypatch, HANDLERS, HEARTBEAT, make)  # type: ignore[arg-type]
    return requests


# members


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_three_members_join_and_leave_and_every_partition_has_one_owner(assignor: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        await fill(stage, 300)
        members = [member(stage, name, group_remote_assignor=assignor) for name in "abc"]
        first, second, third = members

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(first.work)
            await stage.until(lambda: len(first.read) == 300)
            assert first.held == EVERY
            nursery.start_soon(second.work)
            nursery.start_soon(third.work)
            await stage.until(lambda: [len(one.held) for one in members] == [2, 2, 2])
            assert first.held | second.held | third.held == EVERY
            await fill(stage, 300)
            await stage.until(lambda: sum(len(one.read) for one in members) == 600)
            await second.stop()
            await stage.until(lambda: len(first.held) == len(third.held) == 3)
            await third.stop()
            await stage.until(lambda: first.held == EVERY)
            await fill(stage, 300)
            await stage.until(lambda: sum(len(one.read) for one in members) == 900)
            await stage.world.sleep_ms(2_000)

        await at_work(stage, body)
        read = [(record.partition, record.offset) for one in members for record in one.read]
        assert len(read) == len(set(read)) == 900
        assert "lost" not in {kind for one in members for kind, _ in one.events}

    alone(test)


def test_other_members_read_the_partitions_of_a_crashed_member_and_skip_no_record() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        first, second = (member(stage, name, auto_commit_interval_ms=200) for name in "ab")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(first.work)
            nursery.start_soon(second.work)
            await stage.until(lambda: len(first.held) == 3 and len(second.held) == 3)
            await fill(stage, 300)
            await stage.until(lambda: len(first.read) + len(second.read) == 300)
            stage.world.isolate("b")
            await fill(stage, 300)
            await stage.until(lambda: first.held == EVERY)
            await stage.until(lambda: {(r.partition, r.offset) for r in first.read + second.read} >= every(600))
            stage.world.heal_all()
            await stage.until(lambda: len(second.held) == 3 and len(first.held) == 3, 60_000)

        def every(count: int) -> set[tuple[int, int]]:
            ends = {number: stage.partition("orders", index=number).log.log_end_offset for number in range(6)}
            assert sum(ends.values()) == count
            return {(number, offset) for number, end in ends.items() for offset in range(end)}

        await at_work(stage, body)
        assert [kind for kind, _ in second.events].count("lost") == 1

    alone(test)


@pytest.mark.parametrize("seed", range(3))
def test_a_group_continues_after_its_coordinator_crashed(seed: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        first, second = (member(stage, name, auto_commit_interval_ms=100) for name in "ab")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(first.work)
            nursery.start_soon(second.work)
            await stage.until(lambda: len(first.held) == 3 and len(second.held) == 3)
            ids = first.consumer.member_id, second.consumer.member_id
            await fill(stage, 100)
            await stage.until(lambda: len(first.read) + len(second.read) >= 100)
            group = first.consumer._group
            assert group is not None
            assert group.coordinator.node is not None
            stage.world.kill(stage.cluster.name(group.coordinator.node.node_id))
            await fill(stage, 100)
            await stage.until(lambda: len(set(places(first, second))) == 200)
            await stage.world.sleep_ms(10_000)
            assert first.held | second.held == EVERY
            assert (first.consumer.member_id, second.consumer.member_id) == ids

        def places(*members: GroupConsumer) -> list[tuple[int, int]]:
            return [(record.partition, record.offset) for one in members for record in one.read]

        await at_work(stage, body)
        for one in (first, second):
            assert "lost" not in {kind for kind, _ in one.events}
            for number in range(6):
                own = [record.offset for record in one.read if record.partition == number]
                assert own == sorted(set(own))

    three(test, seed=seed, offsets_topic_replication_factor="3", **GROUPS)


def test_a_static_member_that_returns_in_time_gets_its_partitions_without_a_rebalance() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        stays = member(stage, "a", group_instance_id="one")
        leaves, returns = (member(stage, name, group_instance_id="two") for name in "bc")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(stays.work)
            nursery.start_soon(leaves.work)
            await stage.until(lambda: len(stays.held) == 3 and len(leaves.held) == 3)
            seen, had = len(stays.events), leaves.held
            await leaves.stop()
            nursery.start_soon(returns.work)
            await stage.until(lambda: len(returns.held) == 3)
            await stage.world.sleep_ms(3_000)
            assert (returns.held, len(stays.events)) == (had, seen)

        await at_work(stage, body)

    alone(test)


def test_a_second_member_with_the_instance_id_of_a_running_one_is_refused() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        older, newer = (member(stage, name, group_instance_id="one") for name in "ab")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(older.work)
            await stage.until(lambda: older.held == EVERY)
            nursery.start_soon(newer.work)
            await stage.until(lambda: newer.failure is not None)
            assert newer.failure is not None
            assert newer.failure.code is ErrorCode.UNRELEASED_INSTANCE_ID
            await stage.world.sleep_ms(2_000)
            assert older.held == EVERY

        await at_work(stage, body)

    alone(test)


def test_a_member_that_exceeds_max_poll_interval_loses_its_partitions_and_can_rejoin() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        slow, other = (member(stage, name, max_poll_interval_ms=2_000) for name in "ab")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(slow.work)
            nursery.start_soon(other.work)
            await stage.until(lambda: len(slow.held) == 3 and len(other.held) == 3)
            slow.pause_ms = 8_000
            await fill(stage, 60)
            await stage.until(lambda: other.held == EVERY)
            slow.pause_ms = 0
            await stage.until(lambda: len(slow.held) == 3 and len(other.held) == 3)
            assert [kind for kind, _ in slow.events].count("lost") == 1

        await at_work(stage, body)

    alone(test)


def test_iterating_over_records_counts_as_polling_for_max_poll_interval() -> None:
    """All records come in one batch, and processing it takes longer than `max.poll.interval.ms`."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.producer(linger_ms=100) as producer:
            for number in range(20):
                await producer.enqueue("orders", b"%d" % number)
        told = member(stage, "unused")
        read: list[int] = []
        async with stage.consumer("a", max_poll_interval_ms=2_000, **SETTINGS) as consumer:
            await consumer.subscribe(["orders"], listener=told)
            async for record in consumer:
                read.append(record.offset)
                if len(read) == 20:
                    break
                await stage.world.sleep_ms(400)
            assert [kind for kind, _ in told.events] == ["assigned"]
        assert read == list(range(20))

    alone(test)


# heartbeats


def test_a_heartbeat_in_version_0_gets_its_member_id_from_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_row(monkeypatch, CLIENT_APIS, HEARTBEAT, ApiVersionRange(int(HEARTBEAT), 0, 0, 0))
    requests = heard(monkeypatch)

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        one = member(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(one.work)
            await stage.until(lambda: one.held == EVERY)
            assert requests[0].member_id == ""
            assert one.consumer.member_id == requests[-1].member_id != ""
            member_id = one.consumer.member_id
            await one.stop()
            assert (requests[-1].member_epoch, requests[-1].member_id) == (-1, member_id)

        await at_work(stage, body)

    alone(test)


def test_subscribe_on_a_running_consumer_changes_the_next_heartbeat_only(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = heard(monkeypatch)

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        await stage.create_topic("payments", 2)
        one = member(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(one.work)
            await stage.until(lambda: len(one.held) == 2)
            for topics, held in (
                (["orders", "payments"], {"orders", "payments"}),
                ("^pay.*", {"payments"}),
                (["orders"], {"orders"}),
            ):
                await one.consumer.subscribe(topics, listener=one)
                await stage.until(lambda held=held: {topic for topic, _ in one.held} == held)  # type: ignore[misc]

        await at_work(stage, body)
        assert "lost" not in {kind for kind, _ in one.events}
        assert [request.member_epoch for request in requests].count(0) == 1
        assert len({request.member_id for request in requests}) == 1
        assert [
            request.subscribed_topic_regex for request in requests if request.subscribed_topic_regex is not None
        ] == [
            "^pay.*",
            "",
        ]

    alone(test)


@pytest.mark.parametrize("pattern", ["^orders-.*", re.compile("orders-(?!c).*")])
def test_a_pattern_subscription_includes_topics_created_later(pattern: Any) -> None:
    """The brokers resolve a text, and the client a compiled pattern (with syntax that RE2 does not have)."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders-a", 2)
        await stage.create_topic("payments", 2)
        one = member(stage, "a", pattern, metadata_max_age_ms=500)

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(one.work)
            await stage.until(lambda: len(one.held) == 2)
            await stage.create_topic("orders-b", 3)
            await stage.until(lambda: len(one.held) == 5, 60_000)
            assert {topic for topic, _ in one.held} == {"orders-a", "orders-b"}

        await at_work(stage, body)

    alone(test, group_consumer_regex_refresh_interval_ms="10000")


def test_an_assigned_topic_is_read_once_metadata_names_it() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders-a", 2)
        one = member(stage, "a", "^orders-.*")

        async def body(nursery: trio.Nursery) -> None:
            stage.fault(api_key=ApiKey.METADATA, action=ReplyAction.DELAY, delay_ms=1_500)
            nursery.start_soon(one.work)
            await stage.world.sleep_ms(1_000)
            assert one.held == frozenset()
            await stage.until(lambda: len(one.held) == 2, 60_000)

        await at_work(stage, body)

    alone(test)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (HEARTBEAT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (HEARTBEAT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (HEARTBEAT, ErrorCode.NOT_COORDINATOR),
        (HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID),
        (HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH),
        (ApiKey.OFFSET_FETCH, ErrorCode.NOT_COORDINATOR),
        (ApiKey.OFFSET_FETCH, ErrorCode.STALE_MEMBER_EPOCH),
        (ApiKey.OFFSET_FETCH, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_member_joins_despite_transient_coordinator_errors(key: ApiKey, code: ErrorCode) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        refuse(stage, key, code, times=2)
        one = member(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(one.work)
            await stage.until(lambda: one.held == EVERY)
            refuse(stage, key, code, times=2)
            await stage.world.sleep_ms(2_000)
            await stage.until(lambda: one.held == EVERY)
            await fill(stage, 60)
            await stage.until(lambda: len(one.read) == 60)

        await at_work(stage, body)

    alone(test)


def test_a_member_survives_heartbeat_responses_that_do_not_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    make_real = HANDLERS[HEARTBEAT]

    def make(parts: HandlerParts) -> Handler:
        handle = make_real(parts)

        def answer(request: Request, session: Session) -> Steps | None:
            nonlocal asked
            asked += 1
            if asked % 3:
                request.respond(b"\xff")
                return None
            return handle(request, session)

        return answer

    replace_row(monkeypatch, HANDLERS, HEARTBEAT, make)  # type: ignore[arg-type]

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        one = member(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(one.work)
            await stage.until(lambda: one.held == EVERY)
            await fill(stage, 60)
            await stage.until(lambda: len(one.read) == 60)

        await at_work(stage, body)

    alone(test)


# errors


@pytest.mark.parametrize(
    ("settings", "topics", "text"),
    [
        ({"group_remote_assignor": "absent"}, ["orders"], "UNSUPPORTED_ASSIGNOR: group billing: .* assignor absent"),
        ({}, "^(", "INVALID_REGULAR_EXPRESSION: group billing: .* the syntax of RE2"),
    ],
)
def test_poll_raises_what_the_coordinator_refuses_and_says_what_to_do(
    settings: dict[str, Any], topics: Any, text: str
) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        async with stage.consumer("a", **SETTINGS, **settings) as consumer:
            await consumer.subscribe(topics)
            for _ in range(2):
                with trio.fail_after(10), pytest.raises(KafkaError, match=text):
                    await consumer.poll()

    alone(test)


def test_a_consumer_continues_after_an_error_once_it_subscribes_again() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        refuse(stage, HEARTBEAT, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        async with stage.consumer("a", **SETTINGS) as consumer:
            await consumer.subscribe(["orders"])
            with trio.fail_after(10), pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED: group billing"):
                await consumer.poll()
            await consumer.subscribe(["orders"])
            assert await consumer.poll(timeout_ms=1_000) == []
            assert len(consumer.assignment) == 6

    alone(test)


def test_partitions_are_lost_and_the_member_leaves_when_the_coordinator_refuses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = heard(monkeypatch)

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        told = member(stage, "unused")
        async with stage.consumer("a", **SETTINGS) as consumer:
            await consumer.subscribe(["orders"], listener=told)
            await consumer.poll(timeout_ms=1_000)
            assert told.held == EVERY
            await consumer.subscribe("^(", listener=told)
            with trio.fail_after(10), pytest.raises(KafkaError, match="INVALID_REGULAR_EXPRESSION"):
                await consumer.poll()
            assert [kind for kind, _ in told.events] == ["assigned", "lost"]
            assert requests[-1].member_epoch == -1
            assert consumer.assignment == frozenset()

    alone(test)


def test_a_broker_without_consumer_groups_is_an_error_that_names_the_classic_protocol() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        refuse(stage, HEARTBEAT, ErrorCode.UNSUPPORTED_VERSION)
        async with stage.consumer("a", **SETTINGS) as consumer:
            await consumer.subscribe(["orders"])
            with trio.fail_after(10), pytest.raises(KafkaError, match=r"set group\.protocol=classic"):
                await consumer.poll()

    alone(test)


def test_a_topic_authorization_error_is_raised_and_the_member_stays() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        async with stage.consumer("a", **SETTINGS) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll(timeout_ms=1_000)
            member_id = consumer.member_id
            refuse(stage, HEARTBEAT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            with trio.fail_after(10), pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                await consumer.poll()
            assert await consumer.poll(timeout_ms=1_000) == []
            assert (len(consumer.assignment), consumer.member_id) == (6, member_id)

    alone(test)


# commits


def test_a_commit_with_an_old_member_epoch_is_retried_with_the_new_one() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer("a", **MANUAL) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll(records_max=3)
            refuse(stage, ApiKey.OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH, times=3)
            await consumer.commit()
            assert await consumer.committed([PLACE]) == {PLACE: CommittedOffset(3, 0)}

    alone(test)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_commit_of_an_expelled_member_fails_and_the_member_notices_at_once(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = heard(monkeypatch)

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer("a", **MANUAL) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll(records_max=3)
            refuse(stage, ApiKey.OFFSET_COMMIT, code)
            before = len(requests)
            with pytest.raises(CommitFailed, match="no longer in the group"):
                await consumer.commit()
            await stage.world.sleep_ms(20)
            assert len(requests) == before + 1

    alone(test, group_consumer_heartbeat_interval_ms="3000")


def test_a_listener_commits_on_revoke_and_the_new_owner_continues_there() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        await fill(stage, 200)
        other = member(stage, "b", enable_auto_commit=False)

        class Committing(RebalanceListener):
            async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
                await consumer.commit({one: consumer.position(one) for one in partitions})

        async def body(nursery: trio.Nursery) -> None:
            nonlocal consumer
            async with stage.consumer("a", **MANUAL) as consumer:
                await consumer.subscribe(["orders"], listener=Committing())
                read: list[ConsumerRecord] = []
                while len(read) < 200:
                    read += await consumer.poll()
                nursery.start_soon(other.work)
                while not other.held:
                    await consumer.poll(timeout_ms=100)
                await fill(stage, 100)
                while len(read) + len(other.read) < 300:
                    read += await consumer.poll(timeout_ms=100)
                places = [(record.partition, record.offset) for record in read + other.read]
                assert len(set(places)) == len(places)

        consumer: Consumer
        await at_work(stage, body)

    alone(test)


def test_a_listener_may_take_longer_than_the_session_while_the_member_leaves() -> None:
    async def test(stage: Stage) -> None:
        class Slow(RebalanceListener):
            async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
                await stage.world.sleep_ms(2 * 6_000)
                await consumer.commit()

        await stage.create_topic("orders", 6)
        await fill(stage, 60)
        other = member(stage, "b", enable_auto_commit=False)

        async def body(nursery: trio.Nursery) -> None:
            await consumer.subscribe(["orders"], listener=Slow())
            while len(consumer.assignment) < 6:
                await consumer.poll(records_max=1, timeout_ms=100)
            nursery.start_soon(consumer.unsubscribe)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(other.work)
            await stage.world.sleep_ms(2 * 6_000 - 500)
            assert not other.held
            await stage.until(lambda: other.held == EVERY)

        async with stage.consumer("a", **MANUAL) as consumer:
            await at_work(stage, body)

    alone(test)


def test_poll_raises_a_listeners_exception_and_the_member_stays_in_the_group() -> None:
    class Raising(RebalanceListener):
        async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            raise LookupError

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer("a", **SETTINGS) as consumer:
            await consumer.subscribe(["orders"], listener=Raising())
            with trio.fail_after(10), pytest.raises(LookupError):
                await consumer.poll()
            with trio.fail_after(10):
                assert (await anext(consumer)).offset == 0

    alone(test)


# cancellation


@pytest.mark.parametrize("version", [0, 1])
def test_a_consumer_cancelled_at_any_checkpoint_leaves_no_member_behind(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer is cancelled while it joins, reads, commits, changes its subscription or leaves. In version 0 it
    does not know its member id before the response to its join."""
    replace_row(monkeypatch, CLIENT_APIS, HEARTBEAT, ApiVersionRange(int(HEARTBEAT), 0, version, 0))

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await stage.create_topic("payments")
        await fill(stage, 3)
        async with stage.consumer("probe", **MANUAL) as probe:

            async def work() -> None:
                async with stage.consumer("a", **MANUAL) as consumer:
                    await consumer.subscribe(["orders"])
                    assert (await anext(consumer)).offset == 0
                    await consumer.commit({PLACE: 0})
                    await consumer.subscribe(["orders", "payments"])
                    assert (await anext(consumer)).offset == 1
                    await consumer.commit({PLACE: 0})
                    await consumer.unsubscribe()

            step = 0
            while await cancelled_at(step, work):
                step += 1
                assert step < STEPS_MAX
                # the session of a member that only disappeared would last longer than the test waits
                await probe.subscribe(["orders"])
                with trio.fail_after(3):
                    while not probe.assignment:
                        await probe.poll(records_max=1, timeout_ms=100)
                await probe.commit({PLACE: 0})
                await probe.unsubscribe()
            assert step > 10

    alone(test)


def test_no_task_of_a_closed_consumer_is_left_when_no_broker_can_be_reached() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        with capture_logs():
            async with stage.consumer("a", **SETTINGS) as consumer:
                await consumer.subscribe(["orders"])
                await consumer.poll(timeout_ms=1_000)
                stage.world.isolate("a")
                before_ns = stage.world.now_ns
        assert (stage.world.now_ns - before_ns) // 1_000_000 <= 5_000

    alone(test)


# subscribing and unsubscribing, in both protocols


@pytest.mark.parametrize("settings", [{"group_id": "billing", **FAST}, SETTINGS], ids=["classic", "consumer"])
def test_poll_returns_nothing_of_the_group_after_a_cancelled_unsubscribe(settings: dict[str, Any]) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        await fill(stage, 20)
        step, is_cancelled = 0, True
        while is_cancelled:
            async with stage.consumer("a", **settings) as consumer:
                await consumer.subscribe(["orders"])
                assert await consumer.poll(records_max=1, timeout_ms=20_000)
                is_cancelled = await cancelled_at(step, consumer.unsubscribe)
                assert consumer.assignment == frozenset()
                with pytest.raises(RuntimeError, match="nothing to read"):
                    await consumer.poll(timeout_ms=1)
            step += 1
            assert step < STEPS_MAX
        assert step > 1

    alone(test)


@pytest.mark.parametrize("settings", [{"group_id": "billing", **FAST}, SETTINGS], ids=["classic", "consumer"])
def test_a_member_whose_unsubscribe_is_cancelled_still_leaves(settings: dict[str, Any]) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 1)
        step, is_cancelled = 0, True
        while is_cancelled:
            async with stage.consumer("a", **settings) as consumer, stage.consumer("probe", **settings) as probe:
                await consumer.subscribe(["orders"])
                while not consumer.assignment:
                    await consumer.poll(timeout_ms=100)
                is_cancelled = await cancelled_at(step, consumer.unsubscribe)
                await probe.subscribe(["orders"])
                with trio.fail_after(5):  # the session of a member that only disappeared lasts longer
                    while not probe.assignment:
                        await probe.poll(timeout_ms=100)
            step += 1
            assert step < STEPS_MAX
        assert step > 1

    alone(test)


@pytest.mark.parametrize("settings", [{"group_id": "billing", **FAST}, SETTINGS], ids=["classic", "consumer"])
def test_a_poll_that_begins_during_subscribe_returns_the_groups_records(settings: dict[str, Any]) -> None:
    """The subscription waits for a commit of the partition that was assigned before."""

    async def test(stage: Stage) -> None:
        for topic in ("orders", "payments"):
            await stage.create_topic(topic)
            await fill(stage, 1, topic)
        async with stage.consumer("a", **settings) as consumer, trio.open_nursery() as nursery:
            await consumer.assign([PLACE])
            assert len(await consumer.poll()) == 1
            nursery.start_soon(consumer.subscribe, ["payments"])
            await trio.lowlevel.checkpoint()
            with trio.fail_after(20):
                assert [record.topic for record in await consumer.poll()] == ["payments"]

    alone(test)
