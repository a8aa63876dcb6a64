"""A machine with one simulated disk. It can be killed, switched off and restarted without a trio run."""

from __future__ import annotations

from kraft.seam import File
from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.disk import FakeDisk, FakeFile
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.host import Host
from kraft.sim.world.incarnation import Incarnation
from kraft.sim.world.options import WorldOptions
from kraft.sim.world.schedule import Schedule
from kraft.sim.world.trace import Trace

FOLDER = "/data"


class Crash(Exception):
    """Raised at the disk operation at which the process dies."""


class DyingDisk(FakeDisk):
    """A disk that counts the operations that change it, and kills the process before the operation number
    `die_before`."""

    def __init__(self, life: Incarnation) -> None:
        super().__init__(life)
        self.operations = 0
        self.die_before: int | None = None

    def _count(self) -> None:
        if self.operations == self.die_before:
            raise Crash
        self.operations += 1

    def write(self, file: FakeFile, data: bytes) -> None:
        self._count()
        super().write(file, data)

    def cut(self, file: FakeFile, size: int) -> None:
        self._count()
        super().cut(file, size)

    def settle(self, file: FakeFile, mark: int) -> None:
        self._count()
        super().settle(file, mark)

    def create(self, path: str) -> File:
        self._count()
        return super().create(path)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


class Machine:
    """A machine with one disk. `disk` belongs to the current incarnation. If `cold_read_one_in` is 1, every read from
    the page cache misses."""

    def __init__(self, seed: int = 0, *, cold_read_one_in: int = 0) -> None:
        options = WorldOptions(cold_read_one_in=cold_read_one_in)
        chance = NamedRandom(seed, "machine")
        self.schedule = Schedule(lambda: None)
        self.host = Host("machine", "machine", chance, self.schedule, Trace(0), options)
        self.lives = 0
        self.disk: DyingDisk
        self._begin_life()
        self.disk.make_directory(FOLDER)

    def _begin_life(self) -> None:
        self.lives += 1
        self._life = Incarnation(self.host, self.lives)
        self.disk = DyingDisk(self._life)

    def kill(self) -> None:
        """Kill the process. Everything that it wrote is kept."""
        self._life.revoked = True
        self._begin_life()

    def power_off(self, *, ordered: bool = True) -> None:
        """Cut the power. Only a part of the unsynced data is kept. If `ordered` is False, any changes of a directory
        may be lost, not only the last ones."""
        self._life.revoked = True
        if not ordered:
            lose_changes(self.host.root, self.host.chance.stream("lost changes"))
        self.host.lose_power()
        self.host.boot()
        self._begin_life()

    def fill(self, full: bool = True) -> None:
        self.host.disk_full = full

    # reading and changing bytes without an operation of the disk

    def inode(self, path: str) -> Inode:
        node: Inode | Directory = self.host.root
        for name in path.strip("/").split("/"):
            assert isinstance(node, Directory)
            node = node.entries[name]
        assert isinstance(node, Inode)
        return node

    def content(self, path: str) -> bytes:
        return bytes(self.inode(path).data)

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a file's bytes, durably."""
        inode = self.inode(path)
        inode.data = bytearray(data)
        inode.durable = bytearray(data)
        inode.pending = []

    def put(self, path: str, data: bytes) -> None:
        """Write a file, durably."""
        self.disk.write_file_atomic(path, data)

    def files(self, folder: str) -> dict[str, bytes]:
        """Return name -> bytes of the files in a folder."""
        return {
            name: self.disk.read_file(f"{folder}/{name}")
            for name in self.disk.list(folder)
            if not self.disk.is_directory(f"{folder}/{name}")
        }

    def copy(self, folder: str, files: dict[str, bytes]) -> None:
        """Make a folder with exactly these files, durably."""
        self.disk.remove_tree(folder)
        self.disk.make_directory(folder)
        for name, data in sorted(files.items()):
            self.disk.write_file_atomic(f"{folder}/{name}", data)


def lose_changes(directory: Directory, chance: NamedRandom) -> None:
    """Drop some of the pending changes of a directory and of the directories below it."""
    directory.pending = [change for change in directory.pending if chance.below(2)]
    for _, node in sorted(directory.entries.items()):
        if isinstance(node, Directory):
            lose_changes(node, chance)
