"""DiskFaults: syncs of a running node that take longer, or fail, on purpose; and FaultyDisk, the disk that does it.

Only a node with a fault control socket has such a disk; any other has RealDisk alone. A fault is in the sync itself:
fdatasync of a file, and fsync of a directory or of a small file that is replaced. A slow one waits and then syncs; a
failing one raises DiskError (EIO) and does not sync.

It shows what a node does when the device is slow or reports an error. It cannot show a loss. The bytes of a failed sync
are in the page cache, a later sync or the kernel itself writes them, and `kill -9` keeps them; on a real device Linux
marks the pages clean after a failed fsync, and what they held may be gone. Nor is the write-back of the kernel slow:
appends go on at full speed until `DirtyLedger` stops them. Power loss and lost pages are for the simulator.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

from kraft.runtime.disk import RealDisk
from kraft.runtime.file import RealFile
from kraft.seam import DiskError

if TYPE_CHECKING:
    from kraft.runtime.writeback import DirtyLedger

SYNC_DELAY_MS_MAX = 60_000


class DiskFaults:
    """The state of a node's disk faults. Set on the loop, used by the threads that sync."""

    def __init__(self) -> None:
        self.syncs_delayed = 0
        """How many syncs have waited since the node started."""
        self.syncs_failed = 0
        """How many syncs have failed on purpose since the node started."""
        self._sync_delay_ms = 0
        self._fail_syncs = False
        self._changed = threading.Condition()

    @property
    def sync_delay_ms(self) -> int:
        return self._sync_delay_ms

    @property
    def fail_syncs(self) -> bool:
        return self._fail_syncs

    def set(self, *, sync_delay_ms: int = 0, fail_syncs: bool = False) -> None:
        """Let syncs fare so from now on; those that wait begin anew with it."""
        with self._changed:
            self._sync_delay_ms = sync_delay_ms
            self._fail_syncs = fail_syncs
            self._changed.notify_all()

    def before_sync(self, path: str) -> None:
        """Called by a thread that is about to sync. DiskError if that is to fail. *Blocking.*"""
        if not self._sync_delay_ms and not self._fail_syncs:
            return
        with self._changed:
            delay_ms = self._sync_delay_ms
            if delay_ms:
                self.syncs_delayed += 1
                # Not time.sleep: it fails under libfaketime, which moves the clock of a node.
                self._changed.wait_for(lambda: self._sync_delay_ms != delay_ms, delay_ms / 1000)
            if not self._fail_syncs:
                return
            self.syncs_failed += 1
        raise DiskError(f"cannot sync {path}: it fails on purpose (fault control)", errno=errno.EIO, path=path)

    def describe(self) -> dict[str, Any]:
        """The state and the counts, as the verb `disk` answers them."""
        return {
            "sync_delay_ms": self._sync_delay_ms,
            "fail_syncs": self._fail_syncs,
            "syncs_delayed": self.syncs_delayed,
            "syncs_failed": self.syncs_failed,
        }


class FaultyFile(RealFile):
    """A file whose syncs can be slow or fail."""

    __slots__ = ("_faults",)

    def __init__(self, fd: int, path: str, size: int, ledger: DirtyLedger, faults: DiskFaults) -> None:
        super().__init__(fd, path, size, ledger)
        self._faults = faults

    def sync_blocking(self) -> None:
        self._faults.before_sync(self.path)
        super().sync_blocking()


class FaultyDisk(RealDisk):
    """kraft.seam.Disk. Its settings are those of RealDisk."""

    def __init__(self, faults: DiskFaults, **settings: int) -> None:
        super().__init__(**settings)
        self._faults = faults

    def _file(self, fd: int, path: str, size: int) -> RealFile:
        return FaultyFile(fd, path, size, self.ledger, self._faults)

    def write_file_atomic(self, path: str, data: bytes) -> None:
        self._faults.before_sync(path)
        super().write_file_atomic(path, data)

    def sync_directory(self, path: str) -> None:
        self._faults.before_sync(path)
        super().sync_directory(path)
