"""Digests are recorded again only for originals whose twins are still caught."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bugbank import originals
from tests.bugbank.bank import BANK
from tests.bugbank.originals import read_digests, write_digests
from tests.bugbank.refreshing import refresh

MUTATION = BANK[0]
CAUGHT = "tests/raft/test_planted_bugs.py::test_checks_catch_a_vote_that_compares_log_end_offsets_without_epochs"
GONE = "tests/raft/test_planted_bugs.py::test_that_is_no_more"
RUN = f"""
import json
from tests.bugbank.refreshing import run_tests
noted, failed = run_tests({[CAUGHT]!r})
print(json.dumps([list(noted), list(failed), list(run_tests({[GONE]!r})[1])]))
"""


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Recorded digests in a state where the original of one mutation has changed, and a test with a planted bug was
    removed."""
    monkeypatch.setattr(originals, "DIGESTS", tmp_path / "digests.json")
    known = {**dict.fromkeys(MUTATION.digests(), "00000000"), f"{GONE} kraft.raft.core.Core.step": "11111111"}
    write_digests(known)
    return known


def test_refreshing_records_the_present_digest_of_an_original_whose_twin_is_still_caught(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refresh([MUTATION]) == 0
    assert read_digests() == MUTATION.digests()
    told = capsys.readouterr().out
    assert "00000000 -> " in told
    assert f"{GONE} kraft.raft.core.Core.step: no bug is planted there any more" in told


def test_refreshing_keeps_the_old_digest_of_an_original_whose_twin_is_no_longer_caught(
    known: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = replace(MUTATION, directed=lambda seed: None)
    assert refresh([harmless]) == 1
    assert read_digests() == {key: known[key] for key in MUTATION.digests()}
    assert f"{MUTATION.id}: NOT CAUGHT" in capsys.readouterr().out


def test_refreshing_runs_planting_tests_and_counts_missing_ones_as_failed() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=100)
    noted, failed, missing = json.loads(done.stdout.splitlines()[-1])
    assert noted == [f"{CAUGHT} kraft.raft.log_view.LogView.is_up_to_date"]
    assert (failed, missing) == ([], [GONE])
