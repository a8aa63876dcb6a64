"""What `kraft produce` and `kraft consume` do between their options and the screen, on a simulated cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kraft.client import Consumer, Producer
from kraft.client.admin import NewTopic
from kraft.deploy.cli.consume import Range, _bounds, _print
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.produce import IN_FLIGHT_MAX, _send
from kraft.deploy.cli.record_filter import RecordFilter, compile_filter
from kraft.deploy.cli.record_format import compile_format
from kraft.deploy.cli.record_json import NewRecord
from tests.admin.stage import Stage, play

RECORDS = {1_000: 0, 2_000: 1, 3_000: 2, 4_000: 3}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Range(), (1, 4)),
        (Range("latest"), (4, 4)),
        (Range(0), (1, 4)),
        (Range(2), (2, 4)),
        (Range(-1), (3, 4)),
        (Range(-9), (1, 4)),
        (Range(2, end=3), (2, 3)),
        (Range(2, end=9), (2, 4)),
        (Range(since_ms=3_000), (2, 4)),
        (Range(since_ms=3_001, until_ms=4_000), (3, 3)),
        (Range(since_ms=9_000), (4, 4)),
        (Range(until_ms=9_000), (1, 4)),
        (Range(2, follow=True), (2, None)),
    ],
)
def test_each_way_to_say_where_gives_a_begin_and_an_end(wanted: Range, expected: tuple[int, int | None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.produce("t", RECORDS)
        await stage.admin.partitions.delete_records({("t", 0): 1})
        starts, ends = await _bounds(stage.admin, ["t"], wanted, committed=False)
        assert (starts[("t", 0)], None if ends is None else ends[("t", 0)]) == expected

    play(work)


@pytest.mark.parametrize(
    ("only", "count", "expected"),
    [
        (RecordFilter(), None, "0 1 2 3 "),
        (RecordFilter(), 3, "0 1 2 "),
        (compile_filter(None, "[13]", ()), None, "1 3 "),
        (compile_filter(None, "[13]", ()), 1, "1 "),
        (compile_filter("x", None, ()), None, ""),
    ],
)
def test_printing_stops_at_the_end_or_after_so_many(
    only: RecordFilter, count: int | None, expected: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 2))
        await stage.produce("t", RECORDS)
        starts, ends = await _bounds(stage.admin, ["t"], Range(), committed=False)
        await stage.produce("t", {5_000: 9})
        seam = stage.cluster.world.node("reader")
        async with Consumer(bootstrap_servers=stage.bootstrap_servers, seam=seam) as consumer:
            await consumer.assign(starts, at=starts)
            await _print(consumer, ends, only, compile_format("%s "), count)

    play(work)
    assert capfdbinary.readouterr().out == expected.encode()


def test_more_records_than_may_be_unacknowledged_are_sent_in_order() -> None:
    async def records() -> AsyncIterator[NewRecord]:
        for number in range(IN_FLIGHT_MAX + 7):
            yield NewRecord(b"%d" % number)

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        seam = stage.cluster.world.node("writer")
        async with Producer(bootstrap_servers=stage.bootstrap_servers, seam=seam) as producer:
            reports = await _send(producer, "t", records(), keep_reports=True)
        assert [report.offset for report in reports] == list(range(IN_FLIGHT_MAX + 7))

    play(work)


def test_the_first_record_that_is_refused_is_told_by_its_number() -> None:
    async def records() -> AsyncIterator[NewRecord]:
        yield NewRecord(b"small")
        yield NewRecord(b"x" * 2_000)

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1, configs={"max.message.bytes": "1000"}))
        seam = stage.cluster.world.node("writer")
        with pytest.raises(CommandFailed, match=r"record 2 was not delivered: .*; the 1 before it were"):
            async with Producer(bootstrap_servers=stage.bootstrap_servers, batch_size=100, seam=seam) as producer:
                await _send(producer, "t", records(), keep_reports=True)

    play(work)
