"""What a produced batch must be, as plain checks on bytes: rows 5, 13 to 18, 20 and 21 of the Produce order of checks,
and, where a topic demands it, the walk over records (rows 18 to 20).

A compressed batch is not opened here: its header's count and timestamps are trusted, so a client that lies harms only
its own readers. `check_records` opens it, for compacted topics and codec conversion.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kraft.seam import Buffer, WireError
from kraft.wire import record_walk
from kraft.wire.error_codes import ErrorCode
from kraft.wire.record_codec import NO_TIMESTAMP, Record, decode_batch
from kraft.wire.record_header import (
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

WALK_IS_COMPILED = not str(record_walk.__file__).endswith(".py")
CODEC_MAX = 4
REPORTED_RECORDS_MAX = 5
"""A refusal names this many bad records; the client gets the index of every one of them."""

_PREFIX = struct.Struct(">qi")
_MAGIC_AT = 16


class BatchRefused(NamedTuple):
    """Why a batch is not appended. `record_errors`: (index in the batch, what is wrong) of the bad records."""

    error: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str | None], ...] = ()


def _invalid(message: str) -> BatchRefused:
    return BatchRefused(ErrorCode.INVALID_RECORD, message)


def first_batch(records: Buffer | None) -> BatchHeader | BatchRefused:
    """The header of the one batch that a partition's records must hold (row 5). A tail that is shorter than it
    announces is not looked at: the caller takes `header.size_bytes` bytes."""
    if records is None:
        return _invalid("the partition has no record batch")
    size = len(records)
    if size >= BATCH_HEADER_BYTES:
        # the usual case: the records are one batch and nothing else
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


def validate_produce_batch(
    batch: Buffer,
    header: BatchHeader,
    *,
    max_message_bytes: int,
    timestamp_min: int,
    timestamp_max: int,
    is_log_append_time: bool,
) -> BatchRefused | None:
    """Rows 13 to 17, 20 and 21 on the header alone; None if the batch may be appended.

    `batch` begins at the batch. `timestamp_min` and `timestamp_max` are the bounds of a CreateTime topic, in ms. There
    the caller clears the bit of a client that stamped the append time on a real timestamp (`patch_create_time`).
    """
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
    if attributes & ATTRIBUTE_CONTROL:
        return _invalid("a client may not send control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return _invalid(f"producer {header.producer_id} sent no sequence number")
    if attributes & ATTRIBUTE_CODEC_MASK > CODEC_MAX:
        return _invalid(f"compression codec {attributes & ATTRIBUTE_CODEC_MASK} does not exist")
    if attributes & ATTRIBUTE_LOG_APPEND_TIME and (is_log_append_time or header.max_timestamp == NO_TIMESTAMP):
        return BatchRefused(ErrorCode.INVALID_TIMESTAMP, "a client may not stamp a batch with the append time")
    if is_log_append_time:
        return None
    return _check_timestamps(header.base_timestamp, header.max_timestamp, timestamp_min, timestamp_max)


def _check_timestamps(base: int, latest: int, timestamp_min: int, timestamp_max: int) -> BatchRefused | None:
    """Row 20 on the header's two timestamps; -1 is exempt."""
    if (base == NO_TIMESTAMP or timestamp_min <= base <= timestamp_max) and (
        latest == NO_TIMESTAMP or timestamp_min <= latest <= timestamp_max
    ):
        return None
    bounds = f"{timestamp_min} to {timestamp_max}"
    what = f"the batch's timestamps {base} to {latest} are not all within {bounds}"
    return BatchRefused(ErrorCode.INVALID_TIMESTAMP, what)


def check_records(
    batch: Buffer,
    header: BatchHeader,
    *,
    output_bytes_max: int,
    keys_required: bool = False,
    timestamp_min: int = NO_TIMESTAMP,
    timestamp_max: int = 2**63 - 1,
) -> BatchRefused | None:
    """Rows 18 to 20 on every record, opening the batch if it is compressed. None if all are well. `keys_required`: the
    topic is compacted."""
    try:
        records = decode_batch(batch, output_bytes_max=output_bytes_max)
    except WireError as error:
        return _invalid(str(error))
    keyless: list[int] = []
    for index, record in enumerate(records):
        if record.offset != header.base_offset + index:
            return _invalid(f"record {index} of the batch has offset delta {record.offset - header.base_offset}")
        if keys_required and record.key is None:
            keyless.append(index)
    refused = check_timestamps(records, timestamp_min, timestamp_max)
    if refused is not None:
        return refused
    if keyless:
        what = f"{_some(keyless)} have no key, which a compacted topic needs"
        return BatchRefused(ErrorCode.INVALID_RECORD, what, tuple((i, "it has no key") for i in keyless))
    return None


def check_timestamps(records: list[Record], timestamp_min: int, timestamp_max: int) -> BatchRefused | None:
    """Row 20 on every record; -1 is exempt."""
    untimely = [
        index
        for index, record in enumerate(records)
        if record.timestamp != NO_TIMESTAMP and not timestamp_min <= record.timestamp <= timestamp_max
    ]
    if not untimely:
        return None
    what = f"timestamps of {_some(untimely)} are not within {timestamp_min} to {timestamp_max}"
    return BatchRefused(
        ErrorCode.INVALID_TIMESTAMP, what, tuple((i, "its timestamp is out of range") for i in untimely)
    )


def _some(indexes: list[int]) -> str:
    names = ", ".join(map(str, indexes[:REPORTED_RECORDS_MAX]))
    return f"records {names}" + (" and others" if len(indexes) > REPORTED_RECORDS_MAX else "")
