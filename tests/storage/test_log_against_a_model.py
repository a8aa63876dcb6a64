"""A log compared with a simple reference model, a list of batches in memory, under random operations, crashes and power
losses.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraft.seam import StorageCorrupt
from kraft.storage.epochs import EpochCache
from kraft.storage.log import Log, LogConfig
from kraft.wire.records import BatchHeader
from tests.stages.batches import LOG, NOW_MS, batch, follow, headers, lead, open_log, read, read_all, sync, warmed
from tests.stages.machine import Machine

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, producer_id_expiration_ms=1 << 40)
STEPS = 60


@dataclass
class LogModel:
    """The content that the log must have: whole batches in order, and its start and end."""

    batches: list[bytes] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0
    epoch: int = 0

    def headers(self) -> list[BatchHeader]:
        return [headers(data)[0] for data in self.batches]

    def add(self, data: bytes) -> None:
        self.batches.append(data)
        self.log_end = headers(data)[0].next_offset

    def truncate(self, offset: int, log: Log) -> None:
        """Remove a batch that extends beyond the offset, and a gap below it. An emptied log may end anywhere up to the
        offset."""
        if offset >= self.log_end:
            return
        while self.batches and headers(self.batches[-1])[0].last_offset >= offset:
            self.log_end = headers(self.batches.pop())[0].base_offset
        if self.batches:
            self.log_end = headers(self.batches[-1])[0].next_offset
        elif self.log_start <= log.log_end_offset <= max(offset, self.log_start):
            self.log_end = log.log_end_offset
        self.log_end = max(self.log_end, self.log_start)

    def epochs(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for header in self.headers():
            if not found or header.partition_leader_epoch > found[-1][0]:
                found.append((header.partition_leader_epoch, header.base_offset))
        return found


class Run:
    """One random run of a log. After each step the log is compared with the model."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.machine = Machine(seed, cold_read_one_in=7)
        self.log = open_log(self.machine, CONFIG)
        self.model = LogModel()
        self.sequences: dict[int, int] = {}
        self.saved_recovery_point = 0
        self.saved_index_recovery_point: int | None = None
        self.saved_log_start = 0

    def go(self) -> None:
        steps = [self.lead] * 8 + [self.follow] * 3 + [self.elect] + [self.roll] + [self.sync] * 2
        steps += [self.truncate, self.advance, self.delete, self.kill, self.stop_cleanly, self.restart_fully]
        for _ in range(STEPS):
            self.draw.choice(steps)()
            self.compare()

    # steps

    def lead(self) -> None:
        producer = self.draw.choice([-1, 1, 2, 3])
        count = self.draw.randint(1, 4)
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        data = batch(
            count,
            size=self.draw.choice([1, 20, 120]),
            timestamp=NOW_MS + self.draw.randint(-50, 50),
            producer=(producer, 0 if producer >= 0 else -1, sequence),
        )
        info = lead(self.log, data, self.model.epoch)
        assert info.base_offset == self.model.log_end
        assert not info.duplicate
        if producer >= 0:
            self.sequences[producer] = sequence + count
        self.model.add(bytes(data))

    def follow(self) -> None:
        base = self.model.log_end
        parts: list[bytes] = []
        for _ in range(self.draw.randint(1, 5)):
            base += self.draw.choice([0, 0, 0, 5])
            data = batch(self.draw.randint(1, 3), base=base, epoch=self.model.epoch, size=self.draw.choice([1, 60]))
            parts.append(bytes(data))
            base = headers(data)[0].next_offset
        partial = self.draw.choice([b"", bytes(batch(1, base=base, epoch=self.model.epoch))[:70]])
        info = follow(self.log, b"".join(parts) + partial)
        for data in parts:
            self.model.add(data)
        assert info.last_offset == self.model.log_end - 1

    def elect(self) -> None:
        self.model.epoch += self.draw.randint(1, 2)

    def roll(self) -> None:
        warmed(lambda: self.log.roll(NOW_MS))

    def sync(self) -> None:
        sync(self.log)
        self.save()

    def save(self) -> None:
        self.saved_recovery_point = self.log.recovery_point
        self.saved_index_recovery_point = self.log.index_recovery_point

    def truncate(self) -> None:
        """Truncate; in some runs the process dies before its owner has saved the recovery points."""
        offset = self.draw.randint(max(self.model.log_start, self.model.log_end - 12), self.model.log_end + 2)
        self.log.truncate_to(offset, NOW_MS)
        self.model.truncate(offset, self.log)
        if self.draw.randrange(3) == 0:
            self.kill()
        else:
            self.save()
        self.forget_sequences()

    def forget_sequences(self) -> None:
        """Let producers continue with the sequences that the remaining log implies."""
        self.sequences = {
            producer: (entry.next_sequence if entry.batches else 0)
            for producer, entry in self.log.producers.entries.items()
        }

    def advance(self) -> None:
        offset = self.draw.randint(self.model.log_start, self.model.log_end)
        self.log.advance_log_start(offset)
        self.model.log_start = self.saved_log_start = offset

    def delete(self) -> None:
        self.log.update_high_watermark(self.model.log_end)
        found = warmed(lambda: self.log.deletable_segments(NOW_MS))
        for path in warmed(lambda: self.log.delete_segments(found, NOW_MS)):
            self.machine.disk.unlink(path)
        self.saved_log_start = self.model.log_start
        self.model.batches = [
            data for data in self.model.batches if headers(data)[0].base_offset >= self.log.segments[0].base_offset
        ]

    def kill(self) -> None:
        self.machine.kill()
        self.reopen(clean=False)

    def stop_cleanly(self) -> None:
        self.log.close(clean=True)
        self.save()
        self.machine.kill()
        self.reopen(clean=True)

    def restart_fully(self) -> None:
        if self.draw.random() < 0.3:
            start = self.model.log_end + self.draw.randint(0, 9)
            self.log.truncate_fully(start, NOW_MS)
            self.saved_log_start = self.model.log_start = self.model.log_end = start
            self.save()
            self.model.batches = []
            self.sequences = {}

    def reopen(self, *, clean: bool) -> None:
        """Reopen the log. Its owner saves lowered recovery points before any append."""
        self.log = open_log(
            self.machine,
            CONFIG,
            clean=clean,
            recovery_point=self.saved_recovery_point,
            index_recovery_point=self.saved_index_recovery_point,
            log_start=self.saved_log_start,
        )
        self.saved_recovery_point = min(self.saved_recovery_point, self.log.recovery_point)
        if self.saved_index_recovery_point is not None:
            self.saved_index_recovery_point = min(self.saved_index_recovery_point, self.log.index_recovery_point)

    # comparison

    def compare(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.log_start, model.log_end)
        assert log.size_bytes == sum(map(len, self.in_log()))
        assert read_all(log) == b"".join(self.from_offset(log.log_start_offset))
        self.compare_epochs()
        for _ in range(3):
            self.compare_read()

    def in_log(self) -> list[bytes]:
        first = self.log.segments[0].base_offset
        return [data for data in self.model.batches if headers(data)[0].base_offset >= first]

    def from_offset(self, offset: int) -> list[bytes]:
        return [data for data in self.in_log() if headers(data)[0].last_offset >= offset]

    def compare_epochs(self) -> None:
        assert self.canonical(self.log.epochs) == self.canonical(EpochCache(self.model.epochs()))

    def canonical(self, epochs: EpochCache) -> tuple[tuple[int, int], ...]:
        """Return the entries that the remaining batches imply. The log start may be in a gap before the oldest batch,
        and an epoch at the log end depends on the leader, so both are normalized."""
        start = self.model.log_start
        oldest = next((header.base_offset for header in self.model.headers() if header.last_offset >= start), 0)
        cache = EpochCache(epochs.entries)
        cache.truncate_from_start(max(start, oldest))
        cache.truncate_from_end(self.model.log_end)
        return cache.entries

    def compare_read(self) -> None:
        log, model = self.log, self.model
        offset = self.draw.randint(model.log_start, model.log_end)
        end = self.draw.randint(model.log_start, model.log_end)
        most = self.draw.choice([0, 1, 80, 200, 500, 5000])
        at_least_one = self.draw.random() < 0.5
        found = read(log, offset, most, end, at_least_one=at_least_one).read()
        wanted = [data for data in self.from_offset(offset) if headers(data)[0].next_offset <= end and offset < end]
        assert b"".join(wanted).startswith(found)
        if wanted and (at_least_one or len(wanted[0]) <= most):
            assert found
        assert len(found) <= most or (at_least_one and found == wanted[0])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_log_equals_its_model_after_any_operations_and_crashes(seed: int) -> None:
    Run(seed).go()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
