"""Durability: sync plans, group commit, the recovery point, and files that stay closed."""

from __future__ import annotations

import pytest

from kraft.seam import DiskError
from kraft.storage.handles import ColdRead, FileCache
from kraft.storage.log import LogConfig
from tests.stages.batches import LOG, NOW_MS, batch, lead, open_log, read, read_all, sync
from tests.stages.machine import Machine


def test_appends_continue_during_a_sync_and_are_covered_by_the_next_one() -> None:
    machine = Machine()
    log = open_log(machine)
    lead(log, batch(3))
    sync(log)
    lead(log, batch(2))
    plan = log.files_to_sync()
    assert plan is not None
    assert plan.only_file is not None
    lead(log, batch(4))
    plan.run()
    log.mark_synced(plan)
    assert (log.synced_end_offset, log.log_end_offset, log.unsynced) == (5, 9, True)
    sync(log)
    assert (log.synced_end_offset, log.unsynced, log.files_to_sync()) == (9, False, None)


def test_the_first_sync_plan_of_a_log_makes_its_directory_entry_durable() -> None:
    machine = Machine()
    log = open_log(machine)
    lead(log, batch(3))
    plan = log.files_to_sync()
    assert plan is not None
    assert plan.only_file is None
    plan.run()
    log.mark_synced(plan)
    machine.power_off()
    assert open_log(machine, recovery_point=3).log_end_offset == 3


def test_a_rolled_segment_is_durable_with_its_indexes_before_the_recovery_point_moves() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=300, index_interval_bytes=50))
    for _ in range(12):
        lead(log, batch(1, producer=(-1, -1, -1)))
    assert log.recovery_point == 0
    sync(log)
    assert log.recovery_point == 12
    for segment in log.segments[:-1]:
        for handle in segment.handles:
            if handle.exists:
                inode = machine.inode(handle.path)
                assert bytes(inode.durable) == bytes(inode.data)
    machine.power_off()
    log = open_log(machine, LogConfig(segment_bytes=300, index_interval_bytes=50), recovery_point=12)
    assert log.recovery_report.segments_read == 1


def test_sync_plan_after_a_roll_can_cover_only_the_closed_segments() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=300))
    lead(log, batch(1))
    assert log.files_to_sync(rolled_only=True) is None
    for _ in range(7):
        lead(log, batch(1))
    plan = log.files_to_sync(rolled_only=True)
    assert plan is not None
    assert plan.end_offset == log.active.base_offset < log.log_end_offset
    plan.run()
    log.mark_synced(plan)
    assert (log.recovery_point, log.unsynced) == (log.active.base_offset, True)
    machine.power_off()
    log = open_log(machine, LogConfig(segment_bytes=300), recovery_point=plan.end_offset)
    assert log.log_end_offset >= plan.end_offset


@pytest.mark.parametrize("strict", [False, True])
def test_a_segment_begun_by_a_crashed_process_is_durable_after_a_sync_of_the_next_process(strict: bool) -> None:
    """The segment's name is in a directory that the crashed process has not synced."""
    for seed in range(10):
        machine = Machine(seed)
        log = open_log(machine, strict=strict)
        for _ in range(3):
            lead(log, batch(1))
            sync(log)
        log.roll(NOW_MS)
        lead(log, batch(1))
        machine.kill()
        log = open_log(machine, strict=strict, recovery_point=3, index_recovery_point=0)
        sync(log)
        assert log.recovery_point == 4
        machine.power_off()
        assert open_log(machine, strict=strict, recovery_point=3, index_recovery_point=0).log_end_offset == 4


def test_a_sync_plan_from_before_a_truncation_has_no_effect() -> None:
    log = open_log(Machine())
    for _ in range(5):
        lead(log, batch(1))
    plan = log.files_to_sync()
    assert plan is not None
    plan.run()
    log.truncate_to(2, NOW_MS)
    lead(log, batch(1), 1)
    log.mark_synced(plan)
    assert log.recovery_point == 0


def test_a_failed_sync_does_not_move_the_recovery_point() -> None:
    machine = Machine()
    log = open_log(machine)
    lead(log, batch(3))
    plan = log.files_to_sync()
    assert plan is not None
    machine.host.sync_fails = True
    with pytest.raises(DiskError):
        plan.run()
    assert (log.recovery_point, log.unsynced) == (0, True)


