"""Share consumers that are cancelled at every checkpoint in turn. No record is accepted that the application had not
finished, none stays locked, and no member stays in the group.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.client import ShareConsumer
from kraft.wire.api_keys import ApiKey
from tests.client.share.share_consumers import GROUP, alone, begin, fill, share_consumer
from tests.stages.clients_in_world import PLACE, Stage, cancelled_at

STEPS_MAX = 2_000
TOTAL = 3_000
STEP_RECORDS = 12
"""Records that are appended before each run; more than a run reads."""
SECONDS_MAX = 5
"""Maximum virtual seconds of one run. It is much shorter than a lock or a session."""
LONG_LOCK: dict[str, Any] = {"group_share_record_lock_duration_ms": "30000", "group_share_session_timeout_ms": "45000"}
EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}


async def members(stage: Stage) -> int:
    """Return the number of members of the group, as its coordinator has it."""
    client = await stage.client()
    answer = await client.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[GROUP])
    return len(answer.groups[0].members)


@pytest.mark.parametrize("settings", [{}, EXPLICIT], ids=["implicit", "explicit"])
def test_a_share_consumer_cancelled_at_any_checkpoint_accepts_only_finished_records(settings: dict[str, Any]) -> None:
    """The consumer is cancelled while it joins, polls, iterates, commits, changes its subscription or leaves. After
    each cancellation another member reads what is left, because a delivery that is given back counts."""

    async def test(stage: Stage) -> None:
        await begin(stage)
        await stage.create_topic("payments")
        finished: set[int] = set()
        rest: set[int] = set()
        committed: set[int] = set()

        async def work() -> None:
            async with share_consumer(stage, "a", **settings) as consumer:
                own: set[int] = set()
                await consumer.subscribe(["orders"])
                for turn in range(4):
                    for record in [await anext(consumer)] if turn % 2 else await consumer.poll(records_max=3):
                        await stage.world.sleep_ms(1)
                        own.add(record.offset)
                        finished.add(record.offset)
                        if settings:
                            consumer.acknowledge(record)
                results = await consumer.commit()
                if results == {PLACE: None}:
                    committed.update(own)
                await consumer.subscribe(["orders", "payments"])
                finished.update(record.offset for record in await consumer.poll(records_max=2))

        async def read_rest(consumer: ShareConsumer, end: int) -> None:
            while len(finished | rest) < end:
                rest.update(record.offset for record in await consumer.poll(timeout_ms=100))
            await consumer.commit()

        with capture_logs():
            async with share_consumer(stage, "rest") as other, stage.producer() as producer:
                await other.subscribe(["orders"])
                step, end, is_cancelled = 0, 0, True
                while is_cancelled:
                    for number in range(end, end + STEP_RECORDS):
                        await producer.enqueue("orders", b"%d" % number)
                    await producer.flush()
                    end += STEP_RECORDS
                    with trio.fail_after(SECONDS_MAX):
                        is_cancelled = await cancelled_at(step, work)
                        assert await members(stage) == 1
                        await read_rest(other, end)
                    step += 1
                    assert step < STEPS_MAX
                rest.update(record.offset for record in await other.poll(timeout_ms=1_000))
        assert step > 10
        assert finished | rest == set(range(end))
        assert len(committed) >= 8
        assert not committed & rest

    alone(test, **LONG_LOCK)


def test_a_share_consumer_works_on_after_cancelled_polls_and_commits() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(TOTAL))
        read: list[int] = []
        async with share_consumer(stage, max_poll_records=100) as consumer:
            await consumer.subscribe(["orders"])

            async def work() -> None:
                for turn in range(5):
                    if len(read) < TOTAL and turn % 2:
                        read.append((await anext(consumer)).offset)
                    elif len(read) < TOTAL:
                        read.extend(record.offset for record in await consumer.poll(records_max=7))
                    if turn == 3:
                        await consumer.commit()

            while len(read) < TOTAL:
                step = 0
                while await cancelled_at(step, work):
                    step += 1
                    assert step < STEPS_MAX
            assert set((await consumer.commit()).values()) <= {None}
            assert read == list(range(TOTAL))
            assert await consumer.poll(timeout_ms=1_000) == []

    alone(test, **LONG_LOCK)


def test_closing_ends_in_time_when_no_broker_can_be_reached() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(10))
        with capture_logs() as logged:
            async with share_consumer(stage, "a") as consumer:
                await consumer.subscribe(["orders"])
                await consumer.poll(records_max=3)
                await consumer.poll(records_max=3)
                stage.world.isolate("a")
                before_ns = stage.world.now_ns
        assert (stage.world.now_ns - before_ns) // 1_000_000 <= 5_000
        assert [line["event"] for line in logged] == ["acknowledgements failed"]

    alone(test, **LONG_LOCK)


def test_closing_reports_an_acknowledgement_in_flight_when_the_broker_does_not_answer() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        with capture_logs() as logged:
            async with share_consumer(stage, "a") as consumer:
                await consumer.subscribe(["orders"])
                assert len(await consumer.poll()) == 3
                stage.world.isolate("a")
                consumer.commit_nowait()
                await stage.world.sleep_ms(100)
        assert [line["event"] for line in logged] == ["the share consumer was closed before poll raised this error"]
        assert "acknowledgements of orders-0 failed" in str(logged[0]["problem"])

    alone(test, **LONG_LOCK)
