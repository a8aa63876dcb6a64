"""The check for unused names finds one, and its list of exceptions gives each name one reason."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.dead_names import STAYS, unused_names


def test_checks_catch_a_function_that_nothing_calls(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "part.py").write_text("def used():\n    pass\n\n\ndef unused():\n    used()\n")
    assert [(one.path, one.line, one.name) for one in unused_names(tmp_path)] == [("broker/part.py", 5, "unused")]


def test_list_of_unused_names_that_stay_gives_one_reason_for_each_name() -> None:
    names = [name for names in STAYS.values() for name in names.split()]
    assert len(names) == len(set(names))
