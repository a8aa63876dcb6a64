"""The budget of dirty bytes: what was appended and has not been written back yet.

The count is approximate. An append adds, a sync or a write-back of the file subtracts what it covered, and closing a
file subtracts the remainder (the kernel writes that back within its own 30 s). Below half of the budget nothing is
done. Above it, one task writes the oldest dirty files back with sync_file_range, which moves pages to the device and
commits no journal. When the budget is full, producers wait *before* they append, so that the kernel never throttles
`write` on the loop.

Appends may also come from the pool's threads (cleaning, snapshots), so the counts are protected by a lock.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref

import trio

from kraft.runtime.file import RealFile

_WAIT_BEFORE_WRITE_WAIT_AFTER = 1 | 2 | 4


def write_back(file: RealFile) -> None:
    """Start and await the write-back of a file's dirty pages. *Blocking.* The next sync reports errors."""
    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except AttributeError:  # not Linux
        os.fsync(file.fileno())
        return
    zero = ctypes.c_int64(0)
    call(ctypes.c_int(file.fileno()), zero, zero, ctypes.c_uint(_WAIT_BEFORE_WRITE_WAIT_AFTER))


class DirtyLedger:
    """Counts dirty bytes per file and in total. Wakes the task that writes files back, and the producers that wait for
    it."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.dirty_bytes = 0
        self._lock = threading.Lock()
        self._files: dict[int, weakref.ref[RealFile]] = {}
        self._token = trio.lowlevel.current_trio_token()
        self._crowded = trio.Event()
        self._room = trio.Event()

    @property
    def full(self) -> bool:
        return self.dirty_bytes >= self.budget_bytes

    def add(self, file: RealFile, count: int) -> None:
        """Add `count` bytes appended to `file`."""
        with self._lock:
            if not file.dirty_bytes:
                self._files[id(file)] = weakref.ref(file)
            file.dirty_bytes += count
            before = self.dirty_bytes
            self.dirty_bytes = before + count
        if before < self.budget_bytes // 2 <= before + count:
            self._token.run_sync_soon(self._crowded_now)

    def settle(self, file: RealFile, count: int) -> None:
        """Subtract `count` bytes of `file`, which were written back or no longer count."""
        with self._lock:
            count = min(count, file.dirty_bytes)
            file.dirty_bytes -= count
            before = self.dirty_bytes
            self.dirty_bytes = before - count
            if not file.dirty_bytes:
                self._files.pop(id(file), None)
        if before >= self.budget_bytes > before - count:
            self._token.run_sync_soon(self._room_now)

    def _crowded_now(self) -> None:
        self._crowded.set()

    def _room_now(self) -> None:
        self._room.set()
        self._room = trio.Event()

    async def wait_room(self) -> None:
        """Suspend until the budget is not full."""
        await trio.lowlevel.checkpoint()
        while self.full:
            await self._room.wait()

    async def run(self) -> None:
        """Write back while more than half of the budget is dirty. Runs as long as the seam."""
        while True:
            await self._crowded.wait()
            self._crowded = trio.Event()
            while self.dirty_bytes >= self.budget_bytes // 2:
                file = self._oldest()
                if file is None:
                    self._forget_dropped()
                    break
                dirty = file.dirty_bytes
                await trio.to_thread.run_sync(write_back, file)
                self.settle(file, dirty)

    def _forget_dropped(self) -> None:
        """Reset the count: all remaining bytes belonged to files that were dropped without a close."""
        with self._lock:
            self.dirty_bytes = 0
        self._room_now()

    def _oldest(self) -> RealFile | None:
        with self._lock:
            for key, reference in list(self._files.items()):
                file = reference()
                if file is not None:
                    return file
                del self._files[key]
        return None
