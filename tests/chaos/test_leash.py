"""Tests of the leash: it ends processes and removes folders when the process that holds the leash ends."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kraft.sim.chaos.hosts.leash import Leash, leashed

END_SECONDS_MAX = 30
HOLDER = """
import subprocess, sys
from pathlib import Path
from kraft.sim.chaos.hosts.leash import Leash

folder, note = Path(sys.argv[1]), sys.argv[2]
sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
leash = Leash()
leash.hold_folder(folder)
(folder / "in").mkdir(parents=True)
leash.at_end(["touch", note])
leash.hold(one.pid for one in sleepers[:2])
leash.hold(one.pid for one in sleepers[1:])
started = leash.start(["sleep", "600"])
print(*(one.pid for one in (*sleepers, started)), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def _wait_until(condition: object) -> None:
    deadline = time.monotonic() + END_SECONDS_MAX
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_leash_ends_processes_and_removes_folders_when_its_holder_is_killed(tmp_path: Path) -> None:
    folder, note = tmp_path / "it's held", tmp_path / "note"
    command = [sys.executable, "-c", HOLDER, str(folder), str(note)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        dropped, *held = (psutil.Process(int(pid)) for pid in holder.stdout.readline().split())
        try:
            assert (folder / "in").is_dir()
            held[0].suspend()  # even if the process is frozen
            holder.kill()
            ended, alive = psutil.wait_procs(held, timeout=END_SECONDS_MAX)
            assert (len(ended), alive) == (3, [])
            assert dropped.status() != psutil.STATUS_ZOMBIE
            _wait_until(lambda: not folder.exists())
            assert note.exists()
        finally:
            for one in (dropped, *held):
                if one.is_running():
                    one.kill()


def test_a_process_keeps_running_after_its_leash_is_released(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    leash = Leash()
    leash.hold([sleeper.pid])
    leash.hold_folder(tmp_path)
    leash.release()
    leash.release()
    assert sleeper.poll() is None
    assert tmp_path.is_dir()
    with pytest.raises(RuntimeError, match="was released"):
        leash.hold([sleeper.pid])


def test_a_process_started_by_a_leash_has_empty_input_and_readable_output() -> None:
    with leashed(["sh", "-c", "cat; echo done"], stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=END_SECONDS_MAX)
    assert said == "done\n"


def test_a_leashed_process_still_running_at_the_end_of_the_block_is_killed() -> None:
    with leashed(["sleep", "600"]) as process:
        assert process.poll() is None
    assert process.returncode == -9


def test_a_leash_reports_an_error_for_a_missing_command() -> None:
    leash = Leash()
    process = leash.start(["/no/such/command"], stderr=subprocess.DEVNULL)
    assert process.wait(END_SECONDS_MAX) == 127
    leash.release()


def test_a_leash_rejects_a_path_with_a_line_break(tmp_path: Path) -> None:
    leash = Leash()
    with pytest.raises(ValueError, match="line break"):
        leash.hold_folder(tmp_path / "a\nb")
    leash.release()
