"""Run one round of compaction at a limited rate. Its steps run in a thread; it replaces segments under the log's lock.

Invariant: the log cannot be truncated between `stage`, which prepares the new segment, and the moment when the log is
read through it. A crash in between would leave the new segment in the log. `partition.blocking` covers the two steps.
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
"""Minimum milliseconds of a pause for the rate limit. Shorter pauses are added up until they reach this minimum."""


class RoundAbandoned(Exception):
    """Raised when the log was closed, truncated or trimmed during the round, so that the data read in the round are no
    longer valid."""


class RoundRunner:
    """Runs rounds of compaction, each in the calling task."""

    def __init__(
        self, loop: Loop, removal: FileRemoval, counting: Callable[[int], AbstractContextManager[None]]
    ) -> None:
        """`counting(size_bytes)` charges the memory of a round to the memory budget."""
        self._loop = loop
        self._removal = removal
        self._counting = counting

    async def run(
        self, partition: Partition, cleaning: CleaningRound, bytes_per_second_max: Callable[[], float]
    ) -> None:
        """Run all steps of a round.

        Raises RoundAbandoned. A step may raise StorageCorrupt, UnreadableBatch, WireError or DiskError; the log may
        have been removed from the broker by then (see `is_current`)."""
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
                    raise RoundAbandoned
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
        """Replace the old segments of a group with the new segment. If the old segments no longer belong to the log,
        remove the new files and raise RoundAbandoned. A remaining `.cleaned` file would make recovery discard the
        complete `.swap` file of a later round."""
        offload = self._loop.disk.offload
        if is_current(partition, cleaning):
            await offload(replacement.sync)
        async with partition.blocking:
            with trio.CancelScope(shield=True):  # a cancellation takes effect before or after the whole replacement
                if not is_current(partition, cleaning):
                    if partition.log is cleaning.log:
                        await offload(replacement.discard)
                    raise RoundAbandoned
                await offload(replacement.stage)
                if partition.log is not cleaning.log:
                    raise RoundAbandoned  # its directory is offline and must not be written to
                if not replacement.publish():
                    await offload(replacement.discard)
                    raise RoundAbandoned
                paths = await offload(replacement.finish)
        self._removal.remove_later(partition.config.file_delete_delay_ms, paths, partition)


def is_current(partition: Partition, cleaning: CleaningRound) -> bool:
    """Return whether `log` is open and is the partition's log, as when the round began."""
    return partition.log is cleaning.log and cleaning.is_current


def _advance(steps: Generator[Replacement | None, None, None]) -> tuple[bool, Replacement | None]:
    """Run one step. Return whether it was the last step, and what the round requests next. *Blocking.*"""
    for replacement in steps:
        return False, replacement
    return True, None
