"""Lookups by timestamp compared with a simple reference implementation."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.seam import StorageCorrupt
from kraft.storage.handles import SegmentGone
from kraft.storage.log import Log, LogConfig
from kraft.storage.reading import LookupSteps
from kraft.storage.segment import Segment
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.records import BATCH_HEADER_BYTES, Compression, Record, encode_batch, write_crc
from kraft.wire.records.batch_codec import BLOCK_RECORDS_MAX
from tests.stages.batches import LOG, NOW_MS, batch, delete, lead, looked_up, open_log
from tests.stages.machine import Machine


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_lookup_by_time_finds_the_first_record_at_or_after_the_timestamp(seed: int) -> None:
    draw = random.Random(seed)
    machine = Machine(seed, cold_read_one_in=5)
    log = open_log(machine, LogConfig(segment_bytes=500, index_interval_bytes=100, segment_ms=1 << 60))
    records: list[tuple[int, int, int]] = []
    for epoch in range(25):
        stamps = [draw.randint(0, 100) for _ in range(draw.randint(1, 4))]
        compression = draw.choice([Compression.NONE, Compression.GZIP])
        data = encode_batch([Record(0, stamp, None, b"value") for stamp in stamps], compression=compression)
        base = lead(log, data, epoch).base_offset
        records += [(stamp, base + number, epoch) for number, stamp in enumerate(stamps)]
    if draw.random() < 0.5:
        log.close(clean=True)
        log = open_log(machine, log.config, clean=True)
    start = draw.randint(0, log.log_end_offset)
    log.advance_log_start(start)
    live = [record for record in records if record[1] >= start]
    for timestamp in range(0, 103, 3):
        expected = next((record for record in live if record[0] >= timestamp), None)
        assert looked_up(log.offset_for_timestamp(timestamp)) == expected


def test_max_timestamp_lookup_finds_the_first_record_with_the_largest_timestamp() -> None:
    log = open_log(Machine(), LogConfig(segment_bytes=200, segment_ms=1 << 60))
    for timestamp in (5, 90, 90, 7):
        lead(log, batch(2, timestamp=timestamp))
    assert looked_up(log.max_timestamp_offset()) == (90, 2, 0)


def test_the_max_timestamp_lookup_in_an_empty_log_finds_none() -> None:
    log = open_log(Machine())
    assert looked_up(log.max_timestamp_offset()) is None
    assert looked_up(log.offset_for_timestamp(0)) is None


def test_lookups_by_time_use_the_append_time_for_all_records_in_a_log_append_time_topic() -> None:
    log = open_log(Machine(), LogConfig(log_append_time=True))
    lead(log, batch(3, timestamp=1), now_ms=NOW_MS)
    lead(log, batch(3, timestamp=NOW_MS * 2), now_ms=NOW_MS + 5)
    assert looked_up(log.offset_for_timestamp(NOW_MS + 1)) == (NOW_MS + 5, 3, 0)
    assert looked_up(log.max_timestamp_offset()) == (NOW_MS + 5, 3, 0)


class DisappearingSegments(list[Segment]):
    """Segments that are removed from their log when a lookup begins to read them."""

    def __init__(self, log: Log, present: list[Segment]) -> None:
        super().__init__(log.segments)
        self.leave = lambda: setattr(log, "segments", present)

    def __iter__(self) -> Iterator[Segment]:
        self.leave()
        return super().__iter__()


def test_a_lookup_by_time_is_repeated_if_its_segments_are_removed() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=200, segment_ms=1 << 60))
    for timestamp in range(12):
        lead(log, batch(1, timestamp=timestamp))
    log.update_high_watermark(12)
    before = log.segments
    log.advance_log_start(before[3].base_offset)
    delete(machine, log.delete_segments(log.deletable_segments(0), 0))
    present, log.segments = log.segments, before
    log.segments = DisappearingSegments(log, present)
    found = looked_up(log.offset_for_timestamp(0))
    assert found is not None
    assert found.offset == before[3].base_offset


def test_lookup_by_time_in_a_deleted_log_raises_segment_gone() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=200, segment_ms=1 << 60))
    for timestamp in range(12):
        lead(log, batch(1, timestamp=timestamp))
    log.release()
    machine.disk.remove_tree(LOG)
    with pytest.raises(SegmentGone):
        looked_up(log.offset_for_timestamp(0))


def test_a_lookup_by_time_reports_a_batch_changed_on_the_device_as_damage() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=1 << 20, segment_ms=1 << 60))
    for timestamp in (5, 90):
        lead(log, batch(2, timestamp=timestamp))
    path = f"{LOG}/{0:020d}.log"
    data = bytearray(machine.content(path))
    data[len(data) // 2 + BATCH_HEADER_BYTES + 2] ^= 8
    machine.overwrite(path, bytes(data))
    assert looked_up(log.offset_for_timestamp(3)) == (5, 0, 0)
    with pytest.raises(StorageCorrupt, match=rf"{path}: the batch at byte {len(data) // 2} is damaged: .* fit its CRC"):
        looked_up(log.offset_for_timestamp(50))


def test_the_max_timestamp_lookup_ignores_records_below_a_log_start_inside_a_batch() -> None:
    log = open_log(Machine())
    lead(log, encode_batch([Record(0, stamp, None, b"v") for stamp in (90, 20, 40, 40)]))
    lead(log, batch(1, timestamp=30))
    for start, expected in ((0, (90, 0, 0)), (1, (40, 2, 0)), (3, (40, 3, 0)), (4, (30, 4, 0))):
        log.advance_log_start(start)
        assert looked_up(log.max_timestamp_offset()) == expected
    log.advance_log_start(5)
    assert looked_up(log.max_timestamp_offset()) is None


def test_the_max_timestamp_lookup_of_records_without_timestamp_finds_the_first_record() -> None:
    log = open_log(Machine())
    lead(log, batch(3, timestamp=-1))
    assert looked_up(log.max_timestamp_offset()) == (-1, 0, 0)


def test_a_lookup_by_time_in_a_large_batch_takes_short_steps_and_little_memory() -> None:
    log = open_log(Machine(), LogConfig(segment_ms=1 << 60))
    count = 20_000
    lead(log, encode_batch([Record(0, 1, None, bytes(500))] * count, compression=Compression.ZSTD))
    tracemalloc.start()
    try:
        assert sum(1 for _ in log.offset_for_timestamp(1)) == 0
        assert sum(1 for _ in _largest_in_whole_log(log)) >= count // BLOCK_RECORDS_MAX
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 << 20


def _largest_in_whole_log(log: Log) -> LookupSteps:
    """Return a lookup that must examine every record of the log's only batch."""
    log.advance_log_start(1)
    log.segments[0].max_timestamp = 2
    return log.max_timestamp_offset()


def test_a_lookup_by_time_reports_an_unreadable_batch_by_offset_and_not_as_damage() -> None:
    log = open_log(Machine())
    lead(log, batch(2, timestamp=5))
    data = batch(1, timestamp=90)
    data[BATCH_HEADER_BYTES] = 0x7F
    write_crc(data, 0)
    lead(log, data)
    with pytest.raises(
        UnreadableBatch, match=rf"{LOG}/.*: the records of the batch at offset 2 do not parse"
    ) as caught:
        looked_up(log.offset_for_timestamp(50))
    assert caught.value.offset == 2
