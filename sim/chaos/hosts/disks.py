"""NodeDisk: a small file system for one node, which can be filled to the last byte and emptied again.

    if reason := can_mount():
        …                                        # the fault is not available here, and why
    disk = NodeDisk(node_folder / "data", 64 << 20, warden)
    disk.mount()                                 # before the node starts
    disk.fill()                                  # the node's next append that needs a block fails with ENOSPC
    disk.free()

The file system is a tmpfs, so it requires root (CAP_SYS_ADMIN), and as much memory as is written to it. It differs from
a real disk in two ways: a sync costs nothing, and promised blocks (fallocate, delayed allocation) are never withdrawn.
A file may still grow within its last block when the disk is full. Nodes that delete old segments free space again: see
`free_bytes`, and call `fill` again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from kraft.sim.chaos.hosts.warden import HeldResource, Warden

BALLAST = ".ballast"
"""Name of the file that fills the disk. Nodes ignore it, because they read only folders."""
BLOCK_BYTES = 4096
SIZE_BYTES_MIN = 1 << 20
MNT_DETACH = 2
MS_NOSUID_NODEV = 2 | 4


class CannotMount(Exception):
    """File systems cannot be mounted here; the text gives the reason and what is needed."""


class NodeDisk:
    """A file system of `size_bytes` on the folder at `path`, which must exist and be empty. If the caller does not
    unmount it, the cleanup process `warden` does so at the end of the run."""

    def __init__(self, path: Path, size_bytes: int, warden: Warden) -> None:
        if size_bytes < SIZE_BYTES_MIN:
            raise ValueError(f"a node's disk has {SIZE_BYTES_MIN} bytes at least, not {size_bytes}")
        self.path = path
        self.size_bytes = size_bytes
        self._warden = warden
        self._held: HeldResource | None = None

    @property
    def is_mounted(self) -> bool:
        return os.path.ismount(self.path)

    @property
    def is_filled(self) -> bool:
        """Whether the ballast file exists."""
        return self._ballast.exists()

    @property
    def ballast_bytes(self) -> int:
        """Size of the ballast file."""
        return self._ballast.stat().st_size if self.is_filled else 0

    @property
    def free_bytes(self) -> int:
        """Number of bytes that can still be written."""
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

    def mount(self) -> None:
        """Mount the file system. Raises CannotMount if that is not allowed, WardenError if something is already mounted
        there."""
        self._held = self._warden.mount(self.path)
        try:
            mount_tmpfs(self.path, self.size_bytes)
        except CannotMount:
            self._warden.release(self._held)
            raise

    def unmount(self) -> None:
        """Unmount the file system: at once if it is not in use, otherwise as soon as it is not. Its contents are
        lost."""
        if self.is_mounted:
            unmount(self.path)
        if self._held is not None:
            self._warden.release(self._held)
            self._held = None

    def fill(self, leave_bytes: int = 0) -> int:
        """Fill the disk except for `leave_bytes`, rounded down to blocks, and return the free bytes. How the node
        reacts is up to the node. May be called again on a filled disk."""
        self._require_mounted()
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take_room(descriptor, lambda: self.free_bytes - leave_bytes)
        finally:
            os.close(descriptor)
        return self.free_bytes

    def free(self) -> int:
        """Release the space that `fill` took, if any, and return the free bytes."""
        with suppress(FileNotFoundError):
            self._ballast.unlink()
        return self.free_bytes

    @property
    def _ballast(self) -> Path:
        return self.path / BALLAST

    def _require_mounted(self) -> None:
        if not self.is_mounted:  # otherwise the machine's own disk would be filled
            raise CannotMount(f"no file system of the run's own is mounted at {self.path}")


def _take_room(descriptor: int, wanted: Callable[[], int]) -> None:
    """Grow the ballast file until the disk is full or the file has the requested size."""
    chunk = max(BLOCK_BYTES, wanted() // BLOCK_BYTES * BLOCK_BYTES)
    while chunk >= BLOCK_BYTES and wanted() >= BLOCK_BYTES:
        chunk = min(chunk, wanted() // BLOCK_BYTES * BLOCK_BYTES)
        try:
            os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, chunk)
        except OSError as problem:
            if problem.errno != errno.ENOSPC:
                raise
            chunk = chunk // 2 // BLOCK_BYTES * BLOCK_BYTES


@cache
def can_mount() -> str:
    """Return "" if this process may mount file systems, otherwise the reason why not: determined by mounting on a
    temporary folder."""
    folder = tempfile.mkdtemp(prefix="kraft-mount-")
    try:
        mount_tmpfs(Path(folder), SIZE_BYTES_MIN)
        unmount(Path(folder))
    except CannotMount as problem:
        return str(problem)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def mount_tmpfs(path: Path, size_bytes: int) -> None:
    """Mount an empty file system in memory. Raises CannotMount."""
    if not sys.platform.startswith("linux"):
        raise CannotMount("a full disk needs a tmpfs, which only Linux has")
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={size_bytes},mode=0755".encode()
    if libc.mount(b"kraft-chaos", os.fsencode(path), b"tmpfs", MS_NOSUID_NODEV, options):
        why = os.strerror(ctypes.get_errno())
        raise CannotMount(f"cannot mount a tmpfs at {path}: {why}; it takes root, or a container with CAP_SYS_ADMIN")


def unmount(path: Path) -> None:
    """Unmount a file system; a busy one is removed when its last user ends. Raises CannotMount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(path), 0) and libc.umount2(os.fsencode(path), MNT_DETACH):
        raise CannotMount(f"cannot unmount {path}: {os.strerror(ctypes.get_errno())}")
