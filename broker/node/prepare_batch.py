"""Batches that must be opened before they are appended: another codec is asked for (compression.type other than
producer), or keys must be looked at (a compacted topic) and the batch is large. For `offload`: it is CPU work.

Producer id, epoch, sequence, the transactional bit and every record's timestamp stay. Source: broker-spec 1.4 rows 18,
19 and 22, 1.5.
"""

from __future__ import annotations

from kraft.broker.replica.validate import OPENED_BYTES_MAX, BatchRules, needs_conversion
from kraft.seam import WireError
from kraft.wire.compression import Compression
from kraft.wire.error_codes import ErrorCode
from kraft.wire.record_codec import decode_batch, encode_batch
from kraft.wire.record_validation import BatchRefused, check_records, check_timestamps
from kraft.wire.records import BatchHeader, read_header

OPENED_AT_ONCE_BYTES_MAX = 16 * 1024
"""Compressed batches up to this size are opened on the loop."""
TIMESTAMP_MIN, TIMESTAMP_MAX = -(2**63), 2**63 - 1


def needs_opening(header: BatchHeader, rules: BatchRules) -> bool:
    """Its keys must be looked at, and that may take long."""
    return rules.compacted and header.codec != Compression.NONE and header.batch_length > OPENED_AT_ONCE_BYTES_MAX


def prepare_batch(
    data: bytes, header: BatchHeader, rules: BatchRules, now_ms: int
) -> tuple[memoryview, BatchHeader] | BatchRefused:
    """The batch to append, writable, and its header; or why it is refused after all. `now_ms` is wall clock.
    *Blocking.*"""
    if rules.compacted:
        refused = check_records(data, header, output_bytes_max=OPENED_BYTES_MAX, keys_required=True)
        if refused is not None:
            return refused
    if needs_conversion(header, rules):
        return _convert(data, header, rules, now_ms)
    return memoryview(bytearray(data)), header


def _convert(
    data: bytes, header: BatchHeader, rules: BatchRules, now_ms: int
) -> tuple[memoryview, BatchHeader] | BatchRefused:
    """The new header tells the records' own timestamps, so they are held to what the old one was held to."""
    codec = rules.codec
    assert codec is not None
    try:
        records = decode_batch(data, 0, output_bytes_max=OPENED_BYTES_MAX)
    except WireError as problem:
        return BatchRefused(ErrorCode.INVALID_RECORD, f"the records do not parse: {problem}")
    if len(records) != header.record_count:
        return BatchRefused(
            ErrorCode.INVALID_RECORD, f"the batch holds {len(records)} records, its header says {header.record_count}"
        )
    if not all(TIMESTAMP_MIN <= record.timestamp <= TIMESTAMP_MAX for record in records):
        return BatchRefused(ErrorCode.INVALID_RECORD, "a record's timestamp does not fit into 64 bits")
    if not rules.log_append_time:
        refused = check_timestamps(
            records, now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
        )
        if refused is not None:
            return refused
    converted = encode_batch(
        records,
        base_offset=0,
        compression=codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    if len(converted) > rules.max_message_bytes:
        return BatchRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(converted)} bytes as {codec.name.lower()}, max.message.bytes allows "
            f"{rules.max_message_bytes}",
        )
    view = memoryview(converted)
    return view, read_header(view)
