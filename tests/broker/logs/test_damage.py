"""DamagedLogs and RepeatedReadChecks without a broker: when a damaged replica goes offline or stays online, and when
bytes are checked.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.logs.damaged_logs import NEXT_REPORT_AFTER_MS, DamagedLogs
from kraft.broker.logs.repeated_read_checks import RepeatedReadChecks
from kraft.broker.partition.repeated_reads import REPEATS_MAX, RepeatedReads
from kraft.seam import StorageCorrupt
from tests.stages.part_stage import PartStage, play, replica

SELF, OTHER, DOWN = 1, 2, 3
CONSUMER = -5


def damaged(stage: PartStage, *, in_sync: tuple[int, ...], elr: tuple[int, ...] = ()) -> Any:
    state = SimpleNamespace(isr=in_sync, elr=elr)
    found = replica(stage.open_log(records=3), state=state, leader=None, repeated_reads=None)

    def count_reads() -> RepeatedReads:
        found.repeated_reads = RepeatedReads()
        return found.repeated_reads

    found.count_reads = count_reads
    return found


@pytest.mark.parametrize(
    ("in_sync", "elr", "ends"),
    [((SELF,), (), False), ((SELF, OTHER), (), True), ((SELF, DOWN), (), False), ((SELF,), (OTHER,), True)],
)
def test_a_damaged_replica_goes_offline_if_another_active_broker_could_lead(
    in_sync: tuple[int, ...], elr: tuple[int, ...], ends: bool
) -> None:
    async def test(stage: PartStage) -> None:
        lost: list[Any] = []
        logs = DamagedLogs(stage.loop, SELF, lambda: {SELF, OTHER}, lost.append)
        partition = damaged(stage, in_sync=in_sync, elr=elr)
        assert logs.damage_found(partition, StorageCorrupt("damaged")) is ends
        assert (lost, stage.passes) == (([partition], 1) if ends else ([], 0))

    play(test)


class Reads:
    """Repeated reads of a damaged log. `looks` is the number of times that the read bytes were checked."""

    def __init__(self, stage: PartStage) -> None:
        self.found: list[Any] = []
        self.others_can_lead = False
        logs: Any = SimpleNamespace(
            damage_found=self._damage_found, others_can_lead=lambda partition: self.others_can_lead
        )
        failures: Any = SimpleNamespace(disk_failed=lambda *_: None)
        self.reads = RepeatedReadChecks(stage.loop, logs, failures)
        self.partition = damaged(stage, in_sync=(SELF,))
        stage.flip_a_bit("/data/orders-0/00000000000000000000.log", 70)

    def _damage_found(self, partition: Any, damage: StorageCorrupt) -> bool:
        self.found.append(str(damage))
        return False

    def fetch_repeatedly(self) -> None:
        for _ in range(1 + REPEATS_MAX):
            self.reads.bytes_sent(self.partition, CONSUMER, 0, 1)


def test_repeatedly_fetched_bytes_are_checked_and_then_not_checked_again_for_a_while() -> None:
    async def test(stage: PartStage) -> None:
        reads = Reads(stage)
        reads.reads.bytes_sent(reads.partition, CONSUMER, 0, 1)
        await stage.finish_tasks()
        assert reads.found == []
        for looks in (1, 1):
            reads.fetch_repeatedly()
            await stage.finish_tasks()
            assert len(reads.found) == looks
        await stage.world.sleep_ms(NEXT_REPORT_AFTER_MS)
        reads.fetch_repeatedly()
        await stage.finish_tasks()
        assert len(reads.found) == 2

    play(test)


def test_skipped_damaged_bytes_are_checked_again_once_another_replica_can_lead() -> None:
    async def test(stage: PartStage) -> None:
        reads = Reads(stage)
        reads.fetch_repeatedly()
        await stage.finish_tasks()
        reads.others_can_lead = True
        reads.fetch_repeatedly()
        await stage.finish_tasks()
        assert len(reads.found) == 2

    play(test)
