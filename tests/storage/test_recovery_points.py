"""Restarts: the recovery point is exact, and the indexes have a separate recovery point."""

from __future__ import annotations

import pytest

from kraft.seam import StorageCorrupt
from kraft.storage.log import Log, LogConfig
from tests.stages.batches import LOG, NOW_MS, batch, lead, open_log, read_all, sync
from tests.stages.machine import Machine

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=50)


def single_records(log: Log, count: int) -> list[bytes]:
    """Append `count` batches of one record each; return their bytes."""
    datas = [batch(1) for _ in range(count)]
    for data in datas:
        lead(log, data)
    return [bytes(data) for data in datas]


def flip(machine: Machine, base_offset: int, position: int) -> None:
    """Flip one bit of a segment's file."""
    path = f"{LOG}/{base_offset:020d}.log"
    data = bytearray(machine.content(path))
    data[position] ^= 1
    machine.overwrite(path, bytes(data))


def reopened(machine: Machine, points: tuple[int, int | None]) -> Log:
    """Reopen the log after a process crash, with this recovery point and index recovery point in the checkpoints."""
    machine.kill()
    return open_log(machine, CONFIG, recovery_point=points[0], index_recovery_point=points[1])


def points(log: Log) -> tuple[int, int]:
    return log.recovery_point, log.index_recovery_point


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_damage_in_a_synced_last_batch_of_one_record_stops_the_log(count: int, known: bool) -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    single_records(log, count)
    sync(log)
    saved = points(log) if known else (log.recovery_point, None)
    flip(machine, 0, -5)
    with pytest.raises(StorageCorrupt, match=f"all below offset {count} was synced"):
        reopened(machine, saved)


@pytest.mark.parametrize("then", [0, 1])
def test_damage_at_the_synced_end_of_a_just_closed_segment_stops_the_log(then: int) -> None:
    """The segment's records are on the device, and its indexes are not."""
    machine = Machine()
    log = open_log(machine, CONFIG)
    single_records(log, 3)
    sync(log)
    log.roll(NOW_MS)
    single_records(log, then)
    assert points(log) == (3, 0)
    flip(machine, 0, -5)
    with pytest.raises(StorageCorrupt, match="all below offset 3 was synced"):
        reopened(machine, points(log))


def test_a_torn_batch_right_after_the_synced_end_is_truncated() -> None:
    for synced in range(4):
        machine = Machine()
        log = open_log(machine, CONFIG)
        datas = single_records(log, synced)
        sync(log)
        saved = points(log)
        single_records(log, 1)
        path = f"{LOG}/{0:020d}.log"
        machine.overwrite(path, machine.content(path)[:-7])
        assert read_all(reopened(machine, saved)) == b"".join(datas)


def closed_and_synced(machine: Machine) -> Log:
    """Return a log of two segments. The first is on the device with its indexes; the second begins at offset 3."""
    log = open_log(machine, CONFIG)
    single_records(log, 3)
    log.roll(NOW_MS)
    plan = log.files_to_sync(rolled_only=True)
    assert plan is not None
    plan.run()
    log.mark_synced(plan)
    assert points(log) == (3, 3)
    return log


def test_recovery_reads_a_closed_segment_until_its_indexes_are_known_to_be_durable() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    single_records(log, 3)
    sync(log)
    before = points(log)
    log.roll(NOW_MS)
    assert reopened(machine, before).recovery_report.segments_read == 2
    machine = Machine()
    log = closed_and_synced(machine)
    single_records(log, 2)
    assert reopened(machine, points(log)).recovery_report.segments_read == 1
    assert reopened(machine, (3, None)).recovery_report.segments_read == 2, "it may be Kafka's checkpoint"


def test_opening_a_log_truncated_below_its_checkpoint_lowers_its_recovery_points() -> None:
    """The process died after the truncation, before the log's owner saved the recovery points. If the old points
    stayed, a later power loss would be taken for damage."""
    machine = Machine()
    log = closed_and_synced(machine)
    single_records(log, 2)
    sync(log)
    saved = points(log)
    log.truncate_to(2, NOW_MS)
    log = reopened(machine, saved)
    assert points(log) == (2, 0)
    single_records(log, 3)
    lowered = points(log)
    path = f"{LOG}/{0:020d}.log"
    machine.overwrite(path, machine.content(path)[: -2 * len(batch(1)) - 7])
    with pytest.raises(StorageCorrupt):
        reopened(machine, saved)
    assert reopened(machine, lowered).log_end_offset == 2


def test_a_log_with_a_removed_folder_has_no_synced_data() -> None:
    machine = Machine()
    log = closed_and_synced(machine)
    machine.kill()
    machine.disk.remove_tree(LOG)
    assert points(reopened(machine, points(log))) == (0, 0)
