"""`kraft produce`: records from lines of text, JSON lines, or whole files."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kraft.deploy.cli.completing import complete_topic
from kraft.deploy.cli.connection import Connection, over_network, pair
from kraft.deploy.cli.output import (
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    is_terminal,
    plural,
    print_json,
    progress,
    warn,
)
from kraft.deploy.cli.record_json import NewRecord, from_json
from kraft.deploy.cli.times import parse_time_ms

if TYPE_CHECKING:
    import io

    from kraft.client import DeliveryReport, Producer

IN_FLIGHT_MAX = 10_000
READ_BYTES_MAX = 1 << 16


@over_network
def produce(
    connection: Connection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)],
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Lines are KEY TEXT VALUE; else values only."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="On every record; may be repeated.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Send all records to this one.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of every record: 2026-11-21T10:00:00, ms since 1970, or -1h.")
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="A value (or key) that reads so is null.")
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--from-json", help="Each line is a record as kraft consume --json prints it.")
    ] = False,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="With --from-json: send to the partitions that the lines name.")
    ] = False,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="PATH", help="Send this whole file as one record; may be repeated."),
    ] = None,
    acks: Annotated[str | None, typer.Option(help="all, 1 or 0. [all]")] = None,
    compression: Annotated[
        str | None, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd. [none]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send each line of standard input as a record."""
    if key_separator == "":
        raise CommandFailed("--key-separator is empty; leave it out if lines are values only", code=EXIT_USAGE)
    if file and json_lines:
        raise CommandFailed("--file sends whole files, --from-json lines: give one of them", code=EXIT_USAGE)
    stamp = None if timestamp is None else parse_time_ms(timestamp, _now_ms())
    common = NewRecord(
        None,
        None if key is None else key.encode(),
        tuple((name, text.encode()) for name, text in (pair(entry, "--header") for entry in header or ())),
        partition,
        stamp,
    )
    read = _json_reader(common, keep_partitions) if json_lines else _line_reader(common, key_separator, null)
    settings = connection.producer_settings(acks=acks, compression_type=compression)

    async def work() -> list[DeliveryReport]:
        from kraft.client import Producer

        async with connection.admin() as admin:
            await admin.nodes.cluster()  # says within seconds if there is no cluster
        source = _files(file, common) if file else _lines(read)
        async with Producer(**settings) as producer:
            return await _send(producer, topic, source, keep_reports=as_json)

    if not file and is_terminal(sys.stdin):
        warn(f"each line becomes a record of {topic}; end with ctrl-D")
    reports = connection.run_async(work)
    if as_json:
        print_json([{"partition": report.partition, "offset": report.offset} for report in reports])


async def _send(
    producer: Producer, topic: str, source: AsyncIterator[NewRecord], *, keep_reports: bool
) -> list[DeliveryReport]:
    """Send all, with at most IN_FLIGHT_MAX unacknowledged. CommandFailed for the first that is not delivered."""
    waiting: deque[Any] = deque()
    reports: list[DeliveryReport] = []
    count = 0
    with progress("sending", None) as advance:
        async for record in source:
            waiting.append(
                await producer.enqueue(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            )
            if len(waiting) >= IN_FLIGHT_MAX:
                count += await _settle(waiting, len(waiting) // 2, reports if keep_reports else None, count)
            advance(1)
        await producer.flush()
        count += await _settle(waiting, len(waiting), reports if keep_reports else None, count)
    if not keep_reports:
        print(f"{plural(count, 'record')} sent to {topic}")
    return reports


async def _settle(waiting: deque[Any], number: int, reports: list[DeliveryReport] | None, before: int) -> int:
    from kraft.client import DeliveryFailed

    for done in range(number):
        try:
            report = await waiting.popleft().wait()
        except DeliveryFailed as problem:
            raise CommandFailed(
                f"record {before + done + 1} was not delivered: {problem}; the {before + done} before it were"
            ) from None
        if reports is not None:
            reports.append(report)
    return number


def _line_reader(common: NewRecord, separator: str | None, null: str | None) -> Callable[[bytes], NewRecord]:
    mark = None if null is None else null.encode()

    def read(line: bytes) -> NewRecord:
        key, value = common.key, line
        if separator is not None:
            key, found, value = line.partition(separator.encode())
            if not found:
                raise CommandFailed(
                    f"this line has no {separator!r} between key and value: {line[:80]!r}", code=EXIT_USAGE
                )
        is_null = mark is not None and value == mark
        return replace(common, key=None if key == mark else key, value=None if is_null else value)

    return read


def _json_reader(common: NewRecord, keep_partitions: bool) -> Callable[[bytes], NewRecord]:
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


async def _files(paths: Sequence[Path], common: NewRecord) -> AsyncIterator[NewRecord]:
    for path in paths:
        try:
            yield replace(common, value=path.read_bytes())
        except OSError as problem:
            raise CommandFailed(f"{path}: {problem.strerror}", code=EXIT_USAGE) from None


async def _lines(read: Callable[[bytes], NewRecord]) -> AsyncIterator[NewRecord]:
    """Records of standard input, which is read off the loop, as much at a time as there is."""
    import trio

    given = cast("io.BufferedReader", sys.stdin.buffer)
    rest = b""
    while True:
        data = await trio.to_thread.run_sync(given.read1, READ_BYTES_MAX, abandon_on_cancel=True)
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines.append(rest)
        for line in lines:
            yield read(line.removesuffix(b"\r"))
        if not data:
            return


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)
