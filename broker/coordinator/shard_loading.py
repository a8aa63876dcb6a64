"""Load the records of a partition of a coordinator's topic, from its log start offset to its end, into a state.

A new coordinator answers no request until the high watermark has reached the log end offset up to which it loaded.
Every offset commit that the previous coordinator may have acknowledged lies below that log end offset. So no client
reads a committed offset that is older than an acknowledged one (G3). Kafka requires less: its coordinator may answer
from the part of the log that is known to be committed.
Source: Kafka's CoordinatorRuntime, docs/decisions/14-group-coordinator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self

import trio

from kraft.broker.partition.log_waits import wait_settled
from kraft.broker.shard.transactional import StagedEntry, TransactionEnd
from kraft.seam import WireError
from kraft.storage.handles import ColdRead
from kraft.storage.log_slice import LogSlice, OffsetOutOfRange
from kraft.storage.markers import read_marker
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import iter_batch, iter_headers

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.gates import Gates
    from kraft.seam import Disk
    from kraft.storage.log import Log

DecodeEntry = Callable[[bytes | None, bytes | None], Any | None]
"""Function from the key and value of a record to its entry, or to None for a record that is skipped. Raises WireError
if the bytes do not parse."""


class LoadedState(Protocol):
    """The state built from the records of a partition that have been read so far."""

    def with_entries(self, entries: list[Any]) -> Self:
        """Return the state after these entries."""
        ...


ENTRIES_PER_STEP = 400
"""Number of entries that are decoded, and then applied, before other tasks run."""


async def load_state(
    disk: Disk,
    gates: Gates,
    partition: Partition,
    is_wanted: Callable[[], bool],
    bytes_max: int,
    *,
    empty_state: Callable[[], LoadedState],
    decode_entry: DecodeEntry,
) -> tuple[LoadedState, int] | None:
    """Load the state, wait until all of it is committed, and return it with its end offset. Return None if the state is
    no longer needed. Raises StorageCorrupt for a damaged batch, UnreadableBatch for an intact one that does not parse,
    and DiskError."""
    await wait_settled(partition)
    state, offset = empty_state(), 0
    while is_wanted():
        log = partition.log
        assert log is not None
        if offset >= log.log_end_offset:
            if partition.high_watermark >= offset:
                return state, offset
            await _wait_committed(partition, offset)
            continue
        piece = await _read(disk, log, offset, bytes_max)
        if piece is None:
            continue
        decoded = decode_steps(piece, log, decode_entry)
        with gates.counting(piece.size_bytes):
            while (step := await disk.offload(next, decoded, None)) is not None:
                entries, offset = step
                state = state.with_entries(entries)
                if not is_wanted():
                    return None
    return None


async def _read(disk: Disk, log: Log, offset: int, bytes_max: int) -> LogSlice | None:
    """Return a slice of the log, or None if the log cannot be read yet. Meanwhile the partition may have got another
    log, or may have no log."""
    try:
        return log.read(max(offset, log.log_start_offset), bytes_max, log.log_end_offset)
    except ColdRead as cold:
        await disk.offload(cold.warm)
        cold.adopt()
    except OffsetOutOfRange:
        await trio.lowlevel.checkpoint()
    return None


def decode_steps(piece: LogSlice, log: Log, decode_entry: DecodeEntry) -> Iterator[tuple[list[Any], int]]:
    """Yield the entries of a slice, at most ENTRIES_PER_STEP at a time, each time with the offset after the last
    decoded record. An entry of a transactional batch becomes a StagedEntry, and a marker a TransactionEnd. No offset is
    taken from a damaged batch. Each step is *blocking*."""
    data = piece.read_whole(log.log_end_offset)
    next_offset = log.log_end_offset if not data else piece.base_offset
    entries: list[Any] = []
    for position, header in iter_headers(data):
        if header.is_control:
            marker = read_marker(data, position, header)
            if marker is not None:
                entries.append(TransactionEnd(header.producer_id, not marker.aborted))
        else:
            try:
                for number, record in enumerate(iter_batch(data, position), start=1):
                    entry = decode_entry(record.key, record.value)
                    if entry is not None and header.is_transactional:
                        entries.append(StagedEntry(header.producer_id, record.offset, entry))
                    elif entry is not None:
                        entries.append(entry)
                    if not number % ENTRIES_PER_STEP or len(entries) >= ENTRIES_PER_STEP:
                        yield entries, next_offset
                        entries = []
            except WireError as problem:
                raise UnreadableBatch(log.directory, header.base_offset, problem) from None
        next_offset = header.next_offset
    yield entries, next_offset


async def _wait_committed(partition: Partition, end_offset: int) -> None:
    waiting = CommitWait()
    partition.waiting.append((end_offset, waiting))
    await waiting.over.wait()


class CommitWait:
    """An entry in a partition's queue that waits until the high watermark passes an offset, or until the leadership
    ends."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = trio.Event()

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        self.over.set()
