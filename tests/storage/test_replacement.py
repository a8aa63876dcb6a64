"""Replacement of segments: a crash at any step leaves the old log or the new one, never a mixture."""

from __future__ import annotations

import pytest

from kraft.seam import HandleRevoked, InvariantError
from kraft.storage.compaction.replacement import Replacement
from kraft.storage.compaction.segment_writer import CleanedSegment
from kraft.storage.log import Log, LogConfig
from kraft.wire.records import read_header
from tests.stages.batches import LOG, batch, delete, headers, lead, open_log, read, read_all, sync
from tests.stages.machine import Crash, Machine

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
OLD = 4
END = 16
"""End offset of the replaced segments."""


def prepared(machine: Machine) -> tuple[Log, bytes, bytes]:
    """Return a synced log of several segments, and the log's bytes before and after the replacement of its first
    segments."""
    log = open_log(machine, CONFIG)
    for number in range(20):
        lead(log, batch(1, size=30, fill=b"%d" % (number % 10)))
    sync(log)
    assert log.segments[OLD].base_offset == END
    before = read_all(log)
    after = b"".join(
        slice_of(before, header.base_offset)
        for header in headers(before)
        if header.base_offset >= END or header.base_offset % 3 == 0
    )
    return log, before, after


def slice_of(data: bytes, offset: int) -> bytes:
    position = 0
    for header in headers(data):
        if header.base_offset == offset:
            return data[position : position + header.size_bytes]
        position += header.size_bytes
    raise AssertionError(offset)


def replacement(log: Log, after: bytes) -> Replacement:
    """Return the replacement of the first segments by one with their remaining batches."""
    old = log.segments[:OLD]
    writing = CleanedSegment(log.disk, log.directory, old, CONFIG.index_interval_bytes)
    pieces = [slice_of(after, header.base_offset) for header in headers(after) if header.base_offset < END]
    writing.append([(read_header(piece), piece) for piece in pieces])
    return Replacement(log, old, writing.finish([]))


def replace(log: Log, after: bytes) -> list[str]:
    made = replacement(log, after)
    made.sync()
    made.stage()
    assert made.publish()
    return made.finish()


def test_a_replacement_gives_the_new_log_and_unlinks_old_files_later() -> None:
    machine = Machine()
    log, before, after = prepared(machine)
    piece = read(log, 0)
    paths = replace(log, after)
    assert read_all(log) == after
    assert piece.read() == before[: piece.size_bytes]
    assert all(path.endswith(".deleted") and machine.disk.exists(path) for path in paths)
    delete(machine, paths)
    machine.kill()
    assert read_all(open_log(machine, CONFIG, recovery_point=20)) == after


def test_a_crash_before_any_step_of_a_replacement_leaves_the_old_or_the_new_log() -> None:
    machine = Machine()
    log, _, after = prepared(machine)
    first = machine.disk.operations
    replace(log, after)
    outcomes: list[str] = []
    for seed in range(8):
        for step in range(first, machine.disk.operations):
            for power in ("stays", "goes", "goes, and directory entries with it"):
                outcomes.append(crash_at(Machine(seed), step, power))
    assert set(outcomes) == {"before", "after"}


def crash_at(machine: Machine, step: int, power: str) -> str:
    log, before, after = prepared(machine)
    machine.disk.die_before = step
    with pytest.raises(Crash):
        replace(log, after)
    machine.kill() if power == "stays" else machine.power_off(ordered=power == "goes")
    reopened = open_log(machine, CONFIG, recovery_point=20)
    found = read_all(reopened)
    assert found in (before, after), [header.base_offset for header in headers(found)]
    assert reopened.size_bytes == len(found), "segments that overlap"
    names = machine.files(LOG)
    assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in names)
    lead(reopened, batch(1))
    machine.kill()
    assert read_all(open_log(machine, CONFIG, recovery_point=20)).startswith(found)
    return "before" if found == before else "after"


def test_a_log_can_be_read_and_appended_to_between_any_steps_of_a_replacement() -> None:
    machine = Machine(cold_read_one_in=3)
    log, before, after = prepared(machine)
    made = replacement(log, after)
    assert read_all(log) == before
    made.sync()
    made.stage()
    assert read_all(log) == before
    assert made.publish()
    assert read_all(log) == after
    made.finish()
    assert read_all(log) == after
    assert lead(log, batch(1)).base_offset == 20


def test_a_crashed_incarnation_cannot_replace_segments() -> None:
    machine = Machine()
    log, before, after = prepared(machine)
    made = replacement(log, after)
    machine.kill()
    with pytest.raises(HandleRevoked):
        made.sync()
    assert read_all(open_log(machine, CONFIG, recovery_point=20)) == before


def test_a_replacement_is_discarded_if_retention_removed_a_segment() -> None:
    machine = Machine()
    log, before, after = prepared(machine)
    made = replacement(log, after)
    made.sync()
    made.stage()
    log.update_high_watermark(20)
    log.advance_log_start(5)
    delete(machine, log.delete_segments(log.deletable_segments(0), 0))
    assert not made.publish()
    made.discard()
    rest = before[len(slice_of(before, 0)) * 5 :]
    assert read_all(log) == rest
    machine.kill()
    assert read_all(open_log(machine, CONFIG, recovery_point=20, log_start=5)) == rest
    assert not any(name.endswith((".cleaned", ".swap")) for name in machine.files(LOG))


def test_only_closed_and_synced_segments_can_be_replaced() -> None:
    log, _, after = prepared(Machine())
    made = replacement(log, after)
    log.recovery_point = 3
    with pytest.raises(InvariantError, match="on the device"):
        made.publish()
    active = log.segments[-1:]
    writing = CleanedSegment(log.disk, log.directory, active, 100)
    with pytest.raises(InvariantError, match="active"):
        Replacement(log, active, writing.finish([])).publish()


def test_reads_and_appends_work_across_the_gaps_of_a_compacted_log() -> None:
    log, _, after = prepared(Machine())
    replace(log, after)
    for offset in range(log.log_end_offset):
        expected = [header for header in headers(after) if header.last_offset >= offset]
        assert headers(read(log, offset).read())[0] == expected[0]
    assert lead(log, batch(1)).base_offset == 20


def test_a_replacement_keeps_only_the_producer_snapshot_at_the_new_segments_base() -> None:
    machine = Machine()
    log, _, after = prepared(machine)
    log = open_log(machine, CONFIG, recovery_point=20)
    machine.put(f"{LOG}/{0:020d}.snapshot", b"x")
    replace(log, after)
    snapshots = [int(name[:20]) for name in machine.files(LOG) if name.endswith(".snapshot")]
    assert snapshots == [0, 16]
