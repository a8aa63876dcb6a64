"""Turn a produced batch into the batch to append: check its records, correct its latest timestamp, convert its codec.

Invariants: a compressed batch is decompressed up to a limit, and on the event loop only if that is quick. The bytes of
its records are never changed, even if the codec is. Producer id, epoch, sequence and the transactional bit are kept
too.
Source: docs/produce-checks.md, Kafka's LogValidator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraft.broker.replica.validate import (
    OPENED_BYTES_MAX,
    BatchRules,
    check_batch,
    check_block,
    check_size,
    needs_conversion,
)
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_HEADER_BYTES,
    BatchHeader,
    patch_create_time,
    read_header,
)
from kraft.wire.records.batch_codec import open_records
from kraft.wire.records.compression import OpensTooLarge
from kraft.wire.records.rewriting import recompressed
from kraft.wire.records.validation import WALK_IS_COMPILED, BatchRefused

if TYPE_CHECKING:
    import trio

    from kraft.broker.serving.loop import Loop
    from kraft.wire.budget import MemoryBudget

AT_ONCE_BYTES_MAX = (
    (4096 * 1024, 16 * 1024, 16 * 1024, 1024 * 1024, 512 * 1024)
    if WALK_IS_COMPILED
    else (64 * 1024, 16 * 1024, 16 * 1024, 64 * 1024, 64 * 1024)
)
"""By codec (none, gzip, snappy, lz4, zstd), maximum bytes of a batch that is decompressed on the event loop.
Decompression usually takes 0.3 ms, and some milliseconds at worst (thousands of tiny gzip members or snappy blocks)."""
OPENED_AT_ONCE_BYTES_MAX = (1024 if WALK_IS_COMPILED else 64) * 1024
"""Maximum bytes after decompression of a batch that is decompressed on the event loop."""
RECORDS_AT_ONCE_MAX = 100_000 if WALK_IS_COMPILED else 2_000
"""Maximum number of records in a batch that is checked on the event loop; checking this many takes two milliseconds."""
HEADERS_AT_ONCE_MAX = 100_000 if WALK_IS_COMPILED else 2_000
"""Maximum number of record headers in a batch that is checked on the event loop."""
TURN_BYTES = (64 * 1024, 1024, 1024, 64 * 1024, 64 * 1024)
"""By codec, number of batch bytes that cost at worst about as much as a plain request."""
TURN_COST_OF_OPENING = 4
"""Added cost of a compressed batch, in plain requests, because it may decompress to much more."""
USUAL_EXPANSION = 16
LARGE_EXPANSION_MAX = 4
"""Maximum ratio of decompressed to compressed size for topics with large batches. For such topics, `OPENED_BYTES_MAX`
alone would reject batches that compression hardly shrinks."""
OPENED_USUALLY_BYTES_MIN = 1024 * 1024

Prepared = tuple[memoryview, BatchHeader]


def takes_long(header: BatchHeader) -> bool:
    """Return whether the batch's records take too long to be checked on the event loop. Its codec must be valid
    (`check_batch`)."""
    at_once_bytes_max = AT_ONCE_BYTES_MAX[header.attributes & ATTRIBUTE_CODEC_MASK]
    return header.record_count > RECORDS_AT_ONCE_MAX or header.size_bytes > at_once_bytes_max


def turn_cost(header: BatchHeader) -> int:
    """Return the worst-case cost of preparing the batch on the event loop, in the unit of a connection's turn (a plain
    request)."""
    codec = header.attributes & ATTRIBUTE_CODEC_MASK
    return header.size_bytes // TURN_BYTES[codec] + (TURN_COST_OF_OPENING if codec else 0)


def prepare_at_once(
    data: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int
) -> BatchHeader | BatchRefused | None:
    """Check a batch whose codec does not change, and correct its header in place. Return the new header, or the reason
    to reject the batch. Return None if checking its records takes too long; then `prepare_batch` does it. `now_ms` is
    wall clock."""
    refused = check_batch(data, header, rules)
    if refused is not None:
        return refused
    if takes_long(header):
        return None
    if not header.attributes & ATTRIBUTE_CODEC_MASK:
        block = bytes(data[BATCH_HEADER_BYTES:])
    else:
        try:
            block = open_records(data, 0, header, output_bytes_max=OPENED_AT_ONCE_BYTES_MAX)
        except OpensTooLarge:
            return None
        except WireError as damage:
            return BatchRefused(ErrorCode.INVALID_RECORD, str(damage))
    newest = check_block(block, header, rules, now_ms, HEADERS_AT_ONCE_MAX)
    if isinstance(newest, BatchRefused):
        return None if newest.error is ErrorCode.MESSAGE_TOO_LARGE else newest
    return _corrected(data, header, rules, newest)


async def open_off_the_loop(
    loop: Loop,
    openings: trio.CapacityLimiter,
    memory: MemoryBudget,
    source: bytes,
    header: BatchHeader,
    rules: BatchRules,
) -> Prepared | BatchRefused:
    """Call `prepare_batch` in a thread, first with a size limit that usually suffices, then with the largest limit. The
    decompressed size counts against the memory budget."""
    refusal: BatchRefused | None = None
    async with openings:
        for bound in _opened_bytes_bounds(header):
            memory.take(bound)
            try:
                return await loop.disk.offload(prepare_batch, source, header, rules, loop.clock.wall_ms(), bound)
            except OpensTooLarge as problem:
                refusal = BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, f"{problem}: send smaller batches")
            finally:
                memory.give(bound)
    assert refusal is not None
    return refusal


def prepare_batch(
    source: bytes, header: BatchHeader, rules: BatchRules, now_ms: int, opened_bytes_max: int
) -> Prepared | BatchRefused:
    """Return the batch to append, writable, and its header, or the reason to reject the batch. Raises OpensTooLarge if
    the next larger limit must be tried. `check_batch` has checked the header before. `now_ms` is wall clock.
    *Blocking.*"""
    try:
        block = open_records(source, 0, header, output_bytes_max=opened_bytes_max)
    except OpensTooLarge:
        raise
    except WireError as damage:
        return BatchRefused(ErrorCode.INVALID_RECORD, str(damage))
    newest = check_block(block, header, rules, now_ms)
    if isinstance(newest, BatchRefused):
        return newest
    batch = bytearray(source)
    if needs_conversion(header, rules):
        assert rules.codec is not None
        batch = recompressed(header, block, rules.codec)
        refused = _check_converted(batch, rules)
        if refused is not None:
            return refused
    data = memoryview(batch)
    return data, _corrected(data, read_header(data), rules, newest)


def _opened_bytes_bounds(header: BatchHeader) -> Iterator[int]:
    if not header.attributes & ATTRIBUTE_CODEC_MASK:
        yield header.size_bytes
        return
    usual = max(OPENED_USUALLY_BYTES_MIN, USUAL_EXPANSION * header.size_bytes)
    largest = max(OPENED_BYTES_MAX, LARGE_EXPANSION_MAX * header.size_bytes)
    if usual < largest:
        yield usual
    yield largest


def _corrected(data: memoryview, header: BatchHeader, rules: BatchRules, newest: int) -> BatchHeader:
    """Return the header with the records' latest timestamp and the timestamp type CreateTime. With LogAppendTime, the
    log replaces both when it appends the batch."""
    is_stamped = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
    if (newest == header.max_timestamp and not is_stamped) or rules.log_append_time:
        return header
    patch_create_time(data, 0, newest)
    return read_header(data)


def _check_converted(batch: bytearray, rules: BatchRules) -> BatchRefused | None:
    """Return the reason to reject a recompressed batch that is larger than max.message.bytes or segment.bytes; None if
    it is small enough."""
    header = read_header(batch)
    if len(batch) > rules.max_message_bytes:
        return BatchRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(batch)} bytes as {header.compression.name.lower()}, max.message.bytes allows "
            f"{rules.max_message_bytes}",
        )
    return check_size(header, rules)
