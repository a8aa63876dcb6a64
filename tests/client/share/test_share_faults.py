"""Share consumers while brokers, leaders, coordinators, sessions and connections fail, in virtual time. No record is
lost, and an acknowledgement that is reported as successful is not delivered again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.client import Acknowledgement, KafkaError
from kraft.client.admin import Admin
from kraft.sim.world.filesystem import Directory, Inode
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.client.share.share_consumers import (
    LOCK_MS,
    Worker,
    alone,
    at_work,
    begin,
    fill,
    numbers,
    on_three,
    read_numbers,
    share_consumer,
)
from tests.stages.clients_in_world import PLACE, Stage

EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}


def refuse(stage: Stage, key: ApiKey, code: ErrorCode, times: int = 1) -> None:
    stage.fault(api_key=key, action=ReplyAction.ERROR, error=code, times=times)


# groups


def test_members_share_one_partition_and_each_record_goes_to_one_of_them() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        workers = [Worker(stage, name, max_poll_records=10) for name in "abc"]

        async def body(nursery: trio.Nursery) -> None:
            await stage.until(lambda: all(worker.consumer.assignment for worker in workers))
            for first in range(0, 300, 10):
                await fill(stage, range(first, first + 10))
            await stage.until(lambda: sum(read_numbers(*workers).values()) >= 300)
            await stage.world.sleep_ms(2 * LOCK_MS)

        await at_work(body, *workers)
        assert read_numbers(*workers) == dict.fromkeys(range(300), 1)
        assert all(worker.read for worker in workers)
        assert [worker.failures for worker in workers] == [[], [], []]

    alone(test)


def test_records_of_a_member_that_leaves_are_free_at_once() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(20))
        other = Worker(stage, "other")
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll(records_max=5)) == 5

        async def body(nursery: trio.Nursery) -> None:
            waited_ms = await stage.until(lambda: len(other.read) == 20)
            assert waited_ms < LOCK_MS

        await at_work(body, other)
        assert {record.delivery_count for record in other.read} == {2}

    alone(test)


def test_a_record_on_which_every_member_fails_is_archived_after_its_last_delivery() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, share_delivery_count_limit="3")
        await fill(stage, [7])
        counts: list[int] = []
        for number in range(4):
            with suppress(ArithmeticError):
                async with share_consumer(stage, f"failing-{number}") as consumer:
                    await consumer.subscribe(["orders"])
                    for record in await consumer.poll(timeout_ms=LOCK_MS // 2):
                        counts.append(record.delivery_count)
                        raise ArithmeticError
        assert counts == [1, 2, 3]
        await fill(stage, [8])
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert numbers(await consumer.poll()) == [8]

    alone(test)


def test_records_that_are_fetched_with_one_on_which_every_member_fails_are_all_processed() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, share_delivery_count_limit="3")
        await fill(stage, range(8), linger_ms=100)
        processed: list[int] = []
        failures = 0
        while len(processed) < 7:
            with suppress(ArithmeticError):
                async with share_consumer(stage, f"reader-{failures}") as consumer:
                    await consumer.subscribe(["orders"])
                    while len(processed) < 7:
                        for number in numbers(await consumer.poll(records_max=1)):
                            if number == 3:
                                failures += 1
                                raise ArithmeticError
                            processed.append(number)
                    await consumer.commit()
        assert sorted(processed) == [0, 1, 2, 4, 5, 6, 7]
        assert failures == 3

    alone(test)


def test_records_of_a_crashed_member_are_delivered_to_another() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(20))
        other = Worker(stage, "other")
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll(records_max=5)) == 5

            async def body(nursery: trio.Nursery) -> None:
                await stage.until(lambda: bool(other.consumer.assignment))
                stage.world.isolate("reader")
                await stage.until(lambda: len(other.read) == 20)

            await at_work(body, other)
            stage.world.heal_all()

    alone(test)


def test_a_changed_subscription_releases_the_buffered_records_of_other_topics() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await begin(stage, "payments")
        await fill(stage, range(10))
        await fill(stage, range(100, 105), "payments")
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll(records_max=2)) == 2
            member_id = consumer.member_id
            await consumer.subscribe(["payments"])
            found: list[int] = []
            while len(found) < 5:
                found += [number for number in numbers(await consumer.poll()) if number >= 100]
            assert consumer.assignment == {("payments", 0)}
            assert consumer.member_id == member_id
            async with share_consumer(stage, "other") as other:
                await other.subscribe(["orders"])
                rest: list[int] = []
                while records := await other.poll(timeout_ms=LOCK_MS // 2):
                    rest += numbers(records)
            assert rest[-1] == 9

    alone(test)


def test_a_topic_that_is_subscribed_again_at_once_is_read_again() -> None:
    """The coordinator does not learn of the subscription between, so it changes no assignment."""

    async def test(stage: Stage) -> None:
        await begin(stage)
        await stage.create_topic("payments")
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            await fill(stage, range(2))
            assert len(await consumer.poll(records_max=1)) == 1
            await consumer.subscribe(["payments"])
            assert consumer.assignment == frozenset()
            await consumer.subscribe(["orders"])
            assert consumer.assignment == {PLACE}
            await fill(stage, range(2, 4))
            while not (records := await consumer.poll()) or records[-1].offset != 3:
                pass

    alone(test)


def test_a_topic_that_is_deleted_and_created_again_is_read_again() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(5))
        worker = Worker(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            await stage.until(lambda: len(worker.read) == 5)
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.topics.delete("orders")
            await begin(stage)
            await fill(stage, range(100, 105))
            await stage.until(lambda: len(worker.read) == 10, 30_000)
            await stage.world.sleep_ms(2 * LOCK_MS)

        await at_work(body, worker)
        assert numbers(worker.read) == [*range(5), *range(100, 105)]
        assert worker.failures == []

    alone(test, auto_create_topics_enable="false")


def test_the_partitions_that_a_topic_gets_are_read_too() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        worker = Worker(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            await stage.until(lambda: bool(worker.consumer.assignment))
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.topics.add_partitions("orders", 4)
            await fill(stage, range(100))
            await stage.until(lambda: len(worker.consumer.assignment) == 4)
            await stage.until(lambda: len(read_numbers(worker)) == 100)

        await at_work(body, worker)
        assert {record.partition for record in worker.read} == {0, 1, 2, 3}

    alone(test)


def test_a_new_member_reads_nothing_before_the_coordinator_has_assigned_it() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            await stage.until(lambda: consumer.assignment == {PLACE})
            await consumer.unsubscribe()
            await consumer.subscribe(["payments"])
            await consumer.subscribe(["orders"])
            assert consumer.assignment == frozenset()
            await stage.until(lambda: consumer.assignment == {PLACE})

    alone(test)


def test_the_error_of_a_topic_that_is_not_subscribed_any_more_is_not_raised() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["no topic"])
            await stage.world.sleep_ms(1_000)
            await consumer.subscribe(["orders"])
            assert numbers(await consumer.poll()) == [0, 1]
            await consumer.subscribe(["orders", "no topic"])
            with pytest.raises(KafkaError, match="topic no topic is not available"):
                while True:
                    await consumer.poll()

    alone(test)


# errors of the coordinator


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_member_continues_after_an_error_of_the_coordinator(code: ErrorCode) -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        worker = Worker(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            await fill(stage, range(10))
            await stage.until(lambda: len(worker.read) == 10)
            member_id = worker.consumer.member_id
            refuse(stage, ApiKey.SHARE_GROUP_HEARTBEAT, code, 2)
            await stage.world.sleep_ms(2_000)
            await fill(stage, range(10, 20))
            await stage.until(lambda: len(worker.read) >= 20)
            assert worker.consumer.member_id == member_id

        await at_work(body, worker)
        assert set(read_numbers(worker)) == set(range(20))

    alone(test)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.share.max.size"),
        (ErrorCode.UNSUPPORTED_VERSION, "share.version"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ on the group"),
    ],
)
def test_a_rejected_member_gets_an_error_that_says_what_to_do(code: ErrorCode, advice: str) -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        refuse(stage, ApiKey.SHARE_GROUP_HEARTBEAT, code)
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            with pytest.raises(KafkaError, match=advice) as rejected:
                await consumer.poll()
            assert rejected.value.code is code
            await consumer.subscribe(["orders"])
            await fill(stage, range(1))
            assert numbers(await consumer.poll()) == [0]

    alone(test)


def test_a_member_that_exceeds_max_poll_interval_leaves_and_rejoins_at_the_next_poll() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        async with share_consumer(stage, max_poll_interval_ms=3_000) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll()) == 3
            await stage.world.sleep_ms(5_000)
            assert consumer.assignment == frozenset()
            again = await consumer.poll()
            assert numbers(again) == [0, 1, 2]

    alone(test)


# errors of sessions and partitions


@pytest.mark.parametrize("key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_an_error_in_a_response_loses_no_record(key: ApiKey, code: ErrorCode) -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        worker = Worker(stage, "a")

        async def body(nursery: trio.Nursery) -> None:
            await fill(stage, range(10))
            await stage.until(lambda: len(worker.read) == 10)
            refuse(stage, key, code, 2)
            await fill(stage, range(10, 20))
            await stage.until(lambda: set(read_numbers(worker)) == set(range(20)))
            await stage.world.sleep_ms(2 * LOCK_MS)

        await at_work(body, worker)
        if worker.failures:
            assert key is ApiKey.SHARE_ACKNOWLEDGE
        for error in worker.failures:
            assert error.code in (ErrorCode.NETWORK_EXCEPTION, code)

    alone(test)


@pytest.mark.parametrize("key", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_GROUP_HEARTBEAT])
@pytest.mark.parametrize("action", [ReplyAction.CLOSE, ReplyAction.DROP])
@pytest.mark.parametrize("after", [False, True], ids=["request", "response"])
def test_what_a_commit_has_accepted_is_not_delivered_again_after_lost_messages(
    key: ApiKey, action: ReplyAction, after: bool
) -> None:
    """A lost request is not carried out; a lost response is to one that was."""

    async def test(stage: Stage) -> None:
        await begin(stage, partitions=2)
        accepted: set[tuple[int, int]] = set()
        done: set[int] = set()
        async with share_consumer(stage, request_timeout_ms=2_000) as consumer:
            await consumer.subscribe(["orders"])
            for turn in range(6):
                await fill(stage, range(10 * turn, 10 * turn + 10))
                stage.fault(api_key=key, action=action, after=after, times=2)
                with trio.fail_after(60):
                    while len(done) < 10 * turn + 10:
                        records = await consumer.poll(records_max=4)
                        places = {(record.partition, record.offset) for record in records}
                        assert not places & accepted
                        results = await consumer.commit()
                        failed = {place for place, error in results.items() if error is not None}
                        good = [one for one in records if (one.topic, one.partition) not in failed]
                        accepted |= {(one.partition, one.offset) for one in good}
                        done |= set(numbers(records))
        assert done == set(range(60))

    alone(test)


def test_acknowledgements_fail_if_the_session_is_lost_and_the_records_come_again() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll()) == 3
            for link in consumer._cluster.links.all_of("share"):
                link.close()
            error = (await consumer.commit())[PLACE]
            assert error is not None
            assert error.code is ErrorCode.NETWORK_EXCEPTION
            assert numbers(await consumer.poll()) == [0, 1, 2]
            assert await consumer.commit() == {PLACE: None}

    alone(test)


def test_closing_reports_acknowledgements_of_records_whose_session_was_lost_before() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        with capture_logs() as logged:
            async with share_consumer(stage, **EXPLICIT) as consumer:
                await consumer.subscribe(["orders"])
                first, second = await consumer.poll()
                consumer.acknowledge(first)
                for link in consumer._cluster.links.all_of("share"):
                    link.close()
                assert (await consumer.commit())[PLACE] is not None
                assert not logged
                await stage.world.sleep_ms(1_000)
                consumer.acknowledge(second)
        assert [(line["event"], line["records"]) for line in logged] == [("acknowledgements failed", 1)]

    alone(test)


def test_a_write_that_the_share_coordinator_rejects_for_now_is_retried() -> None:
    """The acknowledgement is in order, so the application gets no error."""

    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll()) == 3
            refuse(stage, ApiKey.WRITE_SHARE_GROUP_STATE, ErrorCode.COORDINATOR_NOT_AVAILABLE, 2)
            assert await consumer.commit() == {PLACE: None}
            assert await consumer.poll(timeout_ms=2 * LOCK_MS) == []

    on_three(test)


def test_a_fetch_waits_for_the_write_of_the_acknowledgements_that_it_carries() -> None:
    """A leader repeats a write for longer than an ordinary fetch lasts, for example while a share coordinator moves."""

    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll()) == 3
            refuse(stage, ApiKey.WRITE_SHARE_GROUP_STATE, ErrorCode.COORDINATOR_NOT_AVAILABLE, 12)
            assert await consumer.poll(timeout_ms=15_000) == []
            assert await consumer.commit() == {}

    on_three(test)


def test_a_damaged_batch_is_an_error_and_its_records_are_released() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        async with share_consumer(stage, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            damage(stage)
            with pytest.raises(KafkaError, match="released, and delivered again") as damaged:
                await consumer.poll()
            assert damaged.value.code is ErrorCode.CORRUPT_MESSAGE
            damage(stage)  # the same again repairs it
            records = await consumer.poll()
            assert {record.delivery_count for record in records} == {2}
            for record in records:
                consumer.acknowledge(record, Acknowledgement.ACCEPT)

    alone(test)


def damage(stage: Stage) -> None:
    """Invert the last byte of the log of partition 0."""
    data = stage.world.host("b1").root.entries["data"]
    assert isinstance(data, Directory)
    folder = data.entries["orders-0"]
    assert isinstance(folder, Directory)
    (segment,) = (entry for name, entry in folder.entries.items() if name.endswith(".log"))
    assert isinstance(segment, Inode)
    segment.data[-1] ^= 0xFF


# leaving


def test_unsubscribe_while_the_connection_is_being_opened_opens_no_session() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        node: Any = stage.cluster.node(1)
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            await stage.until(lambda: bool(consumer.assignment))
            stage.world.isolate("reader")
            assert await consumer.poll(timeout_ms=100) == []
            await consumer.unsubscribe()
            stage.world.heal_all()
            await stage.world.sleep_ms(2_000)
            assert len(node.broker.broker.shares.sessions) == 0
            await fill(stage, range(2))
            await consumer.subscribe(["orders"])
            records = await consumer.poll()
            assert [(record.offset, record.delivery_count) for record in records] == [(0, 1), (1, 1)]

    alone(test)


def test_unsubscribe_ends_a_poll_of_another_task() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        async with share_consumer(stage) as consumer, trio.open_nursery() as nursery:
            await consumer.subscribe(["orders"])

            async def wait_for_records() -> None:
                with pytest.raises(RuntimeError, match="subscribe first"), trio.fail_after(10):
                    await consumer.poll()

            nursery.start_soon(wait_for_records)
            await stage.world.sleep_ms(1_000)
            await consumer.unsubscribe()

    alone(test)


# changes of leaders


@pytest.mark.parametrize("seed", range(3))
def test_no_record_is_lost_when_brokers_are_killed_one_after_another(seed: int) -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, partitions=4)
        workers = [Worker(stage, name) for name in "ab"]

        async def body(nursery: trio.Nursery) -> None:
            for turn, broker in enumerate(stage.cluster.broker_ids):
                await fill(stage, range(100 * turn, 100 * turn + 60))
                stage.world.kill(stage.cluster.name(broker))
                await fill(stage, range(100 * turn + 60, 100 * turn + 100))
                written = set(range(100 * turn + 100))
                await stage.until(lambda expected=written: read_numbers(*workers).keys() >= expected, 90_000)  # type: ignore[misc]
                stage.cluster.start(broker)
                await stage.world.sleep_ms(5_000)

        await at_work(body, *workers)
        assert set(read_numbers(*workers)) == set(range(300))

    on_three(test, seed=seed)


def test_a_moved_leader_is_followed_and_its_records_are_delivered_again() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(5))
        async with share_consumer(stage) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll()) == 5
            await stage.stop(stage.leader("orders"))
            error = (await consumer.commit())[PLACE]
            assert error is not None
            assert error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert sorted(numbers(await consumer.poll())) == list(range(5))
            assert await consumer.commit() == {PLACE: None}

    on_three(test)
