"""Runs side by side in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from kraft.sim.cluster.many import RUNS_PER_PROCESS, in_processes
from kraft.sim.worker_pool import open_worker_pool


def finds_hypothesis(seed: int) -> tuple[int, bool]:
    """What kio would find: importing it takes seconds, and warns of trio's random numbers."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        return seed, False
    return seed, True


def test_a_process_of_runs_imports_no_test_tools() -> None:
    assert list(in_processes(finds_hypothesis, (1, 2), 2)) == [(1, False), (2, False)]


def process_of(seed: int) -> int:
    return os.getpid()


def test_one_job_gives_back_what_many_runs_leave_behind() -> None:
    few, many = range(RUNS_PER_PROCESS), range(RUNS_PER_PROCESS + 1)
    assert set(in_processes(process_of, few, 1)) == {os.getpid()}
    *first, last = in_processes(process_of, many, 1)
    assert len(set(first)) == 1
    assert last not in {*first, os.getpid()}


def interrupts_are_ignored(_: int) -> bool:
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_process_that_begins_later_leaves_interrupts_to_the_one_that_asked_for_it_too() -> None:
    with open_worker_pool(1, runs_per_process=1) as pool:
        assert pool.map(interrupts_are_ignored, range(2), 1) == [True, True]
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_ctrl_c_ends_all_processes_without_a_word(tmp_path: Path) -> None:
    arguments = ("sim", "--seeds", "1000", "--jobs", "2", "--seconds", "0.1", "--crashes", "0")
    command = [sys.executable, "-m", "kraft.deploy.cli", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert "seed 1" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
