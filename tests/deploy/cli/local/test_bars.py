"""Progress bars of long commands on a terminal, while their output goes into a pipe."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.kraft_command import Command, free_port

TIMEOUT_SECONDS = 60
LINES = "".join(f"{number}\n" for number in range(30))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A cluster of one node, which was started last, with 30 records in a topic of two partitions."""
    home = tmp_path_factory.mktemp("bars")
    kraft = Command(home / "state")
    port = str(free_port(ClusterLayout(combined=1)))
    kraft.spawn("up", "--combined", "1", "--data", home / "data", "--port", port, "--background")
    kraft.run("topics", "create", "t", "--partitions", "2")
    kraft.run("produce", "t", "--partition", "0", text=LINES)
    yield kraft
    kraft.run("down")


def test_kraft_produce_draws_no_progress_bar_while_records_are_typed(up: Command) -> None:
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "kraft.deploy.cli", "produce", "typed", "--json"]
    environment = {**os.environ, "XDG_STATE_HOME": str(up.state), "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    try:
        shown = b""
        while b"ctrl-D" not in shown:
            shown += os.read(screen, 65536)
        os.write(screen, b"typed\n\x04")
        rest = _read_all(screen)
        assert process.wait(TIMEOUT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert '"offset": 0' in rest
    assert "sending" not in rest
    assert "\x1b" not in rest


def run_before_a_terminal(kraft: Command, *arguments: str | Path) -> tuple[str, str]:
    """Run a command whose standard output is a pipe and whose standard error is a terminal. Return what it wrote to
    each."""
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "kraft.deploy.cli", *map(str, arguments)]
    environment = {**os.environ, "XDG_STATE_HOME": str(kraft.state), "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    try:
        printed, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        shown = _read_all(screen)
    finally:
        process.kill()
        os.close(screen)
    assert process.returncode == 0, shown
    return printed.decode(), shown


def _read_all(screen: int) -> str:
    shown = b""
    try:
        while data := os.read(screen, 65536):
            shown += data
    except OSError:  # reading from a terminal whose other end is closed raises OSError
        pass
    return shown.decode()


@pytest.mark.parametrize(
    ("range_", "printed", "bar"),
    [
        ((), LINES, "30/30"),
        (("--offset", "10:15"), "10\n11\n12\n13\n14\n", "5/5"),
        (("--until", "now", "--value", "^29$"), "29\n", "30/30"),
        (("--count", "7"), "0\n1\n2\n3\n4\n5\n6\n", "7/7"),
        (("--follow", "--count", "2"), "0\n1\n", "2/2"),
        (("--group", "readers", "--count", "3"), "0\n1\n2\n", "3/3"),
    ],
)
def test_kraft_consume_draws_a_progress_bar_if_it_ends_by_itself(
    up: Command, range_: tuple[str, ...], printed: str, bar: str
) -> None:
    out, shown = run_before_a_terminal(up, "consume", "t", *range_)
    assert out == printed
    assert "reading" in shown
    assert bar in shown


def test_waiting_for_replica_moves_draws_a_progress_bar(up: Command, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(up.run("partitions", "reassign", "plan", "t"))
    out, shown = run_before_a_terminal(up, "partitions", "reassign", "execute", plan, "--wait", "--json")
    assert [row["result"] for row in json.loads(out)] == ["done", "done"]
    assert "moving" in shown
    assert "2/2" in shown
