"""Tests of the coverage table: it counts which faults coincided with which states, and shows cells that stayed zero."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft.image.image import EMPTY_IMAGE
from kraft.sim.check.groups import AssignmentReceived
from kraft.sim.check.observations import PartitionRecorded, RoleSeen, TopicDeleted
from kraft.sim.check.shadow import Shadows
from kraft.sim.cluster.chronicle import ELECTION, ISR_CHANGE, REASSIGNMENT, REBALANCE, STATES, Chronicle
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
from kraft.sim.run.fault_coverage import AFTERMATH_MS, classes_never_met, coverage_table, covered_by, never_met


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


TP = ("orders", 0)


def recorded(isr: tuple[int, ...], epoch: int, *, leader: int = 1, adding: tuple[int, ...] = ()) -> PartitionRecorded:
    return PartitionRecorded(TP, isr, (), (), leader, epoch, epoch, False, 1, 0, (1, 2, *adding), adding=adding)


class Run:
    """The chronicle (main events) of a run, with a clock that the test sets."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.chronicle = Chronicle(Shadows(), self.clock)
        self.at(0, recorded((1, 2), 0))

    def at(self, now_ms: int, *seen: PartitionRecorded) -> None:
        self.clock.now_ms = now_ms
        for each in seen:
            self.chronicle.observe(each, EMPTY_IMAGE)

    def fault(self, at_ms: int, end_ms: int, kind: str = "cut", nodes: tuple[int, ...] = (1, 2)) -> None:
        self.at(at_ms)
        window = self.chronicle.begin_fault(kind, nodes, kind)
        self.at(end_ms)
        self.chronicle.end_fault(window)

    def met(self, state: str, kind: str = "cut") -> int:
        return covered_by(self.chronicle)[kind, state]

    def leads(self, controller: int) -> None:
        """Record that controller 101 leads the quorum of voters 101 and 102."""
        for node in (101, 102):
            seen = RoleSeen(node, 1, controller, node == controller, controller, True, 0, 0, 0)
            self.chronicle.observe(seen, EMPTY_IMAGE)


@pytest.mark.parametrize(
    ("change_ms", "met"), [(999, 0), (1_500, 1), (2_000 + AFTERMATH_MS, 1), (2_001 + AFTERMATH_MS, 0)]
)
def test_coverage_counts_a_fault_for_a_state_that_begins_during_or_soon_after_the_fault(
    change_ms: int, met: int
) -> None:
    run = Run()
    run.fault(1_000, 2_000)
    run.at(change_ms, recorded((1,), 1), recorded((1, 2), 2))
    assert run.met(ISR_CHANGE) == met
    assert not run.met(ELECTION)


@pytest.mark.parametrize(("end_ms", "met"), [(999, 0), (1_500, 1), (60_000, 1)])
def test_coverage_counts_a_fault_for_a_reassignment_that_is_in_progress_when_the_fault_begins(
    end_ms: int, met: int
) -> None:
    run = Run()
    run.at(100, recorded((1, 2), 1, adding=(3,)))
    run.at(end_ms, recorded((1, 2), 2))
    run.fault(1_000, 2_000)
    assert run.met(REASSIGNMENT) == met


def test_coverage_counts_a_fault_for_an_election_and_a_rebalance_that_have_not_ended() -> None:
    run = Run()
    run.at(100, recorded((1,), 1, leader=-1))
    run.chronicle.rejoins(1)
    run.fault(1_000, 2_000, "pause", (1,))
    assert (run.met(ELECTION, "pause"), run.met(REBALANCE, "pause")) == (1, 1)
    run.at(3_000, recorded((1,), 2, leader=1))
    run.chronicle.assigned(AssignmentReceived("g", "group-0", 1, None, None), 2)
    run.fault(4_000, 5_000, "pause", (1,))
    assert (run.met(ELECTION, "pause"), run.met(REBALANCE, "pause")) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "nodes", "met"),
    [
        ("cut", (1, 2), 1),
        ("cut", (1, 3), 0),  # a link with only one end that takes part
        ("kill", (1,), 1),
        ("kill", (3,), 0),
        ("kill", (101,), 1),  # the active controller decides it
        ("kill", (102,), 0),
        ("isolate", (3, 1), 1),
    ],
)
def test_coverage_counts_a_fault_only_for_states_of_the_nodes_that_it_affects(
    kind: str, nodes: tuple[int, ...], met: int
) -> None:
    run = Run()
    run.leads(101)
    run.fault(1_000, 2_000, kind, nodes)
    run.at(2_500, recorded((1,), 1))
    assert run.met(ISR_CHANGE, kind) == met


