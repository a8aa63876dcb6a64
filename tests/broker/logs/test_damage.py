"""DamagedLogs and RefusedReads by themselves: which replica ends, which goes on, and when a log is looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.logs.damaged_logs import LEFT_ALONE_MS, DamagedLogs
from kraft.broker.logs.refused_reads import RefusedReads
from kraft.broker.partition.repeated_reads import AGAIN_MAX, SameAgain
from kraft.seam import StorageCorrupt
from tests.stages.part_stage import PartStage, play, replica

SELF, OTHER, DOWN = 1, 2, 3
CONSUMER = -5


def damaged(stage: PartStage, *, in_sync: tuple[int, ...], elr: tuple[int, ...] = ()) -> Any:
    state = SimpleNamespace(isr=in_sync, elr=elr)
    found = replica(stage.open_log(records=3), state=state, leader=None, same_again=None)

    def count_reads() -> SameAgain:
        found.same_again = SameAgain()
        return found.same_again

    found.count_reads = count_reads
    return found


@pytest.mark.parametrize(
    ("in_sync", "elr", "ends"),
    [((SELF,), (), False), ((SELF, OTHER), (), True), ((SELF, DOWN), (), False), ((SELF,), (OTHER,), True)],
)
def test_a_damaged_replica_ends_where_another_active_broker_could_lead(
    in_sync: tuple[int, ...], elr: tuple[int, ...], ends: bool
) -> None:
    async def test(stage: PartStage) -> None:
        lost: list[Any] = []
        logs = DamagedLogs(stage.loop, SELF, lambda: {SELF, OTHER}, lost.append)
        partition = damaged(stage, in_sync=in_sync, elr=elr)
        assert logs.met(partition, StorageCorrupt("damaged")) is ends
        assert (lost, stage.passes) == (([partition], 1) if ends else ([], 0))

    play(test)


class Reads:
    """`looks` are the looks at a log whose damage costs nothing here."""

    def __init__(self, stage: PartStage) -> None:
        self.met: list[Any] = []
        self.others_can_lead = False
        logs: Any = SimpleNamespace(met=self._met, others_can_lead=lambda partition: self.others_can_lead)
        failures: Any = SimpleNamespace(disk_failed=lambda *_: None)
        self.reads = RefusedReads(stage.loop, logs, failures)
        self.partition = damaged(stage, in_sync=(SELF,))
        stage.flip_a_bit("/data/orders-0/00000000000000000000.log", 70)

    def _met(self, partition: Any, damage: StorageCorrupt) -> bool:
        self.met.append(str(damage))
        return False

    def come_back(self) -> None:
        for _ in range(1 + AGAIN_MAX):
            self.reads.given(self.partition, CONSUMER, 0, 1)


def test_a_log_is_looked_at_when_a_reader_comes_back_again_and_then_left_alone_for_a_while() -> None:
    async def test(stage: PartStage) -> None:
        reads = Reads(stage)
        reads.reads.given(reads.partition, CONSUMER, 0, 1)
        await stage.finish_tasks()
        assert reads.met == []
        for looks in (1, 1):
            reads.come_back()
            await stage.finish_tasks()
            assert len(reads.met) == looks
        await stage.world.sleep_ms(LEFT_ALONE_MS)
        reads.come_back()
        await stage.finish_tasks()
        assert len(reads.met) == 2

    play(test)


def test_a_log_that_was_left_alone_is_looked_at_again_once_others_can_lead() -> None:
    async def test(stage: PartStage) -> None:
        reads = Reads(stage)
        reads.come_back()
        await stage.finish_tasks()
        reads.others_can_lead = True
        reads.come_back()
        await stage.finish_tasks()
        assert len(reads.met) == 2

    play(test)
