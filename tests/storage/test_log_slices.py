"""Checks of a log slice: its batches are complete and at the right offsets, including fields that no CRC covers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.seam import File, FileRange, StorageCorrupt
from kraft.storage.epochs import EpochCache
from kraft.storage.log import Log, LogConfig, LogSlice
from kraft.storage.log_slice import CHECK_BYTES_MAX
from kraft.wire.records import BATCH_HEADER_BYTES, iter_headers
from tests.stages.batches import LOG, batch, follow, lead, open_log, read, warmed
from tests.stages.machine import Machine

EVERYTHING = 2**31 - 1
BATCH_RECORDS = 2
COUNT = 10
Harm = Callable[[Machine, int], None]
ROOMY = LogConfig(segment_bytes=1 << 24, segment_ms=1 << 60)


def check(log: Log, piece: LogSlice, bytes_max: int = EVERYTHING) -> None:
    piece.check(bytes_max, log.log_end_offset, EpochCache(log.epochs.entries))


def filled(machine: Machine, *, size: int = 10) -> Log:
    """Return a log of ten batches of two records, in two leader epochs."""
    log = open_log(machine, ROOMY)
    for number in range(COUNT):
        lead(log, batch(BATCH_RECORDS, size=size), 3 if number < COUNT // 2 else 5)
    return log


def change(machine: Machine, number: int, at: int, layout: str, value: int) -> None:
    """Write a value into a batch, this many bytes after its start."""
    path = f"{LOG}/{0:020d}.log"
    data = bytearray(machine.content(path))
    positions = [position for position, _ in iter_headers(data)]
    pack_into(layout, data, positions[number] + at, value)
    machine.overwrite(path, bytes(data))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_log_slice_check_accepts_whole_batches(seed: int) -> None:
    draw = random.Random(seed)
    machine = Machine(seed)
    log = open_log(machine, LogConfig(segment_bytes=draw.choice([300, 1 << 20]), segment_ms=1 << 60))
    epoch = 0
    for _ in range(draw.randint(1, 40)):
        epoch += draw.choice([0, 0, 1, 3])
        step = draw.random()
        if step < 0.5:
            lead(log, batch(draw.randint(1, 5)), max(epoch, log.epochs.latest_epoch))
        elif step < 0.8:  # after a gap that compaction left
            base = log.log_end_offset + draw.choice([0, 0, 7])
            follow(log, batch(draw.randint(1, 5), base=base, epoch=max(epoch, log.epochs.latest_epoch)))
        elif step < 0.9:
            # elected, without writing anything
            log.epochs.assign(max(epoch, log.epochs.latest_epoch + 1), log.log_end_offset)
        else:
            log.truncate_to(draw.randint(log.log_start_offset, log.log_end_offset), 0)
    log.advance_log_start(draw.randint(0, log.log_end_offset))
    for offset in range(log.log_start_offset, log.log_end_offset + 1):
        piece = read(log, offset, draw.choice([1, 300, EVERYTHING]))
        check(log, piece)
        assert piece.read_whole(log.log_end_offset) == piece.read()


def a_crc_that_does_not_fit(machine: Machine, number: int) -> None:
    change(machine, number, BATCH_HEADER_BYTES + 3, "B", 0xFF)


def a_base_offset_that_is_too_small(machine: Machine, number: int) -> None:
    change(machine, number, 0, ">q", 1)


def a_base_offset_that_is_too_large(machine: Machine, number: int) -> None:
    change(machine, number, 0, ">q", BATCH_RECORDS * number + 3)


def a_base_offset_behind_the_end(machine: Machine, number: int) -> None:
    change(machine, number, 0, ">q", 1 << 40)


def a_negative_base_offset(machine: Machine, number: int) -> None:
    change(machine, number, 0, ">q", -5)


def an_old_epoch(machine: Machine, number: int) -> None:
    change(machine, number, 12, ">i", 2)


def an_epoch_that_never_was(machine: Machine, number: int) -> None:
    change(machine, number, 12, ">i", 4)


def an_epoch_to_come(machine: Machine, number: int) -> None:
    change(machine, number, 12, ">i", 1 << 20)


OF_ITSELF = [
    a_crc_that_does_not_fit,
    a_base_offset_that_is_too_small,
    a_base_offset_behind_the_end,
    a_negative_base_offset,
]
OF_EPOCHS = [an_old_epoch, an_epoch_that_never_was, an_epoch_to_come]


@pytest.mark.parametrize("harm", [*OF_ITSELF, a_base_offset_that_is_too_large, *OF_EPOCHS])
@pytest.mark.parametrize("first", [0, 2 * BATCH_RECORDS, 4 * BATCH_RECORDS])
def test_log_slice_check_finds_a_batch_that_a_follower_would_refuse(harm: Harm, first: int) -> None:
    machine = Machine()
    log = filled(machine)
    piece = read(log, first, EVERYTHING)
    harm(machine, 4)
    with pytest.raises(StorageCorrupt, match=rf"{LOG}/0+\.log: the batch at byte \d+ is damaged"):
        check(log, piece)
    check(log, read(log, first, 1) if first < 4 * BATCH_RECORDS else read(log, first + BATCH_RECORDS, EVERYTHING))


@pytest.mark.parametrize("harm", OF_ITSELF)
def test_log_slice_check_finds_a_last_batch_at_an_impossible_offset(harm: Harm) -> None:
    machine = Machine()
    log = filled(machine)
    piece = read(log, 0, EVERYTHING)
    harm(machine, COUNT - 1)
    with pytest.raises(StorageCorrupt, match="is damaged"):
        check(log, piece)
    with pytest.raises(StorageCorrupt, match="is damaged"):
        piece.read_whole(log.log_end_offset)


@pytest.mark.parametrize("harm", OF_EPOCHS)
def test_log_slice_read_without_epochs_accepts_any_leader_epoch(harm: Harm) -> None:
    machine = Machine()
    log = filled(machine)
    harm(machine, 4)
    piece = read(log, 0, EVERYTHING)
    assert piece.read_whole(log.log_end_offset) == piece.read()


# amount of reading


@dataclass
class CountingFile:
    """A file that records the sizes of its reads."""

    file: File
    counts: list[int] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.file.path

    def read(self, position: int, count: int) -> bytes:
        self.counts.append(count)
        return self.file.read(position, count)


def counting(piece: LogSlice) -> tuple[LogSlice, list[int]]:
    (whole,) = piece.ranges
    file = CountingFile(whole.file)
    return piece._replace(ranges=(FileRange(file, whole.position, whole.count),)), file.counts  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_bytes", [3_000, 400_000, CHECK_BYTES_MAX])
def test_log_slice_check_reads_piece_by_piece_to_the_end(batch_bytes: int) -> None:
    machine = Machine()
    log = filled(machine, size=batch_bytes // BATCH_RECORDS)
    for _ in range(6_000_000 // batch_bytes - COUNT):
        lead(log, batch(BATCH_RECORDS, size=batch_bytes // BATCH_RECORDS), 5)
    piece, counts = counting(read(log, 0, EVERYTHING))
    check(log, piece)
    assert sum(counts) >= piece.size_bytes
    assert max(counts) <= max(CHECK_BYTES_MAX, batch_bytes + 1_000)
    a_crc_that_does_not_fit(machine, log.log_end_offset // BATCH_RECORDS - 1)
    with pytest.raises(StorageCorrupt, match="does not fit its CRC"):
        check(log, piece)


def test_log_slice_check_does_not_read_beyond_the_requested_bytes() -> None:
    machine = Machine()
    log = filled(machine, size=400_000)
    piece, counts = counting(read(log, 0, EVERYTHING))
    a_crc_that_does_not_fit(machine, 3)
    check(log, piece, 1)
    assert counts == [CHECK_BYTES_MAX]
    with pytest.raises(StorageCorrupt, match="does not fit its CRC"):
        check(log, piece, 3 * 800_000 + 1_000)


@pytest.mark.parametrize("missing", [1, 50, 900_000])
def test_log_slice_check_finds_a_file_that_ends_too_soon(missing: int) -> None:
    machine = Machine()
    log = filled(machine, size=400_000)
    piece = read(log, 0, EVERYTHING)
    path = f"{LOG}/{0:020d}.log"
    machine.overwrite(path, machine.content(path)[:-missing])
    with pytest.raises(StorageCorrupt, match="hold no whole batch"):
        check(log, piece)


def test_log_slice_check_accepts_an_empty_slice() -> None:
    log = filled(Machine())
    check(log, warmed(lambda: log.read(log.log_end_offset, 1, log.log_end_offset)))
