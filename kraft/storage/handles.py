"""Handles: log files that are open only while they are in use.

A `Handle` is one file of a segment, open or closed; an unused log has no open file. `FileCache` limits the open files
of all logs of a node and closes the least used (second-chance order). It never closes a pinned handle (unsynced bytes).
Opening may wait for the device, so it never happens on the loop. A lookup that needs a closed file, or bytes that are
not in memory, raises `ColdRead`.

A caller on the loop handles it like this::

    while True:
        try:
            return log.read(...)
        except ColdRead as cold:
            await disk.offload(cold.warm)   # blocking; does not change anything that the loop uses
            cold.adopt()                    # on the loop again

Source: docs/decisions/01-one-seam.md, docs/decisions/19-blank-replicas.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

from kraft.seam import Disk, DiskError, File

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OPEN_FILES_MAX = 512
"""Default maximum of open files in a cache. Pinned files may exceed it."""
TRIM_STEPS_MAX = 64
NO_SUCH_FILE = 2


class Handle:
    """One file: its path, whether it exists, and the open file if there is one.

    `gone`: its segment or log is being removed or renamed, so a concurrent read in a thread may not find the file."""

    __slots__ = ("cache", "disk", "exists", "file", "gone", "path", "pinned", "queued", "used")

    def __init__(self, disk: Disk, cache: FileCache, path: str, *, exists: bool) -> None:
        self.disk = disk
        self.cache = cache
        self.path = path
        self.exists = exists
        self.file: File | None = None
        self.gone = False
        self.pinned = False
        self.used = False
        self.queued = False

    def create(self) -> File:
        """Create an empty file; an existing file of that name is replaced. Never suspends."""
        self.close()
        file = self.disk.create(self.path)
        self.exists = True
        self.gone = False
        self.adopt(file)
        return file

    def open_blocking(self) -> File:
        """Return the open file; opens it if necessary. *Blocking*; for one user at a time."""
        if self.file is None:
            self.adopt(self.disk.open(self.path))
        assert self.file is not None
        self.used = True
        return self.file

    def adopt(self, file: File) -> None:
        """Keep this open file, unless one is open already."""
        if self.file is not None:
            if file is not self.file:
                file.close()
            return
        self.file = file
        self.used = True
        self.cache.admit(self)

    def close(self) -> None:
        """Close the descriptor. Existing file ranges stay readable."""
        if self.file is not None:
            self.file.close()
            self.file = None
            self.cache.leave(self)

    def read(self, position: int, count: int) -> bytes:
        """Return up to `count` bytes from memory. Raises ColdRead if the file is closed or the bytes are not in
        memory."""
        file = self.file
        if file is None:
            raise ColdRead(ColdHandle(self, position, count))
        self.used = True
        data = file.read_cached(position, count)
        if data is None:
            raise ColdRead(ColdHandle(self, position, count))
        return data

    def moved(self, path: str) -> None:
        """Record that the owner has renamed the file; it is reopened by its new name when next used."""
        self.close()
        self.path = path

    def move_to(self, cache: FileCache) -> None:
        """Close the file, and use another cache from now on."""
        self.close()
        self.cache = cache
        self.queued = False

    def remove(self) -> None:
        """Close and unlink the file."""
        self.gone = True
        self.close()
        self.disk.unlink(self.path)
        self.exists = False


class SegmentGone(Exception):
    """A segment's file no longer exists, as the segment was removed from its log. The caller must look the segment up
    again."""


class ColdData(Protocol):
    """Data that a read needs and that must first be loaded into memory."""

    @property
    def path(self) -> str: ...

    @property
    def is_gone(self) -> bool:
        """Whether `warm` found no file, and no such file will appear later."""
        ...

    def warm(self) -> None:
        """Load the data. *Blocking*; does not change the log's state."""
        ...

    def keep(self) -> Handle | None:
        """Adopt the file that `warm` opened. Return the handle that must stay open now."""
        ...


