"""Tests of wall clock changes on a running node: they change nothing but the wall clock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.node_command import NodeCommand
from kraft.sim.chaos.hosts.clocks import (
    SHARED,
    CannotMoveClock,
    ProcessClock,
    can_move_clocks,
    find_library,
    measure_offset_ms,
)
from kraft.sim.chaos.hosts.warden import Warden
from tests.chaos.hosts.nodes import faults_of, running_nodes

NO_CLOCKS = can_move_clocks()
needs_faketime = pytest.mark.skipif(bool(NO_CLOCKS), reason=NO_CLOCKS)
HOUR_MS = 3_600_000
TOLERATED_MS = 5_000
"""Maximum tolerated difference in ms between two clock readings, between which a slow machine may pause. The clock
offsets under test are much larger."""
TELL = """
import sys, threading, time
for _ in sys.stdin:
    threading.Event().wait(0.001)
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)
"""


@pytest.fixture
def warden() -> Iterator[Warden]:
    with Warden() as opened:
        yield opened
    assert opened.leftovers == ()


@pytest.fixture
def clock(tmp_path: Path, warden: Warden) -> ProcessClock:
    clock = ProcessClock(tmp_path, warden)
    clock.open()
    return clock


def test_a_machine_without_libfaketime_gets_an_error_with_the_package_to_install(tmp_path: Path) -> None:
    with pytest.raises(CannotMoveClock, match="apt-get install libfaketime"):
        find_library(tmp_path)
    library = tmp_path / "usr" / "lib" / "some-machine" / "faketime" / "libfaketime.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    assert find_library(tmp_path) == library


@needs_faketime
def test_a_clock_offset_moves_every_wall_clock_of_python_but_not_the_monotonic_clock(clock: ProcessClock) -> None:
    told: list[list[float]] = []
    command = [sys.executable, "-c", TELL]
    pipe = subprocess.PIPE
    environment = {**os.environ, **clock.environment}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for offset_ms in (0, HOUR_MS, -HOUR_MS, 0):
            clock.set_offset_ms(offset_ms)
            process.stdin.write("\n")
            told.append([float(word) for word in process.stdout.readline().split()])
        process.stdin.close()
    steps = [[1000 * (new - old) for new, old in zip(*pair, strict=True)] for pair in zip(told[1:], told, strict=False)]
    for (seconds, nanoseconds, monotonic), expected_ms in zip(steps, (HOUR_MS, -2 * HOUR_MS, HOUR_MS), strict=True):
        assert seconds == pytest.approx(expected_ms, abs=TOLERATED_MS)
        assert nanoseconds == pytest.approx(expected_ms, abs=TOLERATED_MS)
        assert 0 < monotonic < TOLERATED_MS


@needs_faketime
def test_a_running_node_adopts_a_clock_offset_and_keeps_it_after_a_restart(tmp_path: Path, warden: Warden) -> None:
    clocks: list[ProcessClock] = []

    def prepare(folder: ClusterFolder) -> None:
        clock = ProcessClock(folder.node(1), warden)
        clock.open()
        NodeCommand(environment=clock.environment).write(folder.node(1))
        clocks.append(clock)

    with running_nodes(tmp_path / "cluster", before_start=prepare) as cluster:
        (clock,) = clocks
        assert abs(measure_offset_ms(faults_of(cluster))) < TOLERATED_MS
        for offset_ms in (HOUR_MS, -HOUR_MS):
            clock.set_offset_ms(offset_ms)
            assert seen_offset_ms(cluster) == pytest.approx(offset_ms, abs=TOLERATED_MS)
        cluster.kill(1)
        cluster.start(1)
        assert seen_offset_ms(cluster) == pytest.approx(-HOUR_MS, abs=TOLERATED_MS)
    names = clock.environment["FAKETIME_SHARED"].split()
    clock.close()
    assert left_in_memory(names) == []


def seen_offset_ms(cluster: LocalCluster) -> int:
    return measure_offset_ms(faults_of(cluster))


@needs_faketime
def test_a_killed_process_with_a_moved_clock_leaves_no_semaphore_or_shared_memory(tmp_path: Path) -> None:
    with Warden() as warden:
        clock = ProcessClock(tmp_path, warden)
        clock.open()
        process = subprocess.Popen(["sleep", "600"], env={**os.environ, **clock.environment})
        warden.process(process.pid)
    process.wait()
    assert warden.leftovers == ()
    assert left_in_memory(clock.environment["FAKETIME_SHARED"].split()) == []
    assert not (SHARED / f"faketime_shm_{process.pid}").exists()


def left_in_memory(names: Iterable[str]) -> list[str]:
    """Return the semaphore and shared memory of this clock that still exist. Clocks of other tests are ignored."""
    own = [name.removeprefix("/") for name in names]
    return [path.name for path in SHARED.iterdir() if path.name.removeprefix("sem.") in own]
