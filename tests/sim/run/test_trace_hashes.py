"""Test that ten seeds have the trace hashes that were recorded, on every supported Python."""

from __future__ import annotations

import pytest

from kraft.sim.run.run import run_plan
from tests.sim.run.trace_hashes import QUICK_SEEDS, SLOW_SEEDS, kept_hashes, plan_of

SEEDS = (*QUICK_SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW_SEEDS))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_has_its_recorded_trace_hash(seed: int) -> None:
    plan = plan_of(seed)
    result = run_plan(plan)
    assert plan.faults
    assert not result.findings
    assert result.history, "no fault has happened"
    assert result.counters["L10"] > 0, "nothing was read in the end"
    assert result.trace_hash == kept_hashes()[str(seed)], (
        "another run than before: if that is meant, `python -m tests.sim.run.trace_hashes` keeps the new ones"
    )
