"""`kraft produce` and `kraft consume`: records from lines of text, and back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.output import EXIT_NOT_FOUND, EXIT_USAGE, BootstrapOption, CommandFailed, JsonOption, print_json

if TYPE_CHECKING:
    from kraft.client.core.records import ConsumerRecord

IDLE_MS = 1_000


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Lines are KEY TEXT VALUE; without it, values only.")
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Send all records to this partition.")] = None,
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send each line of standard input as a record."""
    from kraft.deploy.cli.admin import bootstrap_servers, run_async

    servers = bootstrap_servers(bootstrap)

    async def work() -> list[Any]:
        from kraft.client import Producer
        from kraft.deploy.cli.admin import open_admin

        async with open_admin(servers) as admin:
            await admin.metadata([])  # says within seconds if there is no cluster
        deliveries = []
        async with Producer(bootstrap_servers=servers, acks=acks, compression_type=compression) as producer:
            async for line in _lines():
                key, value = _split(line, key_separator)
                deliveries.append(await producer.enqueue(topic, value, key, partition=partition))
            return [await delivery.wait() for delivery in deliveries]

    reports = run_async(work)
    if as_json:
        print_json([{"partition": report.partition, "offset": report.offset} for report in reports])
    else:
        print(f"{len(reports)} record{'' if len(reports) == 1 else 's'} sent to {topic}")


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[list[int] | None, typer.Option(help="Only this partition; may be repeated.")] = None,
    offset: Annotated[str, typer.Option(help="earliest, latest, or a number.")] = "earliest",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on at the end until ctrl-C.")] = False,
    committed: Annotated[bool, typer.Option("--committed", help="Only records of committed transactions.")] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the records of a topic, one per line."""
    from kraft.deploy.cli.admin import bootstrap_servers, run_async

    start: str | int = int(offset) if offset.isdigit() else offset
    if start not in ("earliest", "latest") and not isinstance(start, int):
        raise CommandFailed(f"--offset {offset}: expected earliest, latest or a number", code=EXIT_USAGE)
    isolation = "read_committed" if committed else "read_uncommitted"
    servers = bootstrap_servers(bootstrap)

    async def work() -> None:
        from kraft.client import Consumer

        wanted = [(topic, number) for number in await _partitions(servers, topic, partition)]
        async with Consumer(bootstrap_servers=servers, isolation_level=isolation) as consumer:
            ends = None if follow else await consumer.offsets(wanted, at="latest")
            await consumer.assign(wanted, at=start)
            left = count
            while left is None or left > 0:
                if ends is not None and all(consumer.position(tp) >= ends[tp] for tp in wanted):
                    return
                for record in await consumer.poll(records_max=left or 500, timeout_ms=IDLE_MS):
                    _print_record(record, as_json)
                    left = None if left is None else left - 1

    run_async(work)


async def _partitions(servers: str, topic: str, chosen: list[int] | None) -> list[int]:
    from kraft.deploy.cli.admin import open_admin, require_success

    async with open_admin(servers) as admin:
        found = (await admin.metadata([topic])).topics[0]
        require_success(found, f"topic {topic}")
    there = sorted(int(part.partition_index) for part in found.partitions)
    for number in chosen or ():
        if number not in there:
            raise CommandFailed(
                f"topic {topic} has partitions 0 to {len(there) - 1}, not {number}", code=EXIT_NOT_FOUND
            )
    return sorted(set(chosen)) if chosen else there


async def _lines() -> Any:
    """Lines of standard input, read off the loop."""
    import trio

    while True:
        line = await trio.to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True)
        if not line:
            return
        yield line.rstrip(b"\r\n")


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise CommandFailed(f"this line has no {separator!r} between key and value: {line[:80]!r}", code=EXIT_USAGE)
    return key, value


def _print_record(record: ConsumerRecord, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": record.key,
                "value": record.value,
                "headers": dict(record.headers),
            }
        )
        return
    value = b"" if record.value is None else record.value
    text = value if record.key is None else record.key + b"\t" + value
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()
