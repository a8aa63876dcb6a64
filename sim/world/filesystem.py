"""A host's file system, with what would survive a power loss.

A file is its current bytes, its durable bytes, and the pending writes in order. A directory is its current entries, its
durable entries, and the pending changes. `sync` and `sync_directory` make the current state durable; old changes become
durable by themselves (the kernel writes back). A process death loses nothing.

A power loss keeps, per file and per directory, a random choice of the pending changes: none, all, a prefix, or a prefix
and an incomplete piece of the next write. The length of a file is kept in order, but its sectors reach the device in
any order. So some sectors may be lost although later ones are kept; they read as zeros where nothing had been written
before. A sector is lost as a whole, because later writes to it were in the same page.
Source: ALICE, POSIX fsync.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from kraft.sim.world.chance import NamedRandom

SECTOR_BYTES = 512
SCATTERED_ONE_IN = 2
"""One power loss in this many leaves a file's sectors written to the device in random order."""


@dataclass(slots=True)
class PendingWrite:
    """One pending change of a file: bytes appended, or (data None) a truncation to `size`."""

    at_ns: int
    data: bytes | None
    size: int = 0


class Inode:
    """Content of a file. `applied` counts the writes that have become durable, so that a sync knows which writes it
    covers."""

    __slots__ = ("applied", "changed", "cut_to", "data", "durable", "modified_ms", "pending", "sound_bytes")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[PendingWrite] = []
        self.applied = 0
        self.cut_to: int | None = None
        """Smallest size to which the file was truncated since an observer last reset this to None. All bytes below it
        are unchanged."""
        self.modified_ms = 0
        self.sound_bytes: int | None = None
        """Length of the durable prefix that is intact; a failed sync left zeros after it. None: all durable bytes are
        intact."""
        self.changed: dict[int, int] = {}
        """Position of a corrupted byte → the byte as it was written. Entries of truncated bytes are dropped."""

    @property
    def safe_bytes(self) -> int:
        """Return how many bytes from the start would survive a power loss unchanged."""
        return len(self.durable) if self.sound_bytes is None else min(len(self.durable), self.sound_bytes)

    @property
    def mark(self) -> int:
        """Number of writes so far, durable or pending; `settle(mark)` makes these writes durable."""
        return self.applied + len(self.pending)

    def append(self, data: bytes, now_ns: int) -> None:
        self.data += data
        self.pending.append(PendingWrite(now_ns, data))

    def truncate(self, size: int, now_ns: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.pending.append(PendingWrite(now_ns, None, size))
        self._note_cut(size)

    def _note_cut(self, size: int) -> None:
        self.cut_to = size if self.cut_to is None else min(size, self.cut_to)
        self.changed = {position: byte for position, byte in self.changed.items() if position < size}

    def settle(self, mark: int) -> int:
        """Make the writes up to `mark` durable; return the number of bytes that they appended."""
        count = max(0, mark - self.applied)
        done, self.pending = self.pending[:count], self.pending[count:]
        self.applied += len(done)
        return sum(map(self._apply, done))

    def _apply(self, write: PendingWrite) -> int:
        if write.data is not None:
            self.durable += write.data
            return len(write.data)
        if self.sound_bytes is not None and write.size <= self.sound_bytes:
            self.sound_bytes = None
        if write.size < len(self.durable):
            del self.durable[write.size :]
        else:
            self.durable.extend(bytes(write.size - len(self.durable)))
        return 0

    def lose_sync(self, mark: int) -> None:
        """Fail a sync: the pages count as clean and never reach the device, which keeps zeros in their place."""
        position = len(self.durable)
        for write in self.pending[: max(0, mark - self.applied)]:
            if write.data is None:
                position = write.size
                continue
            if write.data:
                self.sound_bytes = position if self.sound_bytes is None else min(self.sound_bytes, position)
            position += len(write.data)
            write.data = bytes(len(write.data))

    def change(self, position: int, byte: int) -> None:
        """Corrupt one byte on the device, without any error."""
        self.changed.setdefault(position, self.data[position])
        self._set(position, byte)

    def restore(self, position: int) -> None:
        """Restore the byte if it was corrupted and has not been truncated since."""
        byte = self.changed.pop(position, None)
        if byte is not None:
            self._set(position, byte)

    def _set(self, position: int, byte: int) -> None:
        self.data[position] = byte
        if position < len(self.durable):
            self.durable[position] = byte

    def age(self, before_ns: int) -> int:
        """Write back changes that are older than the given time; return the number of bytes written."""
        count = 0
        while count < len(self.pending) and self.pending[count].at_ns < before_ns:
            count += 1
        return self.settle(self.applied + count) if count else 0

    def lose_power(self, chance: NamedRandom) -> None:
        """Keep the durable bytes and a random part of the pending writes."""
        count, torn = _kept(chance, len(self.pending))
        next_write = self.pending[count] if torn else None
        firm = min([len(self.durable), *(write.size for write in self.pending[:count] if write.data is None)])
        self.settle(self.applied + count)
        whole = self.safe_bytes
        self.sound_bytes = None
        lost: list[tuple[int, int]] = []
        if len(self.durable) > firm and chance.one_in(SCATTERED_ONE_IN):
            lost = self._choose_sectors(chance, firm)
        if next_write is not None and next_write.data:
            self.durable += _torn(chance, next_write.data, len(self.durable))
        for begin, after in lost:
            whole = min(whole, begin)
            after = min(after, len(self.durable))
            self.durable[begin:after] = bytes(after - begin)
        self.data = bytearray(self.durable)
        self.pending = []
        self._note_cut(whole)

    def _choose_sectors(self, chance: NamedRandom, firm: int) -> list[tuple[int, int]]:
        """Return the sectors from `firm` on that never reached the device: (begin, end), in order."""
        begins = [firm, *range(firm - firm % SECTOR_BYTES + SECTOR_BYTES, len(self.durable), SECTOR_BYTES)]
        end = begins[-1] - begins[-1] % SECTOR_BYTES + SECTOR_BYTES
        return [(begin, after) for begin, after in pairwise((*begins, end)) if chance.below(2)]


def _kept(chance: NamedRandom, pending: int) -> tuple[int, bool]:
    """Return how many pending changes survive a power loss, and whether a part of the next one survives."""
    if not pending:
        return 0, False
    choice = chance.below(4)
    if choice == 0:
        return 0, False
    if choice == 1:
        return pending, False
    return chance.below(pending), choice == 3


def _torn(chance: NamedRandom, data: bytes, position: int) -> bytes:
    """Return the content of a write of which only a part reached the device: the part up to a sector's end, with zeros
    for the remaining length."""
    sectors = (position + len(data)) // SECTOR_BYTES - position // SECTOR_BYTES
    kept = chance.below(sectors + 1) * SECTOR_BYTES - position % SECTOR_BYTES if sectors else 0
    head = data[: max(0, kept)]
    if chance.below(3) == 0:
        return head + bytes(len(data) - len(head))
    return head


@dataclass(slots=True)
class PendingEntryChange:
    """One pending change of a directory: the entry `name` gets `node` (None: it is removed), and the entry `source` is
    removed at the same time."""

    name: str
    node: Inode | Directory | None
    source: str | None = None


@dataclass(slots=True, eq=False)
class Directory:
    """A directory of the simulated file system: its entries."""

    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)
    pending: list[PendingEntryChange] = field(default_factory=list)

    def link(self, name: str, node: Inode | Directory, *, source: str | None = None) -> None:
        self.change(PendingEntryChange(name, node, source))

    def unlink(self, name: str) -> None:
        self.change(PendingEntryChange(name, None))

    def change(self, change: PendingEntryChange) -> None:
        _apply_change(self.entries, change)
        self.pending.append(change)

    def add_directory(self, name: str) -> Directory:
        """Add a new directory. It is durable at once, with all earlier changes of the parent directory. An existing
        entry of this name is replaced."""
        self.sync()
        made = Directory()
        self.entries[name] = made
        self.durable[name] = made
        return made

    def sync(self) -> None:
        for change in self.pending:
            _apply_change(self.durable, change)
        self.pending = []

    def lose_power(self, chance: NamedRandom) -> None:
        """Keep the durable entries and a random prefix of the pending changes, here and in all directories below."""
        count, _ = _kept(chance, len(self.pending))
        for change in self.pending[:count]:
            _apply_change(self.durable, change)
        self.pending = []
        self.entries = dict(self.durable)
        for _, node in sorted(self.entries.items(), key=lambda entry: entry[0]):
            node.lose_power(chance)


def _apply_change(entries: dict[str, Inode | Directory], change: PendingEntryChange) -> None:
    if change.source is not None:
        entries.pop(change.source, None)
    if change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node
