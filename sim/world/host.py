"""A host: everything that outlives the processes of a node. It has a disk, clocks and power, and refers to its node's
current incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.sim.world.chance import NamedRandom
from kraft.sim.world.clock import HostClock
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.options import WorldOptions
from kraft.sim.world.schedule import Schedule
from kraft.sim.world.trace import Trace

if TYPE_CHECKING:
    from kraft.sim.world.disk import FakeLock
    from kraft.sim.world.incarnation import Incarnation


class Host:
    """The machine of one node. `address` is the host name that others dial."""

    def __init__(
        self, name: str, address: str, chance: NamedRandom, schedule: Schedule, trace: Trace, options: WorldOptions
    ) -> None:
        self.name = name
        self.address = address
        self.chance = chance
        self.schedule = schedule
        self.trace = trace
        self.options = options
        self.clock = HostClock(schedule, chance.stream("clock"), options)
        self.root = Directory()
        self.locks: dict[str, FakeLock] = {}
        self.powered = True
        self.disk_full = False
        self.sync_fails = False
        self.disk_extra_ns = 0
        self.slowed_visits = 0
        """Number of syncs and disk accesses that were made slower."""
        self.failing_directory: str | None = None
        self.unreadable_directory: str | None = None
        self.dirty_bytes = 0
        self.dirty: dict[Inode, None] = {}
        self.touched: dict[Inode, None] = {}
        """Files that changed since an observer last cleared this."""
        self.entries_changed = True
        """Whether any directory may have been added or removed since an observer last reset this."""
        self.changed_directories: dict[Directory, None] = {}
        """Directories whose entries were added, removed or made durable since an observer last cleared this."""
        self.when_synced: Callable[[], None] | None = None
        """Hook for an observer: called when the entries of some directory have become durable."""
        self.incarnation: Incarnation | None = None
        self.lives = 0

    @property
    def running(self) -> bool:
        return self.incarnation is not None and not self.incarnation.revoked

    def write_back(self) -> None:
        """Make all pending changes of the disk durable, as the kernel does by writing back."""
        self.touched.update(self.dirty)
        for inode in self.dirty:
            self.dirty_bytes -= inode.settle(inode.mark)
        self.dirty.clear()

    def replace_disk(self) -> None:
        """Replace the disk of this host by an empty one."""
        self.root = Directory()
        self.locks.clear()
        self.dirty.clear()
        self.touched.clear()
        self.dirty_bytes = 0
        self.entries_changed = True

    def delete_folder(self, path: str) -> None:
        """Remove a folder and all in it permanently, as an operator may while the node is down."""
        *above, name = path.strip("/").split("/")
        folder: Directory | Inode | None = self.root
        for part in above:
            folder = folder.entries.get(part) if isinstance(folder, Directory) else None
        if isinstance(folder, Directory):
            folder.entries.pop(name, None)
            folder.durable.pop(name, None)
            self.entries_changed = True

    def lose_power(self) -> None:
        """Cut the power: the disk keeps what was durable and a random part of the pending writes; other hosts receive
        nothing."""
        self.entries_changed = True
        self.touched.update(self.dirty)
        oldest_ns = self.schedule.now_ns - self.options.write_back_age_ns
        for inode in self.dirty:
            inode.age(oldest_ns)
        self.root.lose_power(self.chance.stream("power"))
        self.dirty.clear()
        self.dirty_bytes = 0
        self.powered = False

    def boot(self) -> None:
        if not self.powered:
            self.powered = True
            self.clock.boot()
