"""Logs on the real disk, used as a node does: appends and reads on the loop, everything else in threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from kraft.runtime import open_seam
from kraft.seam import Disk
from kraft.storage.handles import ColdRead, FileCache
from kraft.storage.log import Log, LogConfig
from kraft.wire.records import read_header
from tests.stages.batches import NOW_MS, batch, headers

T = TypeVar("T")
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
LOGS = 6
BATCHES = 300


async def warmed(disk: Disk, function: Callable[[], T]) -> T:
    """Call a function on the loop. If it raises ColdRead, load the data in a thread and call it again."""
    while True:
        try:
            return function()
        except ColdRead as cold:
            await disk.offload(cold.warm)
            cold.adopt()


async def open_log(disk: Disk, directory: str, cache: FileCache, *, clean: bool, recovery_point: int) -> Log:
    def run() -> Log:
        return Log.open_log(
            disk,
            directory,
            CONFIG,
            clean=clean,
            recovery_point=recovery_point,
            log_start=0,
            now_ms=NOW_MS,
            cache=cache,
        )

    return await disk.offload(run)


async def append_all(disk: Disk, log: Log, number: int) -> None:
    for count in range(BATCHES):
        data = batch(1, size=100 + number, producer=(number, 0, count))
        header = read_header(data)
        await warmed(disk, lambda data=data, header=header: log.append_as_leader(data, header, 1, now_ms=NOW_MS))
        if count % 10 == 0:
            await trio.lowlevel.checkpoint()


async def sync_until(disk: Disk, log: Log, end_offset: int) -> None:
    """Sync repeatedly, as group commit does."""
    while log.synced_end_offset < end_offset:
        plan = log.files_to_sync()
        if plan is None:
            await trio.lowlevel.checkpoint()
            continue
        if plan.only_file is not None:
            await disk.sync(plan.only_file)
        else:
            await disk.offload(plan.run)
        log.mark_synced(plan)


async def read_to(disk: Disk, log: Log, end_offset: int) -> list[int]:
    """Follow the log end as a reader does, and return the base offsets of the batches that were read."""
    offset, seen = 0, []
    while offset < end_offset:
        piece = await warmed(disk, lambda: log.read(offset, 3000, log.log_end_offset))  # noqa: B023
        data = await warmed(disk, piece.read_cached)
        if not data:
            await trio.lowlevel.checkpoint()
            continue
        seen += [header.base_offset for header in headers(data)]
        offset = seen[-1] + 1
    return seen


async def test_many_logs_share_few_open_files_while_written_synced_and_read(tmp_path: Path) -> None:
    async with open_seam(node_name="test") as seam:
        disk, cache = seam.disk, FileCache(4)
        logs = [
            await open_log(disk, f"{tmp_path}/t-{number}", cache, clean=False, recovery_point=0)
            for number in range(LOGS)
        ]

        async def check_reader(log: Log) -> None:
            assert await read_to(disk, log, BATCHES) == list(range(BATCHES))

        async with trio.open_nursery() as nursery:
            for number, log in enumerate(logs):
                nursery.start_soon(append_all, disk, log, number)
                nursery.start_soon(sync_until, disk, log, BATCHES)
                nursery.start_soon(check_reader, log)
        assert all(len(log.segments) > 2 and not log.unsynced for log in logs)
        for number, log in enumerate(logs):
            expected = log.producers.snapshot()
            if number % 2:
                await disk.offload(lambda log=log: log.close(clean=True))
            else:
                log.release()
            again = await open_log(
                disk, log.directory, cache, clean=bool(number % 2), recovery_point=log.recovery_point
            )
            assert again.log_end_offset == BATCHES
            assert again.producers.snapshot() == expected
            assert await read_to(disk, again, BATCHES) == list(range(BATCHES))


async def test_reads_continue_while_the_log_is_truncated_in_a_thread(tmp_path: Path) -> None:
    async with open_seam(node_name="test") as seam:
        disk = seam.disk
        log = await open_log(disk, f"{tmp_path}/t-0", FileCache(), clean=False, recovery_point=0)
        await append_all(disk, log, 0)

        async def truncate() -> None:
            for offset in range(BATCHES - 10, 100, -20):
                await disk.offload(log.truncate_to, offset, NOW_MS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(truncate)
            for _ in range(30):
                assert await read_to(disk, log, 90) >= list(range(90))
        assert log.log_end_offset == 110
        assert log.producers.entries[0].next_sequence == 110
