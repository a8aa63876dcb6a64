"""The simulated disk: implements kraft.seam.Disk for one incarnation, over its host's file system.

`offload` runs its function inline and then lets a random time pass, drawn from the seed. A sync first takes its time,
and then covers the writes from before it began. A test or fault can make the disk full or make its syncs fail.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from kraft.seam import Buffer, DiskError, DiskLocked, File, Lock, require
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.host import Host
from kraft.sim.world.incarnation import Incarnation
from kraft.sim.world.options import MILLISECOND_NS

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FREE_BYTES = 1 << 40
BUDGET_POLL_NS = 5 * MILLISECOND_NS
UNREADABLE_COLD_ONE_IN = 2
"""One read in this many goes to a device that cannot be read, instead of the page cache."""


def _error(code: int, path: str, verb: str, why: str) -> DiskError:
    return DiskError(f"cannot {verb} {path}: {why}", errno=code, path=path)


class FakeFile:
    """Implements kraft.seam.File over an inode, which stays available while the file is open."""

    __slots__ = ("_closed", "_disk", "_incarnation", "_path", "inode")

    def __init__(self, disk: FakeDisk, incarnation: Incarnation, path: str, inode: Inode) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self._path = path
        self._closed = False
        self.inode = inode

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self.inode.data)

    @property
    def closed(self) -> bool:
        return self._closed

    def append(self, *buffers: Buffer) -> None:
        self._require_open("append to")
        self._disk.write(self, b"".join(buffers))

    def truncate(self, size: int) -> None:
        self._require_open("truncate")
        self._disk.cut(self, size)

    def read_cached(self, position: int, count: int) -> bytes | None:
        self._incarnation.check()
        return self._disk.peek(self, position, count)

    def sent(self, position: int, count: int) -> bytes:
        """Return the bytes that sendfile takes from the file's present content, even after close; empty if it cannot be
        read."""
        if self._disk.is_out_of_reach(self):
            return b""
        return bytes(memoryview(self.inode.data)[position : position + count])

    def read(self, position: int, count: int) -> bytes:
        self._disk.require_readable(self)
        return bytes(memoryview(self.inode.data)[position : position + count])

    def sync_blocking(self) -> None:
        self._incarnation.check()
        self._disk.settle(self, self.inode.mark)

    def close(self) -> None:
        self._closed = True

    def _require_open(self, verb: str) -> None:
        self._incarnation.check()
        if self._closed:
            raise _error(errno.EBADF, self._path, verb, "it was closed here")


class FakeLock:
    """A held lock file; the lock ends with the incarnation."""

    __slots__ = ("_host", "_path", "holder")

    def __init__(self, host: Host, path: str, holder: Incarnation) -> None:
        self._host = host
        self._path = path
        self.holder = holder

    def release(self) -> None:
        if self._host.locks.get(self._path) is self:
            del self._host.locks[self._path]


class FakeDisk:
    """Implements kraft.seam.Disk. Paths are absolute; the parent of a new entry must exist."""

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._host = incarnation.host
        self._options = incarnation.host.options
        self._schedule = incarnation.host.schedule
        self._chance = incarnation.host.chance.stream("disk")

    # paths

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._host.root
        for name in _parts(path):
            node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _parent(self, path: str, verb: str) -> tuple[Directory, str]:
        """Return the parent directory of a path whose entry is about to be changed."""
        directory, name = posixpath.split(path)
        parent = self._find(directory)
        if not isinstance(parent, Directory):
            raise _error(errno.ENOENT, path, verb, "its directory does not exist")
        self._host.changed_directories[parent] = None
        return parent, name

    def _inode(self, path: str, verb: str) -> Inode:
        self._require_device(path, verb)
        node = self._find(path)
        if not isinstance(node, Inode):
            raise _error(errno.ENOENT, path, verb, "No such file")
        return node

    def _directory(self, path: str, verb: str) -> Directory:
        self._require_device(path, verb)
        node = self._find(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOENT, path, verb, "No such directory")
        return node

    def _require_device(self, path: str, verb: str) -> None:
        """Raise if the path is below a directory whose device fails; what is in the page cache can still be read."""
        self._incarnation.check()
        if _is_below(path, self._host.failing_directory):
            raise _error(errno.EIO, path, verb, "Input/output error")

    def _require_room(self, path: str, verb: str) -> None:
        self._require_device(path, verb)
        if self._host.disk_full:
            raise _error(errno.ENOSPC, path, verb, "No space left on device")

    # calls of an open file

    def write(self, file: FakeFile, data: bytes) -> None:
        self._require_room(file.path, "append to")
        host = self._host
        host.touched[file.inode] = None
        file.inode.append(data, self._schedule.now_ns)
        file.inode.modified_ms = host.clock.wall_ms()
        host.dirty_bytes += len(data)
        host.dirty[file.inode] = None
        host.trace.add(self._schedule.now_ns, host.name, "append", data)

    def cut(self, file: FakeFile, size: int) -> None:
        self._require_device(file.path, "truncate")
        file.inode.truncate(size, self._schedule.now_ns)
        self._host.touched[file.inode] = None
        self._host.trace.add(self._schedule.now_ns, self._host.name, "truncate", b"%d" % size)

    def require_readable(self, file: FakeFile) -> None:
        self._require_device(file.path, "read")
        self._require_legible(file.path)

    def _require_legible(self, path: str) -> None:
        if _is_below(path, self._host.unreadable_directory):
            raise _error(errno.EIO, path, "read", "Input/output error")

    def is_out_of_reach(self, file: FakeFile) -> bool:
        """Return whether this read goes to a device that cannot be read at the moment."""
        unreadable = self._host.unreadable_directory
        return _is_below(file.path, unreadable) and self._chance.one_in(UNREADABLE_COLD_ONE_IN)

    def peek(self, file: FakeFile, position: int, count: int) -> bytes | None:
        if self._chance.one_in(self._options.cold_read_one_in):
            return None
        if self.is_out_of_reach(file):
            return None
        return bytes(memoryview(file.inode.data)[position : position + count])

    def settle(self, file: FakeFile, mark: int) -> None:
        """Complete a sync: make the writes that it covers durable, or fail."""
        host = self._host
        self._require_device(file.path, "sync")
        host.touched[file.inode] = None
        if host.sync_fails:
            file.inode.lose_sync(mark)
            raise _error(errno.EIO, file.path, "sync", "Input/output error")
        host.dirty_bytes -= file.inode.settle(mark)
        if not file.inode.pending:
            host.dirty.pop(file.inode, None)
        host.trace.add(self._schedule.now_ns, host.name, "sync", b"%d" % mark)

    # never suspending

    def create(self, path: str) -> File:
        self._require_room(path, "create")
        parent, name = self._parent(path, "create")
        inode = parent.entries.get(name)
        if isinstance(inode, Directory):
            raise _error(errno.EISDIR, path, "create", "it is a directory")
        if inode is None:
            inode = Inode()
            parent.link(name, inode)
        elif inode.data:
            inode.truncate(0, self._schedule.now_ns)
        inode.modified_ms = self._host.clock.wall_ms()
        return FakeFile(self, self._incarnation, path, inode)

    def rename(self, source: str, target: str) -> None:
        self._require_device(source, "rename")
        parent, name = self._parent(source, "rename")
        target_parent, target_name = self._parent(target, "rename")
        node = parent.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, source, "rename", "No such file")
        if parent is target_parent:
            parent.link(target_name, node, source=name)
        else:
            target_parent.link(target_name, node)
            parent.unlink(name)

    def unlink(self, path: str) -> None:
        self._require_device(path, "unlink")
        if isinstance(self._find(path), Inode):
            parent, name = self._parent(path, "unlink")
            parent.unlink(name)

    def exists(self, path: str) -> bool:
        self._incarnation.check()
        return self._find(path) is not None

    # blocking

    def open(self, path: str) -> File:
        return FakeFile(self, self._incarnation, path, self._inode(path, "open"))

    def list(self, directory: str) -> list[str]:
        return sorted(self._directory(directory, "list").entries)

    def is_directory(self, path: str) -> bool:
        self._incarnation.check()
        return isinstance(self._find(path), Directory)

    def make_directory(self, path: str) -> None:
        self._require_room(path, "make directory")
        self._host.entries_changed = True
        node: Inode | Directory = self._host.root
        for name in _parts(path):
            below = node.entries.get(name) if isinstance(node, Directory) else None
            if below is None and isinstance(node, Directory):
                below = node.add_directory(name)
            if not isinstance(below, Directory):
                raise _error(errno.ENOTDIR, path, "make directory", "a file of that name exists")
            node = below

    def remove_tree(self, path: str) -> None:
        self._require_device(path, "remove")
        if isinstance(self._find(path), Directory):
            parent, name = self._parent(path, "remove")
            parent.unlink(name)

    def read_file(self, path: str) -> bytes:
        self._require_legible(path)
        return bytes(self._inode(path, "read").data)

    def write_file_atomic(self, path: str, data: bytes) -> None:
        file = self.create(path + ".tmp")
        try:
            file.append(data)
            file.sync_blocking()
        finally:
            file.close()
        self.rename(path + ".tmp", path)
        self.sync_directory(posixpath.dirname(path))

    def modified_ms(self, path: str) -> int:
        self._incarnation.check()
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path, "look at", "No such file")
        return node.modified_ms if isinstance(node, Inode) else 0

    def free_bytes(self, path: str) -> int:
        self._incarnation.check()
        return 0 if self._host.disk_full else FREE_BYTES

    def total_bytes(self, path: str) -> int:
        self._incarnation.check()
        return 2 * FREE_BYTES

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path, "sync directory")
        if self._host.sync_fails:
            raise _error(errno.EIO, path, "sync directory", "Input/output error")
        directory.sync()
        if self._host.when_synced is not None:
            self._host.when_synced()
        self._host.changed_directories[directory] = None

    def lock(self, path: str) -> Lock:
        self._incarnation.check()
        self._parent(path, "lock")
        held = self._host.locks.get(path)
        if held is not None and not held.holder.revoked:
            raise DiskLocked(path)
        lock = FakeLock(self._host, path, self._incarnation)
        self._host.locks[path] = lock
        return lock

    # suspending

    async def sync(self, file: File) -> None:
        self._incarnation.check()
        require(isinstance(file, FakeFile), "a file of another world's disk")
        assert isinstance(file, FakeFile)
        mark = file.inode.mark
        options = self._options
        delay_ns = options.sync_delay_min_ns + self._chance.below(options.sync_delay_jitter_ns + 1)
        if self._chance.one_in(options.slow_sync_one_in):
            delay_ns += options.slow_sync_ns
        await self._schedule.sleep((delay_ns + self._extra_ns()) / 1e9)
        await self._incarnation.pass_gate()
        self.settle(file, mark)

    async def offload(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        self._incarnation.check()
        await trio.lowlevel.checkpoint_if_cancelled()  # as `trio.to_thread.run_sync` does
        options = self._options
        delay_ns = options.offload_delay_min_ns + self._chance.below(options.offload_delay_jitter_ns + 1)
        delay_ns += self._extra_ns()
        try:
            return function(*arguments)
        finally:
            # As with a thread that cannot be abandoned: the effect happens, and a cancellation waits for it.
            await self._schedule.sleep(delay_ns / 1e9, is_shielded=True)
            if self._incarnation.paused:
                with trio.CancelScope(shield=True):
                    await self._incarnation.pass_gate()
            self._incarnation.check()

    def _extra_ns(self) -> int:
        extra_ns = self._host.disk_extra_ns
        self._host.slowed_visits += bool(extra_ns)
        return self._chance.below(extra_ns) if extra_ns else 0

    # space limit

    @property
    def dirty_budget_full(self) -> bool:
        return self._host.dirty_bytes >= self._options.dirty_budget_bytes

    async def wait_dirty_budget(self) -> None:
        self._incarnation.check()
        await trio.lowlevel.checkpoint()
        while self.dirty_budget_full:
            await self._schedule.sleep(BUDGET_POLL_NS / 1e9)
            self._incarnation.check()
            self._host.write_back()


def _is_below(path: str, directory: str | None) -> bool:
    return directory is not None and (path == directory or path.startswith(directory + "/"))


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
