"""Compaction compared with a simple reference model. Batches are written, committed, aborted, truncated and compacted
in any order. Readers always get the same last values, at the same offsets, and nothing that was not written.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from dataclasses import replace as changed

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.storage.compaction.round import CleanerLimits
from kraft.storage.log import AppendOrigin
from kraft.wire.records import Record
from kraft.wire.records.compression import Compression
from tests.stages.batches import LOG, NOW_MS, headers, lead, marker, open_log, read_all, sync, warmed
from tests.stages.machine import Machine
from tests.storage.cleaning import COMPACTED, Entry, clean, committed, last_values, settle, write

CONFIG = changed(
    COMPACTED, segment_bytes=700, delete_retention_ms=1000, producer_id_expiration_ms=1 << 40, file_delete_delay_ms=0
)
STEPS = 70


@dataclass
class CommittedModel:
    """Model of the log: every record that was ever committed, in the order of offsets."""

    records: list[Record] = field(default_factory=list)

    def add(self, base: int, entries: list[Entry], timestamp: int) -> None:
        for number, (key, value) in enumerate(entries):
            self.records.append(Record(base + number, timestamp + number, key, value))


class Run:
    """One random run. Producers 1 and 2 use transactions, producer 3 is idempotent."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.machine = Machine(seed, cold_read_one_in=9)
        self.log = open_log(self.machine, CONFIG)
        self.model = CommittedModel()
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.pending: dict[int, list[tuple[int, list[Entry], int]]] = {}
        self.cleaned = 0
        self.now_ms = NOW_MS

    def go(self) -> None:
        steps = [self.plain] * 5 + [self.idempotent] * 2 + [self.transactional] * 4 + [self.end] * 3
        steps += [self.clean] * 3 + [self.reopen, self.pass_time]
        for _ in range(STEPS):
            self.draw.choice(steps)()
        for producer in list(self.pending):
            self.end(producer)
        self.clean()
        self.compare()

    # writing

    def entries(self) -> list[Entry]:
        return [
            (b"k%d" % self.draw.randrange(6), self.draw.choice([None, b"%d" % self.draw.randrange(1000), b"x" * 90]))
            for _ in range(self.draw.randint(1, 4))
        ]

    def put(self, producer: int = -1, *, transactional: bool = False) -> tuple[int, list[Entry], int]:
        entries = self.entries()
        state = (-1, -1, -1) if producer < 0 else (producer, 0, self.sequences[producer])
        base = write(
            self.log,
            *entries,
            timestamp=self.now_ms,
            producer=state,
            transactional=transactional,
            compression=self.draw.choice(list(Compression)),
        )
        if producer >= 0:
            self.sequences[producer] += len(entries)
        return base, entries, self.now_ms

    def plain(self) -> None:
        self.model.add(*self.put())

    def idempotent(self) -> None:
        self.model.add(*self.put(3))

    def transactional(self) -> None:
        producer = self.draw.choice([1, 2])
        self.pending.setdefault(producer, []).append(self.put(producer, transactional=True))

    def end(self, producer: int | None = None) -> None:
        producer = self.draw.choice([1, 2]) if producer is None else producer
        commit = self.draw.random() < 0.6
        lead(self.log, marker(producer, 0, commit=commit), origin=AppendOrigin.COORDINATOR)
        for written in self.pending.pop(producer, []):
            if commit:
                self.model.add(*written)

    # time, crashes, compaction

    def pass_time(self) -> None:
        self.now_ms += self.draw.choice([10, 600, 5000])

    def reopen(self) -> None:
        sync(self.log)
        self.draw.choice([self.machine.kill, self.machine.power_off])()
        recovery_point = self.draw.choice([0, self.log.recovery_point])
        self.log = open_log(self.machine, CONFIG, recovery_point=recovery_point)
        self.log.update_high_watermark(self.log.log_end_offset)

    def clean(self) -> None:
        settle(self.log, roll=self.draw.random() < 0.7)
        before = (self.log.log_end_offset, self.log.producers.snapshot(), self.log.first_unstable_offset)
        limits = CleanerLimits(
            map_bytes_max=self.draw.choice([300, 900, 1 << 20]), read_bytes=self.draw.choice([64, 4096])
        )
        self.cleaned = clean(self.log, self.machine, self.cleaned, now_ms=self.now_ms, limits=limits)
        assert (self.log.log_end_offset, self.log.producers.snapshot(), self.log.first_unstable_offset) == before
        self.compare()

    def compare(self) -> None:
        expected = sorted(self.model.records, key=lambda record: record.offset)
        stable = warmed(lambda: self.log.last_stable_offset)
        found = [record for record in committed(self.log) if record.offset < stable]
        known = {record.offset: record for record in expected}
        assert [known.get(record.offset) for record in found] == found, "only what was written, as it was written"
        assert last_values(found) == last_values([record for record in expected if record.offset < stable])
        bases = [header.base_offset for header in headers(read_all(self.log))]
        assert bases == sorted(set(bases))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_readers_see_the_same_last_values_after_any_compactions(seed: int) -> None:
    Run(seed).go()


def test_producer_state_rebuilt_from_a_compacted_log_is_the_same() -> None:
    for seed in range(15):
        run = Run(seed)
        run.go()
        expected = {row.producer_id: row[1:4] for row in run.log.producers.snapshot()}
        sync(run.log)
        run.machine.kill()
        for name in run.machine.files(LOG):
            if name.endswith(".snapshot"):
                run.machine.disk.unlink(f"{LOG}/{name}")
        log = open_log(run.machine, CONFIG, recovery_point=0)
        assert {row.producer_id: row[1:4] for row in log.producers.snapshot()} == expected
        log.update_high_watermark(log.log_end_offset)
        assert log.first_unstable_offset is run.log.first_unstable_offset is None
