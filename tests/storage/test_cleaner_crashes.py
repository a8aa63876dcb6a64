"""Compaction and crashes: the process or the power fails before each operation of a round in turn. No record that
compaction must keep is lost, and the log can be used afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed

import pytest

from kraft.storage.log import AppendOrigin, Log
from kraft.storage.markers import read_marker
from kraft.storage.producers.snapshot_file import SnapshotEntry
from kraft.wire.records import Record, iter_headers
from tests.stages.batches import LOG, NOW_MS, headers, lead, marker, open_log, read_all, warmed
from tests.stages.machine import Crash, Machine
from tests.storage.cleaning import COMPACTED, clean, committed, last_values, settle, write

CONFIG = changed(COMPACTED, segment_bytes=400, delete_retention_ms=1000)
LATER_MS = NOW_MS + 5000


def prepared(machine: Machine) -> Log:
    """Return a log with superseded values, tombstones, committed and aborted transactions and producers, already partly
    compacted."""
    log = open_log(machine, CONFIG)
    for number in range(5):
        write(log, (b"k%d" % (number % 3), b"value %d" % number), (b"x%d" % number, None))
    settle(log)
    clean(log, machine, now_ms=NOW_MS)
    for number in range(3):
        write(log, (b"k%d" % (number % 3), b"newer %d" % number), producer=(1, 0, number), transactional=True)
        write(log, (b"k%d" % (number % 3), b"aborted %d" % number), producer=(2, 0, number), transactional=True)
        lead(log, marker(1, 0, commit=True), origin=AppendOrigin.COORDINATOR)
        lead(log, marker(2, 0, commit=False), origin=AppendOrigin.COORDINATOR)
        write(log, (b"k%d" % (number % 4), b"plain %d" % number), producer=(3, 0, number))
    settle(log)
    return log


def seen(log: Log) -> tuple[dict[bytes | None, tuple[int, int, bytes | None]], list[SnapshotEntry], int]:
    """Return the state that compaction must not change: the last value of each key, the producers' state, the log's
    end."""
    return last_values(committed(log)), log.producers.snapshot(), log.log_end_offset


def operations() -> range:
    machine = Machine()
    log = prepared(machine)
    first = machine.disk.operations
    clean(log, machine, now_ms=LATER_MS)
    return range(first, machine.disk.operations)


def kill(machine: Machine) -> None:
    machine.kill()


def power_off(machine: Machine) -> None:
    machine.power_off()


def power_off_unordered(machine: Machine) -> None:
    machine.power_off(ordered=False)


@pytest.mark.slow
@pytest.mark.parametrize("crash", [kill, power_off, power_off_unordered])
def test_a_crash_before_any_operation_of_compaction_loses_nothing(crash: Callable[[Machine], None]) -> None:
    steps = operations()
    assert len(steps) > 60
    outcomes: set[int] = set()
    for step in steps:
        machine = Machine(step)
        log = prepared(machine)
        expected = seen(log)
        machine.disk.die_before = step
        with pytest.raises(Crash):
            clean(log, machine, now_ms=LATER_MS)
        crash(machine)
        outcomes.add(check_after(machine, expected))
    assert len(outcomes) > 5, "crashes at different steps leave different logs"


def check_after(machine: Machine, expected: object) -> int:
    """Open the log, compare, compact it to its end, compare again. Return the bytes that were found."""
    log = open_log(machine, CONFIG, recovery_point=1 << 40)
    log.update_high_watermark(log.log_end_offset)
    found = len(read_all(log))
    assert seen(log) == expected
    assert log.size_bytes == found, "segments that overlap"
    assert log.first_unstable_offset is None
    assert set(warmed(lambda: log.aborted_transactions(0, log.log_end_offset))) >= aborted_with_batches(log)
    assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in machine.files(LOG))
    settle(log)
    clean(log, machine, now_ms=LATER_MS)
    assert seen(log) == expected
    machine.kill()
    log = open_log(machine, CONFIG, recovery_point=0)
    assert (log.recovery_report.bytes_cut, seen(log)) == (0, expected)
    return found


def aborted_with_batches(log: Log) -> set[tuple[int, int]]:
    """Return producer and first offset of the aborted transactions that still have a batch, even an empty one."""
    began: dict[int, int] = {}
    found: set[tuple[int, int]] = set()
    data = read_all(log)
    for position, header in iter_headers(data):
        if not header.is_control and header.is_transactional:
            began.setdefault(header.producer_id, header.base_offset)
        elif header.is_control and header.producer_id in began:
            ended = read_marker(data, position, header)
            first = began.pop(header.producer_id)
            if ended is not None and ended.aborted:
                found.add((header.producer_id, first))
    return found


def test_compacted_log_survives_a_power_loss_right_after_the_compaction() -> None:
    for seed in range(5):
        machine = Machine(seed)
        log = prepared(machine)
        clean(log, machine, now_ms=LATER_MS)
        expected: list[Record] = committed(log)
        size = len(headers(read_all(log)))
        machine.power_off()
        log = open_log(machine, CONFIG, recovery_point=1 << 40)
        log.update_high_watermark(log.log_end_offset)
        assert (committed(log), len(headers(read_all(log)))) == (expected, size)
