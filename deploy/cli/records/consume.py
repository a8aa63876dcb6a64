"""`kraft consume`: print the records of a range of offsets or times, optionally only those that match a filter."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import RawIOBase
from typing import TYPE_CHECKING, Any, BinaryIO

from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import EXIT_NOT_FOUND, EXIT_USAGE, CommandFailed, JsonOption, warn
from kraft.deploy.cli.records.consume_options import (
    GROUP_PROTOCOLS,
    ISOLATION_LEVELS,
    READ_COMMITTED,
    CountOption,
    FollowOption,
    FormatOption,
    GroupOption,
    HeaderOption,
    IsolationOption,
    KeyOption,
    OffsetOption,
    PartitionOption,
    ProtocolOption,
    RejectOption,
    ReleaseOption,
    ShareGroupOption,
    SinceOption,
    TopicsArgument,
    UntilOption,
    ValueOption,
)
from kraft.deploy.cli.records.consume_shared import check_share_options, consume_shared
from kraft.deploy.cli.records.filter import RecordFilter, compile_filter
from kraft.deploy.cli.records.format import compile_format, print_plain
from kraft.deploy.cli.records.reading_bar import ReadProgress
from kraft.deploy.cli.times import format_time, parse_time_ms

if TYPE_CHECKING:
    from kraft.client import Consumer, ConsumerRecord
    from kraft.client.admin import Admin
    from kraft.client.core.records import TopicPartition

    Reader = tuple[Consumer, Mapping[TopicPartition, int] | None]

IDLE_MS = 1_000
RECORDS_MAX = 500


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The range of a read. `start` is "earliest", "latest", an offset, or a negative number counted from the end. The
    end is exclusive. Times are in ms and override offsets."""

    start: str | int = "earliest"
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    follow: bool = False


