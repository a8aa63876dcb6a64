"""Handles: files of logs that are open only while they are used.

A `Handle` is one file of a segment. It may hold an open file or none; an unused log holds none. `FileCache` bounds how
many are open over all logs of a node and closes the least used (second-chance order). It never closes a pinned handle
(unsynced bytes). Opening may wait for the device, so it never happens on the loop: a lookup that meets a closed file or
bytes that are not in memory raises `ColdRead`.

A caller on the loop handles it so::

    while True:
        try:
            return log.read(...)
        except ColdRead as cold:
            await disk.offload(cold.warm)   # blocking; changes nothing that the loop sees
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
"""Files that a cache keeps open unless told otherwise; pinned ones may exceed it."""
TRIM_STEPS_MAX = 64
NO_SUCH_FILE = 2


class Handle:
    """One file: where it is, whether it is there, and the open file if there is one.

    `gone`: its segment or log is being taken away or renamed, so that a read that is under way in a thread may miss the
    file.
    """

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
        """A new empty file in place of whatever is there. Never suspends."""
        self.close()
        file = self.disk.create(self.path)
        self.exists = True
        self.gone = False
        self.adopt(file)
        return file

    def open_blocking(self) -> File:
        """The open file, opened now if it is not. *Blocking*; for one user at a time."""
        if self.file is None:
            self.adopt(self.disk.open(self.path))
        assert self.file is not None
        self.used = True
        return self.file

    def adopt(self, file: File) -> None:
        """Keep this open file, unless there is one already."""
        if self.file is not None:
            if file is not self.file:
                file.close()
            return
        self.file = file
        self.used = True
        self.cache.admit(self)

    def close(self) -> None:
        """Give the descriptor back. File ranges that were taken stay readable."""
        if self.file is not None:
            self.file.close()
            self.file = None
            self.cache.leave(self)

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes from memory. ColdRead if the file is closed or the bytes are not in memory."""
        file = self.file
        if file is None:
            raise ColdRead(HandleNeed(self, position, count))
        self.used = True
        data = file.read_cached(position, count)
        if data is None:
            raise ColdRead(HandleNeed(self, position, count))
        return data

    def moved(self, path: str) -> None:
        """The file has another name now (the owner has renamed it); it is reopened by that name when next used."""
        self.close()
        self.path = path

    def move_to(self, cache: FileCache) -> None:
        """Close it, and count it in another cache from now on."""
        self.close()
        self.cache = cache
        self.queued = False

    def remove(self) -> None:
        """Close it and unlink it."""
        self.gone = True
        self.close()
        self.disk.unlink(self.path)
        self.exists = False


class SegmentGone(Exception):
    """The file of a segment that left its log is not there any more: look the segment up again."""


class Need(Protocol):
    """Something that must come into memory."""

    @property
    def path(self) -> str: ...

    @property
    def is_gone(self) -> bool:
        """`warm` has found no file, and none will come."""
        ...

    def warm(self) -> None:
        """*Blocking*; touches no state of the log."""
        ...

    def keep(self) -> Handle | None:
        """Take over what `warm` has opened; the handle that must stay open now."""
        ...


class HandleNeed:
    """Bytes of one handle. `count` 0 only opens the file."""

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
                    return  # the caller asks again, and finds another name, another segment, or no log
                raise
        if self._count:
            file.read(self._position, self._count)

    def keep(self) -> Handle:
        if self._opened is not None:
            self._handle.adopt(self._opened)
            self._opened = None
        return self._handle


class ColdRead(Exception):
    """What is asked for is not in memory. `warm` off the loop, `adopt` on it, then ask again."""

    def __init__(self, *needs: Need) -> None:
        super().__init__(f"not in memory: {', '.join(need.path for need in needs)}")
        self._needs = needs

    def warm(self) -> None:
        """Open the files and read the bytes once. *Blocking*; touches no state of the log. DiskError if it fails."""
        for need in self._needs:
            need.warm()

    def adopt(self) -> None:
        """Hand the opened files to their handles, and close others if there are too many. On the loop."""
        handles = self.keep()
        if handles:
            handles[0].cache.trim(handles)

    @property
    def is_gone(self) -> bool:
        """`warm` has met a file that was taken away."""
        return any(need.is_gone for need in self._needs)

    def keep(self) -> list[Handle]:
        """Hand the opened files to their handles; those handles."""
        kept = [need.keep() for need in self._needs]
        return [handle for handle in kept if handle is not None]


def read_through(function: Callable[[Unpack[Ts]], T], *arguments: *Ts) -> T:
    """Call a function that may raise ColdRead until it does not. *Blocking*; for functions in `offload`. SegmentGone if
    a file that it needs was taken away."""
    while True:
        try:
            return function(*arguments)
        except ColdRead as cold:
            cold.warm()
            if cold.is_gone:
                raise SegmentGone(str(cold)) from None
            cold.keep()


class FileCache:
    """All open handles of a node's logs, at most `open_files_max` of them that are not pinned.

    Handles may join from a thread (a truncation under way); files are closed by `trim` alone, on the loop.
    """

    def __init__(self, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.open_files_max = open_files_max
        self._open: set[Handle] = set()
        self._queue: deque[Handle] = deque()

    @property
    def open_files(self) -> int:
        return len(self._open)

    def admit(self, handle: Handle) -> None:
        """A handle has opened its file."""
        self._open.add(handle)
        if not handle.queued:
            handle.queued = True
            self._queue.append(handle)

    def leave(self, handle: Handle) -> None:
        """A handle has closed its file. It leaves the queue when its turn comes."""
        self._open.discard(handle)

    def trim(self, needed: Sequence[Handle] = ()) -> None:
        """Close files that are not in use, and not `needed` now, until the bound holds; looks at a few handles only, so
        that it stays cheap when nearly all are pinned. On the loop."""
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
