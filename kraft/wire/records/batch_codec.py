"""Codec of a batch's records: encode a whole batch, decode one, and iterate over one without creating objects.

Invariants: a record's body consumes exactly its announced length, and the records consume exactly the block. Header
names are never null; bytes that are not UTF-8 are replaced. Every length is checked against the remaining bytes.
Decompression has an output limit.
Source: KIP-98, message format v2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from kraft.seam import Buffer, WireError, require
from kraft.wire.records.compression import Compression, compress, iter_decompressed
from kraft.wire.records.header import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    pack_header,
    read_header,
    write_crc,
)
from kraft.wire.varints import VARINT_BYTES_MAX, encode_unsigned, encode_zigzag, read_zigzag, read_zigzag_long

OUTPUT_BYTES_MAX = 256 * 1024 * 1024
"""Default limit of a batch's decompressed size."""

BLOCK_RECORDS_MAX = 256
"""Maximum records in a piece of `iter_blocks`; to process them all takes under a millisecond."""

NO_TIMESTAMP = -1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. `timestamp` in ms since 1970, -1 for none; `headers` in order, names may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordLike(Protocol):
    """The fields of a record that `encode_batch` needs."""

    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


def encode_batch(
    records: Iterable[RecordLike],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    offsets: Sequence[int] | None = None,
) -> bytearray:
    """Encode a batch of at least one record, with its CRC.

    `offsets`: the ascending offsets of the records, if there are gaps; by default consecutive from `base_offset`.
    `log_append_time_ms`: stamp the batch with this append time, which then applies to every record."""
    items = tuple(records)
    require(items, "a batch has at least one record")
    deltas = range(len(items)) if offsets is None else [offset - base_offset for offset in offsets]
    base_timestamp = items[0].timestamp
    parts: list[bytes] = []
    for delta, record in zip(deltas, items, strict=True):
        _append_record(parts, delta, record.timestamp - base_timestamp, record)
    block = b"".join(parts)
    if compression is not Compression.NONE:
        block = compress(compression, block, compression_level)
    max_timestamp = max(record.timestamp for record in items) if log_append_time_ms is None else log_append_time_ms
    attributes = int(compression)
    attributes |= ATTRIBUTE_TRANSACTIONAL if transactional else 0
    attributes |= ATTRIBUTE_CONTROL if control else 0
    attributes |= ATTRIBUTE_LOG_APPEND_TIME if log_append_time_ms is not None else 0
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES + len(block),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=deltas[-1],
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(items),
    )
    batch = bytearray(BATCH_HEADER_BYTES + len(block))
    pack_header(batch, 0, header)
    batch[BATCH_HEADER_BYTES:] = block
    write_crc(batch, 0)
    return batch


def _append_record(parts: list[bytes], offset_delta: int, timestamp_delta: int, record: RecordLike) -> None:
    key, value, headers = record.key, record.value, record.headers
    body = [b"\0", encode_zigzag(timestamp_delta), encode_zigzag(offset_delta)]
    body += (b"\1",) if key is None else (encode_unsigned(len(key) << 1), key)
    body += (b"\1",) if value is None else (encode_unsigned(len(value) << 1), value)
    body.append(encode_unsigned(len(headers) << 1))
    for name, content in headers:
        encoded = name.encode()
        body += encode_unsigned(len(encoded) << 1), encoded
        body += (b"\1",) if content is None else (encode_unsigned(len(content) << 1), content)
    encoded_body = b"".join(body)
    parts += encode_unsigned(len(encoded_body) << 1), encoded_body


def decode_batch(buffer: Buffer, position: int = 0, *, output_bytes_max: int = OUTPUT_BYTES_MAX) -> list[Record]:
    """Decode the records of the batch at `position`. Raises WireError if the batch is incomplete or does not parse. The
    CRC is not checked here (`check_crc`)."""
    return list(iter_batch(buffer, position, output_bytes_max=output_bytes_max))


def iter_batch(buffer: Buffer, position: int = 0, *, output_bytes_max: int = OUTPUT_BYTES_MAX) -> Iterator[Record]:
    """Decode lazily: the records are decompressed and decoded as they are requested, so that a batch of a million
    records needs little memory."""
    header = read_header(buffer, position)
    for block, count in iter_blocks(buffer, position, header, output_bytes_max=output_bytes_max):
        at = 0
        for _ in range(count):
            record, at = read_record(block, at, header)
            yield record
        if at != len(block):
            raise _trailing_bytes_error(len(block) - at, header)


