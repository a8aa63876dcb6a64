"""The change log is readable for a user: one sentence for each change, without codes and internals."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.architecture.change_log import ROOT, TYPES, lines, problems, problems_of_fragment, problems_of_text

GOOD = "Removing all members of an empty group succeeds."


def test_all_change_log_entries_of_this_repository_pass_the_check() -> None:
    assert problems() == []


def test_the_change_log_has_changes_under_the_headings_of_towncrier() -> None:
    page = (ROOT / "CHANGELOG.md").read_text()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    assert len(lines(page)) > 100
    assert settings["start_string"] in page
    assert tuple(each["directory"] for each in settings["type"]) == TYPES
    assert all(f"### {each['name']}\n" in page for each in settings["type"])


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "`kraft consume … | head -1` exits with code 0.",
        "The setting `log.dirs` may hold paths that are\nrelative to the folder of the process.",
        "100,000 partitions are created in less than 20 seconds.",
    ],
)
def test_change_log_check_accepts_a_sentence_for_users(text: str) -> None:
    assert list(problems_of_text(text)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("Removing all members of an empty group succeeds", "full stop"),
        ("Removing members succeeds. Groups are empty then.", "more than one sentence"),
        ("Removing members succeeds; groups are empty then.", "more than one sentence"),
        ("removing all members of an empty group succeeds.", "capital letter"),
        ("What was removed stays removed.", "subject"),
        ("Fixed: removing all members succeeds.", "subject"),
        ("The simulator checks D13 in whole clusters.", "code D13"),
        ("The module broker/node/serve.py is shorter.", "internal"),
        ("Brokers answer sooner (#12).", "internal"),
        ("Brokers answer " + "very " * 40 + "soon.", "longer"),
    ],
)
def test_checks_catch_a_change_log_text_that_is_not_a_sentence_for_users(text: str, problem: str) -> None:
    assert any(problem in found for found in problems_of_text(text))


@pytest.mark.parametrize("name", ["+empty-groups.fixed.md", "+compaction.performance.md"])
def test_change_log_check_accepts_a_fragment_file_with_a_known_type(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(GOOD + "\n")
    assert list(problems_of_fragment(tmp_path / name)) == []


@pytest.mark.parametrize(
    "name", ["empty-groups.fixed.md", "+empty-groups.md", "+a.removed.md", "+A.fixed.md", "+a.fixed"]
)
def test_checks_catch_a_change_log_fragment_file_with_an_invalid_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(GOOD + "\n")
    assert any("name" in found for found in problems_of_fragment(tmp_path / name))
