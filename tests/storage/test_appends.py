"""Appending: where data is written, when segments roll, what a follower refuses, and the effect of a full disk."""

from __future__ import annotations

import pytest

from kraft.seam import DiskError, InvariantError
from kraft.storage.log import AppendRefused, Log, LogConfig
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import check_crc, pack_header, read_header, write_crc
from tests.stages.batches import LOG, NOW_MS, batch, follow, headers, lead, marker, open_log, read_all, sync
from tests.stages.machine import Machine


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_leader_append_patches_only_offset_and_epoch() -> None:
    log = open_log(Machine())
    lead(log, batch(3), 4)
    data = batch(2)
    sent = bytes(data)
    info = lead(log, data, 7)
    assert info == (3, 4, -1, False)
    stored = read_all(log, 3)
    assert stored[:8] == (3).to_bytes(8, "big")
    assert stored[12:16] == (7).to_bytes(4, "big")
    assert (stored[8:12], stored[16:]) == (sent[8:12], sent[16:])


def test_log_with_append_time_stamps_each_batch_and_computes_its_crc() -> None:
    log = open_log(Machine(), LogConfig(log_append_time=True))
    info = lead(log, batch(2, timestamp=5), now_ms=NOW_MS)
    stored = read_all(log)
    header = read_header(stored)
    assert info.log_append_time_ms == header.max_timestamp == NOW_MS
    assert header.is_log_append_time
    assert check_crc(stored, 0, header)


def test_a_leader_of_an_older_epoch_appends_nothing() -> None:
    log = open_log(Machine())
    lead(log, batch(1), 5)
    before = read_all(log)
    with pytest.raises(InvariantError, match="epoch 4 to a log that has seen 5"):
        lead(log, batch(1), 4)
    assert (read_all(log), log.epochs.entries) == (before, ((5, 0),))


def test_a_leader_append_of_several_batches_is_refused() -> None:
    log = open_log(Machine())
    data = batch(1) + batch(1)
    with pytest.raises(InvariantError):
        log.append_as_leader(memoryview(data), read_header(data), 0, now_ms=NOW_MS)


def test_a_segment_rolls_when_the_next_batch_would_make_it_too_large() -> None:
    size = len(batch(1))
    log = open_log(Machine(), LogConfig(segment_bytes=3 * size))
    for _ in range(7):
        lead(log, batch(1))
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_segment_rolls_by_the_timestamps_of_batches_not_by_the_clock() -> None:
    log = open_log(Machine(), LogConfig(segment_ms=1000))
    for timestamp in (5000, 6000, 6001, 4000, 7001, 7002):
        lead(log, batch(1, timestamp=timestamp), now_ms=NOW_MS * 2)
    assert bases(log) == [0, 2, 5]


def test_a_segment_made_active_by_a_truncation_rolls_by_its_first_timestamp() -> None:
    machine = Machine()
    config = LogConfig(segment_ms=1000)
    log = open_log(machine, config)
    for timestamp in (5000, 5500, 6001, 6002):
        lead(log, batch(1, timestamp=timestamp))
    log.close(clean=True)
    log = open_log(machine, config, clean=True)
    assert bases(log) == [0, 2]
    log.truncate_to(1, NOW_MS)
    for timestamp in (6000, 6001):
        lead(log, batch(1, timestamp=timestamp))
    assert bases(log) == [0, 2]


def test_a_segment_without_timestamps_rolls_by_its_age() -> None:
    log = open_log(Machine(), LogConfig(segment_ms=1000))
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1002):
        lead(log, batch(1, timestamp=-1), now_ms=now_ms)
    assert bases(log) == [0, 2]


def test_a_segment_rolls_earlier_by_a_jitter_that_is_constant_per_segment() -> None:
    ends: set[int] = set()
    for directory in ("/data/a-0", "/data/b-0", "/data/c-0"):
        log = open_log(Machine(), LogConfig(segment_ms=1000, segment_jitter_ms=500), directory=directory)
        timestamp = 0
        while len(log.segments) == 1:
            lead(log, batch(1, timestamp=timestamp))
            timestamp += 10
        ends.add(timestamp)
        assert 500 <= timestamp <= 1020
    assert len(ends) > 1


