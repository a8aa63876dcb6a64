"""Batches of records that only have a value, as those of the metadata log: values in, values out.

The records of one event each for ten thousand partitions differ only in their number and value, and have one size.
Their common parts are written, and checked, for many records at once. A batch is never half appended, so it is written
and read in one step of the loop. Source: message format v2.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.seam import Buffer, WireError, require
from kraft.wire.records.batch_codec import OUTPUT_BYTES_MAX, open_records, read_record
from kraft.wire.records.header import (
    BATCH_HEADER_BYTES,
    BATCH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    pack_header,
    read_header,
    write_crc,
)
from kraft.wire.varints import encode_unsigned, read_unsigned

RUN_RECORDS_MAX = 256
"""Maximum records compared at once, so that a difference costs one comparison of this many records, not of all that
follow."""
_HIGH, _LOW = bytes(range(128, 256)), bytes(range(128))


def encode_values(values: Sequence[bytes], *, timestamp_ms: int, base_offset: int, leader_epoch: int) -> bytearray:
    """Encode records that have a value, a common time, and neither key nor header. Many times as fast as
    `encode_batch`."""
    require(values, "a batch has at least one record")
    parts: list[bytes] = []
    known: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for delta, value in enumerate(values):
        doubled = delta << 1
        if doubled < 128 or doubled >= 1 << 14:
            number = encode_unsigned(doubled)
        else:
            number = bytes((doubled & 127 | 128, doubled >> 7))
        shape = len(value), len(number)
        head = known.get(shape)
        if head is None:
            size = encode_unsigned(len(value) << 1)
            length = 2 + len(number) + 1 + len(size) + len(value) + 1
            head = known[shape] = encode_unsigned(length << 1) + b"\0\0", b"\1" + size
        parts += head[0], number, head[1], value, b"\0"
    block = b"".join(parts)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=BATCH_HEADER_BYTES - BATCH_PREFIX_BYTES + len(block),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=len(values) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=len(values),
    )
    batch = bytearray(BATCH_HEADER_BYTES + len(block))
    pack_header(batch, 0, header)
    batch[BATCH_HEADER_BYTES:] = block
    write_crc(batch, 0)
    return batch


def decode_values(buffer: Buffer, position: int = 0, *, output_bytes_max: int = OUTPUT_BYTES_MAX) -> list[bytes]:
    """Return only the values of the batch at `position`, b"" for null. As `decode_batch`, but many times as fast for
    records of one time without key and header, as those of the metadata log."""
    header = read_header(buffer, position)
    block = open_records(buffer, position, header, output_bytes_max=output_bytes_max)
    values: list[bytes] = []
    at = stride = 0
    try:
        while len(values) < header.record_count:
            # Lengths are zig-zag numbers of at most two bytes in most records: these are read inline instead of by a
            # call.
            length, start = block[at], at + 1
            if length >= 128:
                length, start = length & 127 | block[start] << 7, at + 2
                if length >= 1 << 14:
                    length, start = read_unsigned(block, at)
            end = start + (length >> 1)
            place = start + 2  # after the attributes and the time: one byte if the difference is 0
            while block[place] & 0x80:
                place += 1
            place += 1
            size, value = block[place + 1], place + 2
            if size >= 128:
                size, value = size & 127 | block[value] << 7, place + 3
                if size >= 1 << 14:
                    size, value = read_unsigned(block, place + 1)
            is_plain = block[start + 1] == 0 and block[place] == 1 and not (length | size) & 1
            if is_plain and value + (size >> 1) + 1 == end:
                if block[end - 1]:
                    raise WireError(f"a record announces {block[end - 1] >> 1} headers in 0 bytes")
                values.append(block[value : end - 1])
                last, stride = stride, end - at
                if stride == last:
                    same = (*range(at, start), start + 1, *range(place, value), end - 1)
                    numbers = range(start + 2, place)
                    left = header.record_count - len(values)
                    count = _alike(block, at, end, same, numbers, left)
                    first, behind = value + stride, end + count * stride
                    size >>= 1
                    values += [block[found : found + size] for found in range(first, behind, stride)]
                    end = behind
                at = end
            else:
                record, at = read_record(block, at, header)
                values.append(record.value or b"")
    except IndexError:
        raise WireError(f"the records of a batch end after {len(values)} of {header.record_count}") from None
    if at != len(block):
        raise WireError(f"{len(block) - at} bytes are left over after the {header.record_count} records of a batch")
    return values


def _alike(block: bytes, at: int, end: int, same: Sequence[int], numbers: Sequence[int], left: int) -> int:
    """Return how many of the next `left` records have the shape of the record in `block[at:end]`: the same size, the
    same bytes at the places `same`, and a number that ends at the same place (`numbers`)."""
    stride = end - at
    count = min(left, RUN_RECORDS_MAX, (len(block) - end) // stride)
    for places, alike in ((same, None), (numbers, (_LOW, _HIGH))):
        for place in places:
            column = block[place + stride : end + count * stride : stride]
            byte = block[place]
            wanted = bytes((byte,)) if alike is None else alike[byte >> 7]
            count -= len(column.lstrip(wanted))
            if not count:
                return 0
    return count
