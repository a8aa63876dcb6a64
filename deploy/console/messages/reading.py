"""Async: read a page of records from the cluster, or follow new records. Each read opens its own clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import trio

from kraft.client.admin import EARLIEST, LATEST, Admin
from kraft.client.consumer import Consumer
from kraft.client.core.records import ConsumerRecord, KafkaError
from kraft.deploy.console.messages.query import BadQuery, Cursor, PageStart, Query, parse_time_ms
from kraft.deploy.console.messages.window import (
    PARTITIONS_MAX,
    SCANNED_RECORDS_MAX,
    RecordPage,
    Window,
    choose,
    page_of,
)

READ_MS_MAX = 3_000
"""Time limit in ms for reading a page. When it ends, the page shows the records read so far."""
POLL_RECORDS = 500
IDLE_MS = 200
FETCH_BYTES_MAX = 8 * 1024 * 1024
HELD_BYTES_MAX = 32 * 1024 * 1024
"""Maximum bytes of records kept in memory while a page is read. A page that would need more is incomplete."""
FOLLOWED_PER_SECOND_MAX = 100
"""Maximum number of records shown per second when following; the number left out is shown."""
FOLLOW_POLL_MS = 500
TURN_MS = 20
"""Maximum milliseconds for which records are matched before other tasks run."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads records with clients of the cluster that ConsoleSettings creates."""

    admin: Callable[[], Admin]
    consumer: Callable[..., Consumer]

    async def page(self, query: Query, now_ms: int) -> RecordPage:
        """Read a page. Raise BadQuery for a partition or offset that does not exist. Raise KafkaError or another error
        of the client if the cluster rejects the request."""
        pattern = query.only.compiled()
        async with self.admin() as admin:
            first, last = await self._bounds(admin, query)
            wanted = await _wanted(admin, query, first, last, now_ms)
        window = choose(query.where, first, last, wanted, query.count, is_filtered=pattern is not None)
        found: list[ConsumerRecord] = []
        scan, held_bytes = _Scan(window), 0
        with trio.move_on_after(READ_MS_MAX / 1_000) as in_time:
            async with self._open() as consumer:
                await scan.open(consumer, query.topic)
                while not scan.is_done(found, query.count) and held_bytes < HELD_BYTES_MAX:
                    most = POLL_RECORDS if window.is_backward else query.count - len(found)
                    records = await consumer.poll(records_max=max(most, 1), timeout_ms=IDLE_MS)
                    before = len(found)
                    await _choose(records, lambda one: scan.accept(one) and query.only.matches(pattern, one), found)
                    held_bytes += sum(map(_size_bytes, found[before:]))
                    scan.advance(consumer, query.topic)
        page = page_of(window, first, last, found, scan.positions, query.count, scan.scanned)
        return page if not in_time.cancelled_caught else _incomplete(page)

    async def follow(self, query: Query, emit: Callable[[list[ConsumerRecord], int], Awaitable[None]]) -> None:
        """Yield new records from the current end of the log on, endlessly. Each item has the records that match, and
        the number of records left out. The first item has no records: it shows that every record appended from now on
        will be yielded."""
        pattern = query.only.compiled()
        async with self.admin() as admin:
            _, last = await self._bounds(admin, query)
        async with self._open() as consumer:
            starts = {(query.topic, one): offset for one, offset in last.items()}
            await consumer.assign(starts, at=starts)
            await emit([], 0)
            room, since = FOLLOWED_PER_SECOND_MAX, trio.current_time()
            while True:
                records = await consumer.poll(records_max=POLL_RECORDS, timeout_ms=FOLLOW_POLL_MS)
                matching: list[ConsumerRecord] = []
                await _choose(records, lambda one: query.only.matches(pattern, one), matching)
                if trio.current_time() - since >= 1:
                    room, since = FOLLOWED_PER_SECOND_MAX, trio.current_time()
                if matching:
                    await emit(matching[:room], len(matching) - len(matching[:room]))
                    room -= len(matching[:room])

    async def record(self, topic: str, partition: int, offset: int) -> ConsumerRecord | None:
        """Return one record. None if this offset has none: it was compacted away, or holds a transaction marker."""
        async with self.admin() as admin:
            first, last = await self._bounds(admin, Query(topic, partition))
        if not first[partition] <= offset < last[partition]:
            return None
        with trio.move_on_after(READ_MS_MAX / 1_000):
            async with self._open() as consumer:
                await consumer.assign([(topic, partition)], at=offset)
                records = await consumer.poll(records_max=1)
                return records[0] if records and records[0].offset == offset else None
        return None

    def _open(self) -> Consumer:
        return self.consumer(fetch_max_bytes=FETCH_BYTES_MAX)

    async def _bounds(self, admin: Admin, query: Query) -> tuple[Cursor, Cursor]:
        described = await admin.topics.describe([query.topic])
        there = [partition.index for partition in described[0].partitions]
        if query.partition is not None and query.partition not in there:
            raise BadQuery(f"{query.topic} has no partition {query.partition}: it has 0 to {len(there) - 1}")
        chosen = there if query.partition is None else [query.partition]
        if len(chosen) > PARTITIONS_MAX:
            raise BadQuery(
                f"{query.topic} has {len(chosen)} partitions, a page reads {PARTITIONS_MAX}: choose one partition"
            )
        pairs = [(query.topic, one) for one in chosen]
        first = await admin.partitions.offsets(dict.fromkeys(pairs, EARLIEST))
        last = await admin.partitions.offsets(dict.fromkeys(pairs, LATEST))
        return {tp[1]: first[tp].offset for tp in pairs}, {tp[1]: last[tp].offset for tp in pairs}


