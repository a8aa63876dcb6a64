"""`kraft run -- CMD` runs a program with a fresh cluster: the program's streams, signals and exit code, and that no
process or file remains.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.stages.kraft_command import Command

SECONDS_MAX = 60
TELL = (
    "import json, os; print(json.dumps([os.getpid(), os.getppid(), os.environ['KAFKA_BOOTSTRAP_SERVERS']]), flush=True)"
)
PAUSE = "import signal; signal.pause()"


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the folders of clusters in this folder, so that a test can check them."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))


def python(code: str) -> list[str]:
    return ["--", sys.executable, "-c", code]


def below(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants, including the nodes of its cluster, which are descendants of its
    launcher."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def wait_gone(processes: list[psutil.Process], tmp_path: Path) -> None:
    _, alive = psutil.wait_procs(processes, timeout=SECONDS_MAX)
    assert alive == []
    wait_until(lambda: folders(tmp_path) == [])


def folders(tmp_path: Path) -> list[Path]:
    """Return the folders of clusters. The launcher's own folder, which all clusters of a user share, is left out."""
    return list((tmp_path / "t").glob("kraft-cluster-*"))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# passed through to the program


def test_kraft_run_passes_input_output_and_exit_code_of_the_program_through(kraft: Command) -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('bad', file=sys.stderr); sys.exit(3)"
    with kraft.start("run", *python(code)) as process:
        assert process.communicate("hello", timeout=SECONDS_MAX) == ("HELLO\n", "bad\n")
    assert process.returncode == 3


def test_kraft_run_gives_its_program_an_address_where_the_cluster_responds(kraft: Command) -> None:
    topics = [sys.executable, "-m", "kraft.deploy.cli", "topics", "create", "orders", "-b", "{bootstrap}"]
    assert "orders" in kraft.spawn("run", "--", *topics)


def test_kraft_run_starts_the_requested_nodes_with_the_requested_settings(kraft: Command) -> None:
    brokers = [sys.executable, "-m", "kraft.deploy.cli", "configs", "describe", "--broker", "2", "-b", "{bootstrap}"]
    shape = ("--controllers", "1", "--brokers", "2", "--set", "num.partitions=7")
    rows = json.loads(kraft.spawn("run", *shape, "--", *brokers, "--json"))
    assert [row["value"] for row in rows if row["key"] == "num.partitions"] == ["7"]


def test_kraft_run_passes_options_after_the_program_name_to_the_program(kraft: Command) -> None:
    assert kraft.spawn("run", "--combined", "1", "echo", "--help", "--set", "x") == "--help --set x\n"


def test_kraft_run_of_a_program_ended_by_a_signal_exits_with_128_plus_the_signal(kraft: Command) -> None:
    kraft.spawn("run", *python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), code=137)


def test_kraft_run_copies_the_node_logs_to_the_requested_folder(kraft: Command, tmp_path: Path) -> None:
    kraft.spawn("run", "--keep-logs", tmp_path / "logs", "--", "true")
    assert "the node starts" in (tmp_path / "logs" / "1.log").read_text()


# invalid calls


def test_kraft_run_without_a_program_shows_an_example(kraft: Command) -> None:
    assert "kraft run --combined 3 -- python app.py" in kraft.run("run", code=2)


def test_kraft_run_refuses_a_missing_program_before_a_cluster_starts(kraft: Command, tmp_path: Path) -> None:
    assert "no-such-program: no such program" in kraft.run("run", "--", "no-such-program", code=127)
    assert folders(tmp_path) == []


def test_kraft_run_refuses_a_program_file_that_is_not_executable(kraft: Command, tmp_path: Path) -> None:
    (tmp_path / "app").write_text("")
    assert "chmod +x" in kraft.run("run", "--", tmp_path / "app", code=126)


def test_kraft_run_refuses_an_impossible_number_of_nodes(kraft: Command) -> None:
    assert "--combined replaces --controllers" in kraft.run("run", "--combined", "1", "--brokers", "2", "true", code=2)


def test_kraft_run_with_an_unknown_setting_is_refused(kraft: Command) -> None:
    assert "num.partition" in kraft.run("run", "--set", "num.partition=3", "true", code=2)


