"""DiskFaults: deliberately slow or failing syncs of a running node; and FaultyDisk, the disk that produces them.

Only a node with a fault control socket has such a disk; any other has RealDisk alone. The fault is in the sync itself:
fdatasync of a file, and fsync of a directory or of a small file that is replaced. A slow sync waits and then syncs. A
failing one raises DiskError (EIO) and does not sync.

This shows how a node reacts when the device is slow or reports an error. It cannot cause data loss. The bytes of a
failed sync are in the page cache: a later sync or the kernel itself writes them, and they survive `kill -9`. On a real
device, Linux marks the pages clean after a failed fsync, and their data may be lost. The kernel's write-back is not
slowed either: appends continue at full speed until `DirtyLedger` stops them. Power loss and lost pages are simulated
instead.
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
        """Number of syncs delayed since the node started."""
        self.syncs_failed = 0
        """Number of syncs that failed deliberately since the node started."""
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
        """Set the faults of syncs from now on. Syncs that are already waiting restart with the new settings."""
        with self._changed:
            self._sync_delay_ms = sync_delay_ms
            self._fail_syncs = fail_syncs
            self._changed.notify_all()

    def before_sync(self, path: str) -> None:
        """Delay a sync, or raise DiskError if it is to fail. Called by a thread that is about to sync. *Blocking.*"""
        if not self._sync_delay_ms and not self._fail_syncs:
            return
        with self._changed:
            delay_ms = self._sync_delay_ms
            if delay_ms:
                self.syncs_delayed += 1
                # Not time.sleep: it fails under libfaketime, which changes a node's clock.
                self._changed.wait_for(lambda: self._sync_delay_ms != delay_ms, delay_ms / 1000)
            if not self._fail_syncs:
                return
            self.syncs_failed += 1
        raise DiskError(f"cannot sync {path}: it fails on purpose (fault control)", errno=errno.EIO, path=path)

    def describe(self) -> dict[str, Any]:
        """Return the state and the counts, for the answer to the verb `disk`."""
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
    """Implementation of kraft.seam.Disk whose syncs can be slow or fail. It is created with the same settings as
    RealDisk."""

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
