"""Is this what a producer may append? The rows of the produce check table that look at the bytes of one batch.

Invariants: nothing is changed here; a refusal is for the whole batch; compressed batches are not opened unless a key or
the codec must be looked at: the header's count and timestamps are trusted (a client that lies harms its own readers).
Source: broker-spec 1.4 rows 5, 6, 13 to 23.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.seam import WireError
from kraft.wire.compression import Compression
from kraft.wire.error_codes import ErrorCode
from kraft.wire.record_codec import decode_batch
from kraft.wire.records import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    BatchHeader,
    check_crc,
    read_header,
)

MAGIC_POSITION = 16
OLD_MAGICS = (0, 1)
CODEC_ZSTD = 4
CODEC_MAX = 4
NO_TIMESTAMP = -1
ZSTD_FIRST_PRODUCE_VERSION = 7
RECORD_ERRORS_MAX = 10
UNUSUAL_ATTRIBUTES = ATTRIBUTE_CONTROL | ATTRIBUTE_LOG_APPEND_TIME
OPENED_BYTES_MAX = 64 * 1024 * 1024
"""A compressed batch that must be opened may not grow beyond this."""


class BatchRules(NamedTuple):
    """A topic's settings, as far as a batch is held to them. `codec` is what batches are converted to; None keeps them
    as they come."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    compacted: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    codec: Compression | None = None


class Refusal(NamedTuple):
    """Why a batch is not taken. `record_errors` are (index in the batch, why)."""

    error: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()


def read_batch(data: memoryview | None, api_version: int) -> tuple[BatchHeader, int] | Refusal:
    """Rows 5 and 6: the header and the size of the one batch that `data` holds (a short tail behind it does not count),
    or why there is none."""
    if data is None:
        return Refusal(ErrorCode.INVALID_RECORD, "the partition has no records")
    size = len(data)
    if size < BATCH_HEADER_BYTES:
        return _refuse_short(data)
    try:
        header = read_header(data)
    except WireError as problem:
        if data[MAGIC_POSITION] in OLD_MAGICS:
            return Refusal(ErrorCode.INVALID_RECORD, f"{problem}: only record batches of magic 2 are taken")
        return Refusal(ErrorCode.CORRUPT_MESSAGE, str(problem))
    batch_bytes = header.batch_length + BATCH_PREFIX_BYTES
    if batch_bytes != size and (refusal := _check_rest(data, batch_bytes)) is not None:
        return refusal
    if header.attributes & ATTRIBUTE_CODEC_MASK == CODEC_ZSTD and api_version < ZSTD_FIRST_PRODUCE_VERSION:
        return Refusal(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {ZSTD_FIRST_PRODUCE_VERSION} or newer, this is version {api_version}",
        )
    return header, batch_bytes


def check_batch(data: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int) -> Refusal | None:
    """Rows 13 to 23 for the whole batch `data` with this header; None if it may be appended. `now_ms` is wall clock."""
    base_offset, _, _, _, _, attributes, delta, oldest, newest, producer_id, _, sequence, count = header
    if (
        not base_offset
        and len(data) <= rules.max_message_bytes
        and len(data) <= rules.segment_bytes
        and count == delta + 1 > 0
        and not attributes & UNUSUAL_ATTRIBUTES
        and attributes & ATTRIBUTE_CODEC_MASK <= CODEC_MAX
        and (producer_id < 0 or sequence >= 0)
        and not rules.compacted
        and now_ms - rules.timestamp_before_max_ms <= oldest <= newest <= now_ms + rules.timestamp_after_max_ms
        and check_crc(data, 0, header)
    ):
        return None
    return _find_fault(data, header, rules, now_ms)


def _find_fault(data: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int) -> Refusal | None:
    """The same rows one by one, in their order."""
    if header.base_offset:
        return Refusal(ErrorCode.INVALID_RECORD, f"the batch has base offset {header.base_offset}, expected 0")
    size = len(data)
    if size > rules.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, max.message.bytes allows {rules.max_message_bytes}",
        )
    if not check_crc(data, 0, header):
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not fit its bytes")
    refusal = _check_shape(header)
    if refusal is not None:
        return refusal
    refusal = _check_time(header, rules, now_ms)
    if refusal is None and rules.compacted:
        refusal = _check_keys(data)
    if refusal is None and size > rules.segment_bytes:
        refusal = Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size} bytes, segment.bytes allows {rules.segment_bytes}",
        )
    return refusal