async def _wanted(admin: Admin, query: Query, first: Cursor, last: Cursor, now_ms: int) -> Cursor:
    """Return the offset that the query names for each partition."""
    if query.where is PageStart.OFFSET:
        return dict.fromkeys(last, query.offset)
    if query.where is PageStart.TIME:
        time_ms = parse_time_ms(query.time, now_ms)
        found = await admin.partitions.offsets({(query.topic, one): time_ms for one in last})
        return {one: at.offset if at.offset >= 0 else last[one] for (_, one), at in found.items()}
    return dict(query.cursor) if query.where in (PageStart.AFTER, PageStart.BEFORE) else first


async def _choose(
    records: Iterable[ConsumerRecord], is_wanted: Callable[[ConsumerRecord], bool], found: list[ConsumerRecord]
) -> None:
    """Append the records that match to `found`. Run a checkpoint after each TURN_MS of work."""
    since = trio.current_time()
    for record in records:
        if is_wanted(record):
            found.append(record)
        if trio.current_time() - since >= TURN_MS / 1_000:
            await trio.lowlevel.checkpoint()
            since = trio.current_time()


def _size_bytes(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _incomplete(page: RecordPage) -> RecordPage:
    return RecordPage(page.records, page.older, page.newer, page.scanned, is_complete=False)


class _Scan:
    """Progress of reading the offsets of a window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self.positions = dict(window.starts)
        self.scanned = 0

    async def open(self, consumer: Any, topic: str) -> None:
        starts = {(topic, one): offset for one, offset in self._window.unread.items()}
        if starts:
            await consumer.assign(starts, at=starts)

    def accept(self, record: ConsumerRecord) -> bool:
        """Return whether the record is within the window; if so, count it and advance the position."""
        if record.offset >= self._window.ends[record.partition]:
            return False
        self.scanned += 1
        self.positions[record.partition] = record.offset + 1
        return True

    def advance(self, consumer: Consumer, topic: str) -> None:
        """Advance the positions past offsets that have no record."""
        for one in self._window.unread:
            try:
                position = consumer.position((topic, one))
            except KafkaError:  # the position is not known yet
                continue
            self.positions[one] = min(max(position, self.positions[one]), self._window.ends[one])

    def is_done(self, found: list[ConsumerRecord], count: int) -> bool:
        if not self._window.is_backward and (len(found) >= count or self.scanned >= SCANNED_RECORDS_MAX):
            return True
        return all(self.positions[one] >= end for one, end in self._window.ends.items())
