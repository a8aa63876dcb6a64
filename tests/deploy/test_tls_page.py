"""The commands and programs of docs/tls.md, run in order, have the described effects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.kraft_command import Command, free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tls.md"
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Folder in which the page's commands run. A cluster that still runs there is stopped after the test."""
    yield tmp_path
    if (tmp_path / "kafka" / "cluster.json").exists():
        Command(tmp_path / "state").run("down", "--data", tmp_path / "kafka")


@pytest.mark.slow
def test_the_commands_of_the_tls_page_do_what_it_says(folder: Path) -> None:
    port = str(free_port(ClusterLayout(combined=1)))
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    kraft = f'set -e\nkraft() {{ {sys.executable} -m kraft.deploy.cli "$@"; }}\n'
    printed = []
    for language, text in BLOCKS:
        program = text.replace("9092", port)
        command = ["bash", "-c", kraft + program] if language == "sh" else [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, f"{program}\n{done.stdout}{done.stderr}"
        printed.append(done.stdout)
    assert f"ready: bootstrap 127.0.0.1:{port}" in printed[1]
    assert printed[2].endswith("1 record sent to orders\nhello\n")
    assert printed[3:5] == ["hello\n", "hello\n"]
    assert printed[5] == f"{folder / 'kafka'} is down\n"
