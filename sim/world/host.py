"""A host: what outlives a node's processes. Its disk, its clocks, its power, and the current life of its node."""

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
    """One node's machine. `address` is the name that others dial."""

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
        """How many syncs and visits to the disk were made to take longer."""
        self.failing_directory: str | None = None
        self.unreadable_directory: str | None = None
        self.dirty_bytes = 0
        self.dirty: dict[Inode, None] = {}
        self.touched: dict[Inode, None] = {}
        """Files that changed since an observer emptied this."""
        self.entries_changed = True
        """Any directory may have changed since an observer took this back."""
        self.changed_directories: dict[Directory, None] = {}
        """Directories of which entries came, went or became durable since an observer emptied this."""
        self.when_synced: Callable[[], None] | None = None
        """For an observer: the entries of some directory have just become durable."""
        self.incarnation: Incarnation | None = None
        self.lives = 0

    @property
    def running(self) -> bool:
        return self.incarnation is not None and not self.incarnation.revoked

    def write_back(self) -> None:
        """The kernel writes everything back."""
        self.touched.update(self.dirty)
        for inode in self.dirty:
            self.dirty_bytes -= inode.settle(inode.mark)
        self.dirty.clear()

    def replace_disk(self) -> None:
        """An empty disk in the place of this one."""
        self.root = Directory()
        self.locks.clear()
        self.dirty.clear()
        self.touched.clear()
        self.dirty_bytes = 0
        self.entries_changed = True

    def take_away(self, path: str) -> None:
        """Remove a folder and all in it, for good, as somebody does who looks after a machine whose node is down."""
        *above, name = path.strip("/").split("/")
        folder: Directory | Inode | None = self.root
        for part in above:
            folder = folder.entries.get(part) if isinstance(folder, Directory) else None
        if isinstance(folder, Directory):
            folder.entries.pop(name, None)
            folder.durable.pop(name, None)
            self.entries_changed = True

    def lose_power(self) -> None:
        """The disk keeps what was durable and a seeded part of the rest; other hosts hear nothing."""
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
