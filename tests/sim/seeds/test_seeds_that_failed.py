"""Tests with whole runs that failed once: each seed that still draws the plan that failed, with a description of the
bug.

The draws of a seed change with SCHEDULE_VERSION, and its run changes with any code. So each bug also has a schedule of
its own, in test_fixed_bugs.py or test_fixed_checks.py. For bugs of earlier versions there are only these schedules.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.sim.cluster.sizes import PRODUCER_EPOCHS
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import (
    GROUP_ROLES,
    MIXED_GROUP,
    SCHEDULE_VERSION,
    SHARE_GROUP,
    SHARE_ROLES,
    TRANSACTION_ROLES,
    TRANSACTION_VERSION_MAX,
    TRANSACTOR,
    Plan,
)
from kraft.sim.nemesis.swarm import CONSUMER_GROUP_SETTINGS, SHARE_GROUP_SETTINGS, draw_plan
from kraft.sim.run.run import run_plan

DRAWN_BY = 16
"""SCHEDULE_VERSION with which these seeds draw the plans that failed, with transactions, the mixed group and the share
groups added."""
LATER_CLIENTS = (TRANSACTOR, MIXED_GROUP, SHARE_GROUP)
LATER_ROLES = (*TRANSACTION_ROLES, *GROUP_ROLES, *SHARE_ROLES)
LATER_SETTINGS = {**CONSUMER_GROUP_SETTINGS, **SHARE_GROUP_SETTINGS}

WHAT_THE_BUG_WAS = {
    15: "a broker with a damaged metadata log lost its epoch with it (R3)",
    93: "the check held a log to what lies before its leader's begin (D12)",
    162: "the check forgot what a voter had acknowledged before its disk was replaced (R9)",
    169: "records that were never committed stayed where the committed ones were deleted (D1, D2, D18)",
    406: "records that were never committed stayed where the committed ones were deleted (D2)",
    461: "a topic's settings that changed while its log was being opened did not reach the log (L11)",
    466: "a broker with a damaged metadata log lost its epoch with it (R3)",
    557: "the checks' own metadata stood still where an only controller trimmed its log between two looks (M1)",
    583: "the check forgot what a voter had acknowledged before its disk was replaced (R9)",
    722: "a broker with a damaged metadata log lost its epoch with it (R3)",
    1281: "the check took an election in the record that grew the ISR for an unclean one (M5, K3)",
    1649: "open calls that ask the same took the judge of histories more steps than it has",
    1726: "the check forgot an unclean stop that no registration had told of (M5)",
    1739: "the check was not told where a log begins in a folder that a power loss has emptied (D1, K7)",
    1975: "a producer's batch overtook the one before it by way of the new leader (T2)",
    4149: "records that were never committed stayed where the committed ones were deleted (D1, D2)",
    940029: "a copy of a replica from a move given up took the place of the replica (D5)",
    940046: "the check took a registration committed late for the one of the next life (M16)",
}


def test_the_seeds_still_draw_the_plans_that_failed() -> None:
    assert SCHEDULE_VERSION == DRAWN_BY, "other plans: take out these seeds, and keep the stories"


def plan_that_failed(seed: int) -> Plan:
    """Return the plan as it was before transactions, the mixed group and share groups were drawn: without them, and
    without the faults that wait for them."""
    plan = draw_plan(seed, FaultSettings())
    work = {client: operations for client, operations in plan.work.items() if client not in LATER_CLIENTS}
    overrides = {key: value for key, value in plan.shape.overrides.items() if key not in LATER_SETTINGS}
    return replace(
        plan,
        shape=replace(plan.shape, overrides=overrides),
        work=work,
        transaction_version=TRANSACTION_VERSION_MAX,
        small_sizes=tuple(name for name in plan.small_sizes if name != PRODUCER_EPOCHS),
        faults=tuple(fault for fault in plan.faults if fault.role not in LATER_ROLES),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", WHAT_THE_BUG_WAS)
def test_a_seed_that_once_failed_passes(seed: int) -> None:
    result = run_plan(plan_that_failed(seed))
    assert not result.findings, (WHAT_THE_BUG_WAS[seed], result.history, result.findings)
    assert not result.counters["undecided"]
