"""Tests of runs in parallel worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraft.sim.cores import campaign as cores_campaign
from kraft.sim.cores.campaign import run_campaign
from kraft.sim.cores.runs import CoresSettings
from kraft.sim.run import seed_campaign as campaign
from kraft.sim.run.seed_campaign import CampaignSettings, SeedCampaign
from kraft.sim.seed_processes import RUNS_PER_PROCESS, Died, in_processes
from tests.sim.run.process_functions import blocks_interrupts, dies_of, finds_hypothesis, process_of, raises

SHORT_SEED = 75
"""Seed whose run takes a third of the CPU time of most seeds."""


def test_a_worker_process_imports_no_test_tools() -> None:
    assert list(in_processes(finds_hypothesis, (1, 2), 2)) == [(1, False), (2, False)]


def test_a_campaign_with_one_job_runs_many_seeds_in_new_processes_to_free_memory() -> None:
    few, many = range(RUNS_PER_PROCESS), range(RUNS_PER_PROCESS + 1)
    assert set(in_processes(process_of, few, 1)) == {os.getpid()}
    *first, last = in_processes(process_of, many, 1)
    assert len(set(first)) == 1
    assert last not in {*first, os.getpid()}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_dead_worker_process_fails_only_its_current_seed(jobs: int) -> None:
    came = list(in_processes(dies_of, range(1, 8), jobs, runs_per_process=4))
    assert came == [-1, -2, Died(3, 7), -4, Died(5, -signal.SIGKILL), -6, -7]
    assert [str(each) for each in came if isinstance(each, Died)] == [
        "its process ended with exit code 7",
        "its process was ended by SIGKILL: out of memory?",
    ]


def test_an_exception_in_a_worker_process_is_raised_with_a_note_of_its_original_traceback() -> None:
    with pytest.raises(KeyError) as raised:
        list(in_processes(raises, (1, 2), 2))
    assert any("in raises" in note for note in raised.value.__notes__)


def test_a_seed_that_is_listed_twice_is_run_twice_in_worker_processes() -> None:
    assert list(in_processes(dies_of, (1, 1, 2), 2)) == [-1, -1, -2]


def test_a_campaign_reports_a_seed_whose_process_died_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(campaign, "in_processes", lambda _run, seeds, _jobs: (Died(seed, -9) for seed in seeds))
    said: list[str] = []
    ran = SeedCampaign(CampaignSettings([7, 8], failures=tmp_path), said.append)
    assert not ran.run()
    assert ran.failed == [7, 8]
    assert "seed 7      failed: its process was ended by SIGKILL: out of memory?" in said
    assert "failed: 7, 8" in said


def test_a_cores_campaign_reports_a_seed_whose_process_died(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(_run: Any, seeds: range, _jobs: int, *, runs_per_process: int) -> Any:
        return (Died(seed, 1) for seed in seeds)

    monkeypatch.setattr(cores_campaign, "in_processes", twin)
    said: list[str] = []
    ran = run_campaign([5], CoresSettings(), 2, said.append)
    assert not ran.is_good
    assert "raft: seed 5 failed: its process ended with exit code 1" in said
    assert "raft: 0 of 1 seeds passed, all checks on" in said
    assert said[-1] == "failed: 5"


def test_a_worker_process_started_later_than_the_first_ignores_interrupts_too() -> None:
    assert list(in_processes(blocks_interrupts, (1, 2), 1, runs_per_process=1)) == [True, True]
    assert not blocks_interrupts(0)


def test_ctrl_c_ends_all_worker_processes_silently(tmp_path: Path) -> None:
    first = ("--seed", str(SHORT_SEED), "--seeds", "1000")
    arguments = ("sim", *first, "--jobs", "2", "--seconds", "0.1", "--crashes", "0")
    command = [sys.executable, "-m", "kraft.deploy.cli", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert f"seed {SHORT_SEED}" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
