"""Damaged batch headers: every reader of headers raises StorageCorrupt with file and position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import pack_into, unpack_from

import pytest

from kraft.seam import StorageCorrupt
from kraft.storage.compaction.dirty_range import find_range
from kraft.storage.log import Log, LogConfig
from tests.stages.batches import LOG, NOW_MS, batch, lead, looked_up, marker, open_log, read, warmed
from tests.stages.machine import Machine

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=1 << 20, max_compaction_lag_ms=1)
LOG_FILE = f"{LOG}/{0:020d}.log"
LENGTH_AT, MAGIC_AT, LAST_OFFSET_DELTA_AT = 8, 16, 23


def with_wrong_length(data: bytearray, position: int) -> None:
    pack_into(">i", data, position + LENGTH_AT, 1 << 30)


def with_negative_length(data: bytearray, position: int) -> None:
    pack_into(">i", data, position + LENGTH_AT, -1)


def with_wrong_magic(data: bytearray, position: int) -> None:
    data[position + MAGIC_AT] = 9


def cut_short(data: bytearray, position: int) -> None:
    """Make the file shorter than the log assumes."""
    del data[position + 20 :]


def with_an_end_before_its_begin(data: bytearray, position: int) -> None:
    """Damage the offsets so that a lookup would skip to the next batch."""
    pack_into(">i", data, position + LAST_OFFSET_DELTA_AT, -2)


def with_more_records_than_offsets(data: bytearray, position: int) -> None:
    pack_into(">i", data, position + LAST_OFFSET_DELTA_AT, -1)


def with_offsets_of_the_batch_before(data: bytearray, position: int) -> None:
    (base,) = unpack_from(">q", data, position)
    pack_into(">q", data, position, base - 1)


Harm = Callable[[bytearray, int], None]
harms = pytest.mark.parametrize(
    "harm",
    [
        with_wrong_length,
        with_negative_length,
        with_wrong_magic,
        cut_short,
        with_an_end_before_its_begin,
        with_more_records_than_offsets,
        with_offsets_of_the_batch_before,
    ],
)


def damaged(harm: Harm, *, number: int, config: LogConfig = CONFIG) -> tuple[Log, int]:
    """Return an open log of ten batches, and the position of the batch with this number, which was damaged after the
    open."""
    machine = Machine()
    log = open_log(machine, config)
    for one in range(10):
        lead(log, batch(fill=b"%d" % one))
    log.close(clean=True)
    log = open_log(machine, config, clean=True)
    data, position = bytearray(machine.content(LOG_FILE)), number * len(batch())
    harm(data, position)
    machine.overwrite(LOG_FILE, bytes(data))
    return log, position


def names(position: int) -> str:
    return rf"{LOG_FILE}: the batch at byte {position} is damaged: .*\. To continue: "


@harms
def test_read_after_a_damaged_batch_header_raises_storage_corrupt(harm: Harm) -> None:
    log, position = damaged(harm, number=3)
    assert read(log, 2, 1).size_bytes > 0
    with pytest.raises(StorageCorrupt, match=names(position)):
        read(log, 5)


@harms
def test_read_of_a_damaged_batch_larger_than_the_maximum_raises_storage_corrupt(harm: Harm) -> None:
    log, _ = damaged(harm, number=0)
    with pytest.raises(StorageCorrupt, match=names(0)):
        read(log, 0, 1)


@harms
def test_read_across_a_damaged_batch_header_raises_storage_corrupt(harm: Harm) -> None:
    log, position = damaged(harm, number=3)
    with pytest.raises(StorageCorrupt, match=names(position)):
        read(log, 0, end=6)


@harms
def test_truncation_after_a_damaged_batch_header_raises_storage_corrupt(harm: Harm) -> None:
    log, position = damaged(harm, number=3)
    with pytest.raises(StorageCorrupt, match=names(position)):
        log.truncate_to(6, NOW_MS)


@harms
def test_lookup_by_time_across_a_damaged_batch_header_raises_storage_corrupt(harm: Harm) -> None:
    log, position = damaged(harm, number=3)
    log.segments[0].max_timestamp = NOW_MS + 1  # as if a later batch had it: all headers are read
    with pytest.raises(StorageCorrupt, match=names(position)):
        looked_up(log.offset_for_timestamp(NOW_MS + 1))
    with pytest.raises(StorageCorrupt, match=names(position)):
        looked_up(log.max_timestamp_offset())


@harms
def test_cleaners_check_of_a_segments_age_raises_storage_corrupt_for_a_damaged_header(harm: Harm) -> None:
    log, _ = damaged(harm, number=0)
    warmed(lambda: log.roll(NOW_MS))
    log.update_high_watermark(log.log_end_offset)
    log.segments[0].first_timestamp = None
    with pytest.raises(StorageCorrupt, match=names(0)):
        warmed(lambda: find_range(log, None, NOW_MS + 1_000))


@harms
@pytest.mark.parametrize("number", [0, 3])
def test_opening_a_cleanly_closed_log_with_a_damaged_header_raises_storage_corrupt(harm: Harm, number: int) -> None:
    log, position = damaged(harm, number=number)
    with pytest.raises(StorageCorrupt, match=names(position)):
        Log.open_log(log.disk, LOG, CONFIG, clean=True, recovery_point=0, log_start=0, now_ms=NOW_MS)


@pytest.mark.parametrize("number", [5, 9])
def test_read_of_a_batch_with_offsets_that_contradict_the_index_raises_storage_corrupt(number: int) -> None:
    """The read examines no earlier header that would reveal the damage. Without this check a reader would get the next
    batch, or none."""
    log, position = damaged(
        with_offsets_of_the_batch_before, number=number, config=replace(CONFIG, index_interval_bytes=1)
    )
    assert len(log.segments[0].index) == 9
    with pytest.raises(StorageCorrupt, match=names(position)):
        read(log, number)
    log.segments[0].max_timestamp = NOW_MS + 1  # as if a later batch had it
    log.advance_log_start(number)
    with pytest.raises(StorageCorrupt, match=names(position)):
        looked_up(log.offset_for_timestamp(NOW_MS))


def test_loading_producer_state_raises_storage_corrupt_for_a_marker_that_does_not_parse() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    lead(log, batch(producer=(7, 0, 0), transactional=True))
    position = log.size_bytes
    lead(log, marker(7, 0, commit=True))
    log.close(clean=True)
    data = bytearray(machine.content(LOG_FILE))
    data[position + 61] = 0x7F  # the record's length
    machine.overwrite(LOG_FILE, bytes(data))
    for name in machine.files(LOG):
        if name.endswith(".snapshot"):
            machine.disk.unlink(f"{LOG}/{name}")
    with pytest.raises(StorageCorrupt, match=names(position)):
        open_log(machine, CONFIG, clean=True)


def test_opening_a_log_with_a_damaged_swap_segment_raises_storage_corrupt() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    for one in range(3):
        lead(log, batch(fill=b"%d" % one))
    log.close(clean=True)
    data = bytearray(machine.content(LOG_FILE))
    with_wrong_magic(data, 0)
    machine.disk.rename(LOG_FILE, f"{LOG_FILE}.swap")
    machine.overwrite(f"{LOG_FILE}.swap", bytes(data))
    with pytest.raises(StorageCorrupt, match=rf"{LOG_FILE}\.swap: "):
        open_log(machine, CONFIG, clean=True)
