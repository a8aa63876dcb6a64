"""Scripts in `scenarios/` and their reviewed output (see script.py for the commands and how to write it anew)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .script import play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_has_the_output_that_was_reviewed(path: Path) -> None:
    output = play(path)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(output)
    assert output == path.read_text()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 6
