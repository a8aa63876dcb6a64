"""Walk over the records of one decompressed batch, and check that they are what its header announces.

This is the only module that is compiled (`hatch_build.py`) where a C compiler is available, because it runs once for
each record that a producer sends. Interpreted, the same source gives the same results a hundred times slower. It
imports nothing of pykraft, so that it can be compiled alone. It avoids the code forms that the compiler is known to get
wrong; `tests/wire/test_compiled_forms.py` lists them.

Invariants: nothing of a record is kept. Every length is checked against the remaining bytes, so no number in the block
makes the walk go past its end. A value is held in 64 bits, and no sum exceeds them. Source: KIP-98, message format v2;
Kafka's DefaultRecord.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

RECORD_ERRORS_MAX: Final = 1_000
"""Maximum indexes that a walk returns, of records without a key and of records outside the time bounds."""
HEADERS_MAX: Final = 1_000_000
"""Maximum headers of all records of a batch. A header can be as short as two bytes but takes as much time to check as a
record. No other thread runs during the compiled walk, which takes some milliseconds for this many."""

_LARGEST: Final[i64] = 0x7FFF_FFFF_FFFF_FFFF
_UNSIGNED_32_BITS_MAX: Final[i64] = 0xFFFF_FFFF
_LAST_SHIFT_OF_32_BITS: Final[i64] = 28
_LAST_SHIFT_OF_64_BITS: Final[i64] = 63


def walk_records(
    block: bytes,
    count: i64,
    earliest: i64,
    latest: i64,
    exempt: i64,
    keys_required: bool,
    headers_max: i64 = HEADERS_MAX,
) -> tuple[i64, i64, list[int], list[tuple[int, int]]]:
    """Check that `block` is exactly `count` (at least one) whole records with the offset deltas 0, 1, 2, …

    `earliest`, `latest`: the bounds of the records' timestamp deltas in ms. `exempt`: the delta that may be outside
    them. Return the least and the greatest timestamp delta, the indexes of the records without a key (if
    `keys_required`), and (index, delta) of records outside the bounds; at most `RECORD_ERRORS_MAX` of each. ValueError:
    the block is something else. OverflowError: its records have more than `headers_max` headers."""
    least: i64 = _LARGEST
    greatest: i64 = -_LARGEST - 1
    keyless: list[int] = []
    untimely: list[tuple[int, int]] = []
    at: i64 = 0
    index: i64 = 0
    headers: i64 = 0
    try:
        while index < count:
            at, delta, has_key, of_record = _walk_record(block, at, index, headers_max - headers)
            headers += of_record
            if delta > greatest:
                greatest = delta
            if delta < least:
                least = delta
            if keys_required and not has_key:
                if len(keyless) < RECORD_ERRORS_MAX:
                    keyless.append(index)
            elif (delta < earliest or delta > latest) and delta != exempt and len(untimely) < RECORD_ERRORS_MAX:
                untimely.append((index, delta))
            index += 1
    except IndexError:
        raise ValueError(f"record {index} of {count} runs past the end of the batch") from None
    if at != len(block):
        raise ValueError(f"{len(block) - at} bytes are left over after the {count} records of the batch")
    return least, greatest, keyless, untimely


def _walk_record(block: bytes, at: i64, index: i64, headers_max: i64) -> tuple[i64, i64, bool, i64]:
    """Return (end, timestamp delta, whether it has a key, headers) of the record at `at`. IndexError: it extends past
    the block."""
    # integers of one byte are by far the most frequent: no call for them
    byte: i64 = block[at]
    length, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varint(block, at)
    end: i64 = at + length
    if length < 0 or end > len(block):
        raise ValueError(f"record {index} announces {length} bytes, {len(block) - at} are left")
    at += 1  # the attributes byte has no meaning in this version
    byte = block[at]
    timestamp_delta, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varlong(block, at)
    byte = block[at]
    offset_delta, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varint(block, at)
    byte = block[at]
    key_bytes, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varint(block, at)
    if key_bytes > 0:
        at += key_bytes
    byte = block[at]
    value_bytes, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varint(block, at)
    if value_bytes > 0:
        at += value_bytes
    byte = block[at]
    headers, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varint(block, at)
    if headers != 0:
        at = _walk_headers(block, at, end, headers, index, headers_max)
    if at != end:
        raise ValueError(f"record {index} announces {length} bytes, its fields have {at - end + length}")
    if offset_delta != index:
        raise ValueError(f"record {index} has offset delta {offset_delta}")
    return end, timestamp_delta, key_bytes >= 0, headers


def _walk_headers(block: bytes, at: i64, end: i64, count: i64, index: i64, most: i64) -> i64:
    if count < 0 or count > end - at:
        raise ValueError(f"record {index} announces {count} headers in {end - at} bytes")
    if count > most:
        raise OverflowError(f"the {count} headers of record {index} are more than the {most} left to the batch")
    left: i64 = count
    while left > 0:
        left -= 1
        byte: i64 = block[at]
        name_bytes, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varint(block, at)
        if name_bytes < 0:
            raise ValueError(f"a header of record {index} has no name")
        at += name_bytes
        byte = block[at]
        value_bytes, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 128 else _read_varint(block, at)
        if value_bytes > 0:
            at += value_bytes
    return at


def _read_varint(block: bytes, at: i64) -> tuple[i64, i64]:
    """Return (value, next position) of a zig-zag integer of 32 bits."""
    byte: i64 = block[at]
    at += 1
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), at
    value: i64 = byte & 127
    shift: i64 = 7
    while True:
        byte = block[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128 and value <= _UNSIGNED_32_BITS_MAX:
            return value >> 1 ^ -(value & 1), at
        if shift == _LAST_SHIFT_OF_32_BITS:
            raise ValueError(f"the variable-length integer before byte {at} of the records is too long")
        shift += 7


def _read_varlong(block: bytes, at: i64) -> tuple[i64, i64]:
    """Return (value, next position) of a zig-zag integer of 64 bits."""
    byte: i64 = block[at]
    at += 1
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), at
    value: i64 = byte & 127
    shift: i64 = 7
    while True:
        byte = block[at]
        at += 1
        if shift == _LAST_SHIFT_OF_64_BITS and byte > 1:
            raise ValueError(f"the variable-length integer before byte {at} of the records is too long")
        value |= (byte & 127) << shift
        if byte < 128:
            # where a value has only 64 bits, the mask makes this an unsigned shift
            return value >> 1 & _LARGEST ^ -(value & 1), at
        shift += 7
