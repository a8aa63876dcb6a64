"""Many runs side by side, in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from kraft.sim.cluster.run import RunResult, RunSettings, run_seed
from kraft.sim.worker_pool import open_worker_pool

T = TypeVar("T")

RUNS_PER_PROCESS = 25
"""What a run leaves behind is given back with its process: nothing is collected while a world is deterministic."""


def in_processes(function: Callable[[int], T], seeds: Sequence[int], jobs: int) -> Iterator[T]:
    """`function` of each seed, in order, by so many processes at a time; with one job and few seeds, in this one."""
    if jobs <= 1 and len(seeds) <= RUNS_PER_PROCESS:
        yield from map(function, seeds)
        return
    with open_worker_pool(max(jobs, 1), runs_per_process=RUNS_PER_PROCESS) as pool:
        yield from pool.imap(function, seeds)


def timed_run(settings: RunSettings, seed: int) -> tuple[RunResult, float]:
    """A run and the CPU seconds that it took."""
    started = time.process_time()
    return run_seed(seed, settings), time.process_time() - started
