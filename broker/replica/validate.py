"""Is this what a producer may append to this topic? A topic's rules over the checks that `kraft.wire.record_validation`
makes of a batch.

Invariants: nothing is changed here; a refusal is for the whole batch; compressed batches are not opened unless a key
must be looked at: the header's count and timestamps are trusted (a client that lies harms its own readers).
Source: broker-spec 1.4 rows 5, 6, 13 to 21 and 23.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from kraft.wire.compression import Compression
from kraft.wire.error_codes import ErrorCode
from kraft.wire.record_header import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    CRC_START,
    MAGIC,
    BatchHeader,
    header_at,
)
from kraft.wire.record_validation import (
    CODEC_MAX,
    BatchRefused,
    check_records,
    first_batch,
    validate_produce_batch,
)

ZSTD = int(Compression.ZSTD)
ZSTD_FIRST_PRODUCE_VERSION = 7
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


def read_batch(data: memoryview | None, api_version: int) -> tuple[BatchHeader, int] | BatchRefused:
    """Rows 5 and 6: the header and the size of the one batch that `data` holds (a short tail behind it does not count),
    or why there is none."""
    size = 0 if data is None else len(data)
    if size >= BATCH_HEADER_BYTES:
        header = header_at(data)  # type: ignore[arg-type]
        _, length, _, magic, _, attributes, *_ = header
        if magic == MAGIC and length + BATCH_PREFIX_BYTES == size and attributes & ATTRIBUTE_CODEC_MASK != ZSTD:
            return header, size  # the usual case: one batch and nothing else
    return _read_unusual(data, api_version)


def _read_unusual(data: memoryview | None, api_version: int) -> tuple[BatchHeader, int] | BatchRefused:
    header = first_batch(data)
    if isinstance(header, BatchRefused):
        return header
    if header.attributes & ATTRIBUTE_CODEC_MASK == ZSTD and api_version < ZSTD_FIRST_PRODUCE_VERSION:
        return BatchRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {ZSTD_FIRST_PRODUCE_VERSION} or newer, this is version {api_version}",
        )
    return header, header.batch_length + BATCH_PREFIX_BYTES


def check_batch(data: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int) -> BatchRefused | None:
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
        and crc32c(data[CRC_START:]) == header[4]
    ):
        return None
    return _check_one_by_one(data, header, rules, now_ms)


def _check_one_by_one(data: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int) -> BatchRefused | None:
    """The same rows in their order, with their reasons."""
    refused = validate_produce_batch(
        data,
        header,
        max_message_bytes=rules.max_message_bytes,
        timestamp_min=now_ms - rules.timestamp_before_max_ms,
        timestamp_max=now_ms + rules.timestamp_after_max_ms,
        is_log_append_time=rules.log_append_time,
    )
    if refused is None and rules.compacted:
        refused = check_records(data, header, output_bytes_max=OPENED_BYTES_MAX, keys_required=True)
    if refused is None and len(data) > rules.segment_bytes:
        refused = BatchRefused(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {len(data)} bytes, segment.bytes allows {rules.segment_bytes}",
        )
    return refused


def needs_conversion(header: BatchHeader, rules: BatchRules) -> bool:
    """compression.type asks for another codec than the batch has."""
    return rules.codec is not None and header.attributes & ATTRIBUTE_CODEC_MASK != rules.codec
