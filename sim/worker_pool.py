"""Processes for many runs side by side. Starts processes; imports nothing of the simulator."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool

from kraft.deploy.launch.imports import TEST_TOOLS, hide_modules


@contextmanager
def open_worker_pool(jobs: int, *, runs_per_process: int | None = None) -> Iterator[Pool]:
    """So many processes, each fresh again after so many runs; they end with the context.

    As in nodes' processes, kio finds no hypothesis: importing that takes a run's time, and warns."""
    spawning = multiprocessing.get_context("spawn")
    with _interrupts_ignored():  # and with them in the processes that begin here
        pool = spawning.Pool(jobs, _begin_process, maxtasksperchild=runs_per_process)
    with pool:
        yield pool


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
