"""LogSyncer: decide which parts of the logs must reach the device, and when.

- Before the first append in a leader epoch: the epoch's entry (and partition.metadata): `request_ready`.
- After a roll: the closed segment, in the background; the recovery point moves only after that.
- When flush.ms has passed: the whole log (`flushing`).
- With flush.messages=1, after each append: group commit. At most one sync per log is in flight; appends that arrive
  meanwhile share the next sync.

A failed sync is never retried: its directory goes offline (B22). Source: docs/storage.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kraft.seam import DiskError
from kraft.seam.measures import Histogram

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.storage.handles import FileCache
    from kraft.storage.log import Log

NS_PER_MS = 1e6


class LogSyncer:
    """Syncs all logs and prepares them for appends. `request_…` methods do not suspend; the work is done in tasks, one
    per log."""

    def __init__(self, loop: Loop, file_cache: FileCache, disk_failed: Callable[[Partition, DiskError], None]) -> None:
        """`disk_failed(partition, error)` takes offline the log directory that contains the file in `error`."""
        self._loop = loop
        self._file_cache = file_cache
        self._disk_failed = disk_failed
        self._wanted: dict[Partition, None] = {}
        self._running: set[Partition] = set()
        self._wanted_whole: dict[Partition, None] = {}
        self.flush_ms = Histogram()
        """Duration of each sync of a log, in ms."""

    def request_full_sync(self, partition: Partition) -> None:
        """Sync all of this log at the end of the pass, whatever its flush.messages is."""
        self._wanted_whole[partition] = None
        self._wanted[partition] = None

    def request_sync(self, partition: Partition) -> None:
        """Sync this log at the end of the pass."""
        self._wanted[partition] = None

    def start_requested(self) -> None:
        """Start the requested syncs that are not in flight yet. Called at the end of a pass."""
        if not self._wanted:
            return
        wanted, self._wanted = self._wanted, {}
        for partition in wanted:
            if partition in self._running:
                self._wanted[partition] = None
            elif partition.log is not None:
                self._running.add(partition)
                self._loop.start_task(self._sync, partition)

    async def _sync(self, partition: Partition) -> None:
        loop = self._loop

        async def sync(log: Log) -> None:
            whole = partition.syncs_appends or partition in self._wanted_whole
            self._wanted_whole.pop(partition, None)
            plan = log.files_to_sync(rolled_only=not whole)
            if plan is None:
                return
            only_file = plan.only_file
            began_ns = loop.clock.monotonic_ns()
            if only_file is not None:
                await loop.disk.sync(only_file)
            else:
                await loop.disk.offload(plan.run)
            self.flush_ms.update((loop.clock.monotonic_ns() - began_ns) / NS_PER_MS)
            if partition.log is log:
                log.mark_synced(plan)
                partition.synced()
                self._file_cache.trim()  # close files whose content is on the device

        try:
            await self._exclusively(partition, sync)
        finally:
            self._running.discard(partition)
        loop.request_pass()

    def request_ready(self, partition: Partition) -> None:
        """Open the files that an append needs and save the epoch's entry, then call `partition.readied`."""
        self._loop.start_task(self._make_ready, partition)

    async def _make_ready(self, partition: Partition) -> None:
        loop = self._loop
        epoch = partition.leader_epoch

        async def make_ready(log: Log) -> None:
            cold = log.warm_for_append()
            if cold is not None:
                await loop.disk.offload(cold.warm)
                cold.adopt()
            plan = log.ready_plan(partition.topic_id)
            if plan is not None:
                await loop.disk.offload(plan.run)
                if partition.log is log:
                    log.mark_synced(plan)

        await self._exclusively(partition, make_ready)
        partition.readied(epoch)
        loop.request_pass()

    async def _exclusively(self, partition: Partition, work: Callable[[Log], Awaitable[None]]) -> None:
        """Run `work` on the open log while no other blocking call runs on that log. A DiskError takes the directory
        offline."""
        async with partition.blocking:
            log = partition.log
            if log is None:
                return
            try:
                await work(log)
            except DiskError as error:
                if partition.log is log:
                    self._disk_failed(partition, error)