class ColdHandle:
    """Bytes of one handle's file to load. With `count` 0, only the file is opened."""

    __slots__ = ("_count", "_handle", "_missing", "_opened", "_position")

    def __init__(self, handle: Handle, position: int = 0, count: int = 0) -> None:
        self._handle = handle
        self._missing = False
        self._position = position
        self._count = count
        self._opened: File | None = None

    @property
    def path(self) -> str:
        return self._handle.path

    @property
    def is_gone(self) -> bool:
        return self._missing and self._handle.gone

    def warm(self) -> None:
        file, path = self._handle.file, self._handle.path
        if file is None or file.closed:
            try:
                file = self._opened = self._handle.disk.open(path)
            except DiskError as error:
                if error.errno == NO_SUCH_FILE and (self._handle.gone or self._handle.path != path):
                    self._missing = True
                    return  # the caller repeats the lookup, and finds another name, another segment, or no log
                raise
        if self._count:
            file.read(self._position, self._count)

    def keep(self) -> Handle:
        if self._opened is not None:
            self._handle.adopt(self._opened)
            self._opened = None
        return self._handle


class ColdRead(Exception):
    """The requested data is not in memory. Call `warm` off the loop, then `adopt` on the loop, then repeat the
    request."""

    def __init__(self, *needs: ColdData) -> None:
        super().__init__(f"not in memory: {', '.join(need.path for need in needs)}")
        self._needs = needs

    def warm(self) -> None:
        """Open the files and read the bytes once. *Blocking*; does not change the log's state. Raises DiskError if it
        fails."""
        for need in self._needs:
            need.warm()

    def adopt(self) -> None:
        """Give the opened files to their handles, and close other files if too many are open. Called on the loop."""
        handles = self.keep()
        if handles:
            handles[0].cache.trim(handles)

    @property
    def is_gone(self) -> bool:
        """Whether `warm` found that a file was removed."""
        return any(need.is_gone for need in self._needs)

    def keep(self) -> list[Handle]:
        """Give the opened files to their handles, and return those handles."""
        kept = [need.keep() for need in self._needs]
        return [handle for handle in kept if handle is not None]


def read_through(function: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
    """Call a function until it does not raise ColdRead, loading what it needs. *Blocking*; for functions in `offload`.
    Raises SegmentGone if a needed file was removed."""
    while True:
        try:
            return function(*arguments)
        except ColdRead as cold:
            cold.warm()
            if cold.is_gone:
                raise SegmentGone(str(cold)) from None
            cold.keep()


class FileCache:
    """All open handles of a node's logs; at most `open_files_max` of them are not pinned.

    A thread may add handles (during a truncation), but only `trim` closes files, on the loop."""

    def __init__(self, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.open_files_max = open_files_max
        self._open: set[Handle] = set()
        self._queue: deque[Handle] = deque()

    @property
    def open_files(self) -> int:
        return len(self._open)

    def admit(self, handle: Handle) -> None:
        """Add a handle that has opened its file."""
        self._open.add(handle)
        if not handle.queued:
            handle.queued = True
            self._queue.append(handle)

    def leave(self, handle: Handle) -> None:
        """Record that a handle has closed its file. The handle is removed from the cache's queue when it gets to the
        front."""
        self._open.discard(handle)

    def trim(self, needed: Sequence[Handle] = ()) -> None:
        """Close files that are not in use, and not `needed` now, until the limit is kept. It examines only a few
        handles, so it stays cheap when nearly all are pinned. Call it on the loop."""
        for _ in range(min(TRIM_STEPS_MAX, 2 * len(self._queue))):
            if len(self._open) <= self.open_files_max:
                return
            handle = self._queue.popleft()
            if handle.file is None:
                handle.queued = False
            elif handle.used or handle.pinned or handle in needed:
                handle.used = False
                self._queue.append(handle)
            else:
                handle.queued = False
                handle.close()
