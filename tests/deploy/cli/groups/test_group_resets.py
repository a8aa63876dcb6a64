"""Reset plans as files, and the rule that the options of a command line give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from kraft.client.admin.reset import PlannedReset, ResetRule, ResetTo
from kraft.deploy.cli.groups.offset_resets import _change, _rule, _rules_of_rows, show_outcomes
from kraft.deploy.cli.groups.reset_file import Plan, read_plan, write_plan
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.several import NameResult
from tests.stages.kraft_command import Command


def test_a_written_reset_plan_is_read_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    write_plan(
        path,
        {
            "one, two": (PlannedReset("t", 0, None, 5), PlannedReset("t", 1, 9, 9)),
            "b": (PlannedReset("t", 0, 1, 2),),
        },
    )
    rows = read_plan(path)
    assert rows == [("one, two", "t", 0, 5), ("one, two", "t", 1, 9), ("b", "t", 0, 2)]
    assert _rules_of_rows(rows, "one, two") == {
        ("t", 0): ResetRule(ResetTo.OFFSET, 5),
        ("t", 1): ResetRule(ResetTo.OFFSET, 9),
    }


def test_plan_rows_without_a_group_apply_to_every_group(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("# topic,partition,offset\nt,0,5\n\n t , 1 , 6 \n")
    rows = read_plan(path)
    assert rows == [(None, "t", 0, 5), (None, "t", 1, 6)]
    assert _rules_of_rows(rows, "any").keys() == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("line", ["t,0", "g,h,t,0,1", "t,zero,1", "t,0,", "t,0,-7"])
def test_an_invalid_line_of_a_reset_plan_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(f"t,0,1\n{line}\n")
    with pytest.raises(CommandFailed, match=r"plan.csv, line 2: expected \[group,\]topic,partition,offset"):
        read_plan(path)


def test_a_reset_plan_that_is_not_text_is_refused_with_its_file_name(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_bytes(b"\x93\xff")
    with pytest.raises(CommandFailed, match=r"plan\.csv: this is not text"):
        read_plan(path)


def test_a_reset_plan_without_a_line_for_a_named_group_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("one,t,0,5\n")
    said = Command(tmp_path).run("groups", "reset-offsets", "one", "oen", "--from-file", path, code=2)
    assert f"{path}: no line is for group oen" in said


DONE: NameResult[Plan] = NameResult("one", (PlannedReset("t", 0, 4, 1),), None)
REFUSED: NameResult[Plan] = NameResult("two", None, CommandFailed("group two, t-0: unknown member id"))


def test_an_offset_reset_that_fails_for_some_groups_shows_the_changed_and_the_failed_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as end:
        show_outcomes([DONE, REFUSED], as_json=False)
    assert end.value.exit_code == 1
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["one", "t", "0", "4", "1", "-3"],
        ["1", "offset", "changed"],
    ]
    assert err == "kraft: group two, t-0: unknown member id\n"


def test_a_failed_offset_reset_is_reported_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        show_outcomes([DONE, REFUSED], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["executed"], told["changes"]) == (True, 1)
    assert [row["group"] for row in told["partitions"]] == ["one"]
    assert told["failures"] == [{"group": "two", "error": "group two, t-0: unknown member id"}]


def test_a_failed_offset_reset_of_a_single_group_raises_the_groups_error() -> None:
    with pytest.raises(CommandFailed, match="unknown member id"):
        show_outcomes([REFUSED], as_json=False)


def test_an_offset_reset_requires_exactly_one_target_option() -> None:
    assert _rule(["earliest"], [], None, None, False) == ResetRule(ResetTo.EARLIEST)
    assert _rule([], [77], None, None, False) == ResetRule(ResetTo.TIME, 77)
    assert _rule([], [], -3, None, False) == ResetRule(ResetTo.SHIFT, -3)
    assert _rule([], [], None, 0, False) == ResetRule(ResetTo.OFFSET, 0)
    assert _rule([], [], None, None, True) is None
    with pytest.raises(CommandFailed, match=r"where to\? give one of --to-earliest"):
        _rule([], [], None, None, False)
    for several in ((["latest"], [], 3, None, False), ([], [1], None, None, True)):
        with pytest.raises(CommandFailed, match=r"where to\? give only one of --to-earliest"):
            _rule(*several)


@pytest.mark.parametrize(
    ("planned", "told"),
    [
        (PlannedReset("t", 0, 5, 5), "none"),
        (PlannedReset("t", 0, 5, 9), "+4"),
        (PlannedReset("t", 0, None, 9), "new"),
        (PlannedReset("t", 0, 5, 8, is_clamped=True), "+3 (clamped)"),
        (PlannedReset("t", 0, 0, 0, is_clamped=True), "none (clamped)"),
    ],
)
def test_a_reset_to_an_offset_outside_the_log_is_shown_as_limited_to_the_log(planned: PlannedReset, told: str) -> None:
    assert _change(planned) == told


def test_an_empty_reset_plan_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("# nothing\n")
    with pytest.raises(CommandFailed, match="has no line"):
        read_plan(path)


def test_a_reset_plan_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="No such file or directory; nothing was changed") as failure:
        write_plan(tmp_path / "nowhere" / "plan.csv", {"g": (PlannedReset("t", 0, 1, 2),)})
    assert failure.value.code == 2
