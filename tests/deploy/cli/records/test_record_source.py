"""Lines of standard input become records, and ctrl-C ends reading even while the input is open."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing
from unittest import mock

import pytest
import trio

from kraft.deploy.cli.records.input_lines import BadInput, line_reader, records_of_lines
from kraft.deploy.cli.records.json_lines import NewRecord
from kraft.deploy.cli.records.send_records import handle_interrupts


@pytest.fixture
def typing() -> Iterator[int]:
    """Replace standard input by a pipe, and yield the pipe's writing end."""
    source, sink = os.pipe()
    with open(source) as given, mock.patch.object(sys, "stdin", given):
        yield sink
        os.close(sink)  # lets a reader that still waits in its thread end


async def test_input_lines_are_read_as_they_arrive(typing: int) -> None:
    records = records_of_lines(line_reader(NewRecord(None), ":", None))
    os.write(typing, b"a:1\nb:")
    assert (await anext(records)).value == b"1"
    os.write(typing, b"2\r\nnone\n")
    assert (await anext(records)).value == b"2"
    with pytest.raises(BadInput, match="line 3: no ':' between key and value: b'none'"):
        await anext(records)


async def test_an_input_line_that_arrives_in_many_parts_is_one_record(
    typing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.deploy.cli.records.input_lines.READ_BYTES_MAX", 4)
    os.write(typing, b"0123456789\n\nabc\n\r\nabcd\nx\ny\n")
    async with aclosing(records_of_lines(line_reader(NewRecord(None), None, None))) as records:
        for expected in (b"0123456789", b"", b"abc", b"", b"abcd", b"x", b"y"):
            assert (await anext(records)).value == expected


async def test_input_without_line_ends_does_not_exhaust_memory(typing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.deploy.cli.records.input_lines.LINE_BYTES_MAX", 10)
    records = records_of_lines(line_reader(NewRecord(None), None, None))
    os.write(typing, b"1\n")
    assert (await anext(records)).value == b"1"
    os.write(typing, b"2" * 11)
    with pytest.raises(BadInput, match="line 2: longer than 256 MiB, which is no record"):
        await anext(records)


async def test_the_first_interrupt_ends_reading_and_the_second_ends_the_command(typing: int) -> None:
    read = []
    with pytest.raises(BaseExceptionGroup) as ended:
        async with trio.open_nursery() as nursery:
            reading = trio.CancelScope()
            await nursery.start(handle_interrupts, reading)
            os.write(typing, b"1\n2\n")
            with reading:
                async for record in records_of_lines(line_reader(NewRecord(None), None, None)):
                    read.append(record.value)
                    if len(read) == 2:
                        os.kill(os.getpid(), signal.SIGINT)
            assert (read, reading.cancelled_caught) == ([b"1", b"2"], True)
            os.kill(os.getpid(), signal.SIGINT)
            await trio.sleep_forever()
    assert ended.value.subgroup(KeyboardInterrupt) is not None


def test_a_separator_and_a_null_marker_may_be_non_utf_8_bytes() -> None:
    read = line_reader(NewRecord(None), os.fsdecode(b"\xff"), os.fsdecode(b"\xfe"))
    assert read(b"key\xffvalue") == NewRecord(b"value", b"key")
    assert read(b"key\xff\xfe") == NewRecord(None, b"key")
