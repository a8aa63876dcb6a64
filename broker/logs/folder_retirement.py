"""FolderRetirement: rename folders of removed replicas to `-delete`, and stray folders to `-stray`.

A `-delete` folder is removed after file.delete.delay.ms. A `-stray` folder belongs to no replica and is left to the
operator. Invariant: a folder is renamed only while no blocking call runs in it, and no log of the same name is opened
before the rename is done. Source: Kafka's LogManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
import trio

from kraft.seam import DiskError
from kraft.storage.log_names import DELETE_DIRECTORY_SUFFIX, FUTURE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX

if TYPE_CHECKING:
    from kraft.broker.logs.file_removal import FileRemoval
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.storage.log import Log

log = structlog.get_logger("kraft.broker.logs")


class FolderRetirement:
    """Renames and removes folders that are no longer used. Only `wait_for` is a coroutine."""

    def __init__(
        self,
        loop: Loop,
        delay_ms: int,
        directory_failed: Callable[[HostedDirectory, DiskError], None],
        removal: FileRemoval,
    ) -> None:
        """`delay_ms` is log.segment.delete.delay.ms; it is used for folders of topics whose file.delete.delay.ms is not
        known."""
        self._loop = loop
        self._delay_ms = delay_ms
        self._directory_failed = directory_failed
        self._removal = removal
        self._leaving: dict[tuple[str, int], trio.Event] = {}

    async def wait_for(self, topic: str, index: int) -> None:
        """Suspend while a folder of this name is being renamed."""
        event = self._leaving.get((topic, index))
        if event is None:
            await trio.lowlevel.checkpoint()
        else:
            await event.wait()

    def retire(self, partition: Partition, opened: Log | None) -> None:
        """Rename and later remove the folder of a removed replica; `opened` is its log, if the log was open."""
        key = (partition.topic, partition.index)
        before, event = self._leaving.get(key), trio.Event()
        self._leaving[key] = event
        self._loop.start_task(self._retire, partition, opened, key, before, event)

    async def _retire(
        self,
        partition: Partition,
        opened: Log | None,
        key: tuple[str, int],
        before: trio.Event | None,
        event: trio.Event,
    ) -> None:
        directory = partition.directory
        assert directory is not None
        try:
            if before is not None:  # the folder still belongs to an earlier replica, or is being renamed
                await before.wait()
            async with partition.blocking:
                if opened is not None:
                    opened.release()
                directory.forget(*key)
                directory.held.discard(key)
                path = await self._rename(directory, *key)
        finally:
            event.set()
            if self._leaving.get(key) is event:
                del self._leaving[key]
        if path is not None:
            log.info("replica is removed", topic=key[0], partition=key[1], folder=path)
            await self._removal.remove_after(partition.config.file_delete_delay_ms, [path])

    async def _rename(self, directory: HostedDirectory, topic: str, index: int) -> str | None:
        storage = directory.storage
        if storage is None or not self._loop.disk.exists(storage.partition_path(topic, index)):
            await trio.lowlevel.checkpoint()
            return None
        try:
            return await self._loop.disk.offload(storage.retire, topic, index, self._loop.random.uuid())
        except DiskError as error:
            self._directory_failed(directory, error)
            return None

    def set_aside(self, directory: HostedDirectory, topic: str, index: int) -> None:
        """Rename a folder that was found at start and belongs to no replica of this broker to `-stray`. Another
        directory may have a folder of the same name, if this directory failed before and is online again."""
        key = (topic, index)
        before, event = self._leaving.get(key), trio.Event()
        self._leaving[key] = event
        self._loop.start_task(self._set_aside, directory, key, before, event)

    async def _set_aside(
        self, directory: HostedDirectory, key: tuple[str, int], before: trio.Event | None, event: trio.Event
    ) -> None:
        storage = directory.storage
        try:
            if before is not None:
                await before.wait()
            if storage is not None:
                directory.forget(*key)
                directory.held.discard(key)
                path = await self._loop.disk.offload(
                    storage.retire, *key, self._loop.random.uuid(), STRAY_DIRECTORY_SUFFIX
                )
                log.warning("folder belongs to no replica of this broker", topic=key[0], partition=key[1], folder=path)
        except DiskError as error:
            self._directory_failed(directory, error)
        finally:
            event.set()
            if self._leaving.get(key) is event:
                del self._leaving[key]

    def discard_copy(self, directory: HostedDirectory, path: str) -> None:
        """Rename a copy (`-future`) to `-delete` at once, so that no later start takes it for the replica."""
        marked = path.removesuffix(FUTURE_DIRECTORY_SUFFIX) + DELETE_DIRECTORY_SUFFIX
        try:
            self._loop.disk.rename(path, marked)
        except DiskError as error:
            self._directory_failed(directory, error)
        else:
            self.remove_later([marked])

    def remove_later(self, folders: list[str]) -> None:
        """Remove, after the delay, folders that an earlier incarnation marked `-delete`."""
        if folders:
            self._removal.remove_later(self._delay_ms, folders)
