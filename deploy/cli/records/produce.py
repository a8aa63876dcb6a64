"""`kraft produce`: send records from lines of text, JSON lines, or whole files."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.completing import complete_topic
from kraft.deploy.cli.connection import ClusterConnection, over_network, pair
from kraft.deploy.cli.output import (
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    is_terminal,
    plural,
    print_json,
    warn,
)
from kraft.deploy.cli.records.json_lines import NewRecord
from kraft.deploy.cli.records.producer_options import AcksOption, CompressionOption
from kraft.deploy.cli.records.value_text import typed_bytes
from kraft.deploy.cli.times import parse_time_ms
from kraft.deploy.cli.topics import shape_of, shape_text

if TYPE_CHECKING:
    from kraft.client.admin import Admin
    from kraft.deploy.cli.records.send_records import RecordSender

EXIT_INTERRUPTED = 130

_EXCLUSIVE = (
    ("--file", "--from-json", "the first sends whole files, the second lines"),
    ("--file", "--key-separator", "the first sends whole files, the second is for lines"),
    ("--file", "--null", "the first sends whole files, the second is for lines"),
    ("--from-json", "--key-separator", "a line of JSON has its key as a field"),
    ("--from-json", "--null", "a line of JSON says null itself"),
    ("--key", "--key-separator", "the first is the key of every record, the second takes it from each line"),
    ("--partition", "--keep-partitions", "the first sends all to one, the second each to its own"),
)
"""Pairs of options that exclude each other, and the reason."""


@over_network
def produce(
    connection: ClusterConnection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)],
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help="Lines are KEY, this text, VALUE; default: values only."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Send all records to this partition.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Timestamp of every record: 2026-11-21T10:00:00, ms since 1970, or -1h."),
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="Text that stands for a null value (or key).")
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
    acks: AcksOption = None,
    compression: CompressionOption = None,
    transactional: Annotated[
        str | None,
        typer.Option(
            "--transactional", metavar="ID", help="Send all records in one transaction of this transactional id."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send each line of standard input as a record."""
    if key_separator == "":
        raise CommandFailed("--key-separator is empty; leave it out if lines are values only", code=EXIT_USAGE)
    _require_effect(
        {
            "--key": key is not None,
            "--key-separator": key_separator is not None,
            "--partition": partition is not None,
            "--null": null is not None,
            "--from-json": json_lines,
            "--keep-partitions": keep_partitions,
            "--file": bool(file),
        }
    )
    common = _common(key, header or (), partition, timestamp)
    from kraft.deploy.cli.records.input_lines import json_reader, line_reader, records_of_files, records_of_lines
    from kraft.deploy.cli.records.send_records import RecordSender

    read = json_reader(common, keep_partitions) if json_lines else line_reader(common, key_separator, null)
    settings = connection.producer_settings(acks=acks, compression_type=compression, transactional_id=transactional)
    is_typed = not file and is_terminal(sys.stdin)
    sending = RecordSender(topic, keep_reports=as_json, is_typed=is_typed)

    async def work() -> bool:
        async with connection.admin() as admin:
            is_there = await _is_there(admin, topic)  # fails within seconds if there is no cluster
        source = records_of_files(file, common) if file else records_of_lines(read)
        was_interrupted = await _send(sending, settings, source)
        if sending.count and not is_there:
            is_asked = sending.problem is None and not was_interrupted and not as_json
            sending.created = "topic created" + (await _shape(connection, topic) if is_asked else "")
        return was_interrupted

    if is_typed:
        warn(f"each line becomes a record of {topic}; end with ctrl-D")
    was_interrupted = connection.run_async(work)
    _report(sending)
    if was_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


async def _is_there(admin: Admin, topic: str) -> bool:
    """Whether a topic exists, so that the brokers need not create it. True also if the brokers do not respond."""
    from kraft.client import KafkaError
    from kraft.wire.error_codes import ErrorCode

    try:
        await admin.topics.describe([topic])
    except KafkaError as problem:
        return problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return True


async def _shape(connection: ClusterConnection, topic: str) -> str:
    """Return the topic's shape as `: 1 partition, 3 replicas`; an empty text if no broker has the topic in its metadata
    yet."""
    async with connection.admin() as admin:
        shape = await shape_of(admin, topic)
    return f": {shape_text(*shape)}" if shape else ""


def _require_effect(given: Mapping[str, bool]) -> None:
    """Raise CommandFailed for an option that would have no effect because of another given option."""
    for option, other, why in _EXCLUSIVE:
        if given[option] and given[other]:
            raise CommandFailed(f"{option} and {other}: {why}; give one of them", code=EXIT_USAGE)
    if given["--keep-partitions"] and not given["--from-json"]:
        raise CommandFailed("--keep-partitions is for the lines of --from-json", code=EXIT_USAGE)


def _common(key: str | None, headers: Iterable[str], partition: int | None, timestamp: str | None) -> NewRecord:
    """Return the defaults of all records: key, headers, partition and timestamp from the options."""
    return NewRecord(
        None,
        None if key is None else typed_bytes(key),
        tuple((name, typed_bytes(text)) for name, text in (pair(entry, "--header") for entry in headers)),
        partition,
        None if timestamp is None else parse_time_ms(timestamp, _now_ms()),
    )


async def _send(sending: RecordSender, settings: dict[str, Any], source: AsyncGenerator[NewRecord, None]) -> bool:
    """Send all records of `source`. Return whether an interrupt ended the sending."""
    import trio

    from kraft.client import Producer
    from kraft.deploy.cli.records.send_records import handle_interrupts

    reading = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        await nursery.start(handle_interrupts, reading)
        async with Producer(**settings) as producer:
            if settings.get("transactional_id") is None:
                await sending.run(producer, source, reading)
            else:
                await sending.run_in_transaction(producer, source, reading)
        nursery.cancel_scope.cancel()
    return reading.cancel_called


def _report(sending: RecordSender) -> None:
    """Print how many records were sent. If an error stopped the sending, raise CommandFailed with that error."""
    created = f" ({sending.created})" if sending.created else ""
    told = f"{plural(sending.count, 'record')} sent to {sending.topic}{created}"
    if sending.transaction:
        told += f", {sending.transaction}"
    if sending.keep_reports:
        print_json([{"topic": one.topic, "partition": one.partition, "offset": one.offset} for one in sending.reports])
    if sending.problem is not None:
        raise CommandFailed(f"{sending.problem}; {told} before it", code=sending.problem.code)
    if not sending.keep_reports:
        print(told)


def _now_ms() -> int:
    import time

    return int(time.time() * 1000)
