"""Run one round of compaction: its steps in a thread, its replacements under the log's lock, at a limited rate.

Invariant: no truncation happens between `stage`, after which a crash would end with the new segment, and the moment
when the log is read through that segment. Both are inside `partition.blocking`.
Source: Kafka's LogCleaner, docs/decisions/15-compaction.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import trio

from kraft.broker.serving.gates import OPENING_BYTES
from kraft.storage.compaction.replacement import Replacement
from kraft.storage.compaction.round import CleaningRound

if TYPE_CHECKING:
    from kraft.broker.logs.file_removal import FileRemoval
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop

PAUSE_MS_MIN = 1
"""Shorter pauses are put off until they have come to this."""


class GivenUp(Exception):
    """The log was closed, cut or trimmed under the round: what was read of it counts for nothing."""


class RoundRunner:
    """Runs rounds, each in the task that asks for it."""

    def __init__(
        self, loop: Loop, removal: FileRemoval, counting: Callable[[int], AbstractContextManager[None]]
    ) -> None:
        """`counting(size_bytes)` charges what a round holds to the memory budget."""
        self._loop = loop
        self._removal = removal
        self._counting = counting

    async def run(
        self, partition: Partition, cleaning: CleaningRound, bytes_per_second_max: Callable[[], float]
    ) -> None:
        """All steps of a round. GivenUp; StorageCorrupt, UnreadableBatch, WireError and DiskError from a step (which
        may come from a log that was taken away: see `is_current`)."""
        with self._counting(OPENING_BYTES):
            await self._run(partition, cleaning, bytes_per_second_max)

    async def _run(
        self, partition: Partition, cleaning: CleaningRound, bytes_per_second_max: Callable[[], float]
    ) -> None:
        steps = cleaning.steps()
        clock, offload = self._loop.clock, self._loop.disk.offload
        behind_ms = 0.0
        finished = False
        try:
            while not finished:
                began_ms, io_bytes = clock.monotonic_ms(), cleaning.stats.io_bytes
                finished, replacement = await offload(_advance, steps)
                if replacement is not None:
                    await self._replace(partition, cleaning, replacement)
                elif not is_current(partition, cleaning):
                    raise GivenUp
                due_ms = (cleaning.stats.io_bytes - io_bytes) * 1000 / bytes_per_second_max()
                behind_ms = max(behind_ms + due_ms - (clock.monotonic_ms() - began_ms), 0.0)
                if behind_ms >= PAUSE_MS_MIN:
                    await clock.sleep_ms(behind_ms)
                    behind_ms = 0.0
        finally:
            if not finished and partition.log is cleaning.log:
                with trio.CancelScope(shield=True):
                    await offload(cleaning.discard)

    async def _replace(self, partition: Partition, cleaning: CleaningRound, replacement: Replacement) -> None:
        """Put a group's new segment in the place of the old ones. GivenUp if they are not the log's any more: then the
        new one's files go. A `.cleaned` that stayed would make recovery throw a later round's complete `.swap` away."""
        offload = self._loop.disk.offload
        if is_current(partition, cleaning):
            await offload(replacement.sync)
        async with partition.blocking:
            with trio.CancelScope(shield=True):  # a cancel lands before or behind all of it
                if not is_current(partition, cleaning):
                    if partition.log is cleaning.log:
                        await offload(replacement.discard)
                    raise GivenUp
                await offload(replacement.stage)
                if partition.log is not cleaning.log:
                    raise GivenUp  # its directory is offline: not another write
                if not replacement.publish():
                    await offload(replacement.discard)
                    raise GivenUp
                paths = await offload(replacement.finish)
        self._removal.remove_later(partition.config.file_delete_delay_ms, paths, partition)


def is_current(partition: Partition, cleaning: CleaningRound) -> bool:
    """The log is open, and is the one that the round began with."""
    return partition.log is cleaning.log and cleaning.is_current


def _advance(steps: Generator[Replacement | None, None, None]) -> tuple[bool, Replacement | None]:
    """One step: whether it was the last, and what it asks for. *Blocking.*"""
    for replacement in steps:
        return False, replacement
    return True, None
