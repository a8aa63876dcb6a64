"""Input of `kraft produce`: records from lines of standard input, or from whole files.

A line or file that is not a record raises `BadInput`, which names it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import trio

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed
from kraft.deploy.cli.records.json_lines import NewRecord, from_json
from kraft.deploy.cli.records.value_text import typed_bytes

READ_BYTES_MAX = 1 << 16
LINE_BYTES_MAX = 1 << 28
"""Maximum length of an input line in bytes. It is more than brokers accept in a record, and small enough to hold in
memory: input without line ends must not exhaust the memory."""
TOO_LONG = f"longer than {LINE_BYTES_MAX >> 20} MiB, which is no record; --file sends a file as one"


class BadInput(CommandFailed):
    """An input line or file is not a record; the text names it."""


async def records_of_lines(read: Callable[[bytes], NewRecord]) -> AsyncGenerator[NewRecord, None]:
    """Yield the records that the lines of standard input contain. A thread reads as many bytes at a time as are
    available.

    Python's own buffer is bypassed: if the thread were blocked in it when the command ends, it would hold the buffer's
    lock."""
    given = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    number, size = 0, 0
    begun: list[bytes] = []  # parts of a line that is not complete yet
    while True:
        data = await trio.to_thread.run_sync(given.read, READ_BYTES_MAX, abandon_on_cancel=True)
        *lines, rest = data.split(b"\n")
        if lines or not data:
            first = b"".join([*begun, *lines[:1]])
            lines = [first, *lines[1:]] if lines or first else []
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > LINE_BYTES_MAX:
            raise BadInput(f"line {number + 1}: {TOO_LONG}", code=EXIT_USAGE)
        for line in lines:
            number += 1
            try:
                record = read(line.removesuffix(b"\r"))
            except CommandFailed as problem:
                raise BadInput(f"line {number}: {problem}", code=problem.code) from None
            yield record
        if not data:
            return


async def records_of_files(paths: Sequence[Path], common: NewRecord) -> AsyncGenerator[NewRecord, None]:
    """Yield each file as the value of one record."""
    for path in paths:
        try:
            yield replace(common, value=path.read_bytes())
        except OSError as problem:
            raise BadInput(f"{path}: {problem.strerror}", code=EXIT_USAGE) from None


def line_reader(common: NewRecord, separator: str | None, null: str | None) -> Callable[[bytes], NewRecord]:
    """Return a function that converts a line to a record. A line has a value, or a key, a separator and a value."""
    mark = None if separator is None else typed_bytes(separator)
    none = None if null is None else typed_bytes(null)

    def read(line: bytes) -> NewRecord:
        key, value = common.key, line
        if mark is not None:
            key, found, value = line.partition(mark)
            if not found:
                raise CommandFailed(f"no {separator!r} between key and value: {line[:80]!r}", code=EXIT_USAGE)
        is_null = none is not None and value == none
        return replace(common, key=None if key == none else key, value=None if is_null else value)

    return read


def json_reader(common: NewRecord, keep_partitions: bool) -> Callable[[bytes], NewRecord]:
    """Return a function that converts a line of JSON to a record."""

    def read(line: bytes) -> NewRecord:
        record = from_json(line)
        return NewRecord(
            record.value,
            record.key if common.key is None else common.key,
            (*record.headers, *common.headers),
            record.partition if keep_partitions else common.partition,
            record.timestamp_ms if common.timestamp_ms is None else common.timestamp_ms,
        )

    return read
