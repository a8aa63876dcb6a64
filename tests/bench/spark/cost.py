"""CPU seconds of a Spark session: of the JVM and its Python workers, including workers that have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass(slots=True)
class Cost:
    """The cost of completed work: CPU seconds of all processes of the session, and wall clock seconds."""

    cpu_s: float = 0
    wall_s: float = 0


def session_cpu_seconds(jvm_pid: int) -> float:
    """Return user and system time of the JVM and of all its children so far, including children that have ended."""
    total = 0.0
    jvm = psutil.Process(jvm_pid)
    for process in (jvm, *jvm.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # the process has ended; from now on its time is part of its parent's
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def measured(jvm_pid: int) -> Iterator[Cost]:
    """Measure the cost of the `with` block. Background work of the session, such as compiling, is included."""
    cost = Cost()
    cpu, wall = session_cpu_seconds(jvm_pid), time.monotonic()
    yield cost
    cost.cpu_s, cost.wall_s = session_cpu_seconds(jvm_pid) - cpu, time.monotonic() - wall


def cost_of(jvm_pid: int, work: Callable[[], object]) -> Cost:
    with measured(jvm_pid) as cost:
        work()
    return cost
