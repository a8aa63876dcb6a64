"""Shells learn verbs, options and names from the command itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.clusters import Command


def complete(line: str, tmp_path: Path) -> list[str]:
    """What bash would offer for the last word of the line."""
    words = line.split(" ")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "_KRAFT_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "kraft.deploy.cli"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_and_options_are_completed(tmp_path: Path) -> None:
    assert complete("kraft to", tmp_path) == ["topics"]
    assert "reset-offsets" in complete("kraft groups ", tmp_path)
    assert complete("kraft topics describe --unav", tmp_path) == ["--unavailable"]


def test_without_a_cluster_names_are_not_completed_and_nothing_is_said(tmp_path: Path) -> None:
    assert complete("kraft topics delete --bootstrap-server 127.0.0.1:1 a", tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(tmp_path: Path, shell: str) -> None:
    script = Command(tmp_path).run("completion", shell)
    assert f"_KRAFT_COMPLETE=complete_{shell}" in script
    assert "kraft" in script


def test_an_unknown_shell_is_refused_with_those_there_are(tmp_path: Path) -> None:
    assert "fish" in Command(tmp_path).run("completion", "tcsh", code=2)
