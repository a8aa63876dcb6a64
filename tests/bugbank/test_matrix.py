"""The kill matrix counts checks that identify a bug, continues after an interruption, and is in docs/bugbank.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bugbank.bank import BANK
from tests.bugbank.judging import Outcome
from tests.bugbank.matrix import HEADING, Matrix, Row, is_of_whole_nodes, is_sharp, matrix_of, render, with_matrix
from tests.bugbank.mutation import MUTATIONS, Schedule

BY_ID = {mutation.id: mutation for mutation in MUTATIONS}
B02 = BY_ID["B02"]


class Runs:
    """Stands in for the runs: returns the outcome `clean` without a bug, and the given outcomes, one after the other,
    with a bug."""

    def __init__(self, *broken: tuple[str, ...], clean: tuple[str, ...] = ()) -> None:
        self.seeds: list[int] = []
        self._broken = list(broken)
        self._clean = clean

    def __call__(self, schedule: Schedule, seed: int) -> Outcome:
        self.seeds.append(seed)
        is_clean = self.seeds.count(seed) == 1
        return Outcome(self._clean if is_clean else self._broken.pop(0), "", 1.0)


def rows(path: Path, runs: Runs, seeds: int) -> list[Row]:
    return Matrix(state=path / "matrix.json", say=lambda line: None, run_one=runs).run([B02], seeds)


def test_a_kill_matrix_search_ends_with_the_first_check_that_identifies_the_bug(tmp_path: Path) -> None:
    runs = Runs((), ("N1",), ("N1", "R19", "R3"))
    (row,) = rows(tmp_path, runs, 9)
    assert (row.kind, row.seeds, row.sharp, dict(row.weak)) == ("caught", 3, ("N1", "R19", "R3"), {"N1": 1})
    assert runs.seeds == [1, 1, 2, 2, 3, 3]


def test_in_the_kill_matrix_a_bug_that_only_stops_nodes_counts_as_weakly_caught(tmp_path: Path) -> None:
    (weak,) = rows(tmp_path, Runs(("N1", "L5"), ()), 2)
    assert (weak.kind, dict(weak.weak)) == ("weak", {"N1": 1, "L5": 1})
    assert Row("B02", seeds=2).kind == "nothing"


def test_an_interrupted_kill_matrix_continues_with_its_stored_results(tmp_path: Path) -> None:
    rows(tmp_path, Runs((), ()), 2)
    (row,) = rows(tmp_path, more := Runs(("D1",)), 3)
    assert (row.seeds, row.sharp, more.seeds) == (3, ("D1",), [3, 3])
    assert rows(tmp_path, Runs(), 3) == [row]


def test_a_check_that_also_fails_without_the_bug_does_not_count_as_catching_it(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, Runs(clean=("D1",)), 3)
    assert (row.kind, row.seeds) == ("no verdict", 0)
    assert "seed 1 fails without the bug" in row.alarm


@pytest.mark.parametrize(
    ("check", "sharp"), [("D1", True), ("K4b", True), ("L10", True), ("L5", False), ("N1", False), ("broken", False)]
)
def test_a_failure_that_does_not_show_what_is_wrong_does_not_identify_a_bug(check: str, sharp: bool) -> None:
    assert is_sharp(check) is sharp


def test_the_kill_matrix_excludes_mutations_that_replace_code_of_the_test_harness() -> None:
    chosen = {mutation.id for mutation in BANK if is_of_whole_nodes(mutation)}
    assert {"B01", "B02", "B03", "B25", "B26", "B41"} <= chosen
    assert not {"X05", "X06", "X08", "X10"} & chosen


def test_a_new_kill_matrix_replaces_the_earlier_one_on_the_bug_bank_page() -> None:
    part = render([B02], [Row("B02", seeds=2, sharp=("R19",))], 20)
    page = with_matrix("# Bug bank\n\n## Not open\n\n- B12\n", part)
    assert page.startswith("# Bug bank")
    assert "| B02 | a vote leaves before it is synced | R19 | 2 | 0.0 |" in page
    assert with_matrix(page, part) == page
    assert with_matrix("# Another\n", matrix_of(page)).count(HEADING) == 1
    assert with_matrix("# None\n", matrix_of("# None\n")) == "# None\n"
