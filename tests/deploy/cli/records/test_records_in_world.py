"""Inner functions of `kraft produce` and `kraft consume`, run on a simulated cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import trio

from kraft.client import Consumer, Producer
from kraft.client.admin import NewTopic
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.records.consume import ReadRange, _bounds, _print, _write
from kraft.deploy.cli.records.filter import RecordFilter, compile_filter
from kraft.deploy.cli.records.format import compile_format
from kraft.deploy.cli.records.input_lines import BadInput
from kraft.deploy.cli.records.json_lines import NewRecord
from kraft.deploy.cli.records.send_records import IN_FLIGHT_MAX, RecordSender
from kraft.deploy.cli.topics import offsets_at_time
from tests.stages.admin_client import Stage, play

RECORDS = {1_000: 0, 2_000: 1, 3_000: 2, 4_000: 3}


class Screen:
    """Collects the printed text."""

    def __init__(self) -> None:
        self.shown = b""

    async def write(self, data: bytes) -> None:
        self.shown += data


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ReadRange(), (1, 4)),
        (ReadRange("latest"), (4, 4)),
        (ReadRange(0), (1, 4)),
        (ReadRange(2), (2, 4)),
        (ReadRange(-1), (3, 4)),
        (ReadRange(-9), (1, 4)),
        (ReadRange(4), (4, 4)),
        (ReadRange(4, end=12), (4, 4)),
        (ReadRange(2, end=3), (2, 3)),
        (ReadRange(2, end=9), (2, 4)),
        (ReadRange(since_ms=3_000), (2, 4)),
        (ReadRange(since_ms=3_001, until_ms=4_000), (3, 3)),
        (ReadRange(since_ms=9_000), (4, 4)),
        (ReadRange(until_ms=9_000), (1, 4)),
        (ReadRange(2, follow=True), (2, None)),
    ],
)
def test_each_offset_or_time_option_of_kraft_consume_gives_the_expected_start_and_end_offsets(
    wanted: ReadRange, expected: tuple[int, int | None]
) -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.produce("t", RECORDS)
        await stage.admin.partitions.delete_records({("t", 0): 1})
        starts, ends = await _bounds(stage.admin, ["t"], wanted, committed=False)
        assert (starts[("t", 0)], None if ends is None else ends[("t", 0)]) == expected

    play(work)


@pytest.mark.parametrize("follow", [False, True])
def test_consuming_from_an_offset_beyond_every_partition_is_refused_with_the_largest_end_offset(follow: bool) -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 2))
        await stage.produce("t", RECORDS, partition=1)
        starts, _ = await _bounds(stage.admin, ["t"], ReadRange(4, follow=follow), committed=False)
        assert starts == {("t", 0): 0, ("t", 1): 4}, "a partition that is shorter begins at its own end"
        with pytest.raises(CommandFailed, match="no offset 5 is there yet: t-1, the longest, ends at 4") as failure:
            await _bounds(stage.admin, ["t"], ReadRange(5, follow=follow), committed=False)
        assert failure.value.code == 4
        with pytest.raises(CommandFailed, match="t-0 ends at 0; see kraft partitions list"):
            await _bounds(stage.admin, ["t:0"], ReadRange(4, follow=follow), committed=False)

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
def test_kraft_consume_stops_at_the_end_or_after_the_requested_count(
    only: RecordFilter, count: int | None, expected: str
) -> None:
    screen = Screen()

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 2))
        await stage.produce("t", RECORDS)
        starts, ends = await _bounds(stage.admin, ["t"], ReadRange(), committed=False)
        await stage.produce("t", {5_000: 9})
        seam = stage.cluster.world.node("reader")
        async with Consumer(bootstrap_servers=stage.bootstrap_servers, seam=seam) as consumer:
            await consumer.assign(starts, at=starts)
            await _print(consumer, ends, only, compile_format("%s "), count, screen.write)

    play(work)
    assert screen.shown == expected.encode()


def test_offsets_at_a_time_leave_out_records_written_after_the_end_was_read() -> None:
    """If such records were included, deleting all records older than now would also delete records that arrive during
    the command."""

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.produce("t", RECORDS)
        tp = ("t", 0)
        for time_ms, end, expected in ((3_000, 4, 2), (9_000, 4, 4), (9_000, 3, 3), (4_000, 2, 2)):
            assert await offsets_at_time(stage.admin, time_ms, {tp: end}) == {tp: expected}

    play(work)


def test_a_partition_that_ends_before_the_start_offset_prints_nothing() -> None:
    screen = Screen()

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 2))
        await stage.produce("t", RECORDS, partition=1)
        starts, ends = await _bounds(stage.admin, ["t"], ReadRange(1, end=3), committed=False)
        seam = stage.cluster.world.node("reader")
        async with Consumer(bootstrap_servers=stage.bootstrap_servers, seam=seam) as consumer:
            await consumer.assign(starts, at=starts)
            await _print(consumer, ends, RecordFilter(), compile_format("%s "), None, screen.write)

    play(work)
    assert screen.shown == b"1 2 "


def test_a_consumer_whose_output_blocks_stays_in_its_group() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.produce("t", RECORDS)
        world = stage.cluster.world
        settings = {"group_id": "g", "session_timeout_ms": 6_000, "auto_offset_reset": "earliest"}
        async with Consumer(
            bootstrap_servers=stage.bootstrap_servers, seam=world.node("reader"), **settings
        ) as consumer:

            async def held_up(data: bytes) -> None:
                member_id = consumer.member_id
                await world.sleep_ms(60_000)
                group = await stage.admin.groups.describe("g")
                assert [(data, member.member_id) for member in group.members] == [(b"0 ", member_id)]

            await consumer.subscribe(["t"])
            await _print(consumer, None, RecordFilter(), compile_format("%s "), 1, held_up)

    play(work)


@contextmanager
def output_read_here(*, is_blocking: bool) -> Iterator[int]:
    """Yield a descriptor from which the data written to standard output can be read. This is not a fixture, because
    pytest would put its own capture between the fixture and the test."""
    source, sink = os.pipe()
    os.set_blocking(sink, is_blocking)
    with open(sink, "w") as given, mock.patch.object(sys, "stdout", given):
        yield source


@pytest.mark.parametrize("is_blocking", [True, False])
async def test_the_event_loop_runs_while_the_reader_of_the_output_is_stopped(is_blocking: bool) -> None:
    data = b"".join(b"%d\n" % number for number in range(200_000))
    read = bytearray()
    with output_read_here(is_blocking=is_blocking) as source:
        async with trio.lowlevel.FdStream(source) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(_write, data)
            while len(read) < len(data):
                read += await stream.receive_some()
    assert read == data


async def send(
    stage: Stage, source: AsyncGenerator[NewRecord, None], reading: trio.CancelScope, **settings: Any
) -> RecordSender:
    """Send these records to topic t, and return the result."""
    sending = RecordSender("t", keep_reports=True)
    seam = stage.cluster.world.node("writer")
    async with Producer(bootstrap_servers=stage.bootstrap_servers, seam=seam, **settings) as producer:
        await sending.run(producer, source, reading)
    return sending


def test_kraft_produce_sends_more_records_than_may_be_in_flight_in_order() -> None:
    async def records() -> AsyncGenerator[NewRecord, None]:
        for number in range(IN_FLIGHT_MAX + 7):
            yield NewRecord(b"%d" % number)

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        sent = await send(stage, records(), trio.CancelScope())
        assert [report.offset for report in sent.reports] == list(range(IN_FLIGHT_MAX + 7))
        assert sent.count == IN_FLIGHT_MAX + 7

    play(work)


def test_kraft_produce_reports_the_number_of_the_first_refused_record() -> None:
    async def records() -> AsyncGenerator[NewRecord, None]:
        yield NewRecord(b"small")
        yield NewRecord(b"x" * 2_000)

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1, configs={"max.message.bytes": "1000"}))
        sent = await send(stage, records(), trio.CancelScope(), batch_size=100)
        assert str(sent.problem).startswith("record 2 was not delivered: ")
        assert sent.count == 1

    play(work)


@pytest.mark.parametrize(
    ("stops", "told"),
    [("bad input", "line 3"), ("no such partition", "record 3 was not delivered"), ("interrupt", None)],
)
def test_kraft_produce_delivers_records_read_before_an_error_or_interrupt(stops: str, told: str | None) -> None:
    reading = trio.CancelScope()

    async def records() -> AsyncGenerator[NewRecord, None]:
        yield NewRecord(b"0")
        yield NewRecord(b"1")
        if stops == "bad input":
            raise BadInput("line 3")
        if stops == "interrupt":
            reading.cancel()
            await trio.sleep_forever()
        yield NewRecord(b"2", partition=7)

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        sent = await send(stage, records(), reading)
        assert [report.offset for report in sent.reports] == [0, 1]
        assert sent.count == 2
        assert (sent.problem is None) if told is None else str(sent.problem).startswith(told)

    play(work)
