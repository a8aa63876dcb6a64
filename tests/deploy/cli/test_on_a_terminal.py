"""Output that appears only on a terminal: progress bars and questions."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PROGRESS = """
from kraft.deploy.cli.output import progress
with progress("sending", 3) as advance:
    advance(3)
"""
CONFIRM = """
from kraft.deploy.cli.output import CommandFailed, confirm
try:
    confirm("delete it?", is_confirmed=False)
    print("done")
except CommandFailed as problem:
    print(problem)
"""


def run_on_a_terminal(program: str, typed: str = "") -> str:
    """Run a Python program on a terminal. Return the text that the terminal shows."""
    screen, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    os.write(screen, typed.encode())
    shown = b""
    try:
        while data := os.read(screen, 65536):
            shown += data
    except OSError:  # reading from a terminal whose other end is closed raises OSError
        pass
    finally:
        os.close(screen)
        assert process.wait(60) == 0
    return shown.decode()


def test_a_long_operation_draws_a_progress_bar_on_a_terminal() -> None:
    shown = run_on_a_terminal(PROGRESS)
    assert "sending" in shown
    assert "3/3" in shown


def test_text_printed_while_a_bar_is_shown_gets_its_own_line() -> None:
    shown = run_on_a_terminal(f"{PROGRESS}    advance(0, 'restarting node 2')\n    print('node 1 restarted')\n")
    before = shown[: shown.index("node 1 restarted")]
    assert before.endswith(("\x1b[2K", "\n")), "the bar is erased first"
    assert "restarting node 2" in shown


def test_redirected_output_is_unaffected_by_a_progress_bar(tmp_path: Path) -> None:
    target = tmp_path / "printed"
    shown = run_on_a_terminal(f"import sys\nsys.stdout = open({str(target)!r}, 'w')\n{PROGRESS}    print('a record')\n")
    assert "3/3" in shown
    assert target.read_text() == "a record\n"


@pytest.mark.parametrize(
    ("typed", "expected"), [("y\n", "done"), ("yes\n", "done"), ("n\n", "nothing"), ("\n", "nothing")]
)
def test_an_irreversible_operation_asks_for_confirmation(typed: str, expected: str) -> None:
    shown = run_on_a_terminal(CONFIRM, typed)
    assert "delete it? [y/N]" in shown
    assert expected in shown
