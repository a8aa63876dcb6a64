"""`kraft perf`: how fast a cluster takes records in, gives them out, and how long one takes from end to end.

Client and cluster are measured together, over our own client: the figures say what an application on this machine would
see, not what a broker could do at most.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraft.deploy.cli.completing import complete_topic
from kraft.deploy.cli.connection import Connection, over_network
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, JsonOption, plural, print_json, progress
from kraft.deploy.cli.records.producer_options import AcksOption, CompressionOption
from kraft.deploy.cli.topics import shape_of, shape_text

if TYPE_CHECKING:
    from kraft.client import Consumer, Producer

app = typer.Typer(help="Measure a cluster's speed.", no_args_is_help=True, rich_markup_mode=None)

TopicArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]", help="Default: one of its own, deleted in the end.", autocompletion=complete_topic
    ),
]
RECORD_SIZE_MAX = 1 << 28
"""More than brokers take, and little enough to be made in an instant."""

FILLED_RECORD_SIZE = 1_000

SizeOption = Annotated[int, typer.Option("--record-size", min=1, max=RECORD_SIZE_MAX, help="Bytes per value.")]
OwnSizeOption = Annotated[
    int | None,
    typer.Option(
        "--record-size",
        min=1,
        max=RECORD_SIZE_MAX,
        help=f"Bytes per value in the topic of its own. [{FILLED_RECORD_SIZE}]",
    ),
]
PartitionsOption = Annotated[int | None, typer.Option(min=1, help="Of the topic of its own. [1]")]
ReplicationOption = Annotated[int | None, typer.Option(help="Of the topic of its own. -1: the brokers' default. [-1]")]

VALUES = 1_000
VALUES_BYTES_MAX = 16 << 20
STEP = 100
UNPACED = (
    "without --rate a record waits in the sender's own queue most of this time; --rate tells how fast the cluster is"
)
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Shape:
    """A topic of the measurement's own."""

    partitions: int
    replication_factor: int


