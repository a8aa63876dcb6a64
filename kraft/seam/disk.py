"""Disk: files in two halves, one that never suspends and one that does.

The first half (`append`, `truncate`, `read_cached`, `rename`, `unlink`, `create`) is called on the loop, so that a
write, the producer state and the log end move together with no checkpoint between. Bytes appended are in the page
cache: a process death keeps them, a power loss may not. The second half (`sync`, `offload`) suspends.

Functions marked *blocking* may wait for the device. They are called only from a function handed to `offload`, or
before a node serves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Buffer = bytes | bytearray | memoryview


class DiskError(Exception):
    """The device refused. The log directory that it happened in goes offline; nothing is retried.

    `errno` is the operating system's number (28 = no space), `path` the file.
    """

    def __init__(self, message: str, *, errno: int, path: str) -> None:
        super().__init__(message)
        self.errno = errno
        self.path = path


class DiskLocked(Exception):
    """Another process holds the lock file of this folder; `path` names it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is locked by another process")
        self.path = path


class HandleRevoked(Exception):
    """This handle belongs to an incarnation that has crashed: the call had no effect."""


class File(Protocol):
    """An open file. Positions and counts are bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes written so far, synced or not."""
        ...

    @property
    def closed(self) -> bool: ...

    def append(self, *buffers: Buffer) -> None:
        """Write the buffers at the end, as one write. On DiskError the file is cut back to its old size or, if even
        that fails, the error says so in its text."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def read_cached(self, position: int, count: int) -> bytes | None:
        """Up to `count` bytes if they are in memory (short only at the end of the file), else None. Never waits."""
        ...

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes; short only at the end of the file. *Blocking.*"""
        ...

    def sync_blocking(self) -> None:
        """fdatasync. A failed sync is never retried (the kernel may have dropped the pages). *Blocking.*"""
        ...

    def close(self) -> None:
        """No more calls but reads through a FileRange that was taken before, which stays readable. The descriptor is
        given back when the last reference to this value goes, so drop yours."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FileRange:
    """Bytes of a file that a connection sends without touching them: `[position, position + count)`.

    It pins the file: a close or an unlink of the path does not disturb it.
    """

    file: File
    position: int
    count: int


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """A node's file system. Paths are absolute strings; listings are sorted."""

    # never suspending
    def create(self, path: str) -> File:
        """A new, empty file, open for append. Its directory entry is durable after `sync_directory`."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; durable after `sync_directory` of the parents."""
        ...

    def unlink(self, path: str) -> None:
        """Remove the entry; no error if it is not there."""
        ...

    def exists(self, path: str) -> bool: ...

    # blocking: in offload, or before the node serves
    def open(self, path: str) -> File:
        """An existing file, open for append and read. DiskError with errno 2 if there is none."""
        ...

    def list(self, directory: str) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Make it and its parents, durable on return; no error if it exists."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; no error if it is not there."""
        ...

    def read_file(self, path: str) -> bytes:
        """A whole small file. DiskError with errno 2 if there is none."""
        ...

    def write_file_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file: write `path + ".tmp"`, sync, rename, sync the directory. Durable on return."""
        ...

    def modified_ms(self, path: str) -> int:
        """Time of the last modification, wall clock, in ms."""
        ...

    def free_bytes(self, path: str) -> int:
        """What may still be written on the file system of this path."""
        ...

    def total_bytes(self, path: str) -> int:
        """All bytes of the file system of this path."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and unlinks in this directory durable."""
        ...

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock file; DiskLocked if another process has it."""
        ...

    # suspending
    async def sync(self, file: File) -> None:
        """fdatasync off the loop. DiskError if it fails, and then the bytes must be counted as lost."""
        ...

    async def offload(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a function that calls blocking halves off the loop (inline plus a delay in the simulator)."""
        ...

    # the budget of bytes that are appended and not yet on the device
    @property
    def dirty_budget_full(self) -> bool:
        """True when producers must wait before they append."""
        ...

    async def wait_dirty_budget(self) -> None:
        """Suspend until `dirty_budget_full` is False."""
        ...
