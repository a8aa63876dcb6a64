"""The section "Operations by hand" of docs/operations.md: its commands, run in order and under load, lose no
records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from tests.deploy.load import under_load
from tests.stages.kraft_command import Command, free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
CHAPTER = PAGE.read_text().split("\n## Operations by hand\n")[1].split("\n## ")[0]
SECTIONS = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", CHAPTER, re.DOTALL | re.MULTILINE))
START = CHAPTER.split("\n### ")[0]
RUN_SECONDS_MAX = 100


QUORUM = "Add a controller"
"""Section of the page that has its own cluster."""


def blocks(text: str) -> list[str]:
    return [str(found) for found in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]


def commands(text: str) -> str:
    return "\n".join(blocks(text))


class Shell:
    """A bash with the kraft command, in an empty folder. The ports on the page are replaced by free ones."""

    def __init__(self, folder: Path, layout: ClusterLayout) -> None:
        self.folder = folder
        self.kraft = Command(folder / "state")
        self.port = free_port(layout)
        self.bootstrap = ",".join(f"127.0.0.1:{self.port + index}" for index in range(3))
        command = folder / "bin" / "kraft"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kraft.deploy.cli "$@"\n')
        command.chmod(0o755)

    def run(self, program: str) -> str:
        for written in ("9092", "9093", "9094", "9192", "9193"):
            program = program.replace(written, str(self.port + int(written) - 9092))
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(self.folder / "state"),
            "KRAFT_BOOTSTRAP_SERVER": self.bootstrap,
        }
        words = ["bash", "-euo", "pipefail", "-c", program]
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell with the cluster that the page's section starts first."""
    shell = Shell(tmp_path_factory.mktemp("page"), ClusterLayout(brokers=4))
    try:
        shell.run(commands(START))
        yield shell
    finally:
        LocalCluster.find(ClusterFolder(shell.folder / "here")).down()


@pytest.mark.slow
@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if blocks(text) and name != QUORUM])
def test_a_section_of_the_operations_page_followed_under_load_loses_no_records(shell: Shell, section: str) -> None:
    with under_load(shell.bootstrap, section) as load:
        shell.run(commands(SECTIONS[section]))
    load.require_each_once(shell.kraft, shell.bootstrap)
    assert "out_of_sync" in shell.run("kraft brokers list --json")
    assert shell.kraft.json("topics", "describe", "--under-replicated", "-b", shell.bootstrap) == []


@pytest.mark.slow
def test_adding_and_removing_a_controller_under_load_loses_no_records(tmp_path: Path) -> None:
    shell = Shell(tmp_path, ClusterLayout(combined=2))
    bootstrap = f"127.0.0.1:{shell.port}"
    begin, add, remove = blocks(SECTIONS[QUORUM])
    try:
        shell.run(begin)
        with under_load(bootstrap) as load:
            assert re.search(r"^ +2  voter", shell.run(add), re.MULTILINE)
            shell.bootstrap = bootstrap
            shell.run(remove)
        load.require_each_once(shell.kraft, bootstrap)
        voters = [
            row["node"] for row in shell.kraft.json("quorum", "-b", bootstrap)["replicas"] if row["role"] == "leader"
        ]
        assert voters == [1]
    finally:
        for noted in tmp_path.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(noted.read_text()), 9)