def iter_blocks(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    output_bytes_max: int,
    records_max: int = BLOCK_RECORDS_MAX,
) -> Iterator[tuple[bytes, int]]:
    """Yield the decompressed records of the batch at `position` in pieces of whole records: a piece, and its number of
    records (at most `records_max`).

    The caller checks that these records fill the piece. Raises WireError if the batch is not exactly its pieces."""
    pieces = iter_opened(buffer, position, header, output_bytes_max=output_bytes_max)
    left, block, start = header.record_count, next(pieces, b""), 0
    if 0 < left <= records_max:
        following = next(pieces, None)
        if following is None:  # true for nearly all batches
            yield block, left
            return
        pieces = chain((following,), pieces)
    while left > 0:
        end, count, missing = _whole_records(block, start, min(left, records_max))
        if not count:
            if missing > output_bytes_max:
                raise WireError(f"a record announces {missing} bytes more, {output_bytes_max} may be opened")
            block, start = _with_more(block[start:], missing, pieces), 0
            continue
        yield (block if end - start == len(block) else block[start:end]), count
        left -= count
        start = end
    over = len(block) - start + len(next(filter(None, pieces), b""))
    if over:
        raise _trailing_bytes_error(over, header)


def _trailing_bytes_error(count: int, header: BatchHeader) -> WireError:
    return WireError(f"at least {count} bytes are left over after the {header.record_count} records of a batch")


def _whole_records(block: bytes, start: int, count_max: int) -> tuple[int, int, int]:
    """Return where the last whole record from `start` on ends, the number of whole records, and the minimum number of
    bytes that the next record lacks."""
    at, size = start, len(block)
    for count in range(count_max):
        if at + VARINT_BYTES_MAX > size and (at == size or block[size - 1] > 127):
            return at, count, 1
        length, body = read_zigzag(block, at)
        if length < 0:
            raise WireError(f"a record of {length} bytes is announced")
        if body + length > size:
            return at, count, body + length - size
        at = body + length
    return at, count_max, 0


def _with_more(rest: bytes, missing: int, pieces: Iterator[bytes]) -> bytes:
    """Append at least `missing` bytes to `rest`."""
    parts = [rest]
    while missing > 0:
        piece = next(pieces, None)
        if piece is None:
            rest = b"".join(parts)
            length, body = read_zigzag(rest, 0)
            raise WireError(f"a record of {length} bytes is announced, {len(rest) - body} are left")
        parts.append(piece)
        missing -= len(piece)
    return b"".join(parts)


def open_records(buffer: Buffer, position: int, header: BatchHeader, *, output_bytes_max: int) -> bytes:
    """Return the decompressed records of the batch at `position` as one block."""
    return b"".join(iter_opened(buffer, position, header, output_bytes_max=output_bytes_max))


def iter_opened(buffer: Buffer, position: int, header: BatchHeader, *, output_bytes_max: int) -> Iterator[bytes]:
    """Yield the decompressed records of the batch at `position`, piece by piece (`iter_decompressed`)."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise WireError(
            f"the batch at byte {position} needs {header.size_bytes} bytes, {len(buffer) - position} are left"
        )
    with memoryview(buffer) as view, view[position + BATCH_HEADER_BYTES : end] as block:
        yield from iter_decompressed(header.compression, block, output_bytes_max=output_bytes_max)


def read_record(block: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    """Return the record at `at` of a batch's decompressed block, and the position of the next one. Raises WireError if
    it does not parse."""
    length, at = read_zigzag(block, at)
    end = at + length
    if length < 0 or end > len(block):
        raise WireError(f"a record of {length} bytes is announced, {len(block) - at} are left")
    # the attributes byte has no meaning in this version
    timestamp_delta, at = read_zigzag_long(block, at + 1)
    offset_delta, at = read_zigzag(block, at)
    key, at = _read_nullable(block, at, end)
    value, at = _read_nullable(block, at, end)
    count, at = read_zigzag(block, at)
    if not 0 <= count <= end - at:
        raise WireError(f"a record announces {count} headers in {end - at} bytes")
    headers: Headers = ()
    if count:
        headers, at = _read_headers(block, at, end, count)
    if at != end:
        raise WireError(f"a record of {length} bytes has a body that ends {end - at} bytes before its end")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_nullable(block: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = read_zigzag(block, at)
    if size < 0:
        return None, at
    stop = at + size
    if stop > end:
        raise WireError(f"{size} bytes are announced in a record that has {end - at} left")
    return block[at:stop], stop


def _read_headers(block: bytes, at: int, end: int, count: int) -> tuple[Headers, int]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw, at = _read_nullable(block, at, end)
        if raw is None:
            raise WireError("a record header has no name")
        value, at = _read_nullable(block, at, end)
        headers.append((raw.decode(errors="replace"), value))
    return tuple(headers), at
