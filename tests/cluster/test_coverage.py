"""The coverage table counts what met what, and shows what never did."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.image.image import EMPTY_IMAGE
from kraft.sim.check.groups import AssignmentTold
from kraft.sim.check.observations import PartitionRecorded, TopicDeleted
from kraft.sim.check.shadow import Shadows
from kraft.sim.cluster.chronicle import ELECTION, ISR_CHANGE, REASSIGNMENT, REBALANCE, STATES, Chronicle
from kraft.sim.cluster.coverage import AFTERMATH_MS, classes_never_met, coverage_table, covered_by, never_met
from kraft.sim.nemesis.plan import (
    BLACKOUT,
    CRASH_KINDS,
    DIRECTORY,
    FAULT_CLASSES,
    FAULT_KINDS,
    NETWORK_KINDS,
    OTHER_KINDS,
    RARE_KINDS,
    WEAR_KINDS,
)


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


TP = ("orders", 0)


def recorded(isr: tuple[int, ...], epoch: int, *, leader: int = 1, adding: tuple[int, ...] = ()) -> PartitionRecorded:
    return PartitionRecorded(TP, isr, (), (), leader, epoch, epoch, False, 1, 0, (1, 2, *adding), adding=adding)


class Run:
    """A chronicle, and its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.chronicle = Chronicle(Shadows(), self.clock)
        self.at(0, recorded((1, 2), 0))

    def at(self, now_ms: int, *seen: PartitionRecorded) -> None:
        self.clock.now_ms = now_ms
        for each in seen:
            self.chronicle.observe(each, EMPTY_IMAGE)

    def fault(self, at_ms: int, end_ms: int) -> None:
        self.at(at_ms)
        window = self.chronicle.begin_fault("cut", (1, 2), "a cut")
        self.at(end_ms)
        self.chronicle.end_fault(window)

    def met(self, state: str) -> int:
        return covered_by(self.chronicle)["cut", state]


@pytest.mark.parametrize(
    ("change_ms", "met"), [(999, 0), (1_500, 1), (2_000 + AFTERMATH_MS, 1), (2_001 + AFTERMATH_MS, 0)]
)
def test_a_fault_meets_what_begins_while_it_lasts_or_soon_after(change_ms: int, met: int) -> None:
    run = Run()
    run.fault(1_000, 2_000)
    run.at(change_ms, recorded((1,), 1), recorded((1, 2), 2))
    assert run.met(ISR_CHANGE) == met
    assert not run.met(ELECTION)


@pytest.mark.parametrize(("end_ms", "met"), [(999, 0), (1_500, 1), (60_000, 1)])
def test_a_fault_meets_a_move_that_goes_on_when_it_strikes(end_ms: int, met: int) -> None:
    run = Run()
    run.at(100, recorded((1, 2), 1, adding=(3,)))
    run.at(end_ms, recorded((1, 2), 2))
    run.fault(1_000, 2_000)
    assert run.met(REASSIGNMENT) == met


def test_a_fault_meets_an_election_that_has_not_ended_and_a_rebalance() -> None:
    run = Run()
    run.at(100, recorded((1,), 1, leader=-1))
    run.chronicle.rejoins()
    run.fault(1_000, 2_000)
    assert (run.met(ELECTION), run.met(REBALANCE)) == (1, 1)
    run.at(3_000, recorded((1,), 2, leader=1))
    run.chronicle.assigned(AssignmentTold("g", "group-0", 1, None, None))
    run.fault(4_000, 5_000)
    assert (run.met(ELECTION), run.met(REBALANCE)) == (1, 1)


def test_what_a_deleted_topic_was_in_is_over() -> None:
    run = Run()
    run.at(100, recorded((1, 2), 1, adding=(3,)))
    run.chronicle.observe(TopicDeleted("orders"), EMPTY_IMAGE)
    run.fault(1_000, 2_000)
    assert not run.met(REASSIGNMENT)


def test_a_fault_that_nobody_came_across_meets_nothing() -> None:
    run = Run()
    run.fault(1_000, 2_000)
    run.at(1_500, recorded((1,), 1))
    run.chronicle.windows[0].is_met = False
    assert not run.met(ISR_CHANGE)


def test_the_documentation_says_how_many_cells_there_are() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    assert f" of {never_met({})[1]} cells were met" in text


def test_the_table_has_every_kind_and_marks_what_was_never_met() -> None:
    full = {(kind, state): 3 for kind in FAULT_KINDS for state in STATES}
    assert never_met(full) == ([], len(full))
    full["pause", ELECTION] = 0
    assert never_met(full)[0] == [("pause", ELECTION)]
    lines = list(coverage_table(full))
    assert len(lines) == 1 + len(FAULT_CLASSES) + len(FAULT_KINDS)
    assert ["never" in line for line in lines].count(True) == 1
    assert next(line for line in lines if "never" in line).startswith("  pause ")
    assert next(line for line in lines if line.startswith("time ")).split() == ["time", "3", *["6"] * 5]


def test_each_kind_of_faults_is_in_one_class() -> None:
    drawn = (*CRASH_KINDS, *NETWORK_KINDS, *OTHER_KINDS, *RARE_KINDS, *WEAR_KINDS, DIRECTORY, BLACKOUT)
    assert sorted(FAULT_KINDS) == sorted(drawn)


def test_a_class_met_a_state_if_one_of_its_kinds_did() -> None:
    some = {(kinds[0], state): 1 for kinds in FAULT_CLASSES.values() for state in STATES}
    assert classes_never_met(some) == []
    del some["clock", REBALANCE]
    assert classes_never_met(some) == [("time", REBALANCE)]
    assert classes_never_met(some | {("pause", REBALANCE): 1}) == []
    assert len(classes_never_met({})) == len(FAULT_CLASSES) * len(STATES)