@example(884)  # synced to its end, then closed, and the power failed before its indexes were synced
@example(1454)  # a segment was created, the process died, and the next one did not sync the directory
def test_after_a_power_loss_the_log_is_a_prefix_with_everything_synced(seed: int) -> None:
    run = Run(seed)
    for _ in range(4):
        for _ in range(15):
            run.draw.choice([run.lead, run.lead, run.follow, run.elect, run.roll, run.sync, run.truncate])()
        synced = run.log.recovery_point
        assert synced >= run.saved_recovery_point
        save_some(run)
        run.machine.power_off()
        run.reopen(clean=False)
        assert synced <= run.log.log_end_offset <= run.model.log_end
        run.model.truncate(run.log.log_end_offset, run.log)
        run.forget_sequences()
        run.compare()


def save_some(run: Run) -> None:
    """Save the recovery points, which are in two files: a crash may come before, between or after the two writes."""
    if run.draw.randrange(3):
        run.saved_recovery_point = run.log.recovery_point
    if run.draw.randrange(3):
        run.saved_index_recovery_point = run.log.index_recovery_point


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32), st.booleans())
def test_a_bit_flipped_in_synced_data_is_never_truncated_silently(seed: int, power_goes: bool) -> None:
    run = Run(seed)
    for _ in range(run.draw.randrange(2, 25)):
        run.draw.choice([run.lead, run.lead, run.follow, run.roll, run.sync, run.truncate])()
    save_some(run)
    synced = [data for data in run.in_log() if headers(data)[0].next_offset <= run.saved_recovery_point]
    (run.machine.power_off if power_goes else run.machine.kill)()
    if not synced:
        return
    data = run.draw.choice([synced[-1], run.draw.choice(synced)])
    path, flipped = flip_bit(run, data)
    try:
        run.reopen(clean=False)
    except StorageCorrupt:
        return
    assert run.machine.content(path) == flipped, "its segment was not read"
    assert run.log.log_end_offset >= run.saved_recovery_point


