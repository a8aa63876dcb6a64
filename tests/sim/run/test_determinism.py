"""Tests of `kraft sim determinism`: a seed gives the same run in new processes, and two runs that diverge are reported
with the place.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kraft.sim.commands import app
from kraft.sim.run import determinism


@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_fresh_processes() -> None:
    done = CliRunner().invoke(app, ["determinism", "--seeds", "1", "--seed", "3", "--seconds", "15"])
    assert done.exit_code == 0, done.output
    assert "1 of 1 seeds are one run" in done.output


@pytest.mark.parametrize(
    ("lines", "where"),
    [(["1 start", "2 sent"], "parts at '2 read' against '2 sent'"), (["1 start", "2 read"], "parts after event 1000")],
)
def test_diverging_runs_are_reported_with_their_first_different_event(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], where: str
) -> None:
    def twin(seed: int, duration_ms: int, lines_kept: int, extra: dict[str, str]) -> determinism.Traced:
        if extra["PYTHONHASHSEED"] == "1":
            return determinism.Traced("a", ["x", "y", "z"], ["1 start", "2 read"])
        return determinism.Traced("b", ["x", "q", "r"], lines)

    monkeypatch.setattr(determinism, "_in_a_process", twin)
    done = CliRunner().invoke(app, ["determinism", "--seeds", "1", "--seed", "6"])
    assert done.exit_code == 1
    assert f"seed 6 {where}" in done.output
    assert "0 of 1 seeds are one run" in done.output
