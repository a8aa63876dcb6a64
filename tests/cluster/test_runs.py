"""Whole runs of the in-memory cluster, short ones: every check watches, and a seed is one run whatever the process.

`make sim` runs many seeds for longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from kraft.sim.__main__ import _arguments, _print_failure, main
from kraft.sim.check.base import Finding
from kraft.sim.cluster.cold_starts import cold_start
from kraft.sim.cluster.faults import FaultSettings
from kraft.sim.cluster.run import RunSettings, run_seed

FAST = RunSettings(faults=FaultSettings(duration_ms=500, crashes=0))
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
    assert result.counters["crashes"] >= 1


def test_a_seed_gives_the_same_trace_in_fresh_processes_with_other_hash_seeds() -> None:
    def trace_hash(hash_seed: str, zone: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "TZ": zone}
        command = [sys.executable, "-c", IN_A_FRESH_PROCESS]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()[-1]

    first = trace_hash("1", "UTC")
    assert len(first) == 32
    assert first == trace_hash("4242", "Asia/Tokyo")


def test_a_seed_gives_the_same_trace_in_a_warm_process() -> None:
    settings = RunSettings(faults=FaultSettings(duration_ms=1_500, crashes=1))
    first, second, other = (run_seed(seed, settings) for seed in (5, 5, 6))
    assert first.trace_hash == second.trace_hash != other.trace_hash
    assert first.counters == second.counters
    assert first.history == second.history


def test_over_a_few_runs_every_check_sees_something() -> None:
    """A run in which a check saw nothing proves nothing for it."""
    settings = RunSettings(faults=FaultSettings(duration_ms=6_000, crashes=2))
    blind = set.intersection(*(set(run_seed(seed, settings).unseen) for seed in (1, 2)))
    assert blind <= {"R11", "R15", "D9", "K6"}


@pytest.mark.parametrize("voters", [3, 5])
def test_a_cold_start_takes_few_rounds(voters: int) -> None:
    for seed in range(3):
        start = cold_start(seed, voters)
        assert start.is_good, start
        assert start.took_ms < 1_000


def test_the_command_says_what_failed_and_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--seed", "7", "--seconds", "1", "--crashes", "1", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "seed 7" in said
    assert "1 of 1 seeds passed" in said
    failed = replace(run_seed(7, FAST), findings=(Finding("D1", 3, 9, "an acknowledged record is gone", {"node": 2}),))
    _print_failure(failed, _arguments(["--seconds", "1"]))
    said = capsys.readouterr().out
    assert "D1 at event 3 (9 ms): an acknowledged record is gone [node=2]" in said
    assert "python -m kraft.sim --seed 7 --seeds 1 --seconds 1 --crashes 3" in said


def test_cold_starts_are_counted_by_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cold-starts", "2", "--jobs", "1"]) == 0
    assert "3 voters, 2 cold starts: rounds" in capsys.readouterr().out
