"""The faults of one run of a scenario: the faults in the scenario's file, and random faults drawn from a seed if the
file requests them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.sim.chaos.scenarios.fault_tables import RETURNING, planned_end_ms
from kraft.sim.chaos.scenarios.scenario import Scenario, ScenarioFault
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import faults_of_seed
from kraft.sim.nemesis.plan import Fault

if TYPE_CHECKING:
    from kraft.sim.breakable_cluster import BreakableCluster

MAY_LOSE_RECORDS = (plan.EMPTY_DISK, "failing sync")
"""Kinds of faults that are not drawn: several brokers could have them at once, and then acknowledged records may be
lost."""
FULL_DISK = "full disk"
WORK_AFTER_FAULTS_MS = 5_000


LASTS_MS_MIN, DOWN_MS_MIN = 2_000, 1_000
"""Minimum duration of drawn faults, and minimum downtime of nodes. The effects of shorter ones may not be observed."""
APART_MS = 2_500
"""Pause between two successive faults of a lane (a sequence of faults that do not overlap). Nodes return to the ISR in
it."""
AMOUNTS = MappingProxyType({plan.LATENCY: (300, 600), plan.SLOW_LINK: (500, 2_000), plan.BYTE_LIMIT: (500, 4_000)})
"""Kind of fault → minimum and maximum of the amount that is drawn. The effects of other amounts would not be observed.
"""


def drawn_kinds() -> frozenset[str]:
    """Return the kinds of faults that may be drawn for a cluster that can have all kinds."""
    return frozenset(plan.FAULT_KINDS) - {*MAY_LOSE_RECORDS}


def faults_of_run(scenario: Scenario, cluster: BreakableCluster, seed: int) -> tuple[ScenarioFault, ...]:
    """Return the faults in the scenario's file, and the drawn faults in separate lanes (faults of one lane never
    overlap). Drawn faults end early enough for clients to work for WORK_AFTER_FAULTS_MS after the last one, and each
    lasts long enough for its effect to be observed. A drawn loss of power becomes a kill; other kinds of
    MAY_LOSE_RECORDS are omitted."""
    if not scenario.random_faults:
        return scenario.faults
    until_ms = max(1, scenario.duration_ms - WORK_AFTER_FAULTS_MS)
    lanes: dict[int, list[Fault]] = {}
    for fault in faults_of_seed(cluster, seed, until_ms):
        if _is_drawn(fault, cluster):
            lanes.setdefault(fault.lane, []).append(_visible(fault))
    taken = {one.fault.lane for one in scenario.faults}
    free = (lane for lane in count() if lane not in taken)
    drawn = [fault for _, faults in sorted(lanes.items()) for fault in _apart(faults, next(free), until_ms)]
    return (*scenario.faults, *(ScenarioFault(fault=fault) for fault in sorted(drawn, key=lambda fault: fault.at_ms)))


def _is_drawn(fault: Fault, cluster: BreakableCluster) -> bool:
    """Return whether a drawn fault is used. Faults of a single link to a controller are not, because the link carries
    too little traffic for them to be noticed. Faults of a full disk are used for brokers only, because only brokers
    have small disks."""
    ends = {fault.node, fault.other} if fault.kind in plan.LINK_KINDS else {fault.node}
    is_of_brokers = fault.kind in (FULL_DISK, *plan.LINK_KINDS)
    return fault.kind not in MAY_LOSE_RECORDS and (not is_of_brokers or ends <= {*cluster.broker_ids})


def _visible(fault: Fault) -> Fault:
    """Return the fault with a duration and an amount large enough for its effect to be observed."""
    kind = plan.KILL if fault.kind == plan.POWER_LOSS else fault.kind
    least, most = AMOUNTS.get(kind, (fault.amount, fault.amount))
    return replace(
        fault,
        kind=kind,
        duration_ms=max(fault.duration_ms, LASTS_MS_MIN) if fault.duration_ms else 0,
        back_ms=max(fault.back_ms, DOWN_MS_MIN) if kind in RETURNING else 0,
        amount=min(max(fault.amount, least), most),
    )


def _apart(faults: Iterable[Fault], lane: int, until_ms: int) -> Iterator[Fault]:
    """Schedule the faults one after the other, as many as there is time for."""
    free_ms = 0
    for fault in sorted(faults, key=lambda fault: fault.at_ms):
        later = replace(fault, at_ms=max(fault.at_ms, free_ms), lane=lane)
        if planned_end_ms(later) <= until_ms:
            free_ms = planned_end_ms(later) + APART_MS
            yield later
