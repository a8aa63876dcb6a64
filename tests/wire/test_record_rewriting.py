"""Batches rewritten with fewer records: pykraft's reader and other libraries decode the same remaining records."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import WireError
from kraft.wire.records import BATCH_HEADER_BYTES, Record, check_crc, decode_batch, encode_batch, read_header
from kraft.wire.records.compression import Compression
from kraft.wire.records.rewriting import emptied, rewrite_batch, scan_batch, scan_records
from tests.wire.foreign import aiokafka
from tests.wire.strategies import records

NOW_MS = 1_750_000_000_000


def rewritten(batch: bytearray, keeps: list[bool], horizon_ms: int | None = None) -> bytearray:
    header = read_header(batch)
    left = iter(keeps)
    pieces = ((block, [place for place in places if next(left)]) for block, places in scan_batch(header, batch))
    steps = rewrite_batch(header, pieces, horizon_ms=horizon_ms)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: bytearray = end.value
            return result


@given(
    items=records(),
    draw=st.data(),
    codec=st.sampled_from(Compression),
    horizon_ms=st.none() | st.integers(0, 2**42),
    stamped=st.booleans(),
)
def test_a_rewritten_batch_keeps_records_unchanged_and_spans_the_same_offsets(
    items: list[Record], draw: st.DataObject, codec: Compression, horizon_ms: int | None, stamped: bool
) -> None:
    batch = encode_batch(
        items,
        compression=codec,
        producer_id=9,
        producer_epoch=3,
        base_sequence=70,
        transactional=True,
        leader_epoch=5,
        log_append_time_ms=NOW_MS if stamped else None,
    )
    before, old = decode_batch(batch), read_header(batch)
    keeps = draw.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)).filter(any))
    result = rewritten(batch, keeps, horizon_ms)
    new = read_header(result)
    kept = [record for record, keep in zip(before, keeps, strict=True) if keep]
    assert decode_batch(result) == kept
    assert check_crc(result, 0, new)
    assert new.record_count == len(kept)
    assert new.max_timestamp == (NOW_MS if stamped else max(record.timestamp for record in kept))
    assert new.has_delete_horizon == (horizon_ms is not None)
    assert new.base_timestamp == (old.base_timestamp if horizon_ms is None else horizon_ms)
    for field in ("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch"):
        assert getattr(new, field) == getattr(old, field)
    assert (new.last_sequence, new.is_transactional, new.codec) == (old.last_sequence, True, int(codec))


@given(items=records())
def test_a_batch_rewritten_with_all_its_records_is_unchanged(items: list[Record]) -> None:
    batch = encode_batch(items)
    assert rewritten(batch, [True] * len(items)) == batch


@given(items=records(), codec=st.sampled_from(Compression))
def test_an_emptied_batch_has_only_a_header(items: list[Record], codec: Compression) -> None:
    batch = encode_batch(items, compression=codec, producer_id=9, producer_epoch=3, base_sequence=2**31 - 1)
    old = read_header(batch)
    result = emptied(old)
    new = read_header(result)
    assert len(result) == BATCH_HEADER_BYTES
    assert decode_batch(result) == []
    assert check_crc(result, 0, new)
    assert (new.base_timestamp, new.record_count, new.codec) == (-1, 0, 0)
    assert new.max_timestamp == old.max_timestamp
    assert (new.base_offset, new.last_offset, new.last_sequence) == (
        old.base_offset,
        old.last_offset,
        old.last_sequence,
    )


@pytest.mark.parametrize("codec", list(Compression))
def test_aiokafka_reads_a_rewritten_batch(codec: Compression) -> None:
    items = [Record(0, NOW_MS + number, b"k%d" % number, b"v" * number) for number in range(6)]
    result = rewritten(encode_batch(items, compression=codec), [True, False, True, True, False, True], NOW_MS + 9)
    batch = aiokafka.record.memory_records.MemoryRecords(bytes(result)).next_batch()
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == decode_batch(result)


@given(items=records(), cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255))))
def test_scanning_a_truncated_or_changed_block_raises_only_wire_errors(
    items: list[Record], cut: int, flips: list[tuple[int, int]]
) -> None:
    batch = encode_batch(items)
    block = bytearray(batch[BATCH_HEADER_BYTES:])
    for at, mask in flips:
        block[at % len(block)] ^= mask
    try:
        places = scan_records(bytes(block[: max(1, len(block) - cut)]), len(items))
    except WireError:
        return
    assert len(places) == len(items)
    assert all(start < end <= len(block) for start, _, end, *_ in places)


@pytest.mark.parametrize("tail", [b"\0", b"\2\0"])
def test_scanning_a_batch_refuses_bytes_after_its_records(tail: bytes) -> None:
    batch = encode_batch([Record(0, NOW_MS, b"k", b"v")])
    with pytest.raises(WireError, match="left over"):
        scan_records(bytes(batch[BATCH_HEADER_BYTES:]) + tail, 1)


@given(records(), st.sampled_from(Compression), st.data())
def test_rewriting_damaged_records_raises_only_wire_errors(
    items: list[Record], codec: Compression, data: st.DataObject
) -> None:
    batch = encode_batch(items, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    with contextlib.suppress(WireError):
        places = [place for _, places in scan_batch(header, batch) for place in places]
        assert len(places) == len(items)


@pytest.mark.parametrize(
    ("base_timestamp", "horizon_ms"), [(2**63 - 1, None), (-(2**63), None), (-(2**63) + 5, NOW_MS)]
)
def test_rewriting_with_timestamps_beyond_64_bits_is_a_wire_error(base_timestamp: int, horizon_ms: int | None) -> None:
    batch = encode_batch([Record(0, 0, b"k", b"v"), Record(1, 1, b"k", b"v"), Record(2, -1, b"k", b"v")])
    header = read_header(batch)._replace(base_timestamp=base_timestamp)
    with pytest.raises(WireError, match="64 bits"):
        list(rewrite_batch(header, scan_batch(header, batch), horizon_ms=horizon_ms))
