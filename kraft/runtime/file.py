"""A real file on a raw descriptor: one `write` per append, reads that never wait, and reads that may.

The descriptor is open as long as this object exists: a FileRange holds a reference to it, so `close` and `unlink` do
not affect what is being sent. O_APPEND keeps every write at the end, even after a truncation.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from kraft.seam import Buffer, DiskError

if TYPE_CHECKING:
    from kraft.runtime.writeback import DirtyLedger

BUFFERS_PER_WRITE_MAX = 1000
"""Maximum number of buffers in one write: below IOV_MAX, the kernel's limit for one writev."""
PROBE_STRIDE_BYTES = 256 * 1024
"""Number of bytes between those that are probed to find out whether a range is in the page cache."""
WARM_CHUNK_BYTES = 256 * 1024

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


def disk_error(error: OSError, path: str, verb: str) -> DiskError:
    """Convert an error of the operating system to a DiskError."""
    return DiskError(f"cannot {verb} {path}: {error.strerror}", errno=error.errno or 0, path=path)


class RealFile:
    """Implementation of kraft.seam.File. `dirty_bytes` counts what was appended since the last write-back, for the
    budget."""

    __slots__ = ("__weakref__", "_closed", "_fd", "_ledger", "_path", "_size", "dirty_bytes")

    def __init__(self, fd: int, path: str, size: int, ledger: DirtyLedger) -> None:
        self._fd = fd
        self._path = path
        self._size = size
        self._closed = False
        self._ledger = ledger
        self.dirty_bytes = 0

    def __del__(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    @property
    def closed(self) -> bool:
        return self._closed

    def fileno(self) -> int:
        """Return the descriptor, for sendfile and fdatasync; valid as long as the caller holds this object."""
        return self._fd

    def append(self, *buffers: Buffer) -> None:
        if self._closed:
            self._require_open("append to")
        old_size = self._size
        try:
            if len(buffers) == 1:
                total = len(buffers[0])
                if os.write(self._fd, buffers[0]) != total:
                    self._write_rest(buffers, total)
            else:
                total = sum(map(len, buffers))
                if os.writev(self._fd, buffers[:BUFFERS_PER_WRITE_MAX]) != total:
                    self._write_rest(buffers, total)
        except OSError as error:
            raise self._cut_back(old_size, error) from error
        self._size = old_size + total
        self._ledger.add(self, total)

    def _write_rest(self, buffers: tuple[Buffer, ...], total: int) -> None:
        """Write the remainder after a short write, or find out why that is impossible."""
        done = os.fstat(self._fd).st_size - self._size
        rest = memoryview(b"".join(buffers))[done:total]
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _cut_back(self, size: int, error: OSError) -> DiskError:
        failure = disk_error(error, self._path, "append to")
        try:
            os.ftruncate(self._fd, size)
        except OSError as second:
            text = f"{failure}; and it could not be cut back to {size} bytes: {second.strerror}"
            return DiskError(text, errno=failure.errno, path=self._path)
        return failure

    def truncate(self, size: int) -> None:
        self._require_open("truncate")
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise disk_error(error, self._path, "truncate") from error
        self._size = size

    def read_cached(self, position: int, count: int) -> bytes | None:
        count = min(count, self._size - position)
        if count <= 0:
            return b""
        buffer = bytearray(count)
        try:
            got = os.preadv(self._fd, (buffer,), position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system in memory: it never waits
                return self.read(position, count)
            raise disk_error(error, self._path, "read") from error
        return bytes(buffer) if got == count else None

    def is_cached(self, position: int, count: int) -> bool:
        """Return whether a read of this range would most likely not wait: some of its bytes are probed, not all."""
        one = bytearray(1)
        last = min(position + count, self._size) - 1
        try:
            for probe in (*range(position, last, PROBE_STRIDE_BYTES), last):
                os.preadv(self._fd, (one,), probe, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise disk_error(error, self._path, "read") from error
        return True

    def warm(self, position: int, count: int) -> None:
        """Load a range into the page cache. *Blocking.*"""
        buffer = bytearray(min(count, WARM_CHUNK_BYTES))
        end = position + count
        try:
            while position < end:
                got = os.preadv(self._fd, (memoryview(buffer)[: end - position],), position)
                if not got:
                    return
                position += got
        except OSError as error:
            raise disk_error(error, self._path, "read") from error

    def read(self, position: int, count: int) -> bytes:
        try:
            data = os.pread(self._fd, count, position)
            while 0 < len(data) < count:
                more = os.pread(self._fd, count - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise disk_error(error, self._path, "read") from error
        return data

    def sync_blocking(self) -> None:
        dirty = self.dirty_bytes
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise disk_error(error, self._path, "sync") from error
        self._ledger.settle(self, dirty)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ledger.settle(self, self.dirty_bytes)

    def _require_open(self, verb: str) -> None:
        if self._closed:
            raise DiskError(f"cannot {verb} {self._path}: it was closed here", errno=errno.EBADF, path=self._path)
