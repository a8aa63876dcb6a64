"""The dashboards conform to Grafana's schema, checked with its own library of models: no field is misspelled or
misplaced.

Run by `deploy/check/monitoring.sh`, which provides the library for the oldest supported and for a recent Grafana.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.monitoring.expressions import BOARDS

pytestmark = pytest.mark.deploy

READ = Path(__file__).parent / "read_dashboard.py"


def libraries() -> list[Path]:
    folder = os.environ.get("GRAFANA_MODELS", "")
    return sorted(Path(folder).iterdir()) if folder else []


def departures(library: Path, board: Path) -> str:
    """Return the parts of a dashboard that Grafana's library does not have, one per line."""
    environment = {"PYTHONPATH": str(library), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, READ, board], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_a_dashboard_has_only_fields_of_grafanas_schema(board: Path) -> None:
    if not libraries():
        pytest.skip("GRAFANA_MODELS does not name the folder of Grafana's models: run deploy/check/monitoring.sh")
    assert len(libraries()) == 2
    for library in libraries():
        assert departures(library, board) == "", library.name


def test_checks_catch_a_misspelled_field_and_an_invalid_value_in_a_dashboard(tmp_path: Path) -> None:
    if not libraries():
        pytest.skip("GRAFANA_MODELS does not name the folder of Grafana's models: run deploy/check/monitoring.sh")
    whole = json.loads(next(board for board in BOARDS if board.stem == "kafka-cluster").read_text())
    panel = next(panel for panel in whole["panels"] if panel["type"] == "stat")
    panel["options"]["colourMode"] = panel["options"].pop("colorMode")
    panel["options"]["graphMode"] = "never"
    panel["targets"][0]["legendformat"] = "x"
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(whole))
    for library in libraries():
        found = departures(library, wrong).splitlines()
        assert len(found) == 3, found
