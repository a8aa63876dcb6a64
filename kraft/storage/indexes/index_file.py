"""IndexFile: an append-only array of fixed-size entries, partly in a file, the newest ones in memory.

New entries go to a tail in memory. It is written in pieces of about 4 KiB, at a roll and at a clean close. A crash
loses the tail, and recovery rebuilds the index from the log (D13). A search reads a few pages of the file. Unlike
Kafka's, the file is appended to, not preallocated. Source: Kafka's AbstractIndex.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct

from kraft.storage.handles import Handle

FLUSH_BYTES = 4096
PAGE_BYTES = 4096


class IndexFile:
    """An index file. Its entries are tuples of integers, in the struct's format."""

    __slots__ = ("_parts", "_struct", "entry_bytes", "handle")

    def __init__(self, handle: Handle, struct: Struct, file_entries: int = 0) -> None:
        self.handle = handle
        self.entry_bytes = struct.size
        self._struct = struct
        self._parts = (file_entries, bytearray())
        """Number of entries in the file, and the tail. Replaced together, since lookups may run in a thread."""

    def __len__(self) -> int:
        file_entries, tail = self._parts
        return file_entries + len(tail) // self.entry_bytes

    @property
    def size_bytes(self) -> int:
        return len(self) * self.entry_bytes

    def set_file_entries(self, entries: int) -> None:
        """Set the number of entries in the file, found on loading; the tail is empty."""
        self._parts = (entries, bytearray())

    def append(self, *values: int) -> None:
        """Add an entry. Write the tail if it has grown enough and the file is available. Raises DiskError from the
        write."""
        tail = self._parts[1]
        tail += self._struct.pack(*values)
        if len(tail) >= FLUSH_BYTES:
            self.write_tail()

    def write_tail(self) -> None:
        """Write the tail if the file is open or does not exist yet; otherwise keep it in memory. Never suspends."""
        file_entries, tail = self._parts
        file = self.handle.file
        if not tail or (file is None and self.handle.exists):
            return
        if file is None:
            file = self.handle.create()
        file.append(tail)
        self._parts = (file_entries + len(tail) // self.entry_bytes, bytearray())

    def entry(self, number: int) -> tuple[int, ...]:
        """Return entry `number`. Raises ColdRead if its page is not in memory."""
        file_entries, tail = self._parts
        if number >= file_entries:
            return self._struct.unpack_from(tail, (number - file_entries) * self.entry_bytes)
        return self._struct.unpack(self.handle.read(number * self.entry_bytes, self.entry_bytes))

    def count_up_to(self, value: int, *, field: int) -> int:
        """Return the number of entries with `field` <= `value`; the field must be ascending. Raises ColdRead as
        `entry`."""
        file_entries, tail = self._parts
        if tail and self._struct.unpack_from(tail, 0)[field] <= value:
            return file_entries + bisect_right(_PackedField(self._struct, tail, field), value)
        return bisect_right(_FileField(self.handle, self._struct, file_entries, field), value)

    def rows(self) -> list[tuple[int, ...]]:
        """Return all entries. Raises ColdRead as `entry`."""
        file_entries, tail = self._parts
        data = self.handle.read(0, file_entries * self.entry_bytes) if file_entries else b""
        return [*self._struct.iter_unpack(data), *self._struct.iter_unpack(bytes(tail))]

    def keep_first(self, count: int) -> None:
        """Remove the entries from number `count` on. *Blocking* if they are in the file."""
        file_entries, tail = self._parts
        if count >= file_entries:
            self._parts = (file_entries, tail[: (count - file_entries) * self.entry_bytes])
            return
        self._parts = (count, bytearray())
        self.handle.open_blocking().truncate(count * self.entry_bytes)

    def replace(self, entries: list[tuple[int, ...]]) -> None:
        """Write these entries as the whole index (rebuilt by recovery). *Blocking.*"""
        file = self.handle.create()
        if entries:
            file.append(b"".join(self._struct.pack(*entry) for entry in entries))
        self._parts = (len(entries), bytearray())


class _PackedField:
    """One field of packed entries as a sequence, for bisect."""

    def __init__(self, struct: Struct, data: bytes | bytearray, field: int) -> None:
        self._struct = struct
        self._data = data
        self._field = field

    def __len__(self) -> int:
        return len(self._data) // self._struct.size

    def __getitem__(self, number: int) -> int:
        value: int = self._struct.unpack_from(self._data, number * self._struct.size)[self._field]
        return value


class _FileField:
    """One field of the entries in the file as a sequence; pages are read as bisect needs them."""

    def __init__(self, handle: Handle, struct: Struct, entries: int, field: int) -> None:
        self._handle = handle
        self._struct = struct
        self._entries = entries
        self._field = field
        self._per_page = PAGE_BYTES // struct.size
        self._pages: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._entries

    def __getitem__(self, number: int) -> int:
        size = self._struct.size
        page, row = divmod(number, self._per_page)
        data = self._pages.get(page)
        if data is None:
            first = page * self._per_page
            count = min(self._per_page, self._entries - first)
            data = self._pages[page] = self._handle.read(first * size, count * size)
        value: int = self._struct.unpack_from(data, row * size)[self._field]
        return value
