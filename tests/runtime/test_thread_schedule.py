"""What the kernel counts of a thread: time on a processor, time waiting for one."""

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
    """This thread and a process that never rests have one processor between them."""
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


def test_time_on_a_processor_rises_with_work() -> None:
    schedule = ThreadSchedule()
    before, _ = schedule.read()
    until_ns = time.thread_time_ns() + 20_000_000
    while time.thread_time_ns() < until_ns:
        pass
    assert schedule.read()[0] - before >= 10_000_000
    schedule.close()


def test_time_waiting_for_a_processor_rises_while_another_process_has_it(crowded_cpu: None) -> None:
    schedule = ThreadSchedule()
    _, before = schedule.read()
    while schedule.read()[1] - before < 5_000_000:
        pass
    schedule.close()


def test_a_kernel_that_does_not_count_gives_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_schedule, "PATH", "/proc/thread-self/not-there")
    assert ThreadSchedule().read() == (0, 0)
