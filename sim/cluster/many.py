"""Many runs side by side, in processes of their own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kraft.sim.cluster.run import RunResult, RunSettings, run_seed

T = TypeVar("T")

RUNS_PER_PROCESS = 25
"""What a run leaves behind is given back with its process: nothing is collected while a world is deterministic."""


def in_processes(function: Callable[[int], T], seeds: Iterable[int], jobs: int) -> Iterator[T]:
    """`function` of each seed, in order, by so many processes; with one job, in this one."""
    if jobs <= 1:
        yield from map(function, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=RUNS_PER_PROCESS) as pool:
        yield from pool.imap(function, seeds)


def timed_run(settings: RunSettings, seed: int) -> tuple[RunResult, float]:
    """A run and the CPU seconds that it took."""
    started = time.process_time()
    return run_seed(seed, settings), time.process_time() - started
