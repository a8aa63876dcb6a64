"""Open logs: a queue and a few tasks, each of which opens one log at a time off the event loop.

A log for which a fetch or produce waits goes to the front of the queue. A folder with a different topic id is set aside
as stray and never used (B41): the topic was deleted and created again while this broker was down. The folder's
checkpointed offsets are removed before the new log is created.

A log may end below its checkpointed offsets, if a crash came between a truncation and the checkpoint. Such a log is not
used before these offsets are lowered. Otherwise, new appends above its end would count as synced. Source: Kafka's
LogManager, LogLoader, docs/decisions/19-blank-replicas.md.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import trio

from kraft.broker.partition.topic_rules import log_config
from kraft.seam import Disk, DiskError, StorageCorrupt
from kraft.storage.log import Log
from kraft.storage.log_config import LogConfig
from kraft.storage.log_names import STRAY_DIRECTORY_SUFFIX
from kraft.storage.partition_metadata import read_partition_metadata

if TYPE_CHECKING:
    from kraft.broker.logs.checkpoint_writing import CheckpointWriter
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.storage.handles import FileCache
    from kraft.storage.log_dir import LogDirectory


class OpenJob(NamedTuple):
    """All inputs for opening one log, collected on the event loop. `storage` belongs to the directory, which may go
    offline meanwhile."""

    disk: Disk
    directory: HostedDirectory
    storage: LogDirectory
    topic: str
    number: int
    topic_id: UUID
    config: LogConfig
    cache: FileCache
    now_ms: int
    stray_id: UUID

    def run(self) -> Log | None:
        """Open or create the log, ready for a follower's appends. *Blocking.* Raises DiskError, StorageCorrupt.

        Return None if the folder belonged to an earlier topic of this name. The folder is then set aside, and the
        directory must drop its checkpointed offsets before the next try."""
        path = self.storage.partition_path(self.topic, self.number)
        found: UUID | None = None
        if self.disk.is_directory(path):
            found = read_partition_metadata(self.disk, path)
            if found is not None and found != self.topic_id:
                self.storage.retire(self.topic, self.number, self.stray_id, STRAY_DIRECTORY_SUFFIX)
                return None
        key = (self.topic, self.number)
        opened = Log.open_log(
            self.disk,
            path,
            self.config,
            clean=self.directory.is_clean,
            recovery_point=self.directory.recovery_points.get(key, 0),
            index_recovery_point=self.directory.index_recovery_points.get(key),
            log_start=self.directory.log_starts.get(key, 0),
            now_ms=self.now_ms,
            cache=self.cache,
        )
        if found is None:
            plan = opened.ready_plan(self.topic_id)
            if plan is not None:
                plan.run()
                opened.mark_synced(plan)
        return opened


@dataclass(frozen=True, slots=True)
class LogContext:
    """The settings and services for opening any log of a broker."""

    file_cache: FileCache
    producer_id_expiration_ms: int

    def config_of(self, partition: Partition) -> LogConfig:
        """Return the settings of the partition's topic in the form that its log needs."""
        return log_config(partition.config, self.producer_id_expiration_ms)


class LogMaker:
    """Opens or creates the log of a replica."""

    def __init__(
        self,
        loop: Loop,
        context: LogContext,
        checkpoints: CheckpointWriter,
        wait_retired: Callable[[str, int], Awaitable[None]],
    ) -> None:
        """`wait_retired` suspends while the folder of an earlier replica of this name is being renamed."""
        self._loop = loop
        self._context = context
        self._checkpoints = checkpoints
        self._wait_retired = wait_retired

    async def open(self, partition: Partition, directory: HostedDirectory) -> Log | None:
        """Open the log while holding the partition's lock. Return None if the directory went offline or the replica was
        removed meanwhile. Raises DiskError, StorageCorrupt."""
        key = (partition.topic, partition.index)
        # otherwise the renaming of that folder would wait for the lock that this call holds
        if not partition.is_removed:
            await self._wait_retired(*key)
        opened: Log | None = None
        while opened is None:
            await self._checkpoints.drop_forgotten(directory, *key)
            storage = directory.storage
            if storage is None or partition.is_removed:
                return None
            opened = await self._loop.disk.offload(self._job(partition, directory, storage).run)
            if opened is None:
                directory.forget(*key)
        if directory.lower_checkpoints_to(opened, *key):
            await self._checkpoints.write_recovery_points_of(directory)
        return opened

    def _job(self, partition: Partition, directory: HostedDirectory, storage: LogDirectory) -> OpenJob:
        return OpenJob(
            self._loop.disk,
            directory,
            storage,
            partition.topic,
            partition.index,
            partition.topic_id,
            self._context.config_of(partition),
            self._context.file_cache,
            self._loop.clock.wall_ms(),
            self._loop.random.uuid(),
        )