@app.command("produce")
@over_network
def perf_produce(
    connection: Connection,
    topic: TopicArgument = None,
    records: Annotated[int, typer.Option("--records", "-n", min=1)] = 100_000,
    record_size: SizeOption = 1_000,
    rate: Annotated[
        int | None, typer.Option(min=1, help="Records per second at most. Default: as fast as can be.")
    ] = None,
    acks: AcksOption = None,
    compression: CompressionOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send records; tell how many per second, and how long their acknowledgements took. Without --rate that is mostly
    the wait in the sender's own queue."""
    shape = _shape(topic, partitions, replication_factor)
    settings = connection.producer_settings(acks=acks, compression_type=compression)

    async def work() -> dict[str, Any]:
        async with _topic(connection, topic, shape) as name:
            measured = await _measure_produce(settings, name, records, _values(record_size), rate)
            async with connection.admin() as admin:
                partitions, replicas = await shape_of(admin, name) or (None, None)
            return {**measured, "topic": name, "partitions": partitions, "replicas": replicas}

    _report(connection.run_async(work), as_json)
    if rate is None and not as_json:
        print(UNPACED)


@app.command("consume")
@over_network
def perf_consume(
    connection: Connection,
    topic: TopicArgument = None,
    records: Annotated[int, typer.Option("--records", "-n", min=1)] = 100_000,
    record_size: OwnSizeOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read records from the start of a topic; tell how many per second. A topic of its own is filled first."""
    shape = _shape(topic, partitions, replication_factor, record_size)
    size = FILLED_RECORD_SIZE if record_size is None else record_size

    async def work() -> dict[str, Any]:
        async with _topic(connection, topic, shape) as name:
            if topic is None:
                await _measure_produce(connection.producer_settings(), name, records, _values(size), None)
            return await _measure_consume(connection, name, records)

    measured = connection.run_async(work)
    _report(measured, as_json)
    if measured["records"] < records:
        raise CommandFailed(f"topic {topic} has only {measured['records']:,} of {records:,} records; give --records")


@app.command("e2e")
@over_network
def perf_e2e(
    connection: Connection,
    topic: TopicArgument = None,
    records: Annotated[int, typer.Option("--records", "-n", min=1)] = 1_000,
    record_size: SizeOption = 100,
    acks: AcksOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send records one by one; tell how long each took until a consumer had it."""
    shape = _shape(topic, partitions, replication_factor)
    sending, reading = connection.producer_settings(acks=acks), connection.consumer_settings()

    async def work() -> dict[str, Any]:
        from kraft.client import Consumer, Producer
        from kraft.client.admin import LATEST
        from kraft.deploy.cli.topics import choose_partitions

        async with _topic(connection, topic, shape) as name:
            async with connection.admin() as admin:
                chosen = await choose_partitions(admin, [name])
                ends = await admin.partitions.offsets(dict.fromkeys(chosen, LATEST))
            async with Producer(**sending) as producer, Consumer(**reading) as consumer:
                await consumer.assign(chosen, at={tp: ends[tp].offset for tp in chosen})
                return await _measure_e2e(producer, consumer, name, records, _values(record_size))

    _report(connection.run_async(work), as_json)


def _shape(
    topic: str | None, partitions: int | None, replication_factor: int | None, record_size: int | None = None
) -> Shape:
    """CommandFailed for what has no effect on a topic that is there already, or is made by its brokers."""
    own = {"--partitions": partitions, "--replication-factor": replication_factor, "--record-size": record_size}
    given = [option for option, value in own.items() if value is not None]
    if topic is not None and given:
        raise CommandFailed(
            f"{' and '.join(given)}: for a topic of the measurement's own, not for {topic}, which is as it is: leave "
            "TOPIC out, or the option",
            code=EXIT_USAGE,
        )
    return Shape(1 if partitions is None else partitions, -1 if replication_factor is None else replication_factor)


async def _measure_produce(
    settings: dict[str, Any], topic: str, count: int, values: Sequence[bytes], rate: int | None
) -> dict[str, Any]:
    import trio

    from kraft.client import Producer

    latencies: list[float] = []
    async with Producer(**settings) as producer:
        await producer.send(topic, values[0])  # connections, metadata and producer id are not measured
        send, receive = trio.open_memory_channel[tuple[float, Any]](count)
        begin = time.perf_counter()
        with progress("sending", count) as advance:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_await_reports, receive, latencies)
                async with send:
                    for number in range(count):
                        await _pace(begin, number, rate)
                        sent = time.perf_counter()
                        delivery = await producer.enqueue(topic, values[number % len(values)])
                        send.send_nowait((sent, delivery))
                        if number % STEP == STEP - 1:
                            advance(STEP)
                await producer.flush()
        seconds = time.perf_counter() - begin
    return {**_throughput("produce", count, count * len(values[0]), seconds), **_latency(latencies)}


async def _await_reports(receive: Any, latencies: list[float]) -> None:
    """Take the time of each acknowledgement. Reports are awaited in the order of sending: with several partitions one
    that comes early is noted when those before it have come."""
    async with receive:
        async for sent, delivery in receive:
            await delivery.wait()
            latencies.append(time.perf_counter() - sent)


async def _pace(begin: float, number: int, rate: int | None) -> None:
    import trio

    if rate is not None:
        ahead = begin + number / rate - time.perf_counter()
        if ahead > 0:
            await trio.sleep(ahead)


async def _measure_consume(connection: Connection, topic: str, count: int) -> dict[str, Any]:
    from kraft.client import Consumer
    from kraft.client.admin import EARLIEST, LATEST
    from kraft.deploy.cli.topics import choose_partitions

    async with connection.admin() as admin:
        chosen = await choose_partitions(admin, [topic])
        first = await admin.partitions.offsets(dict.fromkeys(chosen, EARLIEST))
        ends = await admin.partitions.offsets(dict.fromkeys(chosen, LATEST))
    read = size = 0
    async with Consumer(**connection.consumer_settings()) as consumer:
        await consumer.assign(chosen, at={tp: first[tp].offset for tp in chosen})
        begin = time.perf_counter()
        with progress("reading", count) as advance:
            while read < count and any(consumer.position(tp) < ends[tp].offset for tp in chosen):
                records = await consumer.poll(records_max=count - read, timeout_ms=1_000)
                read += len(records)
                size += sum(len(record.value or b"") for record in records)
                advance(len(records))
        seconds = time.perf_counter() - begin
    return _throughput("consume", read, size, seconds)


async def _measure_e2e(
    producer: Producer, consumer: Consumer, topic: str, count: int, values: Sequence[bytes]
) -> dict[str, Any]:
    latencies: list[float] = []
    with progress("sending", count) as advance:
        for number in range(-1, count):  # the first one makes the connections
            sent = time.perf_counter()
            report = await producer.send(topic, values[number % len(values)])
            place = (report.partition, report.offset)
            while place not in [(one.partition, one.offset) for one in await consumer.poll(timeout_ms=1_000)]:
                pass
            if number >= 0:
                latencies.append(time.perf_counter() - sent)
                advance(1)
    return {**_throughput("e2e", count, count * len(values[0]), sum(latencies)), **_latency(latencies)}


@asynccontextmanager
async def _topic(connection: Connection, topic: str | None, shape: Shape) -> AsyncIterator[str]:
    """The topic that was named, or a new one for the time of the context."""
    import trio

    from kraft.client.admin import NewTopic

    if topic is not None:
        yield topic
        return
    name = f"kraft-perf-{time.time_ns() // 1_000_000}"
    async with connection.admin() as admin:
        await admin.topics.create(NewTopic(name, shape.partitions, shape.replication_factor))
    try:
        yield name
    finally:
        with trio.CancelScope(shield=True):
            async with connection.admin() as admin:  # SIGTERM would have ended the tasks of one that is opened before
                await admin.topics.delete(name)


def _values(size: int) -> list[bytes]:
    """Values that compress as text does, the same in every run."""
    words = [b"%x" % (number * 2654435761 % 2**32) for number in range(VALUES)]
    text = b" ".join(words)
    repeated = text * (size // len(text) + 2)
    several = max(1, min(VALUES, VALUES_BYTES_MAX // size))
    return [repeated[number * 7 % len(text) :][:size] for number in range(several)]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that so many percent are at or below; of values in order."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _throughput(what: str, count: int, size: int, seconds: float) -> dict[str, Any]:
    return {
        "test": what,
        "records": count,
        "seconds": round(seconds, 3),
        "records_per_second": round(count / seconds, 1) if seconds else None,
        "megabytes_per_second": round(size / seconds / 1e6, 2) if seconds else None,
    }


def _latency(latencies: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(latencies)
    told = {"avg": sum(ordered) / len(ordered)}
    told |= {f"p{percent:g}": percentile(ordered, percent) for percent in PERCENTILES}
    told["max"] = ordered[-1]
    return {"latency_ms": {name: round(value * 1000, 3) for name, value in told.items()}}


def _report(measured: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(measured)
        return
    print(
        f"{measured['test']}: {plural(measured['records'], 'record')} in {measured['seconds']} s, "
        f"{measured['records_per_second']:,} records/s, {measured['megabytes_per_second']:,} MB/s"
    )
    if measured.get("partitions") is not None:
        print(f"into {measured['topic']}: {shape_text(measured['partitions'], measured['replicas'])}")
    if "latency_ms" in measured:
        print("latency in ms: " + "  ".join(f"{name} {value:,}" for name, value in measured["latency_ms"].items()))
