"""CPU seconds of a Spark session: the JVM, its Python workers, and those of them that have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass(slots=True)
class Cost:
    """What a piece of work took, once it is done: CPU seconds of all processes of the session, and seconds by the
    clock."""

    cpu_s: float = 0
    wall_s: float = 0


def session_cpu_seconds(jvm_pid: int) -> float:
    """User and system time of the JVM and of all its children so far, those included that have ended."""
    total = 0.0
    jvm = psutil.Process(jvm_pid)
    for process in (jvm, *jvm.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:  # its parent counts it from now on
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def measured(jvm_pid: int) -> Iterator[Cost]:
    """Measure the block. What the session does in the background meanwhile, such as compiling, counts too."""
    cost = Cost()
    cpu, wall = session_cpu_seconds(jvm_pid), time.monotonic()
    yield cost
    cost.cpu_s, cost.wall_s = session_cpu_seconds(jvm_pid) - cpu, time.monotonic() - wall


def cost_of(jvm_pid: int, work: Callable[[], object]) -> Cost:
    with measured(jvm_pid) as cost:
        work()
    return cost
