"""Processes and folders that end with the process that holds them."""

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


def test_a_leash_after_kill_of_its_holder_ends_processes_and_removes_folders(tmp_path: Path) -> None:
    folder, note = tmp_path / "it's held", tmp_path / "note"
    command = [sys.executable, "-c", HOLDER, str(folder), str(note)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        dropped, *held = (psutil.Process(int(pid)) for pid in holder.stdout.readline().split())
        try:
            assert (folder / "in").is_dir()
            held[0].suspend()  # a process that is frozen ends as well
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


def test_a_process_after_its_leash_let_it_go_lives_on(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    leash = Leash()
    leash.hold([sleeper.pid])
    leash.hold_folder(tmp_path)
    leash.let_go()
    leash.let_go()
    assert sleeper.poll() is None
    assert tmp_path.is_dir()
    with pytest.raises(RuntimeError, match="was let go"):
        leash.hold([sleeper.pid])


def test_a_started_process_has_no_input_and_gives_its_output() -> None:
    with leashed(["sh", "-c", "cat; echo done"], stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=END_SECONDS_MAX)
    assert said == "done\n"


def test_a_leashed_process_that_still_runs_ends_with_the_block() -> None:
    with leashed(["sleep", "600"]) as process:
        assert process.poll() is None
    assert process.returncode == -9


def test_a_command_that_is_not_there_ends_with_an_error() -> None:
    leash = Leash()
    process = leash.start(["/no/such/command"], stderr=subprocess.DEVNULL)
    assert process.wait(END_SECONDS_MAX) == 127
    leash.let_go()


def test_a_line_break_in_a_path_is_refused(tmp_path: Path) -> None:
    leash = Leash()
    with pytest.raises(ValueError, match="line break"):
        leash.hold_folder(tmp_path / "a\nb")
    leash.let_go()
