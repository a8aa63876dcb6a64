"""The kill matrix counts what names a bug, goes on where it was, and stands on the page beside the rest."""

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
    """Outcomes in the place of runs: of the clean code `clean`, of a bug these, one after the other."""

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


def test_a_search_ends_with_the_first_run_in_which_a_check_names_the_bug(tmp_path: Path) -> None:
    runs = Runs((), ("N1",), ("N1", "R19", "R3"))
    (row,) = rows(tmp_path, runs, 9)
    assert (row.kind, row.seeds, row.sharp, dict(row.weak)) == ("caught", 3, ("N1", "R19", "R3"), {"N1": 1})
    assert runs.seeds == [1, 1, 2, 2, 3, 3]


def test_a_bug_that_only_stops_nodes_is_caught_weakly_and_one_that_does_nothing_not_at_all(tmp_path: Path) -> None:
    (weak,) = rows(tmp_path, Runs(("N1", "L5"), ()), 2)
    assert (weak.kind, dict(weak.weak)) == ("weak", {"N1": 1, "L5": 1})
    assert Row("B02", seeds=2).kind == "nothing"


def test_a_matrix_goes_on_where_it_was(tmp_path: Path) -> None:
    rows(tmp_path, Runs((), ()), 2)
    (row,) = rows(tmp_path, more := Runs(("D1",)), 3)
    assert (row.seeds, row.sharp, more.seeds) == (3, ("D1",), [3, 3])
    assert rows(tmp_path, Runs(), 3) == [row]


def test_what_fires_without_the_bug_is_no_catch(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, Runs(clean=("D1",)), 3)
    assert (row.kind, row.seeds) == ("no verdict", 0)
    assert "seed 1 fails without the bug" in row.alarm


@pytest.mark.parametrize(
    ("check", "sharp"), [("D1", True), ("K4b", True), ("L10", True), ("L5", False), ("N1", False), ("broken", False)]
)
def test_what_says_only_that_something_is_wrong_is_not_sharp(check: str, sharp: bool) -> None:
    assert is_sharp(check) is sharp


def test_twins_of_the_harness_are_not_of_whole_nodes() -> None:
    chosen = {mutation.id for mutation in BANK if is_of_whole_nodes(mutation)}
    assert {"B01", "B02", "B03", "B25", "B26", "B41"} <= chosen
    assert not {"X05", "X06", "X08", "X10"} & chosen


def test_the_matrix_takes_the_place_of_the_one_on_the_page() -> None:
    part = render([B02], [Row("B02", seeds=2, sharp=("R19",))], 20)
    page = with_matrix("# Bug bank\n\n## Not open\n\n- B12\n", part)
    assert page.startswith("# Bug bank")
    assert "| B02 | a vote leaves before it is synced | R19 | 2 | 0.0 |" in page
    assert with_matrix(page, part) == page
    assert with_matrix("# Another\n", matrix_of(page)).count(HEADING) == 1
    assert with_matrix("# None\n", matrix_of("# None\n")) == "# None\n"
