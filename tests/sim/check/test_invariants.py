"""Tests that each invariant is checked in runs, or documented as checked elsewhere, and that each code that a run
reports has a statement.
"""

from __future__ import annotations

import re
from pathlib import Path

from kraft.sim.check.invariants import JUDGED_ELSEWHERE, RUN_JUDGES
from kraft.sim.check.partitions import AckedDurability
from kraft.sim.nemesis.plan import Plan
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.story.story import _statement
from tests.docs.invariants import checks_of_runs, codes

ROOT = Path(__file__).parents[3]
NUMBERS = {"R": 20, "M": 17, "D": 18, "T": 12, "K": 7, "G": 9, "S": 12, "C": 7, "L": 13, "N": 7}
"""Letter of the codes → number of invariants whose codes begin with it."""
REPORTED = re.compile(r"""fail\(\s*"([A-Z]\d+\w?)",""")


def test_every_invariant_is_checked_in_runs_or_documented_as_checked_elsewhere() -> None:
    every = {f"{letter}{number}" for letter, count in NUMBERS.items() for number in range(1, count + 1)}
    assert sorted(every - codes()) == []


def test_invariants_documented_as_checked_elsewhere_have_no_check_in_runs() -> None:
    here = {check.id for check in checks_of_runs()} | set(RUN_JUDGES)
    assert sorted(here & set(JUDGED_ELSEWHERE)) == []


def test_every_code_reported_by_a_run_has_a_statement() -> None:
    files = [path for folder in ("cluster", "workload") for path in (ROOT / "sim" / folder).glob("*.py")]
    reported = {code for path in files for code in REPORTED.findall(path.read_text())}
    assert len(reported) > 10
    assert sorted(reported - {check.id for check in checks_of_runs()} - set(RUN_JUDGES)) == []


def test_a_report_has_the_statement_of_an_invariant_whether_or_not_it_has_a_check_class() -> None:
    run = ClusterRun(1, RunSettings(plan=Plan()))
    assert _statement(run, "D12") == RUN_JUDGES["D12"].statement
    assert _statement(run, "D1") == AckedDurability.statement


def test_files_named_as_checking_invariants_exist() -> None:
    assert [each.file for each in RUN_JUDGES.values() if not (ROOT / each.file).exists()] == []
    named = [word for each in JUDGED_ELSEWHERE.values() for word in re.findall(r"(?:sim|tests)/[\w/]+\.py", each.who)]
    assert [name for name in named if not (ROOT / name).exists()] == []
