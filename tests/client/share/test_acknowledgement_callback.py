"""When a share consumer calls `on_acknowledged` on pykraft's brokers: in `poll`, in `commit` and at the end of its
block, once for every acknowledgement.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.client import Acknowledgement, AcknowledgementFailed, KafkaError
from kraft.wire.error_codes import ErrorCode
from tests.client.share.share_consumers import LOCK_MS, alone, begin, fill, on_three, share_consumer
from tests.stages.clients_in_world import PLACE, Stage, cancelled_at

EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}
LONG_LOCK: dict[str, Any] = {"group_share_record_lock_duration_ms": "30000", "group_share_session_timeout_ms": "45000"}
SECONDS_MAX = 5
STEPS_MAX = 2_000


class Results:
    """The results that a consumer has reported, and the tasks in which it did."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, int], frozenset[int], KafkaError | None]] = []
        self.tasks: set[trio.lowlevel.Task] = set()
        self.failing = 0
        """Number of calls that raise an exception from now on."""

    def on_acknowledged(self, partition: tuple[str, int], offsets: frozenset[int], error: KafkaError | None) -> None:
        self.calls.append((partition, offsets, error))
        self.tasks.add(trio.lowlevel.current_task())
        if self.failing:
            self.failing -= 1
            raise RuntimeError(f"no place for the result of {sorted(offsets)}")

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offsets, _ in self.calls for offset in sorted(offsets)]

    @property
    def accepted(self) -> set[int]:
        return {offset for _, offsets, error in self.calls if error is None for offset in offsets}

    @property
    def codes(self) -> set[ErrorCode | None]:
        return {None if error is None else error.code for _, _, error in self.calls}


def test_poll_reports_implicit_acknowledgements_while_it_waits_for_records() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(5))
        results = Results()
        async with share_consumer(stage, on_acknowledged=results.on_acknowledged) as consumer:
            await consumer.subscribe(["orders"])
            assert len(await consumer.poll(records_max=3)) == 3
            assert results.calls == []
            assert len(await consumer.poll(records_max=2)) == 2
            assert await consumer.poll(timeout_ms=1_000) == []
            assert sorted(results.offsets) == [0, 1, 2, 3, 4]
            assert results.codes == {None}
            assert {partition for partition, _, _ in results.calls} == {PLACE}

    alone(test)


def test_no_result_is_reported_between_polls_and_an_iteration_reports_them() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(10))
        results = Results()
        async with share_consumer(stage, on_acknowledged=results.on_acknowledged) as consumer:
            await consumer.subscribe(["orders"])
            for offset in range(4):
                assert (await anext(consumer)).offset == offset
            await stage.world.sleep_ms(500)
            assert results.calls == []
            assert (await anext(consumer)).offset == 4
            assert results.offsets == [0, 1, 2]

    alone(test)


def test_commit_has_reported_every_acknowledgement_made_before_it_when_it_returns() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage, partitions=2)
        await fill(stage, range(40))
        results = Results()
        async with share_consumer(stage, on_acknowledged=results.on_acknowledged, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            read = Counter[tuple[str, int, int]]()
            while read.total() < 40:
                for record in await consumer.poll(records_max=7):
                    read[(record.topic, record.partition, record.offset)] += 1
                    consumer.acknowledge(record, Acknowledgement.REJECT)
            assert set((await consumer.commit()).values()) == {None}
            reported = Counter((*partition, offset) for partition, offsets, _ in results.calls for offset in offsets)
            assert reported == read
            assert results.tasks == {trio.lowlevel.current_task()}

    alone(test)


def test_a_failed_acknowledgement_is_reported_with_its_error_and_still_returned_by_commit() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(2))
        results = Results()
        with capture_logs():
            async with share_consumer(stage, on_acknowledged=results.on_acknowledged) as consumer:
                await consumer.subscribe(["orders"])
                assert len(await consumer.poll()) == 2
                await stage.world.sleep_ms(LOCK_MS + 500)
                assert [record.delivery_count for record in await consumer.poll()] == [2, 2]
                (failed,) = results.calls
                assert failed[:2] == (PLACE, frozenset({0, 1}))
                assert isinstance(failed[2], AcknowledgementFailed)
                assert (await consumer.commit())[PLACE] is failed[2]
                assert results.calls[1:] == [(PLACE, frozenset({0, 1}), None)]

    alone(test)


def test_the_end_of_the_block_reports_what_closing_has_sent() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(6))
        results = Results()
        async with share_consumer(stage, on_acknowledged=results.on_acknowledged, **EXPLICIT) as consumer:
            await consumer.subscribe(["orders"])
            for record in (await consumer.poll())[:4]:
                consumer.acknowledge(record)
            assert results.calls == []
        assert results.calls == [(PLACE, frozenset(range(4)), None)]
        assert results.tasks == {trio.lowlevel.current_task()}

    alone(test)


