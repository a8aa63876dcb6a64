"""The faults of one run of a scenario: those of its file, and those that a seed draws where it asks for random ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from kraft.sim.chaos.fault_tables import planned_end_ms
from kraft.sim.chaos.scenario import Scenario, ScenarioFault
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import faults_of_seed

if TYPE_CHECKING:
    from kraft.sim.breakable_cluster import BreakableCluster

MAY_LOSE_RECORDS = (plan.POWER_LOSS, plan.EMPTY_DISK, "failing sync")
"""Kinds that are not drawn: several brokers at once can have them, and then acknowledged records may be gone."""
WORK_AFTER_FAULTS_MS = 5_000


def faults_of_run(scenario: Scenario, cluster: BreakableCluster, seed: int) -> tuple[ScenarioFault, ...]:
    """In lanes of their own, the drawn ones end so early that clients work for WORK_AFTER_FAULTS_MS after the last. A
    drawn loss of power is a kill; other kinds of MAY_LOSE_RECORDS are left out."""
    if not scenario.random_faults:
        return scenario.faults
    until_ms = max(1, scenario.duration_ms - WORK_AFTER_FAULTS_MS)
    drawn = [
        replace(fault, kind=plan.KILL) if fault.kind == plan.POWER_LOSS else fault
        for fault in faults_of_seed(cluster, seed, until_ms)
    ]
    kept = [fault for fault in drawn if fault.kind not in MAY_LOSE_RECORDS and planned_end_ms(fault) <= until_ms]
    taken = {one.fault.lane for one in scenario.faults}
    free = (lane for lane in count() if lane not in taken)
    lanes = {lane: next(free) for lane in sorted({fault.lane for fault in kept})}
    return (*scenario.faults, *(ScenarioFault(fault=replace(fault, lane=lanes[fault.lane])) for fault in kept))
