"""Consumer groups on pykraft's brokers, in virtual time: every assignor, with members that join, leave, crash, stall
and return.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.client import CommitFailed, CommittedOffset, Consumer, KafkaError, RebalanceListener
from kraft.client.connections import TimedOut
from kraft.client.core.records import ConsumerRecord, TopicPartition
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.client.group_consumers import EVERY, FAST, GroupConsumer, at_work, fill, grow
from tests.stages.clients_in_world import PLACE, Stage, Test, cancelled_at, run, three

GROUPS = {"offsets_topic_num_partitions": "3", "group_initial_rebalance_delay_ms": "0"}
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def alone(test: Test, **settings: Any) -> None:
    run(test, offsets_topic_replication_factor="1", **GROUPS, **settings)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_join_and_leave_and_every_partition_has_one_owner(strategy: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        await fill(stage, 300)
        first, second = (GroupConsumer(stage, name, partition_assignment_strategy=strategy) for name in "ab")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(first.work)
            await stage.until(lambda: len(first.read) == 300)
            assert first.held == EVERY
            nursery.start_soon(second.work)
            await stage.until(lambda: len(first.held) == 3 and first.held | second.held == EVERY)
            await fill(stage, 300)
            await stage.until(lambda: len(first.read) + len(second.read) == 600)
            await second.stop()
            await stage.until(lambda: first.held == EVERY)
            await fill(stage, 300)
            await stage.until(lambda: len(first.read) + len(second.read) == 900)
            await stage.world.sleep_ms(2_000)

        await at_work(stage, body)
        read = [(record.partition, record.offset) for member in (first, second) for record in member.read]
        assert len(read) == len(set(read)) == 900
        revoked = [len(partitions) for kind, partitions in first.events if kind == "revoked"]
        assert revoked[0] == (3 if strategy == "cooperative-sticky" else 6)

    alone(test)


def test_other_members_read_the_partitions_of_a_crashed_member_and_skip_no_record() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        first, second = (
            GroupConsumer(stage, "a", auto_commit_interval_ms=200),
            GroupConsumer(stage, "b", auto_commit_interval_ms=200),
        )

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
        first, second = (GroupConsumer(stage, name, auto_commit_interval_ms=100) for name in "ab")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(first.work)
            nursery.start_soon(second.work)
            await stage.until(lambda: len(first.held) == 3 and len(second.held) == 3)
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

        def places(*members: GroupConsumer) -> list[tuple[int, int]]:
            return [(record.partition, record.offset) for member in members for record in member.read]

        await at_work(stage, body)
        for member in (first, second):
            for number in range(6):
                own = [record.offset for record in member.read if record.partition == number]
                assert own == sorted(set(own))

    three(test, seed=seed, offsets_topic_replication_factor="3", **GROUPS)


def test_a_static_member_that_returns_in_time_gets_its_partitions_without_a_rebalance() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        stays = GroupConsumer(stage, "a", group_instance_id="one")
        leaves, returns = (GroupConsumer(stage, name, group_instance_id="two") for name in "bc")

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


def test_of_two_members_with_one_instance_id_the_older_is_fenced() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        older, newer = (GroupConsumer(stage, name, group_instance_id="one") for name in "ab")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(older.work)
            await stage.until(lambda: older.held == EVERY)
            nursery.start_soon(newer.work)
            await stage.until(lambda: older.failure is not None)
            assert older.failure is not None
            assert older.failure.code is ErrorCode.FENCED_INSTANCE_ID

        await at_work(stage, body)

    alone(test)


def test_a_member_that_exceeds_max_poll_interval_loses_its_partitions_and_can_rejoin() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        slow, other = (GroupConsumer(stage, name, max_poll_interval_ms=2_000) for name in "ab")

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
        told = GroupConsumer(stage, "unused")
        read: list[int] = []
        async with stage.consumer("a", group_id="billing", max_poll_interval_ms=2_000, **FAST) as consumer:
            await consumer.subscribe(["orders"], listener=told)
            async for record in consumer:
                read.append(record.offset)
                if len(read) == 20:
                    break
                await stage.world.sleep_ms(400)
            assert [kind for kind, _ in told.events] == ["assigned"]
        assert read == list(range(20))

    alone(test)


def test_auto_commit_covers_only_records_before_the_last_poll() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 100)
        settings = {"group_id": "billing", "auto_commit_interval_ms": 50, **FAST}
        async with stage.consumer("a", **settings) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll(records_max=10)) == 10
            await stage.world.sleep_ms(500)
            assert await consumer.committed([PLACE]) == {PLACE: CommittedOffset(0, -1)}
            await consumer.poll(records_max=10)
            await stage.world.sleep_ms(500)
            assert (await consumer.committed([PLACE]))[PLACE] == CommittedOffset(10, 0)
            assert (await anext(consumer)).offset == 20
            assert (await anext(consumer)).offset == 21
            await stage.world.sleep_ms(500)
            assert (await consumer.committed([PLACE]))[PLACE] == CommittedOffset(21, 0)
        async with stage.consumer("b", **settings) as consumer:
            await consumer.subscribe(["orders"])
            assert (await anext(consumer)).offset == 22

    alone(test)


def test_a_record_whose_processing_raises_is_not_committed() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 20)
        with pytest.raises(LookupError):
            async with stage.consumer("a", group_id="billing", **FAST) as consumer:
                await consumer.subscribe(["orders"])
                async for record in consumer:
                    if record.offset == 12:
                        raise LookupError
        async with stage.consumer("b", group_id="billing", **FAST) as consumer:
            await consumer.subscribe(["orders"])
            assert (await anext(consumer)).offset == 12

    alone(test)


def test_commits_take_effect_in_the_order_of_the_calls_and_keep_their_metadata_text() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 20)
        async with stage.consumer("a", group_id="billing", enable_auto_commit=False, **FAST) as consumer:
            await consumer.assign([PLACE])
            for number in range(1, 6):
                consumer.commit_nowait({PLACE: number})
            await consumer.commit({PLACE: CommittedOffset(15, 0, "note")})
            assert await consumer.committed([PLACE, ("orders", 5)]) == {
                PLACE: CommittedOffset(15, 0, "note"),
                ("orders", 5): None,
            }
        async with stage.consumer("b", group_id="billing", enable_auto_commit=False, **FAST) as consumer:
            await consumer.assign([PLACE])
            assert (await anext(consumer)).offset == 15

    alone(test)


@pytest.mark.parametrize("is_member", [True, False])
@pytest.mark.parametrize("is_left", [True, False])
def test_commit_nowait_finishes_before_the_consumer_closes_or_unsubscribes(is_member: bool, is_left: bool) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 20)
        settings = {"group_id": "billing", "enable_auto_commit": False, **FAST}
        async with stage.consumer("a", **settings) as consumer:
            if is_member:
                await consumer.subscribe(["orders"])
            else:
                await consumer.assign([PLACE], at="earliest")
            (record,) = await consumer.poll(records_max=1)
            consumer.commit_nowait()
            if is_left:
                await consumer.unsubscribe()
        async with stage.consumer("b", **settings) as consumer:
            assert await consumer.committed([PLACE]) == {PLACE: CommittedOffset(record.offset + 1, 0)}

    alone(test)


def test_a_rejected_commit_of_a_closing_consumer_is_logged() -> None:
    """The consumer is closing, so no later `poll` could raise the error."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 20)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with capture_logs() as logs:
            async with stage.consumer("a", group_id="billing", enable_auto_commit=False, **FAST) as consumer:
                await consumer.assign([PLACE], at="earliest")
                await consumer.poll()
                stage.fault(api_key=ApiKey.OFFSET_COMMIT, action=ReplyAction.ERROR, error=refused, times=1)
                consumer.commit_nowait()
        assert [entry for entry in logs if refused.name in entry.get("problem", "")]

    alone(test)


