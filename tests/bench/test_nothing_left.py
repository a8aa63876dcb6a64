"""Clean-up of the benchmark's clusters: no process or file remains, frozen or not, however the benchmark ends."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.bench.contest import KAFKA, OURS

MARK = "KRAFT_TEST_MARK"
SECONDS_MAX = 60
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]
STAND_IN = """
import sys
from kraft.sim.chaos.hosts.leash import exit_on_signals
from tests.bench import sides

exit_on_signals()
with sides.both(sys.argv[2:], is_single=sys.argv[1] == "single"):
    print("frozen", flush=True)
    if sys.stdin.readline():
        raise RuntimeError("what is measured failed")
"""


@dataclass(frozen=True, slots=True)
class Traces:
    """The processes and files of a command. Processes are found by a mark in the environment, which children inherit,
    or, if they overwrite their environment with a title, by the folder of the command's temporary files."""

    mark: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, MARK: self.mark, "TMPDIR": str(self.folder)}

    def processes(self) -> list[psutil.Process]:
        """Return the running processes, without zombies."""
        return [process for process in psutil.process_iter() if self._is_ours(process, frozen=False)]

    def _is_ours(self, process: psutil.Process, *, frozen: bool) -> bool:
        try:
            status = process.status()
            if status == psutil.STATUS_ZOMBIE or (frozen and status != psutil.STATUS_STOPPED):
                return False
            files = (file.path for file in process.open_files())
            named = (process.cwd(), *process.cmdline(), *files)
            return process.environ().get(MARK) == self.mark or any(str(self.folder) in name for name in named)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def frozen(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_ours(process, frozen=True)]


@pytest.fixture
def traces() -> Iterator[Traces]:
    folder = Path(tempfile.mkdtemp(prefix="b-"))  # short: the name of a Unix socket has a maximum length
    found = Traces(secrets.token_hex(8), folder)
    yield found
    for process in found.processes():
        process.kill()
    shutil.rmtree(folder, ignore_errors=True)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _started(traces: Traces, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        env=traces.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _require_nothing_left(traces: Traces) -> None:
    _wait_until(lambda: not traces.processes())
    assert list(traces.folder.iterdir()) == []


def _end_while_frozen(traces: Traces, number: signal.Signals, frozen: int, *words: str) -> None:
    with _started(traces, "-c", STAND_IN, *words) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "frozen\n"
        _wait_until(lambda: len(traces.frozen()) == frozen)
        bench.send_signal(number)
        code = bench.wait(SECONDS_MAX)
        assert code == (128 + number if number in (signal.SIGTERM, signal.SIGHUP) else -number)
        _require_nothing_left(traces)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_frozen_cluster_node_ends_after_a_signal_to_the_benchmark(traces: Traces, number: signal.Signals) -> None:
    _end_while_frozen(traces, number, 1, "single", OURS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_frozen_benchmark_node_ends_although_signals_interrupt_the_clean_up(
    traces: Traces, number: signal.Signals
) -> None:
    """`timeout make bench` sends SIGTERM to the whole group, and make forwards it, so the signal arrives more than
    once."""
    with _started(traces, "-c", STAND_IN, "single", OURS) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "frozen\n"
        _wait_until(lambda: len(traces.frozen()) == 1)
        while bench.poll() is None:
            bench.send_signal(number)
        assert bench.returncode == 128 + number
        _require_nothing_left(traces)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_six_frozen_nodes_end_after_a_signal_to_the_benchmark(traces: Traces, number: signal.Signals) -> None:
    _end_while_frozen(traces, number, 6, "three", OURS)


@pytest.mark.interop
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_frozen_nodes_of_our_and_kafkas_cluster_end_after_a_signal_to_the_benchmark(
    traces: Traces, number: signal.Signals
) -> None:
    _end_while_frozen(traces, number, 2, "single", OURS, KAFKA)


def test_a_frozen_benchmark_node_ends_after_an_exception_in_the_benchmark(traces: Traces) -> None:
    with _started(traces, "-c", STAND_IN, "single", OURS) as bench:
        bench.communicate("fail\n", timeout=SECONDS_MAX)
        assert bench.returncode == 1
        _require_nothing_left(traces)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_the_bench_command_leaves_no_process_or_file_after_a_signal(traces: Traces, number: signal.Signals) -> None:
    with _started(traces, "-m", "tests.bench", "--only", "failover", "--side", OURS, "--runs", "1") as bench:
        _wait_until(lambda: any(traces.folder.glob("*/3/pid")) or bench.poll() is not None)
        assert bench.poll() is None
        bench.send_signal(number)
        assert bench.wait(SECONDS_MAX) != 0
        _require_nothing_left(traces)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_the_bench_command_leaves_nothing_after_a_signal_during_its_start(
    traces: Traces, number: signal.Signals
) -> None:
    with _started(traces, "-m", "tests.bench", "--only", "start", "--side", OURS, "--runs", "1") as bench:
        _wait_until(lambda: any(traces.folder.glob("*")) or bench.poll() is not None)
        assert bench.poll() is None
        bench.send_signal(number)
        assert bench.wait(SECONDS_MAX) != 0
        _require_nothing_left(traces)
