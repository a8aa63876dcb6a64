"""Many runs side by side, in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from kraft.deploy.launch.imports import TEST_TOOLS, hide_modules
from kraft.sim.cluster.run import RunResult, RunSettings, run_seed

T = TypeVar("T")

RUNS_PER_PROCESS = 25
"""What a run leaves behind is given back with its process: nothing is collected while a world is deterministic."""


def in_processes(function: Callable[[int], T], seeds: Sequence[int], jobs: int) -> Iterator[T]:
    """`function` of each seed, in order, by so many processes at a time; with one job and few seeds, in this one.

    As in nodes' processes, kio finds no hypothesis: importing that takes a run's time, and warns."""
    if jobs <= 1 and len(seeds) <= RUNS_PER_PROCESS:
        yield from map(function, seeds)
        return
    spawning = multiprocessing.get_context("spawn")
    with _interrupts_ignored():  # and with them in the processes that begin here
        pool = spawning.Pool(max(jobs, 1), _begin_process, maxtasksperchild=RUNS_PER_PROCESS)
    with pool:
        yield from pool.imap(function, seeds)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _begin_process() -> None:
    """Ctrl-C reaches every process of a terminal: the one that asked for the runs ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hide_modules(TEST_TOOLS)


def timed_run(settings: RunSettings, seed: int) -> tuple[RunResult, float]:
    """A run and the CPU seconds that it took."""
    started = time.process_time()
    return run_seed(seed, settings), time.process_time() - started
