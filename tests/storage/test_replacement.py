"""Replacement of segments: a crash at any step leaves the old log or the new one, never a mixture."""

from __future__ import annotations

import pytest

from kraft.seam import Disk, HandleRevoked, InvariantError
from kraft.storage.log import Log, LogConfig
from kraft.storage.offset_index import ENTRY as OFFSET_ENTRY
from tests.storage.batches import LOG, batch, headers, lead, open_log, read, read_all, sync
from tests.storage.machine import Machine

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))


class Crash(Exception):
    """The process died here."""


class CrashingDisk:
    """A disk that counts the changes made through it and dies before one of them."""

    def __init__(self, disk: Disk, die_before: int | None) -> None:
        self._disk = disk
        self._die_before = die_before
        self.changes = 0

    def __getattr__(self, name: str) -> object:
        found = getattr(self._disk, name)
        if name not in ("rename", "unlink", "sync_directory", "create"):
            return found

        def counted(*arguments: str) -> object:
            if self.changes == self._die_before:
                raise Crash
            self.changes += 1
            return found(*arguments)

        return counted


def prepared(machine: Machine) -> tuple[Log, bytes, bytes, list[int]]:
    """A synced log of several segments, of which the first ones are cleaned into two: log, bytes before and after."""
    log = open_log(machine, CONFIG)
    for number in range(20):
        lead(log, batch(1, size=30, fill=b"%d" % (number % 10)))
    sync(log)
    before = read_all(log)
    old = log.segments[:4]
    kept = [header for header in headers(before) if header.base_offset % 3 == 0]
    after = b"".join(slice_of(before, header.base_offset) for header in kept if header.base_offset < 16)
    after += b"".join(slice_of(before, header.base_offset) for header in headers(before) if header.base_offset >= 16)
    bases = [old[0].base_offset, old[2].base_offset]
    end = log.segments[4].base_offset
    assert end == 16
    for base, limit in zip(bases, [bases[1], end], strict=True):
        data = b"".join(slice_of(before, header.base_offset) for header in kept if base <= header.base_offset < limit)
        write_cleaned(machine, base, data)
    return log, before, after, bases


def slice_of(data: bytes, offset: int) -> bytes:
    position = 0
    for header in headers(data):
        if header.base_offset == offset:
            return data[position : position + header.size_bytes]
        position += header.size_bytes
    raise AssertionError(offset)


def write_cleaned(machine: Machine, base: int, data: bytes) -> None:
    stem = f"{LOG}/{base:020d}"
    for suffix, content in ((".log", data), (".index", b""), (".timeindex", b"")):
        file = machine.disk.create(f"{stem}{suffix}.cleaned")
        if content:
            file.append(content)


def test_a_replacement_gives_the_new_log_and_its_old_files_go_later() -> None:
    machine = Machine()
    log, before, after, bases = prepared(machine)
    piece = read(log, 0)
    paths = log.replace_segments(log.segments[:4], bases)
    assert read_all(log) == after
    assert piece.read() == before[: piece.size_bytes]
    for path in paths:
        machine.disk.unlink(path)
    machine.kill()
    assert read_all(open_log(machine, CONFIG, recovery_point=20)) == after


def test_a_crash_before_any_step_leaves_the_old_log_or_the_new_one() -> None:
    machine = Machine()
    log, _, _, bases = prepared(machine)
    counting = CrashingDisk(machine.disk, None)
    replace(log, counting, bases)
    outcomes: list[str] = []
    for seed in range(3):
        for step in range(counting.changes):
            for power in (False, True):
                outcomes.append(crash_at(Machine(seed), step, power=power))
    assert set(outcomes) == {"before", "after"}


def crash_at(machine: Machine, step: int, *, power: bool) -> str:
    log, before, after, bases = prepared(machine)
    with pytest.raises(Crash):
        replace(log, CrashingDisk(machine.disk, step), bases)
    machine.power_off() if power else machine.kill()
    reopened = open_log(machine, CONFIG, recovery_point=20)
    found = read_all(reopened)
    assert found in (before, after), [header.base_offset for header in headers(found)]
    names = machine.files(LOG)
    assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in names)
    lead(reopened, batch(1))
    machine.kill()
    assert read_all(open_log(machine, CONFIG, recovery_point=20)).startswith(found)
    return "before" if found == before else "after"


def replace(log: Log, disk: CrashingDisk, bases: list[int]) -> None:
    log.disk = disk  # type: ignore[assignment]
    log.replace_segments(log.segments[:4], bases)


def test_a_dead_incarnation_cannot_replace_anything() -> None:
    machine = Machine()
    log, before, _, bases = prepared(machine)
    machine.kill()
    with pytest.raises(HandleRevoked):
        log.replace_segments(log.segments[:4], bases)
    assert read_all(open_log(machine, CONFIG, recovery_point=20)) == before


def test_only_closed_neighbouring_segments_that_are_on_the_device_can_be_replaced() -> None:
    machine = Machine()
    log, _, _, bases = prepared(machine)
    with pytest.raises(InvariantError, match="neighbouring"):
        log.replace_segments([log.segments[0], log.segments[2]], bases)
    with pytest.raises(InvariantError, match="active"):
        log.replace_segments(log.segments[:], bases)
    log.recovery_point = 3
    with pytest.raises(InvariantError, match="on the device"):
        log.replace_segments(log.segments[:4], bases)


def test_reads_and_appends_go_on_over_the_holes_of_a_cleaned_log() -> None:
    machine = Machine()
    log, _, after, bases = prepared(machine)
    log.replace_segments(log.segments[:4], bases)
    for offset in range(log.log_end_offset):
        expected = [header for header in headers(after) if header.last_offset >= offset]
        assert headers(read(log, offset).read())[0] == expected[0]
    assert lead(log, batch(1)).base_offset == 20
    assert OFFSET_ENTRY.size == 8
