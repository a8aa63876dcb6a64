"""Checks of a produced batch, on plain bytes: its header, and each record by a walk over them.

The caller decompresses the records before the walk. Source: docs/produce-checks.md, Kafka's LogValidator.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kraft.seam import Buffer
from kraft.wire import record_walk
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records.batch_codec import NO_TIMESTAMP
from kraft.wire.records.header import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
    header_at,
    read_header,
)

HEADERS_MAX = record_walk.HEADERS_MAX
WALK_IS_COMPILED = not str(record_walk.__file__).endswith(".py")
CODEC_MAX = 4
REPORTED_RECORDS_MAX = 3
"""Maximum number of bad records that an error message describes; the client gets the indexes of all that the walk
returned."""
RECORDS_MAX = 500_000
"""Maximum records in one batch. Each costs its readers time and memory, and one byte of a compressed batch can hold
1,000."""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_PREFIX = struct.Struct(">qi")
_MAGIC_AT = 16


class BatchRefused(NamedTuple):
    """Reason why a batch is not appended. `record_errors`: (index in the batch, reason) of the bad records."""

    error: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str | None], ...] = ()


def _invalid(message: str) -> BatchRefused:
    return BatchRefused(ErrorCode.INVALID_RECORD, message)


def first_batch(records: Buffer | None) -> BatchHeader | BatchRefused:
    """Return the header of the one batch that a partition's records must hold.

    An incomplete batch after it is ignored: the caller takes `header.size_bytes` bytes."""
    if records is None:
        return _invalid("the partition has no record batch")
    size = len(records)
    if size >= BATCH_HEADER_BYTES:
        # the usual case: the records are exactly one batch
        header = header_at(records)
        if header.magic == MAGIC and header.batch_length + BATCH_PREFIX_BYTES == size:
            return header
    return _first_of(records, size)


def _first_of(records: Buffer, size: int) -> BatchHeader | BatchRefused:
    if size < BATCH_PREFIX_BYTES:
        return _invalid(f"{size} bytes hold no record batch")
    _, batch_length = _PREFIX.unpack_from(records)
    batch_bytes = batch_length + BATCH_PREFIX_BYTES
    if batch_length < 0:
        return BatchRefused(ErrorCode.CORRUPT_MESSAGE, f"the batch announces {batch_length} bytes")
    if batch_bytes > size:
        return _invalid(f"the batch announces {batch_bytes} bytes, {size} were sent")
    if batch_bytes <= _MAGIC_AT:
        return BatchRefused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {batch_bytes} bytes has no header")
    if records[_MAGIC_AT] != MAGIC:
        return _invalid(f"the batch has magic {records[_MAGIC_AT]}, only {MAGIC} is accepted")
    if batch_bytes < BATCH_HEADER_BYTES:
        return BatchRefused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {batch_bytes} bytes has no header")
    rest = size - batch_bytes
    if rest >= BATCH_PREFIX_BYTES:
        _, next_length = _PREFIX.unpack_from(records, batch_bytes)
        if 0 <= next_length <= rest - BATCH_PREFIX_BYTES:
            return _invalid("a partition may have one record batch per request, here are more")
    return read_header(records)


def has_other_magic(records: Buffer | None) -> bool:
    """Return whether the records are in an older format, which is not accepted."""
    return records is not None and len(records) > _MAGIC_AT and records[_MAGIC_AT] != MAGIC


def validate_produce_batch(
    batch: Buffer, header: BatchHeader, *, max_message_bytes: int, is_log_append_time: bool
) -> BatchRefused | None:
    """Check the header alone. Return None if the records can be checked next, else why the batch is refused.

    `batch` begins at the batch. `is_log_append_time`: the topic stamps its batches with the append time."""
    size = header.batch_length + BATCH_PREFIX_BYTES
    if header.base_offset != 0:
        return _invalid(f"the batch begins at offset {header.base_offset}, a client's begins at 0")
    if size > max_message_bytes:
        return BatchRefused(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {max_message_bytes}"
        )
    if not check_crc(batch, 0, header):
        return BatchRefused(ErrorCode.CORRUPT_MESSAGE, "the batch does not fit its CRC")
    count = header.record_count
    attributes = header.attributes
    if count <= 0 or header.last_offset_delta != count - 1:
        return _invalid(f"the batch has {count} records and spans {header.last_offset_delta + 1} offsets")
    if count > RECORDS_MAX:
        what = f"the batch has {count} records, at most {RECORDS_MAX} are accepted: send smaller batches"
        return BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, what)
    if attributes & ATTRIBUTE_CONTROL:
        return _invalid("a client may not send control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return _invalid(f"producer {header.producer_id} sent no sequence number")
    if attributes & ATTRIBUTE_CODEC_MASK > CODEC_MAX:
        return _invalid(f"compression codec {attributes & ATTRIBUTE_CODEC_MASK} does not exist")
    if attributes & ATTRIBUTE_LOG_APPEND_TIME and (is_log_append_time or header.max_timestamp == NO_TIMESTAMP):
        what = "Producer should not set timestamp type to LogAppendTime."
        return _invalid_timestamps([(index, what) for index in range(min(count, record_walk.RECORD_ERRORS_MAX))])
    return None


def check_records(
    block: bytes,
    header: BatchHeader,
    *,
    keys_required: bool = False,
    timestamp_min: int = INT64_MIN,
    timestamp_max: int = INT64_MAX,
    headers_max: int = HEADERS_MAX,
) -> int | BatchRefused:
    """Check every record of the decompressed `block`.

    Return the records' latest timestamp in ms (at least -1), or why the batch is refused. `keys_required`: the topic is
    compacted. A timestamp of -1 may be outside the bounds. More record headers than `headers_max` are refused with
    MESSAGE_TOO_LARGE."""
    base = header.base_timestamp
    earliest, latest = timestamp_min - base, timestamp_max - base
    if earliest < INT64_MIN:
        earliest = INT64_MIN
    if latest > INT64_MAX:
        latest = INT64_MAX
    if earliest > INT64_MAX or latest < INT64_MIN:
        earliest, latest = INT64_MAX, INT64_MIN  # relative to this base, no 64-bit delta is within the bounds
    try:
        least, greatest, keyless, untimely = record_walk.walk_records(
            block, header.record_count, earliest, latest, NO_TIMESTAMP - base, keys_required, headers_max
        )
    except OverflowError as error:
        return BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, f"{error}: send smaller batches")
    except ValueError as error:
        return _invalid(str(error))
    newest = base + greatest
    if newest > INT64_MAX or base + least < INT64_MIN:
        return _invalid("a record's timestamp does not fit into 64 bits")
    if keyless or untimely:
        bounds = f"[{timestamp_min}, {timestamp_max}]"
        errors = [(index, "Compacted topic cannot accept message without key") for index in keyless]
        errors += [
            (
                index,
                f"Timestamp {base + delta} of message with offset {index} is out of range. The timestamp should be "
                f"within {bounds}",
            )
            for index, delta in untimely
        ]
        errors.sort()
        return _invalid_timestamps(errors) if untimely else _missing_keys(errors)
    return newest if newest > NO_TIMESTAMP else NO_TIMESTAMP


def _invalid_timestamps(errors: list[tuple[int, str]]) -> BatchRefused:
    """Refuse the whole batch for invalid timestamps."""
    what = f"One or more records have been rejected due to invalid timestamp: {_some(errors)}"
    return BatchRefused(ErrorCode.INVALID_TIMESTAMP, what, tuple(errors))


def _missing_keys(errors: list[tuple[int, str]]) -> BatchRefused:
    what = (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: {_some(errors)}"
    )
    return BatchRefused(ErrorCode.INVALID_RECORD, what, tuple(errors))


def _some(errors: list[tuple[int, str]]) -> str:
    return "; ".join(f"record {index}: {what}" for index, what in errors[:REPORTED_RECORDS_MAX])
