"""`kraft perf`: measure produce throughput, consume throughput and end-to-end latency of a cluster.

Client and cluster are measured together, through our own client. The numbers show what an application on this machine
would get, not the maximum of a broker.
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
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed, JsonOption, plural, print_json, progress
from kraft.deploy.cli.records.producer_options import AcksOption, CompressionOption
from kraft.deploy.cli.topics import shape_of, shape_text

if TYPE_CHECKING:
    from kraft.client import Consumer, Producer

app = typer.Typer(help="Measure a cluster's speed.", no_args_is_help=True, rich_markup_mode=None)

TopicArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TOPIC]", help="Default: a new topic, deleted at the end.", autocompletion=complete_topic),
]
RECORD_SIZE_MAX = 1 << 28
"""Maximum size of a generated record. It is more than brokers accept, and small enough to be generated at once."""

FILLED_RECORD_SIZE = 1_000

SizeOption = Annotated[int, typer.Option("--record-size", min=1, max=RECORD_SIZE_MAX, help="Bytes per value.")]
OwnSizeOption = Annotated[
    int | None,
    typer.Option(
        "--record-size",
        min=1,
        max=RECORD_SIZE_MAX,
        help=f"Bytes per value in a new topic. [{FILLED_RECORD_SIZE}]",
    ),
]
PartitionsOption = Annotated[int | None, typer.Option(min=1, help="Partitions of a new topic. [1]")]
ReplicationOption = Annotated[int | None, typer.Option(help="Replicas of a new topic; -1: the brokers' default. [-1]")]

VALUES = 1_000
VALUES_BYTES_MAX = 16 << 20
STEP = 100
UNPACED = (
    "without --rate most of this time is the wait in the producer's own queue; with --rate it is the cluster's latency"
)
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class TopicShape:
    """Partitions and replication factor of a topic that a measurement creates."""

    partitions: int
    replication_factor: int


@app.command("produce")
@over_network
def perf_produce(
    connection: ClusterConnection,
    topic: TopicArgument = None,
    records: Annotated[int, typer.Option("--records", "-n", min=1)] = 100_000,
    record_size: SizeOption = 1_000,
    rate: Annotated[int | None, typer.Option(min=1, help="Maximum records per second; default: no limit.")] = None,
    acks: AcksOption = None,
    compression: CompressionOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send records; report the throughput and the latency of acknowledgements. Without --rate, most of that latency is
    the wait in the producer's own queue."""
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
    connection: ClusterConnection,
    topic: TopicArgument = None,
    records: Annotated[int, typer.Option("--records", "-n", min=1)] = 100_000,
    record_size: OwnSizeOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read records from the start of a topic; report the throughput. Without TOPIC, a new topic is filled first."""
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
    connection: ClusterConnection,
    topic: TopicArgument = None,
    records: Annotated[int, typer.Option("--records", "-n", min=1)] = 1_000,
    record_size: SizeOption = 100,
    acks: AcksOption = None,
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send records one by one; report how long each takes to reach a consumer."""
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
) -> TopicShape:
    """Return the shape of the topic to create. Raise CommandFailed for shape options that would have no effect because
    the topic exists, or because the brokers create it."""
    own = {"--partitions": partitions, "--replication-factor": replication_factor, "--record-size": record_size}
    given = [option for option, value in own.items() if value is not None]
    if topic is not None and given:
        raise CommandFailed(
            f"{' and '.join(given)}: for a topic of the measurement's own, not for {topic}, which is as it is: leave "
            "TOPIC out, or the option",
            code=EXIT_USAGE,
        )
    return TopicShape(1 if partitions is None else partitions, -1 if replication_factor is None else replication_factor)


async def _measure_produce(
    settings: dict[str, Any], topic: str, count: int, values: Sequence[bytes], rate: int | None
) -> dict[str, Any]:
    import trio

    from kraft.client import Producer

    latencies: list[float] = []
    async with Producer(**settings) as producer:
        # send one record first, because connections, metadata and producer id are not part of the measurement
        await producer.send(topic, values[0])
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
    """Record the latency of each acknowledgement. Acknowledgements are awaited in send order, so one that arrives early
    from another partition is recorded only after those of the records sent before."""
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


async def _measure_consume(connection: ClusterConnection, topic: str, count: int) -> dict[str, Any]:
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
        for number in range(-1, count):  # the record before number 0 opens the connections
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
async def _topic(connection: ClusterConnection, topic: str | None, shape: TopicShape) -> AsyncIterator[str]:
    """Yield the named topic or, without a name, a new topic that is deleted when the context ends."""
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
            # A new client, because SIGTERM would have ended the tasks of a client that was opened before.
            async with connection.admin() as admin:
                await admin.topics.delete(name)


def _values(size: int) -> list[bytes]:
    """Return values that are the same in every run and that compress about as well as text."""
    words = [b"%x" % (number * 2654435761 % 2**32) for number in range(VALUES)]
    text = b" ".join(words)
    repeated = text * (size // len(text) + 2)
    several = max(1, min(VALUES, VALUES_BYTES_MAX // size))
    return [repeated[number * 7 % len(text) :][:size] for number in range(several)]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest of the sorted values such that at least this percentage of the values is not greater than
    it."""
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
