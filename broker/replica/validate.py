"""Check a produced batch against its topic's rules. `kraft.wire.records.validation` has the checks that need no topic.

Invariants: nothing is changed here. A batch is rejected as a whole, never in part. No batch is appended before its
records were parsed.
Source: docs/produce-checks.md, Kafka's LogValidator.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from kraft.wire.error_codes import ErrorCode
from kraft.wire.records.compression import Compression
from kraft.wire.records.header import (
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
from kraft.wire.records.validation import (
    CODEC_MAX,
    HEADERS_MAX,
    RECORDS_MAX,
    BatchRefused,
    check_records,
    first_batch,
    validate_produce_batch,
)

ZSTD = int(Compression.ZSTD)
ZSTD_FIRST_PRODUCE_VERSION = 7
UNUSUAL_ATTRIBUTES = ATTRIBUTE_CONTROL | ATTRIBUTE_LOG_APPEND_TIME
OPENED_BYTES_MAX = 32 * 1024 * 1024
"""Maximum number of bytes of a compressed batch after decompression."""


class BatchRules(NamedTuple):
    """A topic's settings for batches. `codec` is the codec to which batches are converted; None keeps the producer's
    codec."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    compacted: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    codec: Compression | None = None


def read_batch(data: memoryview | None, api_version: int) -> tuple[BatchHeader, int] | BatchRefused:
    """Return header and size of the single batch in `data`, or the reason why `data` is not a single batch.

    A remainder after the batch that is too short to be another batch is ignored."""
    size = 0 if data is None else len(data)
    if size >= BATCH_HEADER_BYTES:
        header = header_at(data)  # type: ignore[arg-type]
        _, length, _, magic, _, attributes, *_ = header
        if magic == MAGIC and length + BATCH_PREFIX_BYTES == size and attributes & ATTRIBUTE_CODEC_MASK != ZSTD:
            return header, size  # the usual case: exactly one batch
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


def check_batch(data: memoryview, header: BatchHeader, rules: BatchRules) -> BatchRefused | None:
    """Check the header of the complete batch `data`. Return None if its records may be parsed, otherwise the reason to
    reject the batch."""
    base_offset, _, _, _, _, attributes, delta, _, _, producer_id, _, sequence, count = header
    if (
        not base_offset
        and len(data) <= rules.max_message_bytes
        and RECORDS_MAX >= count == delta + 1 > 0
        and not attributes & UNUSUAL_ATTRIBUTES
        and attributes & ATTRIBUTE_CODEC_MASK <= CODEC_MAX
        and (producer_id < 0 or sequence >= 0)
        and crc32c(data[CRC_START:]) == header[4]
    ):
        return None
    return validate_produce_batch(
        data, header, max_message_bytes=rules.max_message_bytes, is_log_append_time=rules.log_append_time
    )


def check_block(
    block: bytes, header: BatchHeader, rules: BatchRules, now_ms: int, headers_max: int = HEADERS_MAX
) -> int | BatchRefused:
    """Check the decompressed records of a batch, in `block`, and the batch's size.

    Return the records' latest timestamp if the batch may be appended. `now_ms` is wall clock. A batch with more record
    headers than `headers_max` gives MESSAGE_TOO_LARGE."""
    if rules.log_append_time:
        newest = check_records(block, header, keys_required=rules.compacted, headers_max=headers_max)
    else:
        newest = check_records(
            block,
            header,
            keys_required=rules.compacted,
            timestamp_min=now_ms - rules.timestamp_before_max_ms,
            timestamp_max=now_ms + rules.timestamp_after_max_ms,
            headers_max=headers_max,
        )
    if isinstance(newest, BatchRefused):
        return newest
    return check_size(header, rules) or newest


def check_size(header: BatchHeader, rules: BatchRules) -> BatchRefused | None:
    """Return the reason to reject a batch that does not fit into a segment; None if it fits."""
    size = header.batch_length + BATCH_PREFIX_BYTES
    if size <= rules.segment_bytes:
        return None
    return BatchRefused(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, segment.bytes allows {rules.segment_bytes}"
    )


def needs_conversion(header: BatchHeader, rules: BatchRules) -> bool:
    """Return whether compression.type requires another codec than the batch has."""
    return rules.codec is not None and header.attributes & ATTRIBUTE_CODEC_MASK != rules.codec
