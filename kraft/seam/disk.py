"""Disk: file operations in two groups, those that never suspend and those that do.

The first group (`append`, `truncate`, `read_cached`, `rename`, `unlink`, `create`) is called on the event loop. A
write, the producer state and the log end therefore change together, with no checkpoint between. Appended bytes are in
the page cache: they survive a crash of the process, but not always a power loss. The second group (`sync`, `offload`)
suspends.

Functions marked *blocking* may wait for the device. Call them only in a function passed to `offload`, or before a node
serves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Buffer = bytes | bytearray | memoryview


class DiskError(Exception):
    """The device reported an error. The log directory that it occurred in goes offline; nothing is retried.

    `errno` is the operating system's number (28 = no space), `path` the file."""

    def __init__(self, message: str, *, errno: int, path: str) -> None:
        super().__init__(message)
        self.errno = errno
        self.path = path


class DiskLocked(Exception):
    """Another process holds this folder's lock file; `path` names it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is locked by another process")
        self.path = path


class HandleRevoked(Exception):
    """The file handle belongs to a node incarnation that has crashed: the call had no effect."""


class File(Protocol):
    """An open file. Positions and counts are bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Size in bytes, synced or not."""
        ...

    @property
    def closed(self) -> bool: ...

    def append(self, *buffers: Buffer) -> None:
        """Append the buffers as one write. On DiskError the file is truncated to its old size; if that fails too, the
        error's text says so."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""
        ...

    def read_cached(self, position: int, count: int) -> bytes | None:
        """Return up to `count` bytes if they are in memory (fewer only at the end of the file), else None. Never
        waits."""
        ...

    def read(self, position: int, count: int) -> bytes:
        """Read up to `count` bytes; fewer only at the end of the file. *Blocking.*"""
        ...

    def sync_blocking(self) -> None:
        """Call fdatasync. A failed sync is never retried: the kernel may have dropped the pages. *Blocking.*"""
        ...

    def close(self) -> None:
        """Close the file. After that only an existing FileRange can be read. The descriptor is closed when the last
        reference to this object is dropped, so callers must not keep one."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FileRange:
    """A byte range of a file that a connection sends without copying it: `[position, position + count)`.

    The range stays readable after the file is closed or its path is unlinked."""

    file: File
    position: int
    count: int


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """A node's file system. Paths are absolute strings; listings are sorted."""

    # operations that never suspend
    def create(self, path: str) -> File:
        """Create a new, empty file, open for append. Its directory entry is durable after `sync_directory`."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; durable after `sync_directory` of the parents."""
        ...

    def unlink(self, path: str) -> None:
        """Remove the directory entry; no error if it does not exist."""
        ...

    def exists(self, path: str) -> bool: ...

    # blocking operations: only in offload, or before the node serves
    def open(self, path: str) -> File:
        """Open an existing file for append and read. Raises DiskError with errno 2 if it does not exist."""
        ...

    def list(self, directory: str) -> list[str]:
        """Return the names in the directory, sorted."""
        ...

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents, durable on return; no error if it exists."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it; no error if it does not exist."""
        ...

    def read_file(self, path: str) -> bytes:
        """Read a whole small file. Raises DiskError with errno 2 if it does not exist."""
        ...

    def write_file_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file: write `path + ".tmp"`, sync, rename, sync the directory. Durable on return."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return the time of the last modification, wall clock, in ms."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return the free bytes of the file system of this path."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the total bytes of the file system of this path."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and unlinks in this directory durable."""
        ...

    def lock(self, path: str) -> Lock:
        """Acquire an exclusive lock file; DiskLocked if another process holds it."""
        ...

    # operations that suspend
    async def sync(self, file: File) -> None:
        """Call fdatasync off the event loop. After a DiskError the bytes must be regarded as lost."""
        ...

    async def offload(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a function with blocking operations off the event loop (in the simulator: inline, plus a delay)."""
        ...

    # the budget of bytes that are appended and not yet on the device
    @property
    def dirty_budget_full(self) -> bool:
        """Return whether producers must wait before they append."""
        ...

    async def wait_dirty_budget(self) -> None:
        """Suspend until `dirty_budget_full` is False."""
        ...
