"""Helpers to run rounds of compaction without a node, and to read the results as clients would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraft.storage.compaction.dirty_range import find_range
from kraft.storage.compaction.replacement import Replacement
from kraft.storage.compaction.round import CleanerLimits, CleaningRound
from kraft.storage.log import Log, LogConfig
from kraft.wire.records import Record, decode_batch, encode_batch, iter_headers
from kraft.wire.records.compression import Compression
from tests.stages.batches import NOW_MS, delete, lead, read_all, sync, warmed
from tests.stages.machine import Machine

COMPACTED = LogConfig(segment_bytes=600, index_interval_bytes=150, cleanup_policy=frozenset({"compact"}))
LIMITS = CleanerLimits(map_bytes_max=1 << 20, read_bytes=256)

Entry = tuple[bytes | None, bytes | None]


def write(
    log: Log,
    *entries: Entry,
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    compression: Compression = Compression.NONE,
    epoch: int = 0,
) -> int:
    """Append one batch of (key, value) records to the log; return its base offset."""
    data = encode_batch(
        [Record(0, timestamp + number, key, value) for number, (key, value) in enumerate(entries)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
        compression=compression,
    )
    return lead(log, data, epoch).base_offset


def settle(log: Log, *, roll: bool = True) -> None:
    """Commit everything written to the log, close its segments, and sync them."""
    if roll:
        warmed(lambda: log.roll(NOW_MS))
    sync(log)
    log.update_high_watermark(log.log_end_offset)


def clean(
    log: Log,
    machine: Machine,
    cleaned_offset: int | None = None,
    *,
    now_ms: int = NOW_MS,
    limits: CleanerLimits = LIMITS,
) -> int:
    """Run one whole round; return the new cleaner checkpoint."""
    cleaning = begin(log, cleaned_offset, now_ms=now_ms, limits=limits)
    for step in cleaning.steps():
        if step is not None:
            delete(machine, replace(step))
    return cleaning.cleaned_to


def begin(
    log: Log, cleaned_offset: int | None = None, *, now_ms: int = NOW_MS, limits: CleanerLimits = LIMITS
) -> CleaningRound:
    return CleaningRound(log, warmed(lambda: find_range(log, cleaned_offset, now_ms)), limits, now_ms)


def replace(step: Replacement) -> list[str]:
    step.sync()
    step.stage()
    assert step.publish()
    return step.finish()


def records(log: Log) -> list[Record]:
    """Return every data record of the log, including aborted ones."""
    return list(_records(read_all(log)))


def _records(data: bytes) -> Iterable[Record]:
    for position, header in iter_headers(data):
        if not header.is_control:
            yield from decode_batch(data, position)


def committed(log: Log) -> list[Record]:
    """Return the records that a read_committed reader gets, from the log start to the log end."""
    data = read_all(log)
    aborted = sorted(
        warmed(lambda: log.aborted_transactions(log.log_start_offset, log.log_end_offset)), key=lambda entry: entry[1]
    )
    aborting: set[int] = set()
    found: list[Record] = []
    for position, header in iter_headers(data):
        while aborted and aborted[0][1] <= header.last_offset:
            aborting.add(aborted.pop(0)[0])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += decode_batch(data, position)
    return found


def last_values(found: Sequence[Record]) -> dict[bytes | None, tuple[int, int, bytes | None]]:
    """Return key -> (offset, timestamp, value) of its last record, without keys whose last record is a tombstone."""
    last = {record.key: (record.offset, record.timestamp, record.value) for record in found}
    return {key: entry for key, entry in last.items() if entry[2] is not None}


def offsets(log: Log) -> list[int]:
    return [record.offset for record in records(log)]