def test_the_end_of_the_block_reports_a_failure_when_the_broker_does_not_answer() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3))
        results = Results()
        with capture_logs():
            async with share_consumer(stage, "a", on_acknowledged=results.on_acknowledged, **EXPLICIT) as consumer:
                await consumer.subscribe(["orders"])
                for record in await consumer.poll():
                    consumer.acknowledge(record)
                stage.world.isolate("a")
        assert sorted(results.offsets) == [0, 1, 2]
        assert results.codes == {ErrorCode.REQUEST_TIMED_OUT}

    alone(test, **LONG_LOCK)


def test_an_exception_of_the_function_is_raised_by_poll_which_has_taken_no_record() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(9))
        results = Results()
        async with share_consumer(stage, on_acknowledged=results.on_acknowledged) as consumer:
            await consumer.subscribe(["orders"])
            read = [record.offset for record in await consumer.poll(records_max=3)]
            read += [record.offset for record in await consumer.poll(records_max=1)]
            await stage.world.sleep_ms(500)
            results.failing = 1
            with pytest.raises(RuntimeError, match=r"no place for the result of \[0, 1, 2\]"):
                await consumer.poll(records_max=1)
            while len(read) < 9:
                read += [record.offset for record in await consumer.poll()]
            assert read == list(range(9))
            assert await consumer.commit() == {PLACE: None}
            assert Counter(results.offsets) == Counter(range(9))

    alone(test)


def test_an_exception_of_the_function_is_raised_by_commit_and_by_the_end_of_the_block() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(4))
        results = Results()
        consumer = share_consumer(stage, on_acknowledged=results.on_acknowledged, **EXPLICIT)
        with pytest.raises(RuntimeError, match=r"result of \[2, 3\]"):
            async with consumer:
                await consumer.subscribe(["orders"])
                records = await consumer.poll()
                for record in records[:2]:
                    consumer.acknowledge(record)
                results.failing = 1
                with pytest.raises(RuntimeError, match=r"result of \[0, 1\]"):
                    await consumer.commit()
                for record in records[2:]:
                    consumer.acknowledge(record)
                results.failing = 1
        with pytest.raises(RuntimeError, match="the share consumer is closed"):
            await consumer.poll()
        assert results.offsets == [0, 1, 2, 3]

    alone(test)


def test_results_are_reported_once_across_the_loss_of_a_leader() -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(30))
        results = Results()
        with capture_logs():
            async with share_consumer(stage, on_acknowledged=results.on_acknowledged) as consumer:
                await consumer.subscribe(["orders"])
                given: Counter[int] = Counter()
                given.update(record.offset for record in await consumer.poll(records_max=10))
                await stage.stop(stage.leader("orders"))
                while results.accepted != set(range(30)):
                    given.update(record.offset for record in await consumer.poll(records_max=10, timeout_ms=500))
                await consumer.commit()
        assert Counter(results.offsets) == given
        assert len(results.codes) > 1

    on_three(test)


@pytest.mark.parametrize("settings", [{}, EXPLICIT], ids=["implicit", "explicit"])
def test_a_consumer_cancelled_at_any_checkpoint_has_reported_every_acknowledgement(settings: dict[str, Any]) -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(3_000))
        every: set[int] = set()

        async def work() -> None:
            results = Results()
            finished: set[int] = set()
            own: list[int] = []
            try:
                async with share_consumer(stage, "a", on_acknowledged=results.on_acknowledged, **settings) as consumer:
                    await consumer.subscribe(["orders"])
                    for turn in range(8):
                        finished.update(own)
                        for record in [await anext(consumer)] if turn % 2 else await consumer.poll(records_max=3):
                            await stage.world.sleep_ms(60)
                            own.append(record.offset)
                            if settings:
                                consumer.acknowledge(record)
                    finished.update(own)
                    await consumer.commit()
            finally:
                assert not set(results.offsets) - set(own)
                assert finished <= set(results.offsets)
                assert len(results.offsets) == len(set(results.offsets))
                assert results.codes <= {None}
                every.update(results.offsets)

        with capture_logs(), trio.fail_after(SECONDS_MAX) as limit:
            step = 0
            while await cancelled_at(step, work):
                step += 1
                assert step < STEPS_MAX
                limit.deadline = trio.current_time() + SECONDS_MAX
        assert step > 10
        assert every

    alone(test, **LONG_LOCK)