def test_a_commit_cancelled_at_any_checkpoint_stores_its_offset_or_leaves_the_previous_offset() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 50)
        async with stage.consumer("a", group_id="billing", enable_auto_commit=False, **FAST) as consumer:
            await consumer.subscribe(["orders"])
            before = None
            done = cancelled = step = 0
            while done < 5:
                (record,) = await consumer.poll(records_max=1)
                is_cancelled = await cancelled_at(step, consumer.commit)
                await stage.world.sleep_ms(50)
                found = (await consumer.committed([PLACE]))[PLACE]
                wanted = CommittedOffset(record.offset + 1, 0)
                assert found == wanted or (is_cancelled and found == before)
                before = found
                step, cancelled, done = (step + 1, cancelled + 1, done) if is_cancelled else (0, cancelled, done + 1)
            assert cancelled >= 2 * done

    alone(test)


def test_a_commit_without_a_reachable_broker_times_out() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        quick = {"default_api_timeout_ms": 2_000, "request_timeout_ms": 1_000, "enable_auto_commit": False}
        async with stage.consumer("a", group_id="billing", **quick, **FAST) as consumer:
            await consumer.assign([PLACE], at="earliest")
            await consumer.poll(records_max=1)
            stage.world.isolate("a")
            with trio.fail_after(5), pytest.raises(TimedOut):
                await consumer.commit()
            with trio.fail_after(5), pytest.raises(TimedOut):
                await consumer.committed([PLACE])
            stage.world.heal_all()
            await consumer.commit()
            assert (await consumer.committed([PLACE]))[PLACE] == CommittedOffset(1, 0)

    alone(test)