def needs_conversion(header: BatchHeader, rules: BatchRules) -> bool:
    """compression.type asks for another codec than the batch has."""
    return rules.codec is not None and header.attributes & ATTRIBUTE_CODEC_MASK != rules.codec


def _refuse_short(data: memoryview) -> Refusal:
    if len(data) > MAGIC_POSITION:
        if data[MAGIC_POSITION] in OLD_MAGICS:
            return Refusal(ErrorCode.INVALID_RECORD, f"magic {data[MAGIC_POSITION]}: only magic 2 is taken")
        if int.from_bytes(data[8:12], "big", signed=True) + BATCH_PREFIX_BYTES <= len(data):
            return Refusal(ErrorCode.CORRUPT_MESSAGE, f"{len(data)} bytes are fewer than a batch header has")
    return Refusal(ErrorCode.INVALID_RECORD, "the partition has no whole batch")


def _check_rest(data: memoryview, batch_bytes: int) -> Refusal | None:
    """More or fewer bytes than the first batch announces."""
    if batch_bytes > len(data):
        return Refusal(
            ErrorCode.INVALID_RECORD, f"the batch announces {batch_bytes} bytes, {len(data)} bytes were sent"
        )
    tail = len(data) - batch_bytes
    if tail < BATCH_PREFIX_BYTES:
        return None
    announced = int.from_bytes(data[batch_bytes + 8 : batch_bytes + 12], "big", signed=True) + BATCH_PREFIX_BYTES
    if announced < BATCH_HEADER_BYTES:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"what follows the first batch announces {announced} bytes")
    if announced <= tail:
        return Refusal(ErrorCode.INVALID_RECORD, "a partition takes exactly one batch, this one has more")
    return None


def _check_shape(header: BatchHeader) -> Refusal | None:
    codec = header.attributes & ATTRIBUTE_CODEC_MASK
    if header.last_offset_delta < 0 or header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        return Refusal(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records with last offset delta {header.last_offset_delta}",
        )
    if header.attributes & ATTRIBUTE_CONTROL:
        return Refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return Refusal(ErrorCode.INVALID_RECORD, f"producer id {header.producer_id} without a sequence")
    if codec > CODEC_MAX:
        return Refusal(ErrorCode.INVALID_RECORD, f"compression codec {codec} is not known")
    return None


def _check_time(header: BatchHeader, rules: BatchRules, now_ms: int) -> Refusal | None:
    newest = header.max_timestamp
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME and (rules.log_append_time or newest == NO_TIMESTAMP):
        return Refusal(ErrorCode.INVALID_TIMESTAMP, "a producer may not stamp the append time")
    if rules.log_append_time:
        return None
    for timestamp in (header.base_timestamp, newest):
        if timestamp != NO_TIMESTAMP and not (
            now_ms - rules.timestamp_before_max_ms <= timestamp <= now_ms + rules.timestamp_after_max_ms
        ):
            return Refusal(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is not within {rules.timestamp_before_max_ms} ms before and "
                f"{rules.timestamp_after_max_ms} ms after the broker's {now_ms}",
            )
    return None


def _check_keys(data: memoryview) -> Refusal | None:
    try:
        records = decode_batch(data, 0, output_bytes_max=OPENED_BYTES_MAX)
    except WireError as problem:
        return Refusal(ErrorCode.INVALID_RECORD, f"the records do not parse: {problem}")
    bad = [index for index, record in enumerate(records) if record.key is None]
    if not bad:
        return None
    errors = tuple((index, "a compacted topic takes no record without a key") for index in bad[:RECORD_ERRORS_MAX])
    return Refusal(
        ErrorCode.INVALID_RECORD,
        f"a compacted topic takes no record without a key; without one: {', '.join(map(str, bad[:RECORD_ERRORS_MAX]))}",
        errors,
    )