def test_a_segment_rolls_when_an_index_is_full() -> None:
    log = open_log(Machine(), LogConfig(segment_index_bytes=60, index_interval_bytes=1))
    for number in range(20):
        lead(log, batch(1, timestamp=NOW_MS + number))
    assert len(log.segments) > 3
    sync(log)
    for segment in log.segments[:-1]:
        assert segment.time_index.size_bytes <= 60
        assert segment.index.size_bytes <= 60


def test_a_segment_rolls_when_offsets_would_not_fit_its_indexes() -> None:
    log = open_log(Machine(), LogConfig())
    follow(log, batch(1, base=0, epoch=0))
    follow(log, batch(1, base=2**31 - 1, epoch=0))
    assert bases(log) == [0]
    follow(log, batch(1, base=2**31, epoch=0))
    assert bases(log) == [0, 2**31]
    assert [header.base_offset for header in headers(read_all(log))] == [0, 2**31 - 1, 2**31]


def test_an_empty_active_segment_does_not_roll() -> None:
    log = open_log(Machine())
    log.roll(NOW_MS) if log.warm_for_append() is None else None
    lead(log, batch(2))
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert bases(log) == [0, 2]


def test_offset_index_entry_has_the_last_offset_and_the_start_position_of_its_batch() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(index_interval_bytes=300))
    datas = [batch(2, timestamp=NOW_MS + number, size=40) for number in range(8)]
    for data in datas:
        lead(log, data)
    log.close(clean=True)
    size = len(datas[0])
    assert (size, 300 // size) == (159, 1)
    entries = [(5, 2 * size), (9, 4 * size), (13, 6 * size)]
    expected = b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries)
    assert machine.content(f"{LOG}/{0:020d}.index") == expected
    times = [(NOW_MS + 2, 5), (NOW_MS + 4, 9), (NOW_MS + 6, 13), (NOW_MS + 7, 15)]
    expected = b"".join(stamp.to_bytes(8, "big") + offset.to_bytes(4, "big") for stamp, offset in times)
    assert machine.content(f"{LOG}/{0:020d}.timeindex") == expected


@pytest.mark.parametrize(("interval", "entries"), [(317, 3), (318, 2)])
def test_index_entry_is_added_once_more_bytes_than_the_index_interval_were_appended(
    interval: int, entries: int
) -> None:
    log = open_log(Machine(), LogConfig(index_interval_bytes=interval))
    for _ in range(8):
        lead(log, batch(2, size=40))
    assert len(log.active.index) == entries


# followers


def refusal(log: Log, data: bytes | bytearray) -> ErrorCode:
    before = read_all(log)
    with pytest.raises(AppendRefused) as caught:
        follow(log, data)
    assert read_all(log) == before
    return caught.value.error_code


def test_a_follower_append_keeps_bytes_and_offsets_and_accepts_gaps() -> None:
    log = open_log(Machine())
    parts = batch(2, base=0, epoch=1) + batch(1, base=5, epoch=1) + batch(1, base=6, epoch=2)
    assert follow(log, parts) == (0, 6, -1, False)
    assert read_all(log) == bytes(parts)
    assert (log.log_end_offset, log.epochs.entries) == (7, ((1, 0), (2, 6)))
    assert [header.base_offset for header in headers(read_all(log, 3))] == [5, 6]


def test_a_follower_append_drops_an_incomplete_last_batch() -> None:
    log = open_log(Machine())
    first = batch(2, base=0, epoch=1)
    assert follow(log, first + batch(1, base=2, epoch=1)[:-1]).last_offset == 1
    assert follow(log, batch(1, base=2, epoch=1)[:30]) == (2, 1, -1, False)
    assert read_all(log) == bytes(first)


def test_a_follower_append_drops_batches_of_a_newer_epoch_than_its_fetch() -> None:
    log = open_log(Machine())
    parts = batch(2, base=0, epoch=1) + batch(1, base=2, epoch=3) + batch(1, base=3, epoch=3)
    follow(log, parts, leader_epoch=1)
    assert log.log_end_offset == 2