def test_an_expelled_members_commit_fails_and_the_member_rejoins() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        settings = {"group_id": "billing", "enable_auto_commit": False, **FAST, "heartbeat_interval_ms": 5_000}
        async with stage.consumer("a", **settings) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll(records_max=3)
            stage.fault(
                api_key=ApiKey.OFFSET_COMMIT, action=ReplyAction.ERROR, error=ErrorCode.UNKNOWN_MEMBER_ID, times=1
            )
            with pytest.raises(CommitFailed, match="no longer in the group"):
                await consumer.commit()
            assert (await consumer.poll(records_max=1))[0].offset == 0
            await consumer.commit()

    alone(test)


def test_a_commit_is_not_retried_after_its_partitions_were_revoked() -> None:
    """A retry would reset the group's offset to the position of this member."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", partitions=2)
        await fill(stage, 20)

        async def body(nursery: trio.Nursery) -> None:
            settings = {"group_id": "billing", "enable_auto_commit": False, **FAST}
            async with stage.consumer("a", **settings) as consumer:
                await consumer.subscribe(["orders"])
                while sum(consumer.position(place) for place in consumer.assignment) < 20:
                    await consumer.poll()
                stage.fault(
                    api_key=ApiKey.OFFSET_COMMIT,
                    action=ReplyAction.ERROR,
                    error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    times=7,
                )
                consumer.commit_nowait()
                nursery.start_soon(GroupConsumer(stage, "b", enable_auto_commit=False).work)
                with trio.fail_after(30), pytest.raises(CommitFailed, match=r"orders-\d.* may belong to others now"):
                    while True:
                        await consumer.poll(timeout_ms=100)
                assert len(consumer.assignment) == 1
                assert set((await consumer.committed([("orders", 0), ("orders", 1)])).values()) == {None}

        await at_work(stage, body)

    alone(test)


def test_a_member_outside_of_its_group_does_not_commit_without_a_member_id() -> None:
    """An empty group would accept a commit without a member id."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        settings = {"group_id": "billing", "enable_auto_commit": False, **FAST}
        async with stage.consumer("a", **settings) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll(records_max=3)
            stage.fault(api_key=ApiKey.HEARTBEAT, action=ReplyAction.ERROR, error=ErrorCode.ILLEGAL_GENERATION, times=1)
            stage.fault(api_key=ApiKey.JOIN_GROUP, action=ReplyAction.DELAY, delay_ms=2_000)
            await stage.world.sleep_ms(1_000)
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert await consumer.committed([PLACE]) == {PLACE: None}

    alone(test)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (ApiKey.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.JOIN_GROUP, ErrorCode.NOT_COORDINATOR),
        (ApiKey.JOIN_GROUP, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS),
        (ApiKey.SYNC_GROUP, ErrorCode.NOT_COORDINATOR),
        (ApiKey.SYNC_GROUP, ErrorCode.ILLEGAL_GENERATION),
        (ApiKey.HEARTBEAT, ErrorCode.NOT_COORDINATOR),
        (ApiKey.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION),
        (ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.OFFSET_FETCH, ErrorCode.NOT_COORDINATOR),
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_member_joins_despite_transient_coordinator_errors(key: ApiKey, code: ErrorCode) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        stage.fault(api_key=key, action=ReplyAction.ERROR, error=code, times=2)
        member = GroupConsumer(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(member.work)
            await stage.until(lambda: member.held == EVERY)
            await stage.world.sleep_ms(2_000)
            await stage.until(lambda: member.held == EVERY)
            await fill(stage, 60)
            await stage.until(lambda: len(member.read) == 60)

        await at_work(stage, body)

    alone(test)


def test_a_group_authorization_error_is_raised_by_poll() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 6)
        stage.fault(
            api_key=ApiKey.JOIN_GROUP, action=ReplyAction.ERROR, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1
        )
        async with stage.consumer("a", group_id="billing", **FAST) as consumer:
            await consumer.subscribe(["orders"])
            for _ in range(2):
                with trio.fail_after(10), pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED: group billing"):
                    await consumer.poll()
            await consumer.subscribe(["orders"])
            assert await consumer.poll(timeout_ms=1_000) == []
            assert len(consumer.assignment) == 6

    alone(test)


