"""The log cleaner of a broker: choose the compacted log that needs it most, and run a round over it off the loop.

Invariants: one round per log at a time. The cleaner checkpoint moves only after a whole round. A log whose bytes do not
read is left alone until a restart (uncleanable), and its directory stays online.
Source: Kafka's LogCleaner, LogCleanerManager, docs/storage.md#what-compaction-keeps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from kraft.broker.logs.cleaning.cleaning_round import GivenUp, RoundRunner, is_current
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
LOOKS_PER_STEP = 100
"""So many logs are looked at before others have a turn: a look takes tens of microseconds."""
BACKOFF_MS_MIN = 10
READ_BYTES_MIN = 4096
MAP_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The `log.cleaner.` keys; what the threads share is already divided."""

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
    """What a worker did last."""

    stats: CleanerStats
    took_ms: int


@dataclass(slots=True)
class CleanerState:
    """What the metrics show. `last_run_ms` is on the monotonic clock."""

    last_run_ms: int
    dirty_ratio_max: float = 0.0
    compaction_delay_ms_max: int = 0
    last_rounds: dict[int, LastRound] = field(default_factory=dict)
    """By worker."""
    uncleanable: dict[Partition, int] = field(default_factory=dict)
    """Logs that are left alone, and their bytes that should be cleaned."""


class Candidate(NamedTuple):
    """A log that a round may be run over."""

    partition: Partition
    log: Log
    cleanable: CleanableRange


class LogCleaner:
    """`run` is a task; `clean_dirtiest` is a single round, for tests."""

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
        """Clean until cancelled, with as many workers as log.cleaner.threads says."""
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
        """A worker. It ends when there are to be fewer."""
        while number < self.settings.threads:
            if not await self.clean_dirtiest(number):
                await self._loop.clock.sleep_ms(self.settings.backoff_ms)
        self._workers.discard(number)

    async def clean_dirtiest(self, worker: int = 0) -> bool:
        """One round over the log that needs it most. False if none does, or the round came to nothing."""
        chosen = await self._choose()
        if chosen is None:
            return False
        self._busy.add(chosen.partition)
        try:
            return await self._clean(worker, chosen)
        finally:
            self._busy.discard(chosen.partition)

    # choosing

    async def _choose(self) -> Candidate | None:
        """The dirtiest of the logs that are due; the metrics follow from the look at all of them."""
        state = self.state
        state.last_run_ms = self._loop.clock.monotonic_ms()
        state.uncleanable = {one: size for one, size in state.uncleanable.items() if not one.is_removed}
        candidates: list[Candidate] = []
        for one in self._open_logs():
            candidate = await self._look_at(one)
            if candidate is not None:
                candidates.append(candidate)
                if not len(candidates) % LOOKS_PER_STEP:
                    await trio.lowlevel.checkpoint()
        state.dirty_ratio_max = max((one.cleanable.dirty_ratio for one in candidates), default=0.0)
        state.compaction_delay_ms_max = max((one.cleanable.delay_ms for one in candidates), default=0)
        due = [one for one in candidates if one.cleanable.is_due(one.log.config) and one.partition not in self._busy]
        return max(due, key=lambda one: one.cleanable.dirty_ratio, default=None)

    async def _look_at(self, partition: Partition) -> Candidate | None:
        """None if the log is not compacted, not open, or left alone."""
        opened = partition.log
        if opened is None or not opened.config.compacts or partition in self._busy:
            return None
        cleanable = await self._find_range(partition, opened)
        if cleanable is not None and partition in self.state.uncleanable:
            self.state.uncleanable[partition] = cleanable.dirty_bytes
            return None
        return None if cleanable is None else Candidate(partition, opened, cleanable)

    async def _find_range(self, partition: Partition, opened: Log) -> CleanableRange | None:
        """What of the log may be cleaned; None if it is not there any more, is being cut, or cannot be read."""
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
                self._damaged_logs.met(partition, error)
                return None
        return None

    # a round

    async def _clean(self, worker: int, chosen: Candidate) -> bool:
        clock, partition = self._loop.clock, chosen.partition
        cleanable = await self._find_range(partition, chosen.log)  # it may have been cleaned, cut or trimmed meanwhile
        if cleanable is None or not cleanable.is_due(chosen.log.config):
            return False
        began_ms = clock.monotonic_ms()
        cleaning = CleaningRound(chosen.log, cleanable, self.settings.limits, clock.wall_ms())
        try:
            await self._rounds.run(partition, cleaning, lambda: self.settings.bytes_per_second_max)
        except GivenUp:
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
        """The round is whole: the next one begins where it ended."""
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