@pytest.mark.parametrize(("nodes", "met"), [((102,), 1), ((1,), 0)])
def test_coverage_of_elections_in_the_quorum_counts_only_faults_of_voters(nodes: tuple[int, ...], met: int) -> None:
    run = Run()
    run.leads(101)
    run.fault(1_000, 2_000, "pause", nodes)
    run.at(2_500)
    run.leads(102)
    assert run.met(ELECTION, "pause") == met


@pytest.mark.parametrize(("nodes", "met"), [((2,), 1), ((3,), 1), ((1,), 0)])
def test_coverage_counts_faults_of_a_coordinator_or_its_partitions_replicas_for_a_rebalance(
    nodes: tuple[int, ...], met: int
) -> None:
    run = Run()
    offsets = replace(recorded((2, 3), 0, leader=2), topic_partition=("__consumer_offsets", 1), replicas=(2, 3))
    run.at(100, offsets)
    run.fault(1_000, 2_000, "pause", nodes)
    run.at(2_500)
    run.chronicle.rejoins(2)
    assert run.met(REBALANCE, "pause") == met


def test_coverage_counts_no_fault_for_a_reassignment_after_its_topic_was_deleted() -> None:
    run = Run()
    run.at(100, recorded((1, 2), 1, adding=(3,)))
    run.chronicle.observe(TopicDeleted("orders"), EMPTY_IMAGE)
    run.fault(1_000, 2_000)
    assert not run.met(REASSIGNMENT)


def test_coverage_counts_a_fault_without_effect_for_no_state() -> None:
    run = Run()
    run.fault(1_000, 2_000)
    run.at(1_500, recorded((1,), 1))
    run.chronicle.windows[0].is_met = False
    assert not run.met(ISR_CHANGE)


def test_the_documentation_has_the_number_of_coverage_cells() -> None:
    text = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    assert f" of {never_met({})[1]} cells were met" in text


def test_the_coverage_table_lists_every_kind_and_marks_empty_cells() -> None:
    full = {(kind, state): 3 for kind in FAULT_KINDS for state in STATES}
    assert never_met(full) == ([], len(full))
    full["pause", ELECTION] = 0
    assert never_met(full)[0] == [("pause", ELECTION)]
    lines = list(coverage_table(full))
    assert len(lines) == 1 + len(FAULT_CLASSES) + len(FAULT_KINDS)
    assert ["never" in line for line in lines].count(True) == 1
    assert next(line for line in lines if "never" in line).startswith("  pause ")
    assert next(line for line in lines if line.startswith("time ")).split() == ["time", "3", *["6"] * 5]


def test_each_kind_of_fault_belongs_to_one_class_of_the_coverage_table() -> None:
    drawn = (*CRASH_KINDS, *NETWORK_KINDS, *OTHER_KINDS, *RARE_KINDS, *WEAR_KINDS, DIRECTORY, BLACKOUT)
    assert sorted(FAULT_KINDS) == sorted(drawn)


def test_coverage_counts_a_class_of_faults_for_a_state_if_it_counts_one_kind_of_the_class() -> None:
    some = {(kinds[0], state): 1 for kinds in FAULT_CLASSES.values() for state in STATES}
    assert classes_never_met(some) == []
    del some["clock", REBALANCE]
    assert classes_never_met(some) == [("time", REBALANCE)]
    assert classes_never_met(some | {("pause", REBALANCE): 1}) == []
    assert len(classes_never_met({})) == len(FAULT_CLASSES) * len(STATES)