def test_a_missing_subscribed_topic_is_logged_once_and_read_once_created() -> None:
    async def test(stage: Stage) -> None:
        with capture_logs() as logs:
            settings = {**FAST, "metadata_max_age_ms": 300}
            async with stage.consumer("a", group_id="billing", allow_auto_create_topics=False, **settings) as consumer:
                await consumer.subscribe(["orders"])
                assert await consumer.poll(timeout_ms=3_000) == [], "it has refreshed the metadata ten times"
                await stage.create_topic("orders")
                await fill(stage, 1)
                assert len(await consumer.poll(timeout_ms=30_000)) == 1
        warned = [entry for entry in logs if entry["log_level"] == "warning"]
        assert [(entry["event"], entry["topic"]) for entry in warned] == [
            ("a subscribed topic does not exist (yet)", "orders")
        ]

    alone(test)


def test_a_pattern_subscription_includes_topics_created_later() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders-a", 2)
        await stage.create_topic("payments", 2)
        member = GroupConsumer(stage, "a", "^orders-.*", metadata_max_age_ms=500)

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(member.work)
            await stage.until(lambda: len(member.held) == 2)
            await stage.create_topic("orders-b", 3)
            await stage.until(lambda: len(member.held) == 5)
            assert {topic for topic, _ in member.held} == {"orders-a", "orders-b"}

        await at_work(stage, body)

    alone(test)


def test_the_group_leader_rebalances_when_any_members_topic_grows_or_appears() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        quick = {"metadata_max_age_ms": 500, "allow_auto_create_topics": False}
        first, second = GroupConsumer(stage, "a", **quick), GroupConsumer(stage, "b", ["orders", "later"], **quick)

        async def body(nursery: trio.Nursery) -> None:
            nursery.start_soon(first.work)
            nursery.start_soon(second.work)
            await stage.until(lambda: len(first.held) == 1 and len(second.held) == 1)
            await stage.create_topic("later", 2)
            await stage.until(lambda: len(second.held) == 3)
            await grow(stage, "orders", 6)
            await stage.until(lambda: first.held | second.held >= EVERY)

        await at_work(stage, body)

    alone(test)


def test_a_rebalance_listener_can_seek_and_commit() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 30)

        class Listener(RebalanceListener):
            def __init__(self, consumer: Consumer) -> None:
                self.consumer = consumer

            async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
                for partition in partitions:
                    self.consumer.seek(partition, 20)

            async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
                await self.consumer.commit({PLACE: 29})

        async with stage.consumer("a", group_id="billing", enable_auto_commit=False, **FAST) as consumer:
            await consumer.subscribe(["orders"], listener=Listener(consumer))
            assert (await anext(consumer)).offset == 20
        async with stage.consumer("b", group_id="billing", **FAST) as consumer:
            await consumer.subscribe(["orders"])
            assert (await anext(consumer)).offset == 29

    alone(test)


class Committing(RebalanceListener):
    """A listener that commits numbered offsets of its partitions in every callback."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self.consumer.commit({PLACE: 5})


def test_poll_raises_a_listeners_exception_and_the_member_stays_in_the_group() -> None:
    """The partitions are lost, so the commit in the listener is rejected."""

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        async with stage.consumer("a", group_id="billing", enable_auto_commit=False, **FAST) as consumer:
            await consumer.subscribe(["orders"], listener=Committing(consumer))
            read: list[ConsumerRecord] = []
            while len(read) < 10:
                read += await consumer.poll()
            expelled = ErrorCode.UNKNOWN_MEMBER_ID
            stage.fault(api_key=ApiKey.HEARTBEAT, action=ReplyAction.ERROR, error=expelled, times=1)
            with trio.fail_after(10), pytest.raises(CommitFailed):
                await consumer.poll()
            with trio.fail_after(10):
                assert (await anext(consumer)).offset == 0

    alone(test)


def test_a_member_leaves_its_group_even_if_its_listener_raises() -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, 10)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError, match=refused.name):
            async with stage.consumer("a", group_id="billing", enable_auto_commit=False, **FAST) as consumer:
                await consumer.subscribe(["orders"], listener=Committing(consumer))
                await consumer.poll()
                stage.fault(api_key=ApiKey.OFFSET_COMMIT, action=ReplyAction.ERROR, error=refused, times=1)
        async with stage.consumer("b", group_id="billing", **FAST) as consumer:
            await consumer.subscribe(["orders"])
            # the session of a member that only disappeared would last longer than the test waits
            with trio.fail_after(3):
                assert (await anext(consumer)).offset == 0

    alone(test)


def test_subscribe_and_commit_need_a_group_id() -> None:
    async def test(stage: Stage) -> None:
        async with stage.consumer("a") as consumer:
            with pytest.raises(ValueError, match="needs a group_id"):
                await consumer.subscribe(["orders"])
            with pytest.raises(ValueError, match="needs a group_id"):
                await consumer.commit()

    alone(test)
