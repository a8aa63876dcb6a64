"""Whole runs of the in-memory cluster, short ones: every check watches, and a seed is one run whatever the process.

`make sim` runs many seeds for longer.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kraft.sim.cluster.faults import FaultSettings
from kraft.sim.cluster.run import RunSettings, run_seed

FAULTS = FaultSettings(duration_ms=4_000, crashes=1)
IN_A_FRESH_PROCESS = """
from kraft.sim.cluster.faults import FaultSettings
from kraft.sim.cluster.run import RunSettings, run_seed
print(run_seed(3, RunSettings(faults=FaultSettings(duration_ms=4_000, crashes=1))).trace_hash)
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_with_a_crash_keeps_every_invariant(seed: int) -> None:
    result = run_seed(seed, RunSettings(faults=FAULTS))
    assert not result.findings, (result.history, result.findings)
    assert result.counters["acknowledged"] > 0
    assert result.counters["crashes"] == 1


def test_a_seed_gives_the_same_trace_in_fresh_processes_with_other_hash_seeds() -> None:
    def trace_hash(hash_seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", IN_A_FRESH_PROCESS]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()[-1]

    first = trace_hash("1")
    assert len(first) == 32
    assert first == trace_hash("4242")