@over_network
def consume(
    connection: ClusterConnection,
    topic: TopicsArgument,
    partition: PartitionOption = None,
    offset: OffsetOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    group: GroupOption = None,
    protocol: ProtocolOption = None,
    share_group: ShareGroupOption = None,
    release: ReleaseOption = False,
    reject: RejectOption = False,
    count: CountOption = None,
    follow: FollowOption = False,
    isolation: IsolationOption = None,
    key: KeyOption = None,
    value: ValueOption = None,
    header: HeaderOption = None,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print records, one per line, up to the current end of the partitions."""
    excluded: dict[str, object] = {"--group": group, "--group-protocol": protocol, "--offset": offset, "--since": since}
    excluded |= {"--until": until, "--partition": partition, "--isolation": isolation, "--key": key}
    excluded |= {"--value": value, "--header": header}
    check_share_options(share_group, topic, excluded, release=release, reject=reject)
    wanted = _parse_range(offset or "", since, until, follow)
    only = compile_filter(key, value, header or ())
    reading = ReadProgress(count)
    show = reading.counted(_printer(form, as_json))
    topics = _with_partitions(topic, partition) if partition else topic
    _check_choices(isolation, protocol, group)
    work: Callable[[], Awaitable[None]]
    if share_group is not None:
        settings = connection.share_consumer_settings(share_group, count)
        work = partial(
            consume_shared, connection, settings, topics, show, count, _write, release=release, reject=reject
        )
    else:
        settings = connection.consumer_settings(group, isolation_level=isolation, group_protocol=protocol)
        if group is not None:
            _check_membership(group, topics, wanted)
            if offset is not None or "auto_offset_reset" not in settings:
                settings["auto_offset_reset"] = wanted.start
        opened = partial(_reader, connection, settings, topics, wanted, reading, is_member=group is not None)
        work = partial(_consume, opened, only, show, count)
    with suppress(BrokenPipeError):  # the reader of the pipe has closed it (`| head -1`): it has all that it wanted
        connection.run_async(work)


async def _consume(
    opened: Callable[[], AbstractAsyncContextManager[Reader]],
    only: RecordFilter,
    show: Callable[[ConsumerRecord], bytes],
    count: int | None,
) -> None:
    """Print the records of the consumer that `opened()` returns."""
    async with opened() as (consumer, ends):
        await _print(consumer, ends, only, show, count, _write)


def _with_partitions(topics: list[str], partitions: list[int]) -> list[str]:
    """Return the given partitions of each topic in the form TOPIC:0,2."""
    if any(":" in name for name in topics):
        raise CommandFailed("give partitions either with --partition or as TOPIC:0,2-4", code=EXIT_USAGE)
    return [f"{name}:{','.join(map(str, partitions))}" for name in topics]


@asynccontextmanager
async def _reader(
    connection: ClusterConnection,
    settings: dict[str, Any],
    topics: list[str],
    wanted: ReadRange,
    reading: ReadProgress,
    *,
    is_member: bool,
) -> AsyncIterator[Reader]:
    """Return a consumer at its start position, and the offsets at which reading ends. A group member starts at the
    offsets that the group has committed."""
    from kraft.client import Consumer

    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] | None = None
    async with connection.admin() as admin:
        await admin.nodes.cluster()  # fails within seconds if there is no cluster
        if not is_member:
            is_committed = settings.get("isolation_level") == READ_COMMITTED
            starts, ends = await _bounds(admin, topics, wanted, committed=is_committed)
    async with Consumer(**settings) as consumer, reading.bar(consumer, starts, ends):
        if is_member:
            await consumer.subscribe(topics)
        else:
            await consumer.assign(starts, at=starts)
        yield consumer, ends


def _check_membership(group: str, topics: list[str], wanted: ReadRange) -> None:
    """Raise CommandFailed for options that a group member cannot have. The group's committed offset determines the
    position of a member; `--offset` applies only to partitions without a committed offset."""
    if not group:
        raise CommandFailed("--group is empty: name a group, or leave it out to read without one", code=EXIT_USAGE)
    bounds = (wanted.end, wanted.since_ms, wanted.until_ms)
    if wanted.start not in ("earliest", "latest") or any(bound is not None for bound in bounds):
        raise CommandFailed(
            "--group continues at the committed offsets: --offset may be earliest or latest, and there is no end (see "
            "kraft groups reset-offsets)",
            code=EXIT_USAGE,
        )
    if any(":" in name for name in topics):
        raise CommandFailed("--group assigns partitions itself: name topics only", code=EXIT_USAGE)


def _check_choices(isolation: str | None, protocol: str | None, group: str | None) -> None:
    """Raise CommandFailed for an isolation level or a group protocol that does not exist, or a protocol without a
    group."""
    if isolation not in (None, *ISOLATION_LEVELS):
        raise CommandFailed(f"--isolation {isolation}: expected {' or '.join(ISOLATION_LEVELS)}", code=EXIT_USAGE)
    if protocol not in (None, *GROUP_PROTOCOLS):
        raise CommandFailed(f"--group-protocol {protocol}: expected {' or '.join(GROUP_PROTOCOLS)}", code=EXIT_USAGE)
    if protocol is not None and group is None:
        raise CommandFailed("--group-protocol needs --group", code=EXIT_USAGE)


async def _print(
    consumer: Consumer,
    ends: Mapping[TopicPartition, int] | None,
    only: RecordFilter,
    show: Callable[[ConsumerRecord], bytes],
    count: int | None,
    write: Callable[[bytes], Awaitable[None]],
) -> None:
    """Print records until `count` of them were printed, or every partition has reached its end offset. If an end is
    None, reading never ends there."""
    left = count
    while ends is None or not all(_has_reached(consumer, tp, end) for tp, end in ends.items()):
        out = []
        for record in await consumer.poll(records_max=min(RECORDS_MAX, left or RECORDS_MAX), timeout_ms=IDLE_MS):
            if ends is not None and record.offset >= ends[(record.topic, record.partition)]:
                continue
            if not only.matches(record):
                continue
            out.append(show(record))
        if out:
            await write(b"".join(out))
        if left is not None:
            left -= len(out)
            if left <= 0:
                return


async def _write(data: bytes) -> None:
    """Write to standard output in a thread. While a pager blocks the write, a group member keeps sending heartbeats,
    and an interrupt can still make it leave its group.

    Python's own buffer is bypassed: if the thread were blocked in it when the command ends, it would hold the buffer's
    lock. A cancellation may interrupt a write in the middle of a record. This happens only when the command ends, and
    the records of that write are not committed."""
    import trio

    given = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    await trio.to_thread.run_sync(_write_all, given, data, abandon_on_cancel=True)


def _write_all(given: RawIOBase | BinaryIO, data: bytes) -> None:
    import select

    rest = memoryview(data)
    while rest:
        written = given.write(rest)
        if written is None:  # another process on the same terminal has made standard output non-blocking
            select.select([], [given], [])
        else:
            rest = rest[written:]


def _has_reached(consumer: Consumer, tp: TopicPartition, end: int) -> bool:
    """Whether all records before `end` were read. False while the position is being reset because it is below the log
    start offset."""
    from kraft.client import KafkaError

    try:
        return consumer.position(tp) >= end
    except KafkaError:
        return False


async def _bounds(
    admin: Admin, topics: list[str], wanted: ReadRange, *, committed: bool
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None]:
    """Return the start offset and the (exclusive) end offset of each partition; no end offsets if new records are to be
    followed."""
    from kraft.client.admin import EARLIEST, LATEST
    from kraft.deploy.cli.topics import choose_partitions, offsets_at_time

    chosen = await choose_partitions(admin, topics)
    first = await admin.partitions.offsets(dict.fromkeys(chosen, EARLIEST))
    last = await admin.partitions.offsets(dict.fromkeys(chosen, LATEST), read_committed=committed)
    ends = {tp: last[tp].offset for tp in chosen}
    _require_start(wanted.start, ends)
    starts = {tp: _start(wanted.start, first[tp].offset, ends[tp]) for tp in chosen}
    if wanted.since_ms is not None:
        starts = await offsets_at_time(admin, wanted.since_ms, ends)
    if wanted.until_ms is not None:
        return starts, await offsets_at_time(admin, wanted.until_ms, ends)
    if wanted.end is not None:
        return starts, {tp: min(wanted.end, end) for tp, end in ends.items()}
    return starts, None if wanted.follow else ends


def _require_start(start: str | int, ends: Mapping[TopicPartition, int]) -> None:
    """Raise CommandFailed for a start offset that is beyond the end of every partition. The end offset itself is
    allowed, because the next record gets it."""
    longest = max(ends, key=ends.__getitem__, default=None)
    if not isinstance(start, int) or longest is None or start <= ends[longest]:
        return
    which = f"{longest[0]}-{longest[1]}{', the longest,' if len(ends) > 1 else ''}"
    raise CommandFailed(
        f"no offset {start} is there yet: {which} ends at {ends[longest]}; see kraft partitions list",
        code=EXIT_NOT_FOUND,
    )


def _start(start: str | int, first: int, end: int) -> int:
    if start == "earliest":
        return first
    if start == "latest":
        return end
    assert isinstance(start, int)
    return min(max(first, end + start if start < 0 else start), end)


def _parse_range(offset: str, since: str | None, until: str | None, follow: bool) -> ReadRange:
    import time

    now_ms = int(time.time() * 1000)
    text, colon, end = offset.partition(":")
    start: str | int = {"beginning": "earliest", "end": "latest"}.get(text, text) or "earliest"
    if start not in ("earliest", "latest"):
        if not text.removeprefix("-").isdecimal() or text == "-0":
            raise CommandFailed(f"--offset {offset}: expected earliest, latest, N, -N or START:END", code=EXIT_USAGE)
        start = int(text)
    if colon and not end.isdecimal():
        raise CommandFailed(f"--offset {offset}: the end must be an offset", code=EXIT_USAGE)
    if follow and (end or until):
        raise CommandFailed("--follow has no end: leave out --until and the end of --offset", code=EXIT_USAGE)
    least = start if isinstance(start, int) and start >= 0 else 0
    if end and int(end) <= least:
        raise CommandFailed(
            f"--offset {offset} holds no record: the end is the first offset that is not read, so it must be more than "
            f"{least}",
            code=EXIT_USAGE,
        )
    since_ms = None if since is None else parse_time_ms(since, now_ms)
    until_ms = None if until is None else parse_time_ms(until, now_ms)
    if (since and offset) or (until and end):
        raise CommandFailed("where from and where to? give either --offset or --since and --until", code=EXIT_USAGE)
    if since_ms is not None and until_ms is not None and until_ms <= since_ms:
        raise CommandFailed(
            f"no record is from {format_time(since_ms)} on and before {format_time(until_ms)}: --until must be later "
            "than --since",
            code=EXIT_USAGE,
        )
    if since_ms is not None and since_ms > now_ms:
        warn(f"--since {since} is in the future: partitions without later records are read from the end")
    return ReadRange(start, int(end) if end else None, since_ms, until_ms, follow)


def _printer(form: str | None, as_json: bool) -> Callable[[ConsumerRecord], bytes]:
    if as_json and form is not None:
        raise CommandFailed("give either --json or --format", code=EXIT_USAGE)
    if as_json:
        import json

        from kraft.deploy.cli.records.json_lines import to_json

        return lambda record: json.dumps(to_json(record), ensure_ascii=False).encode() + b"\n"
    return print_plain if form is None else compile_format(form)
