"""The leader-epoch cache compared with a simple reference model, and the cache's file."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.seam import StorageCorrupt
from kraft.storage.epochs import UNDEFINED, EpochCache
from kraft.storage.log import LogConfig
from tests.stages.batches import LOG, NOW_MS, batch, follow, lead, open_log
from tests.stages.machine import Machine


class EpochModel:
    """Model of the cache: the epoch of every single offset."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []

    def assign(self, epoch: int, start: int) -> None:
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start:
            return
        self.entries = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start] + [(epoch, start)]

    def epoch_for(self, offset: int) -> int:
        found = [epoch for epoch, start in self.entries if start <= offset]
        return found[-1] if found else -1

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        if not self.entries or epoch > max(entry[0] for entry in self.entries) or epoch < 0:
            return UNDEFINED
        floors = [entry[0] for entry in self.entries if entry[0] <= epoch]
        floor = floors[-1] if floors else epoch
        later = [start for known, start in self.entries if known > epoch]
        return floor, (later[0] if later else log_end)

    def truncate_from_end(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry[1] < offset]

    def truncate_from_start(self, offset: int) -> None:
        below = [entry for entry in self.entries if entry[1] <= offset]
        kept = [entry for entry in self.entries if entry[1] > offset]
        self.entries = ([(below[-1][0], offset)] if below else []) + kept


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 32))
def test_epoch_cache_agrees_with_a_simple_reference_model(seed: int) -> None:
    draw = random.Random(seed)
    cache, model = EpochCache(), EpochModel()
    for _ in range(30):
        number = draw.randrange(40)
        if draw.random() < 0.6:
            epoch = draw.randrange(12)
            changes = cache.changes
            assert cache.assign(epoch, number) == (cache.changes != changes)
            model.assign(epoch, number)
        else:
            name = draw.choice(["truncate_from_end", "truncate_from_start"])
            getattr(cache, name)(number)
            getattr(model, name)(number)
        assert cache.entries == tuple(model.entries)
        assert cache.latest_epoch == (model.entries[-1][0] if model.entries else -1)
        assert EpochCache.decode(cache.encode(), "file").entries == cache.entries
        for value in range(-1, 45):
            assert cache.epoch_for(value) == model.epoch_for(value)
            assert cache.end_offset_for(value, 50) == model.end_offset_for(value, 50)


def test_the_leader_epoch_checkpoint_has_kafkas_bytes() -> None:
    assert EpochCache([(3, 0), (7, 120)]).encode() == b"0\n2\n3 0\n7 120\n"


@pytest.mark.parametrize(
    "text", [b"", b"1\n0\n", b"0\nx\n", b"0\n2\n1 0\n", b"0\n1\n1 zero\n", b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 5\n"]
)
def test_a_bad_leader_epoch_checkpoint_is_reported_with_its_line(text: bytes) -> None:
    with pytest.raises(StorageCorrupt, match="leader-epoch-checkpoint: "):
        EpochCache.decode(text, "/data/orders-0/leader-epoch-checkpoint")


def test_truncation_that_removes_no_bytes_removes_the_epoch_of_a_leader_that_appended_nothing() -> None:
    machine = Machine()
    log = open_log(machine)
    lead(log, batch(3), 1)
    log.epochs.assign(4, log.log_end_offset)
    assert not log.truncate_to(log.log_end_offset, NOW_MS)
    assert log.epochs.entries == ((1, 0),)
    assert machine.content(f"{LOG}/leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_a_follower_records_the_epoch_of_each_batch() -> None:
    log = open_log(Machine())
    parts = [batch(2, base=0, epoch=1), batch(1, base=2, epoch=1), batch(1, base=3, epoch=4), batch(1, base=9, epoch=6)]
    follow(log, b"".join(parts))
    assert log.epochs.entries == ((1, 0), (4, 3), (6, 9))


def test_the_epoch_entry_of_a_leader_is_durable_before_its_first_append() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig())
    log.epochs.assign(5, log.log_end_offset)
    plan = log.ready_plan(machine.host.chance.uuid())
    assert plan is not None
    plan.run()
    log.mark_synced(plan)
    machine.power_off()
    files = machine.files(LOG)
    assert files["leader-epoch-checkpoint"] == b"0\n1\n5 0\n"
    assert files["partition.metadata"].startswith(b"version: 0\ntopic_id: ")
    assert log.recovery_point == 0
    assert log.ready_plan(machine.host.chance.uuid()) is None
    machine.kill()
    log = open_log(machine, LogConfig())
    plan = log.ready_plan(machine.host.chance.uuid())
    assert plan is not None  # the epoch at the log end had no batch, and was removed
    assert plan.writes == ((f"{LOG}/leader-epoch-checkpoint", b"0\n0\n"),)


def test_a_restart_without_a_new_epoch_has_no_epoch_checkpoint_to_save() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig())
    lead(log, batch(1), 3)
    lead(log, batch(1), 5)
    log.close(clean=True)
    for clean in (True, False):
        assert not open_log(machine, LogConfig(), clean=clean).epochs.dirty
