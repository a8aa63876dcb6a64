"""The commands of docs/three-nodes.md, run in order, have the described effects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.kraft_command import free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "three-nodes.md"
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
RUN_SECONDS_MAX = 110


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Folder in which the page's commands run. Nodes that still run there are ended after the test."""
    command = tmp_path / "bin" / "kraft"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kraft.deploy.cli "$@"\n')
    command.chmod(0o755)
    (tmp_path / "empty").mkdir()
    yield tmp_path
    for noted in (tmp_path / "empty").glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(noted.read_text()), 9)


@pytest.mark.slow
def test_the_commands_of_the_three_nodes_page_do_what_it_says(folder: Path) -> None:
    port = free_port(ClusterLayout(combined=3))
    program = "\necho ---\n".join(BLOCKS)
    for written in ("9091", "9092", "9093", "9094", "9191", "9192", "9193", "9194"):
        program = program.replace(written, str(port + int(written) - 9092))
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", program],
        cwd=folder / "empty",
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, formatted, started, used, survived, stopped = done.stdout.split("---\n")
    assert len(re.findall(r"^formatted .* for node [123] of cluster", formatted, re.MULTILINE)) == 3
    assert len(re.findall(r"^ +[123]  (?:leader|voter)", started, re.MULTILINE)) == 3
    assert used.splitlines()[0].startswith("topic orders created: 3 partitions, 3 replicas")
    assert used.splitlines()[-1] == "hello"
    assert {"hello", "still here"} <= set(survived.splitlines())
    assert stopped == ""
    logs = [(folder / "empty" / f"{n}.log").read_text() for n in (1, 2, 3)]
    assert all("the node has stopped" in log for log in logs)