def test_a_follower_refuses_damaged_and_misplaced_batches() -> None:
    log = open_log(Machine())
    follow(log, batch(3, base=0, epoch=2))
    damaged = batch(1, base=3, epoch=2)
    damaged[-1] ^= 1
    assert refusal(log, batch(1, base=3, epoch=2) + damaged) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, batch(1, base=2, epoch=2)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(log, batch(1, base=3, epoch=2) + batch(1, base=3, epoch=2)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(log, batch(1, base=3, epoch=1)) == ErrorCode.CORRUPT_MESSAGE
    wrong_magic = batch(1, base=3, epoch=2)
    wrong_magic[16] = 1
    assert refusal(log, wrong_magic) == ErrorCode.CORRUPT_MESSAGE


def spoiled_marker() -> bytearray:
    """Return a control batch with a matching CRC whose record is not a valid marker."""
    data = marker(5, 0, commit=True)
    pack_header(data, 0, read_header(data)._replace(base_offset=1, partition_leader_epoch=0))
    data[-10:] = bytes(10)
    write_crc(data, 0)
    return data


@pytest.mark.parametrize("beyond", [batch(1, base=1 + 2**31, epoch=0), spoiled_marker()])
def test_batch_that_no_correct_leader_sends_is_refused_by_a_follower_without_an_invariant_error(
    beyond: bytearray,
) -> None:
    log = open_log(Machine(), LogConfig(index_interval_bytes=0))
    follow(log, batch(1, base=0, epoch=0))
    for _ in range(2):
        with pytest.raises(AppendRefused):
            follow(log, beyond)
    follow(log, batch(2, base=1, epoch=0))
    assert (log.log_end_offset, bases(log)) == (3, [0])


def test_an_empty_follower_with_log_start_inside_a_batch_begins_at_that_batch() -> None:
    machine = Machine()
    log = open_log(machine, log_start=12)
    follow(log, batch(5, base=10, epoch=1))
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (12, 15, [10])
    assert log.epochs.entries == ((1, 12),), "no epoch begins where there is nothing"
    log.close(clean=True)
    log = open_log(machine, clean=True, log_start=12)
    assert (log.log_start_offset, log.log_end_offset) == (12, 15)
    assert log.epochs.entries == ((1, 12),)
    assert headers(read_all(log))[0].base_offset == 10


def test_a_follower_append_across_a_roll_is_written_to_several_segments() -> None:
    log = open_log(Machine(), LogConfig(segment_bytes=200))
    parts = b"".join(bytes(batch(1, base=base, epoch=0)) for base in range(9))
    follow(log, parts)
    assert len(log.segments) > 3
    assert all(segment.size <= 200 for segment in log.segments)
    assert read_all(log) == parts


# failing disks


@pytest.mark.parametrize("follower", [False, True])
def test_an_append_to_a_full_disk_leaves_no_bytes_and_the_log_accepts_no_more(follower: bool) -> None:
    machine = Machine()
    log = open_log(machine)
    lead(log, batch(3))
    before, size = read_all(log), log.size_bytes
    machine.fill()
    with pytest.raises(DiskError) as caught:
        follow(log, batch(1, base=3, epoch=0)) if follower else lead(log, batch(1))
    assert caught.value.errno == 28
    machine.fill(False)
    with pytest.raises(DiskError):
        lead(log, batch(1))
    assert (read_all(log), log.size_bytes, log.log_end_offset) == (before, size, 3)
    log.close(clean=True)
    machine.kill()
    assert read_all(open_log(machine)) == before


def test_a_roll_on_a_full_disk_fails_and_loses_nothing() -> None:
    machine = Machine()
    log = open_log(machine)
    lead(log, batch(3))
    before = read_all(log)
    machine.fill()
    with pytest.raises(DiskError):
        log.roll(NOW_MS)
    machine.fill(False)
    machine.kill()
    assert read_all(open_log(machine)) == before


def test_a_segment_has_its_index_files_from_the_first_batch_on() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=200, segment_ms=1 << 60))
    for _ in range(3):
        lead(log, batch(2))
    names = set(machine.disk.list(LOG))
    for segment in log.segments:
        assert {f"{segment.base_offset:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= names
    assert len(log.segments) > 1
