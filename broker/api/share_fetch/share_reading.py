"""Read the log of a share partition, and acquire its available records for a member.

Invariants: a member gets no record at or beyond the high watermark, or the last stable offset for a read_committed
group. The bytes in a response contain all acquired records. Nothing here suspends: a read of bytes that are not in
memory raises ColdRead, before anything is acquired.
Source: KIP-932, Kafka's ShareFetchUtils and DelayedShareFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kraft.broker.api.share_fetch.led_share_partition import LedSharePartition
from kraft.broker.share_partition.log_ranges import FetchedBatch, log_ranges
from kraft.broker.share_partition.states import AcquiredBatch
from kraft.seam import StorageCorrupt, WireError
from kraft.storage.log_slice import OffsetOutOfRange
from kraft.storage.markers import read_marker
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import iter_headers

if TYPE_CHECKING:
    from kraft.storage.log import Log

READS_MAX = 8
"""Maximum reads of one partition in a row that find only offsets which are not delivered, such as aborted records."""


class AcquireLimits(NamedTuple):
    """The limits of one request for one partition. With `is_strict`, no record more than `records_max` is acquired.
    Otherwise the rest of a log batch is acquired as well. `batch_records` is the wanted size of an acquired batch."""

    bytes_max: int
    records_max: int
    batch_records: int
    is_strict: bool


class Acquisition(NamedTuple):
    """The records that a member has acquired in one partition, and the log batches that contain them. `goes_on` is True
    if the log has more to read that was not read yet."""

    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    acquired: tuple[AcquiredBatch, ...] = ()
    goes_on: bool = False

    @property
    def acquired_count(self) -> int:
        """The number of acquired records."""
        return sum(batch.last_offset - batch.first_offset + 1 for batch in self.acquired)


class LocatedBatch(NamedTuple):
    """A log batch in the bytes of a read."""

    position: int
    end_position: int
    batch: FetchedBatch


def acquire(share: LedSharePartition, member: str, limits: AcquireLimits, now_ms: int) -> Acquisition:
    """Acquire available records of an active share partition. Return nothing if its log is not open yet. Raises
    ColdRead."""
    log, state = _open_log(share), share.state
    if log is None or state is None:
        return Acquisition()
    share.take_limits()
    is_committed = share.settings.is_read_committed
    end = _end(share, log)
    for _ in range(READS_MAX):
        offset = state.fetch_offset
        if not state.can_acquire or not log.log_start_offset <= offset < end:
            return Acquisition()
        try:
            found = _read(log, offset, limits.bytes_max, end)
            aborted = log.aborted_transactions(offset, found.upper_bound) if is_committed else None
        except OffsetOutOfRange:
            return Acquisition()
        except StorageCorrupt as damage:
            share.partition.host.damage_found(share.partition, damage)
            return Acquisition(ErrorCode.KAFKA_STORAGE_ERROR)
        except WireError:
            return Acquisition(ErrorCode.CORRUPT_MESSAGE)
        known_end = state.end_offset
        ranges = log_ranges((one.batch for one in found.batches), offset, aborted)
        acquired = state.acquire(
            member,
            ranges,
            limits.records_max,
            now_ms,
            is_strict=limits.is_strict,
            batch_records=limits.batch_records,
        )
        share.acquired(acquired, known_end)
        if acquired:
            return Acquisition(records=_containing(found, acquired), acquired=acquired)
        if state.fetch_offset == offset:
            return Acquisition()
    return Acquisition(goes_on=True)


def acquirable_bytes(share: LedSharePartition, bytes_max: int) -> int:
    """Return how many bytes of the log are from the first available record to the end up to which the group may read,
    at most `bytes_max`. Records that are not available count too, as in Kafka. A log with a newer segment, or one that
    cannot be read, counts as `bytes_max`. Raises ColdRead."""
    log, state = _open_log(share), share.state
    if log is None or state is None:
        return 0
    share.take_limits()
    if not state.can_acquire:
        return 0
    offset, end = state.fetch_offset, _end(share, log)
    if not log.log_start_offset <= offset < end:
        return 0
    if offset < log.segments[-1].base_offset:
        return bytes_max
    try:
        return min(log.read(offset, bytes_max, end, at_least_one=True).size_bytes, bytes_max)
    except (StorageCorrupt, WireError):
        return bytes_max


def _open_log(share: LedSharePartition) -> Log | None:
    """Return the log of a share partition. If it is not open yet, let it be opened soon, and return None."""
    partition = share.partition
    if partition.log is None and not partition.is_unwritten:
        partition.host.request_open(partition)
    return partition.log


def _end(share: LedSharePartition, log: Log) -> int:
    """Return the end of the records that the group may read."""
    return log.last_stable_offset if share.settings.is_read_committed else share.partition.high_watermark


class LogRead(NamedTuple):
    """The bytes of a read, and the batches in them."""

    data: bytes
    batches: tuple[LocatedBatch, ...]
    upper_bound: int


def _read(log: Log, offset: int, bytes_max: int, end: int) -> LogRead:
    piece = log.read(offset, bytes_max, end, at_least_one=True)
    data = piece.read_cached()
    batches: list[LocatedBatch] = []
    for position, header in iter_headers(data):
        marker = read_marker(data, position, header) if header.is_control else None
        batch = FetchedBatch(
            header.base_offset,
            header.next_offset,
            header.producer_id,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            is_abort=marker is not None and marker.aborted,
        )
        batches.append(LocatedBatch(position, position + header.size_bytes, batch))
    return LogRead(data, tuple(batches), log.upper_bound(piece) if batches else offset)


def _containing(found: LogRead, acquired: tuple[AcquiredBatch, ...]) -> bytes:
    """Return the bytes from the first to the last log batch with an acquired record."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    inside = [one for one in found.batches if one.batch.end > first and one.batch.first <= last]
    return found.data[inside[0].position : inside[-1].end_position]
