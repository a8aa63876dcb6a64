"""Processes that end with the tests that started them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.leash import Leash

HOLDER = """
import subprocess, sys
from tests.leash import Leash

sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
leash = Leash()
leash.hold(one.pid for one in sleepers[:2])
leash.hold(one.pid for one in sleepers[1:])
print(*(one.pid for one in sleepers), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_what_is_held_last_is_killed_with_the_process_that_holds_it() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        dropped, *held = (psutil.Process(int(pid)) for pid in holder.stdout.readline().split())
        try:
            holder.kill()
            ended, alive = psutil.wait_procs(held, timeout=30)
            assert (len(ended), alive) == (2, [])
            assert dropped.status() == psutil.STATUS_SLEEPING
        finally:
            for one in (dropped, *held):
                if one.is_running():
                    one.kill()


def test_what_was_let_go_lives_on(sleeper: subprocess.Popen[bytes]) -> None:
    leash = Leash()
    leash.hold([sleeper.pid])
    leash.let_go()
    leash.let_go()
    assert sleeper.poll() is None
