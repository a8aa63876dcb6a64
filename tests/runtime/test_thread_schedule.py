"""The kernel's counts for a thread: time on a processor, and time waiting for one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kraft.runtime import thread_schedule
from kraft.runtime.thread_schedule import ThreadSchedule

SPIN = "print(flush=True)\nwhile True: pass"


@pytest.fixture
def crowded_cpu() -> Iterator[None]:
    """Make this thread share one processor with a busy process."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    rival = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
    try:
        assert rival.stdout is not None
        rival.stdout.readline()
        yield
    finally:
        os.sched_setaffinity(0, before)
        rival.kill()
        rival.communicate()


def test_thread_schedule_time_on_a_processor_increases_with_work() -> None:
    schedule = ThreadSchedule()
    before, _ = schedule.read()
    until_ns = time.thread_time_ns() + 20_000_000
    while time.thread_time_ns() < until_ns:
        pass
    assert schedule.read()[0] - before >= 10_000_000
    schedule.close()


def test_thread_schedule_waiting_time_increases_while_another_process_runs(crowded_cpu: None) -> None:
    schedule = ThreadSchedule()
    _, before = schedule.read()
    while schedule.read()[1] - before < 5_000_000:
        pass
    schedule.close()


def test_thread_schedule_is_zero_if_the_kernel_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_schedule, "PATH", "/proc/thread-self/not-there")
    assert ThreadSchedule().read() == (0, 0)
