"""LogCleaner: choose the compacted log that most needs cleaning, and run a round over it off the event loop.

Invariants: at most one round per log runs at a time. The cleaner checkpoint moves only after a whole round. A log with
unreadable bytes is marked uncleanable until a restart, and its directory stays online.
Source: Kafka's LogCleaner, LogCleanerManager, docs/storage.md#what-compaction-keeps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from kraft.broker.logs.cleaning.cleaning_round import RoundAbandoned, RoundRunner, is_current
from kraft.seam import DiskError, StorageCorrupt, WireError
from kraft.storage.compaction.dirty_range import CleanableRange, find_range
from kraft.storage.compaction.round import CleanerLimits, CleanerStats, CleaningRound
from kraft.storage.handles import ColdRead
from kraft.storage.unreadable import UnreadableBatch

if TYPE_CHECKING:
    from kraft.broker.logs.damaged_logs import DamagedLogs
    from kraft.broker.logs.disk_failures import DiskFailures
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.broker.serving.loop import Loop
    from kraft.config import NodeConfig
    from kraft.storage.log import Log

log = structlog.get_logger("kraft.broker.cleaner")

COLD_TRIES_MAX = 1000
LOGS_PER_STEP = 100
"""Number of logs examined before other tasks run; examining one log takes tens of microseconds."""
BACKOFF_MS_MIN = 10
READ_BYTES_MIN = 4096
MAP_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The config keys that begin with `log.cleaner.`. Limits that all cleaner threads share are already divided by the
    number of threads."""

    threads: int
    backoff_ms: int
    bytes_per_second_max: float
    limits: CleanerLimits

    @staticmethod
    def of(config: NodeConfig) -> CleanerSettings:
        threads = config.integer("log.cleaner.threads") if config.boolean("log.cleaner.enable") else 0
        share = max(threads, 1)
        map_bytes = config.integer("log.cleaner.dedupe.buffer.size") * config.float("log.cleaner.io.buffer.load.factor")
        read_bytes = config.integer("log.cleaner.io.buffer.size") // 2
        return CleanerSettings(
            threads=threads,
            backoff_ms=max(config.integer("log.cleaner.backoff.ms"), BACKOFF_MS_MIN),
            bytes_per_second_max=config.float("log.cleaner.io.max.bytes.per.second") / share,
            limits=CleanerLimits(
                map_bytes_max=max(int(map_bytes) // share, MAP_BYTES_MIN),
                read_bytes=max(read_bytes // share, READ_BYTES_MIN),
            ),
        )


class LastRound(NamedTuple):
    """The statistics of a worker's last round."""

    stats: CleanerStats
    took_ms: int


@dataclass(slots=True)
class CleanerState:
    """The values behind the cleaner's metrics. `last_run_ms` is on the monotonic clock."""

    last_run_ms: int
    dirty_ratio_max: float = 0.0
    compaction_delay_ms_max: int = 0
    last_rounds: dict[int, LastRound] = field(default_factory=dict)
    """The last round of each worker, by worker number."""
    uncleanable: dict[Partition, int] = field(default_factory=dict)
    """Uncleanable logs, with the number of bytes in each that should be cleaned."""


class CleaningCandidate(NamedTuple):
    """A log that may be cleaned, with the range to clean."""

    partition: Partition
    log: Log
    cleanable: CleanableRange


class LogCleaner:
    """Chooses logs and cleans them. `run` is the coroutine of a task; `clean_dirtiest` runs a single round, for
    tests."""

    def __init__(
        self,
        loop: Loop,
        configs: DynamicConfigs,
        rounds: RoundRunner,
        *,
        open_logs: Callable[[], Iterable[Partition]],
        failures: DiskFailures,
        damaged_logs: DamagedLogs,
        write_offsets: Callable[[HostedDirectory], Awaitable[None]],
    ) -> None:
        """`write_offsets` writes the cleaner checkpoint of a directory."""
        self._loop = loop
        self._rounds = rounds
        self._open_logs = open_logs
        self._failures = failures
        self._damaged_logs = damaged_logs
        self._write_offsets = write_offsets
        self.settings = CleanerSettings.of(configs.node)
        self.state = CleanerState(loop.clock.monotonic_ms())
        self._busy: set[Partition] = set()
        self._nursery: trio.Nursery | None = None
        self._workers: set[int] = set()
        configs.on_change(self._configure)

    async def run(self) -> None:
        """Clean until cancelled, with log.cleaner.threads workers."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._start_workers()
            await trio.sleep_forever()

    def _configure(self, config: NodeConfig) -> None:
        self.settings = CleanerSettings.of(config)
        self._start_workers()

    def _start_workers(self) -> None:
        if self._nursery is None:
            return
        for number in range(self.settings.threads):
            if number not in self._workers:
                self._workers.add(number)
                self._nursery.start_soon(self._work, number)

    async def _work(self, number: int) -> None:
        """Run one cleaner worker. It ends when the configured number of workers is lowered below this worker's
        number."""
        while number < self.settings.threads:
            if not await self.clean_dirtiest(number):
                await self._loop.clock.sleep_ms(self.settings.backoff_ms)
        self._workers.discard(number)

    async def clean_dirtiest(self, worker: int = 0) -> bool:
        """Run one round over the log that most needs cleaning. Return False if no log needs cleaning, or the round was
        abandoned."""
        chosen = await self._choose()
        if chosen is None:
            return False
        self._busy.add(chosen.partition)
        try:
            return await self._clean(worker, chosen)
        finally:
            self._busy.discard(chosen.partition)

    # choosing the log

    async def _choose(self) -> CleaningCandidate | None:
        """Examine all logs, update the metrics, and return the dirtiest of the logs that are due for cleaning."""
        state = self.state
        state.last_run_ms = self._loop.clock.monotonic_ms()
        state.uncleanable = {one: size for one, size in state.uncleanable.items() if not one.is_removed}
        candidates: list[CleaningCandidate] = []
        for one in self._open_logs():
            candidate = await self._examine(one)
            if candidate is not None:
                candidates.append(candidate)
                if not len(candidates) % LOGS_PER_STEP:
                    await trio.lowlevel.checkpoint()
        state.dirty_ratio_max = max((one.cleanable.dirty_ratio for one in candidates), default=0.0)
        state.compaction_delay_ms_max = max((one.cleanable.delay_ms for one in candidates), default=0)
        due = [one for one in candidates if one.cleanable.is_due(one.log.config) and one.partition not in self._busy]
        return max(due, key=lambda one: one.cleanable.dirty_ratio, default=None)

    async def _examine(self, partition: Partition) -> CleaningCandidate | None:
        """Examine one log. Return None if the log is not compacted, not open, being cleaned, or uncleanable."""
        opened = partition.log
        if opened is None or not opened.config.compacts or partition in self._busy:
            return None
        cleanable = await self._find_range(partition, opened)
        if cleanable is not None and partition in self.state.uncleanable:
            self.state.uncleanable[partition] = cleanable.dirty_bytes
            return None
        return None if cleanable is None else CleaningCandidate(partition, opened, cleanable)

    async def _find_range(self, partition: Partition, opened: Log) -> CleanableRange | None:
        """Return the offset range of the log that may be cleaned; None if the log was closed, is being truncated, or
        cannot be read."""
        directory = partition.directory
        for _ in range(COLD_TRIES_MAX):
            if partition.log is not opened or directory is None or partition.is_truncating:
                return None
            try:
                return find_range(opened, directory.cleaner_offsets.get(_key(partition)), self._loop.clock.wall_ms())
            except ColdRead as cold:
                if not await self._failures.warmed(partition, cold):
                    return None
            except StorageCorrupt as error:
                self._damaged_logs.damage_found(partition, error)
                return None
        return None

    # cleaning one log

    async def _clean(self, worker: int, chosen: CleaningCandidate) -> bool:
        clock, partition = self._loop.clock, chosen.partition
        # the log may have been cleaned, truncated or trimmed meanwhile
        cleanable = await self._find_range(partition, chosen.log)
        if cleanable is None or not cleanable.is_due(chosen.log.config):
            return False
        began_ms = clock.monotonic_ms()
        cleaning = CleaningRound(chosen.log, cleanable, self.settings.limits, clock.wall_ms())
        try:
            await self._rounds.run(partition, cleaning, lambda: self.settings.bytes_per_second_max)
        except RoundAbandoned:
            return False
        except DiskError as error:
            if is_current(partition, cleaning):
                self._failures.disk_failed(partition, error)
            return False
        except (StorageCorrupt, UnreadableBatch, WireError) as error:
            if is_current(partition, cleaning):
                self.state.uncleanable[partition] = cleanable.dirty_bytes
                log.error("log is not compacted", topic=partition.topic, partition=partition.index, error=str(error))
            return False
        took_ms = clock.monotonic_ms() - began_ms
        self.state.last_rounds[worker] = LastRound(cleaning.stats, took_ms)
        await self._note(partition, cleaning, took_ms)
        return True

    async def _note(self, partition: Partition, cleaning: CleaningRound, took_ms: int) -> None:
        """Record a completed round: the next round begins at the offset where this one ended."""
        stats, directory = cleaning.stats, partition.directory
        log.info(
            "log is compacted",
            topic=partition.topic,
            partition=partition.index,
            from_offset=cleaning.cleanable.first_dirty_offset,
            to_offset=cleaning.cleaned_to,
            bytes_read=stats.bytes_read,
            bytes_written=stats.bytes_written,
            records_read=stats.records_read,
            records_kept=stats.records_kept,
            took_ms=took_ms,
        )
        if directory is not None and is_current(partition, cleaning):
            directory.cleaner_offsets[_key(partition)] = cleaning.cleaned_to
            await self._write_offsets(directory)


def _key(partition: Partition) -> tuple[str, int]:
    return partition.topic, partition.index
