"""The real disk: kraft.seam.Disk over os calls, with a bounded number of threads for calls that may wait.

Handles are never revoked here, as a crashed node is a process that ended. Directory entries are durable after
`sync_directory`, as POSIX specifies; `make_directory` and `write_file_atomic` do it themselves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

import trio

from kraft.runtime.file import RealFile, disk_error
from kraft.runtime.writeback import DirtyLedger
from kraft.seam import DiskError, DiskLocked, File, Lock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_FILE_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class RealLock:
    """An flock on a lock file. The kernel releases it when the process dies."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """Implementation of kraft.seam.Disk. Created inside a trio run, by `open_seam`."""

    def __init__(self, *, offload_threads: int, sync_threads: int, dirty_budget_bytes: int) -> None:
        self.ledger = DirtyLedger(dirty_budget_bytes)
        self.offload_limiter = trio.CapacityLimiter(offload_threads)
        self._sync_limiter = trio.CapacityLimiter(sync_threads)

    # operations that never suspend

    def create(self, path: str) -> File:
        try:
            fd = os.open(path, _FILE_FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            raise disk_error(error, path, "create") from error
        return self._file(fd, path, 0)

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise disk_error(error, source, f"rename to {target}") from error

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error(error, path, "unlink") from error

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    # blocking operations

    def open(self, path: str) -> File:
        try:
            fd = os.open(path, _FILE_FLAGS)
        except OSError as error:
            raise disk_error(error, path, "open") from error
        return self._file(fd, path, os.fstat(fd).st_size)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            raise disk_error(error, directory, "list") from error

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent != path:
            self.make_directory(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if os.path.isdir(path):
                return
            raise disk_error(NotADirectoryError(20, "a file of that name exists"), path, "make directory") from None
        except OSError as error:
            raise disk_error(error, path, "make directory") from error
        try:
            self.sync_directory(parent)
        except DiskError:  # otherwise the next try would find it, and regard it as durable
            with suppress(OSError):
                os.rmdir(path)
            raise

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error(error, path, "remove") from error

    def read_file(self, path: str) -> bytes:
        try:
            with open(path, "rb") as source:
                return source.read()
        except OSError as error:
            raise disk_error(error, path, "read") from error

    def write_file_atomic(self, path: str, data: bytes) -> None:
        draft = path + ".tmp"
        try:
            with open(draft, "wb", buffering=0) as target:
                rest = memoryview(data)
                while rest:
                    rest = rest[target.write(rest) or 0 :]
                os.fsync(target.fileno())
            os.replace(draft, path)
        except OSError as error:
            raise disk_error(error, path, "replace") from error
        self.sync_directory(os.path.dirname(path))

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise disk_error(error, path, "look at") from error

    def free_bytes(self, path: str) -> int:
        try:
            state = os.statvfs(path)
        except OSError as error:
            raise disk_error(error, path, "look at") from error
        return state.f_bavail * state.f_frsize

    def total_bytes(self, path: str) -> int:
        try:
            state = os.statvfs(path)
        except OSError as error:
            raise disk_error(error, path, "look at") from error
        return state.f_blocks * state.f_frsize

    def sync_directory(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise disk_error(error, path, "sync directory") from error

    def lock(self, path: str) -> Lock:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error(error, path, "lock") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise DiskLocked(path) from None
        return RealLock(fd)

    def _file(self, fd: int, path: str, size: int) -> RealFile:
        return RealFile(fd, path, size, self.ledger)

    # operations that suspend

    async def sync(self, file: File) -> None:
        await trio.to_thread.run_sync(file.sync_blocking, limiter=self._sync_limiter)

    async def offload(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await trio.to_thread.run_sync(function, *arguments, limiter=self.offload_limiter)

    # the budget of dirty bytes

    @property
    def dirty_budget_full(self) -> bool:
        return self.ledger.full

    async def wait_dirty_budget(self) -> None:
        await self.ledger.wait_room()