class LogOpener:
    """The queue of logs to open. `serve` is the loop of each task; `request` does not suspend."""

    def __init__(
        self,
        open_log: Callable[[Partition, HostedDirectory], Awaitable[Log | None]],
        *,
        opened: Callable[[Partition, Log], None],
        damaged: Callable[[Partition, StorageCorrupt], None],
        directory_failed: Callable[[HostedDirectory, DiskError], None],
    ) -> None:
        """`open_log` opens a log (`LogMaker.open`). Then one of the other callables is called, depending on the
        outcome."""
        self._open_log = open_log
        self._opened = opened
        self._damaged = damaged
        self._directory_failed = directory_failed
        self._queue: deque[Partition] = deque()
        self._queued: dict[Partition, bool] = {}
        self._busy_paths: set[tuple[str, int]] = set()
        self._wake = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self._running = 0

    def request(self, partition: Partition, *, urgent: bool) -> None:
        """Queue this partition's log to be opened. Logs queued with `urgent` are opened first."""
        known = self._queued.get(partition)
        if known or (known is not None and not urgent):
            return
        self._queued[partition] = urgent
        if urgent:
            self._queue.appendleft(partition)
        else:
            self._queue.append(partition)
        if self._idle.is_set():  # `wait_idle` may wait on an event that is not set
            self._idle = trio.Event()
        self._wake.set()

    def request_urgently(self, partition: Partition) -> None:
        """Queue this partition's log at the front, because a request waits for it."""
        self.request(partition, urgent=True)

    def request_soon(self, partition: Partition) -> None:
        """Queue this partition's log behind the urgent ones."""
        self.request(partition, urgent=False)

    def waiting(self) -> Counter[str]:
        """Return the number of logs that wait to be opened, by log directory."""
        return Counter(one.directory.path for one in self._queued if one.directory is not None)

    async def wait_idle(self) -> None:
        """Suspend until the queue is empty."""
        await self._idle.wait()

    async def serve(self) -> None:
        """Open queued logs, until cancelled."""
        while True:
            partition = self._next()
            if partition is None:
                if not self._running and not self._queue:
                    self._idle.set()
                if self._wake.is_set():
                    self._wake = trio.Event()
                await self._wake.wait()
                continue
            await self._open(partition)

    def _next(self) -> Partition | None:
        for _ in range(len(self._queue)):
            partition = self._queue.popleft()
            if partition not in self._queued:
                continue
            if (partition.topic, partition.index) in self._busy_paths:
                self._queue.append(partition)
                continue
            del self._queued[partition]
            if partition.log is None and not partition.is_removed and not partition.is_offline:
                return partition
        return None

    async def _open(self, partition: Partition) -> None:
        directory = partition.directory
        if directory is None or not directory.is_online:
            partition.failed()
            return
        path = (partition.topic, partition.index)
        self._busy_paths.add(path)
        self._running += 1
        try:
            async with partition.blocking:
                opened = await self._open_log(partition, directory)
        except DiskError as error:
            self._directory_failed(directory, error)
        except StorageCorrupt as error:
            self._damaged(partition, error)
        else:
            if opened is not None:
                self._opened(partition, opened)
        finally:
            self._running -= 1
            self._busy_paths.discard(path)
            self._wake.set()