def test_kraft_run_exits_with_code_125_if_the_cluster_does_not_start(kraft: Command) -> None:
    said = kraft.spawn("run", "--set", "log.dirs=/proc/nowhere", "--", "true", code=125)
    assert "the cluster did not start" in said


# ways to end


def test_kraft_run_leaves_no_process_and_no_folder_when_its_program_ends(kraft: Command, tmp_path: Path) -> None:
    with kraft.start("run", *python(f"{TELL}; input()")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        processes = below(process.pid)
        assert len(processes) >= 5, "kraft run, the program, its warden, the launcher and a node"
        process.communicate("\n", timeout=SECONDS_MAX)
    assert process.returncode == 0
    wait_gone(processes, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_kraft_run_forwards_a_signal_to_its_program(kraft: Command, tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: sys.exit(40 + number))
{TELL}
while True:  # a signal may come before a pause has begun
    time.sleep(0.05)
"""
    with kraft.start("run", *python(code)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        processes = below(process.pid)
        process.send_signal(number)
        process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 40 + number
    wait_gone(processes, tmp_path)


def test_a_killed_kraft_run_leaves_no_process_and_no_folder(kraft: Command, tmp_path: Path) -> None:
    code = f"import subprocess; child = subprocess.Popen(['sleep', '600']); {TELL}; {PAUSE}"
    with kraft.start("run", "--combined", "2", *python(code)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        processes = below(process.pid)
        assert any(each.name() == "sleep" for each in processes)
        process.kill()
        process.wait(SECONDS_MAX)
    wait_gone(processes, tmp_path)


def test_kraft_run_stopped_while_its_cluster_starts_leaves_no_process_and_no_folder(
    kraft: Command, tmp_path: Path
) -> None:
    with kraft.start("run", "--", "sleep", "600") as process:
        wait_until(lambda: folders(tmp_path) != [])
        processes = below(process.pid)
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 143
    wait_gone(processes, tmp_path)


@contextmanager
def on_a_terminal(*command: str) -> Iterator[tuple[int, int]]:
    """Run a process on a new terminal. Return its process id, and the other end of the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    try:
        yield pid, terminal
    finally:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, text: bytes) -> bytes:
    found = b""
    while text not in found:
        found += os.read(terminal, 1024)
    return found


def test_ctrl_c_reaches_the_program_once_and_the_cluster_runs_until_the_program_ends(tmp_path: Path) -> None:
    code = """
import os, signal, socket, sys, time
def interrupted(*_):
    host, port = os.environ["KAFKA_BOOTSTRAP_SERVERS"].split(":")
    time.sleep(0.5)
    socket.create_connection((host, int(port))).close()
    interruptions.append(1)
interruptions = []
signal.signal(signal.SIGINT, interrupted)
print("ready", flush=True)
while not interruptions:  # a signal may come before a pause has begun
    time.sleep(0.05)
print("interrupted", len(interruptions), flush=True)
sys.exit(7)
"""
    with on_a_terminal(sys.executable, "-m", "kraft.deploy.cli", "run", *python(code)) as (pid, terminal):
        read_until(terminal, b"ready")
        processes = below(pid)
        os.write(terminal, b"\x03")
        assert b"interrupted 1" in read_until(terminal, b"interrupted 1")
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    wait_gone(processes, tmp_path)


def test_a_program_started_by_kraft_run_can_read_from_the_terminal(tmp_path: Path) -> None:
    code = "print('ready', flush=True); print('got', input(), flush=True)"
    with on_a_terminal(sys.executable, "-m", "kraft.deploy.cli", "run", *python(code)) as (pid, terminal):
        read_until(terminal, b"ready")
        os.write(terminal, b"line\n")
        assert b"got line" in read_until(terminal, b"got line")
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_kraft_run_works_in_a_shell_pipeline(kraft: Command) -> None:
    command = f"{sys.executable} -m kraft.deploy.cli run -- sh -c 'echo 3 apples' | tr a-z A-Z"
    sh = shutil.which("sh")
    assert sh is not None
    done = subprocess.run([sh, "-c", command], capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert done.stdout == "3 APPLES\n"
