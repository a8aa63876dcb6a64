"""Retention, log start, and the state after a crash during a deletion."""

from __future__ import annotations

import pytest

from kraft.storage.log import Log, LogConfig
from tests.stages.batches import LOG, NOW_MS, batch, lead, open_log, read_all, warmed
from tests.stages.machine import Machine

SIZE = len(batch(1))
DAY_MS = 86_400_000


def filled(machine: Machine, *, count: int = 10, high_watermark: int | None = None, **options: object) -> Log:
    """Return a log with `count` batches, two per segment, one second apart."""
    log = open_log(machine, LogConfig(segment_bytes=2 * SIZE, **options))  # type: ignore[arg-type]
    for number in range(count):
        lead(log, batch(1, timestamp=NOW_MS + number * 1000))
    log.update_high_watermark(count if high_watermark is None else high_watermark)
    return log


def deletable(log: Log, now_ms: int = NOW_MS) -> list[int]:
    return [segment.base_offset for segment in warmed(lambda: log.deletable_segments(now_ms))]


def delete(log: Log, now_ms: int = NOW_MS) -> list[str]:
    found = warmed(lambda: log.deletable_segments(now_ms))
    return warmed(lambda: log.delete_segments(found, now_ms))


def test_size_retention_deletes_the_oldest_segments_while_enough_remains() -> None:
    log = filled(Machine(), retention_bytes=5 * SIZE)
    assert deletable(log) == [0, 2]
    delete(log)
    assert (log.log_start_offset, log.size_bytes) == (4, 6 * SIZE)
    assert deletable(log) == []


def test_time_retention_deletes_segments_with_a_too_old_largest_timestamp() -> None:
    log = filled(Machine(), retention_ms=10_000)
    assert deletable(log, NOW_MS + 13_000) == [0]
    assert deletable(log, NOW_MS + 13_001) == [0, 2]


def test_retention_deletes_an_old_active_segment_but_never_an_empty_one() -> None:
    log = filled(Machine(), retention_ms=10_000)
    delete(log, NOW_MS + DAY_MS)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments), log.size_bytes) == (10, 10, 1, 0)
    assert deletable(log, NOW_MS + DAY_MS * 9) == []
    assert lead(log, batch(1)).base_offset == 10


def test_retention_stays_below_the_high_watermark() -> None:
    log = filled(Machine(), retention_bytes=0, high_watermark=5)
    assert deletable(log) == [0, 2]


def test_retention_keeps_a_segment_with_a_future_timestamp_and_all_later_ones() -> None:
    log = open_log(Machine(), LogConfig(segment_bytes=SIZE, retention_ms=1000, segment_ms=1 << 60))
    for timestamp in (NOW_MS, NOW_MS + DAY_MS, NOW_MS):
        lead(log, batch(1, timestamp=timestamp))
    log.update_high_watermark(3)
    assert deletable(log, NOW_MS + 5000) == [0]


@pytest.mark.parametrize("policy", [{"compact"}, set()])
def test_a_log_without_retention_deletes_only_below_log_start(policy: set[str]) -> None:
    log = filled(Machine(), retention_bytes=0, retention_ms=0, cleanup_policy=frozenset(policy))
    assert deletable(log, NOW_MS + DAY_MS) == []
    log.advance_log_start(5)
    assert deletable(log, NOW_MS + DAY_MS) == [0, 2]


def test_a_log_with_compaction_and_retention_deletes_by_time_and_size() -> None:
    log = filled(Machine(), retention_bytes=5 * SIZE, cleanup_policy=frozenset({"compact", "delete"}))
    assert deletable(log) == [0, 2]
    log = filled(Machine(), retention_ms=10_000, cleanup_policy=frozenset({"compact", "delete"}))
    assert deletable(log, NOW_MS + 13_001) == [0, 2]


def test_log_start_never_decreases_and_removes_older_epochs() -> None:
    log = open_log(Machine())
    for epoch in (1, 2, 3):
        lead(log, batch(5), epoch)
    assert log.advance_log_start(7)
    assert not log.advance_log_start(6)
    assert (log.log_start_offset, log.local_log_start_offset) == (7, 7)
    assert log.epochs.entries == ((2, 7), (3, 10))


def test_retention_moves_log_start_then_renames_files_and_unlinks_them_later() -> None:
    machine = Machine()
    log = filled(machine, retention_bytes=5 * SIZE)
    paths = delete(log)
    assert paths
    assert all(path.endswith(".deleted") and machine.disk.exists(path) for path in paths)
    for path in paths:
        machine.disk.unlink(path)
    assert not any(name.endswith(".deleted") for name in machine.files(LOG))


@pytest.mark.parametrize("seed", range(12))
def test_a_power_loss_during_a_deletion_leaves_a_log_without_a_gap(seed: int) -> None:
    machine = Machine(seed)
    log = filled(machine, retention_bytes=3 * SIZE)
    whole = read_all(log)
    log.close(clean=True)
    log = open_log(machine, LogConfig(segment_bytes=2 * SIZE, retention_bytes=3 * SIZE), clean=True)
    log.update_high_watermark(10)
    delete(log)
    machine.power_off()
    log = open_log(machine, LogConfig(segment_bytes=2 * SIZE), recovery_point=10)
    assert whole.endswith(read_all(log))
    assert log.log_end_offset == 10


def test_segment_age_without_timestamps_counts_from_the_last_change_even_after_a_restart() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=2 * SIZE, retention_ms=10_000))
    for _ in range(4):
        lead(log, batch(1, timestamp=-1))
    log.close(clean=True)
    changed = machine.disk.modified_ms(f"{LOG}/{0:020d}.log")
    log = open_log(machine, LogConfig(segment_bytes=2 * SIZE, retention_ms=10_000), clean=True)
    log.update_high_watermark(4)
    assert deletable(log, changed + 10_000) == []
    assert deletable(log, changed + 10_001) == [0, 2]


def test_a_restart_keeps_the_largest_timestamps_of_closed_segments() -> None:
    machine = Machine(cold_read_one_in=2)
    log = filled(machine, retention_ms=10_000)
    log.close(clean=True)
    log = open_log(machine, LogConfig(segment_bytes=2 * SIZE, retention_ms=10_000), clean=True)
    log.update_high_watermark(10)
    assert deletable(log, NOW_MS + 13_001) == [0, 2]
