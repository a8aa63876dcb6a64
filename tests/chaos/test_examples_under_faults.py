"""Tests that the applications of docs/examples survive the crash of a broker. Exit codes and topics prove it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.examples import COMMANDS
from tests.interop.programs import install_tools

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
ORDERS, PER_SECOND = 225, 15
"""Number of orders, and orders per second: the application takes orders for fifteen seconds, and the faults happen in
that time."""
DURATION_S = 20


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    install_tools()


@pytest.mark.parametrize("language", COMMANDS)
def test_each_example_application_survives_the_crash_of_a_broker(tmp_path: Path, language: str) -> None:
    command = [sys.executable, "-m", "kraft.deploy.cli", "chaos", "run", "broker-crash", "--duration", str(DURATION_S)]
    command += ["--out", str(tmp_path / "runs"), "--", *COMMANDS[language], str(ORDERS), str(PER_SECOND)]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (info,) = (tmp_path / "runs").rglob("run.json")
    assert json.loads(info.read_text())["application_exit"] == 0
    printed = [json.loads(line)["text"] for line in (info.parent / "output.jsonl").read_text().splitlines()]
    assert f"{ORDERS} orders, {ORDERS} with an invoice" in printed
    assert json.loads((info.parent / "verdict.json").read_text())["verdict"] == "valid"
