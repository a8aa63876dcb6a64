"""A batch in the codec that its topic asks for (compression.type other than producer). For `offload`: it is CPU work.

Producer id, epoch, sequence, the transactional bit and every record's timestamp stay. Source: broker-spec 1.5.
"""

from __future__ import annotations

from kraft.broker.replica.validate import OPENED_BYTES_MAX, BatchRules
from kraft.seam import WireError, require
from kraft.wire.error_codes import ErrorCode
from kraft.wire.record_codec import decode_batch, encode_batch
from kraft.wire.record_validation import BatchRefused
from kraft.wire.records import BatchHeader, read_header


def recompress(data: bytes, header: BatchHeader, rules: BatchRules) -> tuple[memoryview, BatchHeader] | BatchRefused:
    """The converted batch, writable, and its header; or why the original is refused after all (rows 18 and 22)."""
    codec = rules.codec
    require(codec is not None, "a topic with compression.type=producer converts nothing")
    assert codec is not None
    try:
        records = decode_batch(data, 0, output_bytes_max=OPENED_BYTES_MAX)
    except WireError as problem:
        return BatchRefused(ErrorCode.INVALID_RECORD, f"the records do not parse: {problem}")
    if len(records) != header.record_count:
        return BatchRefused(ErrorCode.INVALID_RECORD, f"{len(records)} records, the header says {header.record_count}")
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