def flip_bit(run: Run, data: bytes) -> tuple[str, bytes]:
    """Flip a bit of this batch, except in its offset and epoch, which no CRC covers. Return its file, and the file's
    bytes."""
    base_offset = headers(data)[0].base_offset
    path = max(
        f"{LOG}/{name}"
        for name in run.machine.files(LOG)
        if name.endswith(".log") and int(name.removesuffix(".log")) <= base_offset
    )
    flipped = bytearray(run.machine.content(path))
    at = flipped.index(data) + run.draw.choice([8, 9, 10, 11, *range(16, len(data))])
    flipped[at] ^= 1 << run.draw.randrange(8)
    run.machine.overwrite(path, bytes(flipped))
    return path, bytes(flipped)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_indexes_epochs_and_producers_equal_a_rebuild_from_the_batches(seed: int) -> None:
    run = Run(seed)
    run.go()
    run.delete()
    derived = describe(run.log)
    run.log.close(clean=True)
    files = run.machine.files(LOG)
    logs = {name: data for name, data in files.items() if name.endswith(".log")}
    run.machine.copy(LOG, logs)
    rebuilt = describe(open_log(run.machine, CONFIG, log_start=run.model.log_start))
    for mine, again in zip(derived.times, rebuilt.times, strict=True):
        assert set(again) <= set(mine)
    assert derived.offsets == rebuilt.offsets
    assert run.canonical(derived.epochs) == run.canonical(rebuilt.epochs)
    if run.log.segments[0].base_offset == 0:  # otherwise the start of the producers' history is missing
        assert derived.producers == rebuilt.producers


@dataclass
class Derived:
    offsets: list[list[tuple[int, ...]]]
    times: list[list[tuple[int, ...]]]
    epochs: EpochCache
    producers: list[tuple[int, ...]]


def describe(log: Log) -> Derived:
    for segment in log.segments:
        for handle in segment.handles:
            if handle.exists:
                handle.open_blocking()
    return Derived(
        [warmed(segment.index.rows) for segment in log.segments],
        [warmed(segment.time_index.rows) for segment in log.segments],
        EpochCache(log.epochs.entries),
        [tuple(row) for row in log.producers.snapshot()],
    )


@pytest.mark.parametrize("offset", range(13))
def test_reads_at_any_offset_around_a_roll_skip_and_repeat_no_records(offset: int) -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=200))
    datas = [batch(1, size=40) for _ in range(12)]
    for data in datas:
        lead(log, data)
    assert len(log.segments) > 4
    assert read_all(log, offset) == b"".join(datas[offset:])
