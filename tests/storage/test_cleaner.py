"""Compaction of one log: which records are kept and removed, and when."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace as changed
from itertools import islice, pairwise

import pytest

from kraft.seam import StorageCorrupt
from kraft.storage.compaction.dirty_range import find_range
from kraft.storage.compaction.round import CleanerLimits
from kraft.storage.log import Log, LogConfig
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.records import BATCH_HEADER_BYTES, Record, encode_batch, write_crc
from kraft.wire.records.batch_codec import BLOCK_RECORDS_MAX
from kraft.wire.records.compression import Compression
from tests.stages.batches import LOG, NOW_MS, delete, headers, lead, looked_up, open_log, read_all, warmed
from tests.stages.machine import Machine
from tests.storage.cleaning import (
    COMPACTED,
    begin,
    clean,
    last_values,
    offsets,
    records,
    replace,
    settle,
    write,
)

DAY_MS = 86_400_000


def filled(machine: Machine, config: LogConfig = COMPACTED, count: int = 40, keys: int = 5) -> Log:
    """Return a log with `count` batches of one record, of few keys, in several closed segments."""
    log = open_log(machine, config)
    for number in range(count):
        write(log, (b"k%d" % (number % keys), b"value %d" % number))
    settle(log)
    return log


def test_compaction_keeps_the_last_record_of_each_key_with_offset_and_timestamp() -> None:
    machine = Machine()
    log = filled(machine)
    before = records(log)
    assert clean(log, machine) == 40
    assert records(log) == before[-5:]
    assert (log.log_start_offset, log.log_end_offset) == (0, 40)


def test_a_compacted_batch_spans_the_same_offsets_and_keeps_its_codec() -> None:
    for codec in Compression:
        machine = Machine()
        log = open_log(machine, COMPACTED)
        write(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), compression=codec, producer=(7, 0, 0))
        write(log, (b"a", b"2"), (b"c", b"2"), compression=codec)
        settle(log)
        clean(log, machine)
        first, second = headers(read_all(log))
        assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
        assert (first.compression, first.producer_id, first.base_sequence) == (codec, 7, 0)
        assert (second.base_offset, second.record_count) == (3, 2)
        assert [(record.key, record.value) for record in records(log)] == [(b"b", b"1"), (b"a", b"2"), (b"c", b"2")]


def test_compaction_removes_records_without_a_key() -> None:
    machine = Machine()
    log = open_log(machine, COMPACTED)
    write(log, (None, b"1"), (b"a", b"2"))
    settle(log)
    clean(log, machine)
    assert [record.value for record in records(log)] == [b"2"]


def test_compaction_distinguishes_long_keys_with_a_common_prefix() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, segment_bytes=5000))
    for number in range(6):
        write(log, (b"k" * 500 + b"%d" % (number % 3), b"%d" % number))
    settle(log)
    clean(log, machine)
    assert [record.value for record in records(log)] == [b"3", b"4", b"5"]


def test_compaction_merges_segments_that_fit_into_one() -> None:
    machine = Machine()
    log = filled(machine)
    for _ in range(3):
        assert clean(log, machine) == 40
    assert [segment.base_offset for segment in log.segments] == [0, 40]
    assert len(headers(read_all(log))) == 5


def test_segments_merged_by_compaction_stay_within_the_limits_of_a_segment() -> None:
    machine = Machine()
    log = filled(machine, keys=40)
    before = read_all(log)
    clean(log, machine)
    assert read_all(log) == before
    assert len(log.segments) > 3
    assert all(segment.size <= COMPACTED.segment_bytes for segment in log.segments)


def test_compaction_skips_a_segment_without_removable_records() -> None:
    machine = Machine()
    log = filled(machine, keys=40)
    segments = log.segments
    assert [step for step in begin(log).steps() if step is not None] == []
    assert log.segments == segments
    assert not any(name.endswith(".cleaned") for name in machine.files(LOG))


def test_compaction_keeps_the_last_batch_of_a_segment_even_if_empty() -> None:
    machine = Machine()
    log = filled(machine, count=12, keys=3)
    clean(log, machine)
    for number in range(12, 24):
        write(log, (b"k%d" % (number % 3), b"value %d" % number))
    settle(log)
    log.update_config(changed(COMPACTED, segment_bytes=120))  # so that each segment is its own group
    clean(log, machine, 12)
    assert records(log)[0].offset == 21
    for segment, following in pairwise(log.segments):
        *_, last = headers(machine.content(segment.log.path))
        assert last.next_offset == following.base_offset


def test_a_compacted_log_is_the_same_after_recovery_from_its_first_byte() -> None:
    machine = Machine()
    log = filled(machine, count=60, keys=7)
    clean(log, machine)
    expected = read_all(log)
    machine.kill()
    log = open_log(machine, COMPACTED, recovery_point=0)
    assert read_all(log) == expected
    assert log.recovery_report.bytes_cut == 0


def test_reads_in_a_compacted_log_continue_with_the_next_existing_batch() -> None:
    machine = Machine(cold_read_one_in=3)
    log = filled(machine, count=60, keys=7)
    clean(log, machine)
    left = headers(read_all(log))
    for offset in range(60):
        expected = [header for header in left if header.last_offset >= offset]
        assert headers(read_all(log, offset)) == expected


def test_lookups_by_time_in_a_compacted_log_find_remaining_records() -> None:
    machine = Machine()
    log = open_log(machine, COMPACTED)
    for number in range(30):
        write(log, (b"k%d" % (number % 4), b"v"), timestamp=NOW_MS + number)
    settle(log)
    clean(log, machine)
    found = looked_up(log.offset_for_timestamp(NOW_MS + 10))
    assert found is not None
    assert (found.offset, found.timestamp) == (26, NOW_MS + 26)
    largest = looked_up(log.max_timestamp_offset())
    assert largest is not None
    assert (largest.offset, largest.timestamp) == (29, NOW_MS + 29)


def test_the_largest_timestamp_is_that_of_a_remaining_record_if_its_batch_was_emptied() -> None:
    machine = Machine()
    log = open_log(machine, COMPACTED)
    write(log, (b"a", b"1"), timestamp=NOW_MS)
    write(log, (b"b", b"1"), timestamp=NOW_MS + 500, producer=(3, 0, 0))
    write(log, (b"b", b"2"), timestamp=NOW_MS + 100)
    settle(log)
    clean(log, machine)
    assert headers(read_all(log))[1].record_count == 0
    largest = looked_up(log.max_timestamp_offset())
    assert largest is not None
    assert (largest.offset, largest.timestamp) == (2, NOW_MS + 100)


# tombstones


def test_a_tombstone_stays_until_its_delete_horizon_has_passed() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, delete_retention_ms=1000))
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"a", None), (b"c", b"1"))
    settle(log)
    clean(log, machine, now_ms=NOW_MS + 50)
    stamped = headers(read_all(log))[1]
    assert (stamped.has_delete_horizon, stamped.base_timestamp) == (True, NOW_MS + 1050)
    assert [(one.key, one.value, one.timestamp) for one in records(log)] == [
        (b"b", b"1", NOW_MS + 1),
        (b"a", None, NOW_MS),
        (b"c", b"1", NOW_MS + 1),
    ]
    clean(log, machine, 4, now_ms=NOW_MS + 1049)
    assert [record.key for record in records(log)] == [b"b", b"a", b"c"]
    clean(log, machine, 4, now_ms=NOW_MS + 1050)
    assert [(one.key, one.timestamp) for one in records(log)] == [(b"b", NOW_MS + 1), (b"c", NOW_MS + 1)]


def test_tombstone_beyond_the_part_in_the_offset_map_is_kept_whatever_its_delete_horizon() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, delete_retention_ms=1000))
    for entry in ((b"b", b"1"), (b"a", b"1"), (b"a", None)):
        write(log, entry)
    settle(log)
    one_batch = CleanerLimits(map_bytes_max=1, read_bytes=4096)
    assert clean(log, machine, 2, now_ms=NOW_MS) == 3, "as if the first value had escaped: only the tombstone is mapped"
    assert clean(log, machine, 0, limits=one_batch, now_ms=NOW_MS + DAY_MS) == 1
    assert [record.key for record in records(log)] == [b"b", b"a"]
    assert clean(log, machine, 1, now_ms=NOW_MS + DAY_MS) == 3
    assert [record.key for record in records(log)] == [b"b"]


def test_delete_horizon_of_a_batch_is_not_changed_by_later_compaction_rounds() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, delete_retention_ms=1000))
    write(log, (b"a", None), (b"b", b"1"))
    settle(log)
    clean(log, machine, now_ms=NOW_MS)
    clean(log, machine, 2, now_ms=NOW_MS + 500)
    assert headers(read_all(log))[0].base_timestamp == NOW_MS + 1000


def test_compaction_that_stamps_a_delete_horizon_keeps_append_timestamps() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, log_append_time=True))
    write(log, (b"a", None), (b"b", b"1"), timestamp=5)
    settle(log)
    before = records(log)
    clean(log, machine)
    assert headers(read_all(log))[0].has_delete_horizon
    assert records(log) == before


# the cleanable range


def test_compaction_skips_the_active_segment() -> None:
    machine = Machine()
    log = open_log(machine, COMPACTED)
    for number in range(30):
        write(log, (b"k", b"%d" % number))
    settle(log, roll=False)
    base = log.active.base_offset
    assert clean(log, machine) == base
    assert offsets(log) == [base - 1, *range(base, 30)]


def test_compaction_stays_below_the_last_stable_offset() -> None:
    machine = Machine()
    log = filled(machine)
    log.high_watermark = 20
    end = begin(log).cleanable.end_offset
    assert 0 < end <= 20
    clean(log, machine)
    assert offsets(log) == [*range(end - 5, 40)]


def test_compaction_stops_before_an_open_transaction() -> None:
    machine = Machine()
    log = open_log(machine, COMPACTED)
    for number in range(10):
        write(log, (b"k", b"%d" % number))
    at = write(log, (b"t", b"1"), producer=(1, 0, 0), transactional=True)
    for number in range(10, 30):
        write(log, (b"k", b"%d" % number))
    settle(log)
    assert begin(log).cleanable.end_offset <= at


def test_compaction_of_a_closed_segment_waits_until_it_is_synced() -> None:
    log = open_log(Machine(), COMPACTED)
    for number in range(40):
        write(log, (b"k", b"%d" % number))
    log.update_high_watermark(40)
    assert begin(log).cleanable.segments == ()


def test_compaction_skips_records_younger_than_the_lag_and_all_after_them() -> None:
    config = changed(COMPACTED, min_compaction_lag_ms=1000)
    log = open_log(Machine(cold_read_one_in=2), config)
    for number in range(40):
        write(log, (b"k", b"%d" % number), timestamp=NOW_MS + number)
    settle(log)
    ends = [segment.base_offset for segment in log.segments[1:]]
    assert begin(log, now_ms=NOW_MS + 900).cleanable.segments == ()
    assert begin(log, now_ms=NOW_MS + 1000 + ends[1] - 1).cleanable.end_offset == ends[1]
    assert begin(log, now_ms=NOW_MS + 2000).cleanable.end_offset == 40


def test_compaction_is_due_when_a_large_enough_share_of_the_log_is_dirty() -> None:
    machine = Machine()
    log = filled(machine, keys=40)
    third = log.segments[3].base_offset

    def due(cleaned: int) -> bool:
        return warmed(lambda: find_range(log, cleaned, NOW_MS)).is_due(log.config)

    assert due(0)
    assert not due(40)
    ratio = warmed(lambda: find_range(log, third, NOW_MS)).dirty_ratio
    log.update_config(changed(COMPACTED, min_cleanable_dirty_ratio=ratio))
    assert not due(third)
    log.update_config(changed(COMPACTED, min_cleanable_dirty_ratio=ratio - 0.01))
    assert due(third)


def test_compaction_is_due_when_the_oldest_dirty_record_is_too_old() -> None:
    log = filled(Machine(cold_read_one_in=2), changed(COMPACTED, max_compaction_lag_ms=5000), keys=40)
    last = log.segments[-2].base_offset

    def range_at(now_ms: int, cleaned: int = last) -> tuple[int, bool]:
        found = warmed(lambda: find_range(log, cleaned, now_ms))
        return found.delay_ms, found.is_due(log.config)

    assert range_at(NOW_MS + 5000) == (0, False)
    assert range_at(NOW_MS + 5003) == (3, True)
    assert range_at(NOW_MS + 5003, 40) == (0, False)


def test_a_compacted_log_rolls_its_segment_in_time_for_the_max_compaction_lag() -> None:
    log = open_log(Machine(), changed(COMPACTED, max_compaction_lag_ms=5000))
    write(log, (b"a", b"1"), timestamp=NOW_MS)
    write(log, (b"a", b"2"), timestamp=NOW_MS + 5000)
    assert len(log.segments) == 1
    write(log, (b"a", b"3"), timestamp=NOW_MS + 5001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize("checkpoint", [None, -1, 41, 1000])
def test_an_impossible_cleaner_checkpoint_counts_as_the_log_start(checkpoint: int | None) -> None:
    log = filled(Machine())
    log.advance_log_start(7)
    assert begin(log, checkpoint).cleanable.first_dirty_offset == 7


# the offset map


def test_a_full_offset_map_ends_the_round_and_the_next_one_continues_from_there() -> None:
    machine = Machine()
    log = filled(machine, count=80, keys=20)
    expected = last_values(records(log))
    limits = CleanerLimits(map_bytes_max=5 * 200, read_bytes=256)
    cleaned, rounds = 0, 0
    while cleaned < 80:
        before, cleaned = cleaned, clean(log, machine, cleaned, limits=limits)
        rounds += 1
        assert cleaned > before
        assert last_values(records(log)) == expected
    assert rounds > 3
    assert len(records(log)) == 20


def test_first_batch_of_a_round_is_mapped_although_it_exceeds_the_memory_of_the_offset_map() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, segment_bytes=4000))
    for value in (b"1", b"2"):
        write(log, *((b"k%d" % number, value) for number in range(50)))
    settle(log)
    limits = CleanerLimits(map_bytes_max=1, read_bytes=64)
    assert clean(log, machine, limits=limits) == 50
    assert clean(log, machine, 50, limits=limits) == 100
    assert [record.value for record in records(log)] == [b"2"] * 50


# failures


def test_compaction_does_not_copy_a_damaged_batch() -> None:
    machine = Machine()
    log = filled(machine)
    path = log.segments[1].log.path
    before = machine.content(path)
    machine.overwrite(path, before[:70] + bytes([before[70] ^ 1]) + before[71:])
    with pytest.raises(StorageCorrupt, match=r"offset \d+ fails its CRC"):
        clean(log, machine)


def test_compaction_round_is_void_if_the_log_was_truncated_meanwhile() -> None:
    log = filled(Machine())
    cleaning = begin(log)
    assert cleaning.is_current
    log.truncate_to(10, NOW_MS)
    assert not cleaning.is_current


def test_an_abandoned_compaction_round_leaves_no_files_and_an_unchanged_log() -> None:
    total = sum(1 for _ in begin(filled(Machine())).steps())
    machine = Machine()
    log = filled(machine)
    before = read_all(log)
    for count in range(total):
        cleaning = begin(log)
        steps = cleaning.steps()
        for step in islice(steps, count):
            if step is not None:
                step.discard()
        steps.close()
        cleaning.discard()
        assert read_all(log) == before
        assert not any(".cleaned" in name or ".swap" in name for name in machine.files(LOG))


def test_appends_between_any_two_steps_of_compaction_are_kept() -> None:
    log = filled(Machine())
    expected = {record.key: record.value for record in records(log)}
    for number, step in enumerate(begin(log).steps()):
        key, value = b"k%d" % (number % 7), b"new %d" % number
        write(log, (key, value))
        expected[key] = value
        if step is not None:
            replace(step)
    assert {record.key: record.value for record in records(log)} == expected


def test_a_batch_with_more_keys_than_the_offset_map_holds_needs_several_rounds() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, segment_bytes=1 << 20))
    keys = [b"k%04d" % number for number in range(2000)]
    write(log, *((key, b"old") for key in keys), compression=Compression.ZSTD)
    write(log, *((key, None if key == b"k1500" else b"new") for key in keys), compression=Compression.ZSTD)
    settle(log)
    limits = CleanerLimits(map_bytes_max=100_000, read_bytes=256)
    ends = [0]
    while ends[-1] < 4000:
        ends.append(clean(log, machine, ends[-1], limits=limits))
        assert ends[-1] > ends[-2]
    assert any(0 < end < 2000 for end in ends), "a round ended within the batch"
    assert len(records(log)) == 2000
    assert {record.value for record in records(log)} == {b"new", None}
    assert headers(read_all(log))[-1].has_delete_horizon


def test_a_batch_of_many_records_is_compacted_in_short_steps_and_little_memory() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, segment_bytes=1 << 20))
    count = 20_000
    write(log, *([(b"k", bytes(500))] * count), compression=Compression.ZSTD)
    settle(log)
    tracemalloc.start()
    try:
        cleaning = begin(log)
        steps = 0
        for step in cleaning.steps():
            steps += 1
            if step is not None:
                delete(machine, replace(step))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [record.offset for record in records(log)] == [count - 1]
    assert steps > 2 * (count // BLOCK_RECORDS_MAX)
    assert peak_bytes < 3 << 20


def test_a_batch_that_does_not_parse_ends_the_compaction_round_with_its_offset() -> None:
    machine = Machine()
    log = filled(machine, count=3)
    data = encode_batch([Record(0, NOW_MS, b"k", b"v")])
    data[BATCH_HEADER_BYTES] = 0x7F
    write_crc(data, 0)
    lead(log, data)
    settle(log)
    with pytest.raises(UnreadableBatch, match="the batch at offset 3 do"):
        clean(log, machine)