def test_a_truncation_is_durable_when_it_returns() -> None:
    machine = Machine(5)
    log = open_log(machine, LogConfig(segment_bytes=300))
    datas = [bytes(batch(1)) for _ in range(12)]
    for data in datas:
        lead(log, bytearray(data))
    sync(log)
    log.truncate_to(4, NOW_MS)
    kept = read_all(log)
    for seed in range(10):
        machine = Machine(seed)
        log = open_log(machine, LogConfig(segment_bytes=300))
        for data in datas:
            lead(log, bytearray(data))
        sync(log)
        log.truncate_to(4, NOW_MS)
        machine.power_off()
        assert read_all(open_log(machine, LogConfig(segment_bytes=300), recovery_point=4)) == kept


# files that stay closed


def test_an_idle_log_holds_no_open_files() -> None:
    cache = FileCache()
    machine = Machine()
    for number in range(20):
        log = open_log(machine, directory=f"/data/t-{number}", cache=cache)
        assert log.warm_for_append() is not None
    assert cache.open_files == 0


def test_an_append_to_a_log_without_open_files_raises_cold_read_and_changes_nothing() -> None:
    log = open_log(Machine())
    data = batch(1)
    with pytest.raises(ColdRead):
        log.append_as_follower(batch(1, base=0, epoch=0), now_ms=NOW_MS)
    cold = log.warm_for_append()
    assert cold is not None
    cold.warm()
    assert log.warm_for_append() is not None
    cold.adopt()
    assert log.warm_for_append() is None
    assert lead(log, data).base_offset == 0
    assert log.warm_for_append() is None


def test_the_file_cache_closes_idle_logs_but_none_with_unsynced_bytes() -> None:
    machine = Machine()
    cache = FileCache(6)
    logs = [open_log(machine, directory=f"/data/t-{number}", cache=cache) for number in range(12)]
    for log in logs:
        lead(log, batch(1))
        sync(log)
    assert cache.open_files <= 6
    for log in logs:
        lead(log, batch(1))
    assert cache.open_files >= 12
    assert all(log.active.log.file is not None for log in logs)
    for log in logs:
        assert len(read_all(log)) == 2 * len(batch(1))


def test_a_cold_read_during_deletion_of_its_segment_or_log_is_not_a_disk_error() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=100))
    for _ in range(4):
        lead(log, batch(1))
    sync(log)
    for segment in log.segments:
        segment.close_handles()
    colds: list[ColdRead] = []
    for offset in range(4):
        with pytest.raises(ColdRead) as caught:
            log.read(offset, 1 << 20, 4)
        colds.append(caught.value)
    log.truncate_to(2, NOW_MS)
    colds[3].warm()
    log.truncate_fully(9, NOW_MS)
    colds[1].warm()
    log.release()
    machine.disk.rename(LOG, f"{LOG}-gone")
    colds[0].warm()
    for cold in colds:
        cold.adopt()


def test_a_log_slice_stays_readable_when_its_file_is_closed_and_removed() -> None:
    log = open_log(Machine(), LogConfig(segment_bytes=100, retention_bytes=0))
    datas = [batch(1) for _ in range(4)]
    for data in datas:
        lead(log, data)
    piece = read(log, 0)
    log.update_high_watermark(3)
    for path in log.delete_segments(log.deletable_segments(NOW_MS), NOW_MS):
        log.disk.unlink(path)
    assert log.log_start_offset == 3
    assert piece.read() == piece.read_cached() == bytes(datas[0])


def test_a_slice_of_a_closed_file_raises_cold_read_for_bytes_not_in_memory() -> None:
    log = open_log(Machine(4, cold_read_one_in=2))
    data = batch(3)
    lead(log, data)
    piece = read(log, 0)
    log.release()
    colds = 0
    for _ in range(20):
        try:
            assert piece.read_cached() == bytes(data)
        except ColdRead as cold:
            colds += 1
            cold.warm()
            cold.adopt()
            cold.keep()
    assert 0 < colds < 20


def test_a_read_at_the_log_tail_needs_no_file_access() -> None:
    machine = Machine(cold_read_one_in=1)  # every cached read misses
    log = open_log(machine)
    for _ in range(10):
        lead(log, batch(1))
    piece = log.read(9, 1 << 20, 10)
    assert piece.size_bytes == len(batch(1))
    assert log.read(4, 1 << 20, 8).size_bytes == 4 * len(batch(1))
    assert machine.content(f"{LOG}/{0:020d}.log")[piece.position :] == piece.read()
