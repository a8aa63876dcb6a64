"""Scripts in `scenarios/` and their reviewed output (see script.py for the commands and how to rewrite the output)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .script import play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_raft_scenario_gives_its_reviewed_output(path: Path) -> None:
    output = play(path)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(output)
    assert output == path.read_text()


def test_raft_scenario_files_exist() -> None:
    assert len(SCENARIOS) >= 6
