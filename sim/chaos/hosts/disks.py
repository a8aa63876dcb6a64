"""NodeDisk: a small file system of one node's own, which can be filled to the last byte and emptied again.

    if reason := can_mount():
        …                                        # the fault cannot be had here, and why
    disk = NodeDisk(node_folder / "data", 64 << 20, warden)
    disk.mount()                                 # before the node starts
    disk.fill()                                  # the node's next append that needs a block fails with ENOSPC
    disk.free()

It is a tmpfs, so it takes root (CAP_SYS_ADMIN), and memory: as much as is written to it. What it cannot show: a sync
costs nothing on it, and blocks that were promised (fallocate, delayed allocation) are never taken back.
A file that has begun a block may still grow within it. Nodes that delete old segments make room again: see
`free_bytes`, and `fill` again.
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

from kraft.sim.chaos.hosts.warden import Thing, Warden

BALLAST = ".ballast"
"""The file that takes the room. Nodes look at folders only."""
BLOCK_BYTES = 4096
SIZE_BYTES_MIN = 1 << 20
MNT_DETACH = 2
MS_NOSUID_NODEV = 2 | 4


class CannotMount(Exception):
    """File systems cannot be mounted here; the text says why and what would be needed."""


class NodeDisk:
    """A file system of `size_bytes` on the folder at `path`, which exists and is empty. Unmounted by `warden` if by
    nobody else."""

    def __init__(self, path: Path, size_bytes: int, warden: Warden) -> None:
        if size_bytes < SIZE_BYTES_MIN:
            raise ValueError(f"a node's disk has {SIZE_BYTES_MIN} bytes at least, not {size_bytes}")
        self.path = path
        self.size_bytes = size_bytes
        self._warden = warden
        self._held: Thing | None = None

    @property
    def is_mounted(self) -> bool:
        return os.path.ismount(self.path)

    @property
    def is_filled(self) -> bool:
        """Whether the ballast is there."""
        return self._ballast.exists()

    @property
    def ballast_bytes(self) -> int:
        """How much of the disk the ballast takes."""
        return self._ballast.stat().st_size if self.is_filled else 0

    @property
    def free_bytes(self) -> int:
        """What may still be written."""
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

    def mount(self) -> None:
        """Mount it. CannotMount if that is not allowed; WardenError if something is mounted there."""
        self._held = self._warden.mount(self.path)
        try:
            mount_tmpfs(self.path, self.size_bytes)
        except CannotMount:
            self._warden.release(self._held)
            raise

    def unmount(self) -> None:
        """Unmount it, at once if nobody uses it, and else when that ends; all that is in it is gone."""
        if self.is_mounted:
            unmount(self.path)
        if self._held is not None:
            self._warden.release(self._held)
            self._held = None

    def fill(self, leave_bytes: int = 0) -> int:
        """Take all room but `leave_bytes`, rounded down to blocks. Gives the bytes that are free then: what the node
        makes of that, it decides. A disk that is filled already is filled up."""
        self._require_mounted()
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take_room(descriptor, lambda: self.free_bytes - leave_bytes)
        finally:
            os.close(descriptor)
        return self.free_bytes

    def free(self) -> int:
        """Give back the room that `fill` took, if it did. Gives the bytes that are free then."""
        with suppress(FileNotFoundError):
            self._ballast.unlink()
        return self.free_bytes

    @property
    def _ballast(self) -> Path:
        return self.path / BALLAST

    def _require_mounted(self) -> None:
        if not self.is_mounted:  # else it would be the machine's own disk that fills
            raise CannotMount(f"no file system of the run's own is mounted at {self.path}")


def _take_room(descriptor: int, wanted: Callable[[], int]) -> None:
    """Grow a file until there is no more room, or no more is wanted."""
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
    """ "" if this process may mount file systems, else why not: found out by doing it on a temporary folder."""
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
    """Mount an empty file system in memory. CannotMount."""
    if not sys.platform.startswith("linux"):
        raise CannotMount("a full disk needs a tmpfs, which only Linux has")
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={size_bytes},mode=0755".encode()
    if libc.mount(b"kraft-chaos", os.fsencode(path), b"tmpfs", MS_NOSUID_NODEV, options):
        why = os.strerror(ctypes.get_errno())
        raise CannotMount(f"cannot mount a tmpfs at {path}: {why}; it takes root, or a container with CAP_SYS_ADMIN")


def unmount(path: Path) -> None:
    """Unmount a file system; one that is busy goes when its last user does. CannotMount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(path), 0) and libc.umount2(os.fsencode(path), MNT_DETACH):
        raise CannotMount(f"cannot unmount {path}: {os.strerror(ctypes.get_errno())}")
