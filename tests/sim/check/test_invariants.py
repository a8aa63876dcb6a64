"""Each invariant is judged, or it is said who judges it; and each code that a run reports says what must hold."""

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
NUMBERS = {"R": 20, "M": 17, "D": 18, "T": 12, "K": 7, "G": 9, "C": 7, "L": 13, "N": 7}
"""How many invariants of each kind there are."""
REPORTED = re.compile(r"""fail\(\s*"([A-Z]\d+\w?)",""")


def test_every_invariant_is_judged_or_it_is_said_by_whom() -> None:
    every = {f"{letter}{number}" for letter, count in NUMBERS.items() for number in range(1, count + 1)}
    assert sorted(every - codes()) == []


def test_what_is_judged_elsewhere_is_judged_by_no_check_of_runs() -> None:
    here = {check.id for check in checks_of_runs()} | set(RUN_JUDGES)
    assert sorted(here & set(JUDGED_ELSEWHERE)) == []


def test_every_code_that_a_run_reports_says_what_must_hold() -> None:
    files = [path for folder in ("cluster", "workload") for path in (ROOT / "sim" / folder).glob("*.py")]
    reported = {code for path in files for code in REPORTED.findall(path.read_text())}
    assert len(reported) > 10
    assert sorted(reported - {check.id for check in checks_of_runs()} - set(RUN_JUDGES)) == []


def test_a_report_says_what_must_hold_of_what_a_run_itself_judges() -> None:
    run = ClusterRun(1, RunSettings(plan=Plan()))
    assert _statement(run, "D12") == RUN_JUDGES["D12"].statement
    assert _statement(run, "D1") == AckedDurability.statement


def test_files_that_judge_are_there() -> None:
    assert [each.file for each in RUN_JUDGES.values() if not (ROOT / each.file).exists()] == []
    named = [word for each in JUDGED_ELSEWHERE.values() for word in re.findall(r"(?:sim|tests)/[\w/]+\.py", each.who)]
    assert [name for name in named if not (ROOT / name).exists()] == []
