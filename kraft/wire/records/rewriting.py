"""Rewriting a batch with fewer records, as compaction does, or in another codec. Offsets, timestamps and the producer's
fields are kept.

Invariants: a record's bytes are copied, not decoded and encoded again. Only a new delete horizon, which replaces the
base timestamp, changes the timestamp deltas. The batch spans the same offsets as before.
Source: KIP-98, message format v2, KIP-534 (delete horizon).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from kraft.seam import Buffer, WireError, require
from kraft.wire.records.batch_codec import NO_TIMESTAMP, iter_blocks
from kraft.wire.records.compression import Compression, compress
from kraft.wire.records.header import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    BatchHeader,
    pack_header,
    write_crc,
)
from kraft.wire.varints import encode_unsigned, encode_zigzag, read_zigzag, read_zigzag_long

RecordPlace = tuple[int, int, int, int, int, bytes | None, bool]
"""Position of a record in its batch's block, and the fields that compaction needs: start, start of its offset delta,
end, timestamp delta, offset delta, key, whether it has a value."""


TIMESTAMP_DELTA_MIN = -(2**63)
OPENED_BYTES_MAX = 128 * 1024 * 1024
"""Limit of the decompressed size of a compacted batch. It is decompressed in small pieces, but the records kept are in
memory at once."""


def scan_batch(header: BatchHeader, batch: Buffer) -> Iterator[tuple[bytes, list[RecordPlace]]]:
    """Yield the records of a batch, which is the whole of `batch`, piece by piece: the piece, and the places of its
    records. Raises WireError if they do not parse."""
    for block, count in iter_blocks(batch, 0, header, output_bytes_max=OPENED_BYTES_MAX):
        yield block, scan_records(block, count)


def scan_records(block: bytes, count: int) -> list[RecordPlace]:
    """Return the places of a batch's records in its decompressed block. Raises WireError if they do not parse."""
    places: list[RecordPlace] = []
    at, size = 0, len(block)
    try:
        for _ in range(count):
            start = at
            byte = block[at]  # varints of one byte are by far the most frequent: no call for them
            length, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_zigzag(block, at)
            end = at + length
            if length < 0 or end > size:
                raise WireError(f"a record of {length} bytes is announced, {size - at} are left")
            at += 1  # the attributes byte has no meaning in this version
            byte = block[at]
            timestamp, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_zigzag_long(block, at)
            rest = at
            byte = block[at]
            offset, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_zigzag(block, at)
            byte = block[at]
            key_size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else read_zigzag(block, at)
            key = None if key_size < 0 else block[at : at + key_size]
            at += max(key_size, 0)
            if at >= end:
                raise WireError(f"a record of {length} bytes has no room for its value")
            places.append((start, rest, end, timestamp, offset, key, not block[at] & 1))
            at = end
    except IndexError:
        raise WireError(f"the records of a batch run past its {size} bytes") from None
    if at != size:
        raise WireError(f"{size - at} bytes are left over after the {count} records of a batch")
    return places


def rewrite_batch(
    header: BatchHeader, pieces: Iterable[tuple[bytes, list[RecordPlace]]], *, horizon_ms: int | None
) -> Generator[None, None, bytearray]:
    """Rewrite a batch with only the records (at least one) of `pieces`, one step for each piece.

    `pieces` come from `scan_batch`, without the records to remove. `horizon_ms`: stamp this delete horizon. Raises
    WireError: a record's timestamp does not fit into 64 bits."""
    base_timestamp, attributes = header.base_timestamp, header.attributes
    records, count, latest_delta = bytearray(), 0, TIMESTAMP_DELTA_MIN
    for number, (block, kept) in enumerate(pieces):
        if number:
            yield
        if not kept:
            continue
        deltas = [place[3] for place in kept]
        if base_timestamp + max(deltas) >= 1 << 63 or base_timestamp + min(deltas) - (horizon_ms or 0) < -1 << 63:
            raise WireError("a record's timestamp does not fit into 64 bits")
        if horizon_ms is None:
            records += b"".join([block[place[0] : place[2]] for place in kept])
        else:
            shift = base_timestamp - horizon_ms
            records += b"".join([_rebased(block, place, shift) for place in kept])
        latest_delta = max(latest_delta, *deltas)
        count += len(kept)
    require(count, "a batch has at least one record")
    latest = header.max_timestamp if attributes & ATTRIBUTE_LOG_APPEND_TIME else base_timestamp + latest_delta
    if horizon_ms is not None:
        base_timestamp, attributes = horizon_ms, attributes | ATTRIBUTE_DELETE_HORIZON
    return _assemble(
        header._replace(attributes=attributes, base_timestamp=base_timestamp, max_timestamp=latest, record_count=count),
        compress(header.compression, records),
    )


def emptied(header: BatchHeader) -> bytearray:
    """Return the batch without its records: it still spans their offsets and has its producer's sequence."""
    kept = ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL
    header = header._replace(attributes=header.attributes & kept, base_timestamp=NO_TIMESTAMP, record_count=0)
    return _assemble(header, b"")


def recompressed(header: BatchHeader, block: bytes, codec: Compression) -> bytearray:
    """Return the batch with its decompressed records `block` in another codec."""
    attributes = header.attributes & ~ATTRIBUTE_CODEC_MASK | codec
    return _assemble(header._replace(attributes=attributes), compress(codec, block))


def _rebased(block: bytes, place: RecordPlace, shift: int) -> bytes:
    """Return a record with its timestamp relative to another base."""
    body = b"\0" + encode_zigzag(place[3] + shift) + block[place[1] : place[2]]
    return encode_unsigned(len(body) << 1) + body


def _assemble(header: BatchHeader, block: Buffer) -> bytearray:
    batch = bytearray(BATCH_HEADER_BYTES + len(block))
    pack_header(batch, 0, header._replace(batch_length=len(batch) - BATCH_PREFIX_BYTES))
    batch[BATCH_HEADER_BYTES:] = block
    write_crc(batch, 0)
    return batch
