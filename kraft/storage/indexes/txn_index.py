"""The transaction index of a segment: the aborted transactions with their marker in this segment.

Entries are ordered by last offset. The first abort creates the file. Each entry is written immediately: without an
abort's entry, readers would see its data. Source: KIP-98, Kafka's TransactionIndex.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from kraft.seam import Disk
from kraft.storage.handles import Handle

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index. `last_offset` is that of the abort marker; `last_stable_offset` is the LSO
    once that marker is replicated."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return ENTRY.pack(VERSION, *self)


def read_entries(disk: Disk, path: str) -> list[AbortedTransaction]:
    """Read the entries of an index that may still grow, through a separate file. *Blocking.* Raises DiskError."""
    file = disk.open(path)
    try:
        data = file.read(0, file.size - file.size % ENTRY.size)
    finally:
        file.close()
    return [AbortedTransaction(*row[1:]) for row in ENTRY.iter_unpack(data)]


class TxnIndex:
    """The transaction index of one segment; its entries are in memory once the file has been read."""

    __slots__ = ("_entries", "handle")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._entries: list[AbortedTransaction] | None = None if handle.exists else []

    def append(self, aborted: AbortedTransaction) -> None:
        """Write an entry. Never suspends; the file must be open or absent. After a DiskError the log must go
        offline."""
        file = self.handle.file
        if file is None:
            file = self.handle.open_blocking() if self.handle.exists else self.handle.create()
        file.append(aborted.encode())
        if self._entries is not None:
            self._entries.append(aborted)

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries. Raises ColdRead if the file is not in memory."""
        if self._entries is None:
            size = self.handle.file.size if self.handle.file is not None else 0
            data = self.handle.read(0, max(size, 1))
            self._entries = [AbortedTransaction(*row[1:]) for row in ENTRY.iter_unpack(data)]
        return self._entries

    def sane(self, base_offset: int) -> bool:
        """Return whether the file can be this segment's index: whole entries, known version, ascending. *Blocking.*"""
        if not self.handle.exists:
            return True
        file = self.handle.open_blocking()
        data = file.read(0, file.size)
        if len(data) % ENTRY.size:
            return False
        last = base_offset - 1
        for version, _, first_offset, last_offset, _ in ENTRY.iter_unpack(data):
            if version != VERSION or last_offset <= last or first_offset > last_offset:
                return False
            last = last_offset
        return True

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Write these entries as the whole index. *Blocking.*"""
        if self.handle.exists:
            self.handle.remove()
        if entries:
            self.handle.create().append(b"".join(entry.encode() for entry in entries))
        self._entries = list(entries)

    def truncate_from(self, offset: int) -> None:
        """Remove the transactions with a marker at or above `offset`. *Blocking.*"""
        if self.handle.exists:
            self.handle.open_blocking()
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if len(kept) < len(self.entries()) and self.handle.exists:
            self.handle.open_blocking().truncate(len(kept) * ENTRY.size)
        self._entries = kept
