"""The exercise for the first hour in CONTRIBUTING.md works: the line that it changes exists, and its test passes on the
real code and fails on the changed line.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.broker.replica import test_leader

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SOURCE = (ROOT / "broker" / "replica" / "leader.py").read_text()


def changed_line() -> tuple[str, str]:
    """Return the line that the page breaks, as it is and as the page changes it."""
    found = re.search(r"^    -(?P<before> .*)\n    \+(?P<after> .*)\n", PAGE, re.MULTILINE)
    assert found is not None
    return found["before"], found["after"]


def page_test() -> tuple[str, str]:
    """Return the name and the source of the test that the page writes."""
    found = re.search(r"^    def (?P<name>test_\w+)\(.*\n(    .+\n)+", PAGE, re.MULTILINE)
    assert found is not None
    return found["name"], "\n".join(line[4:] for line in found[0].splitlines())


def run_page_test() -> None:
    """Run the page's test as a part of the file to which it is added."""
    name, source = page_test()
    names: dict[str, Any] = dict(vars(test_leader))
    exec(compile(source, "CONTRIBUTING.md", "exec"), names)
    names[name]()


def test_code_line_that_the_contributing_page_breaks_exists_once() -> None:
    before, _ = changed_line()
    assert SOURCE.splitlines().count(before) == 1


def test_example_test_of_the_contributing_page_passes_on_the_real_code() -> None:
    run_page_test()


def test_example_test_of_the_contributing_page_fails_on_the_broken_line(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("kraft.broker.replica.leader")
    exec(compile(SOURCE.replace(*changed_line()), "leader.py", "exec"), vars(broken))
    monkeypatch.setattr(test_leader, "LeaderState", broken.LeaderState)
    with pytest.raises(AssertionError):
        run_page_test()


def test_every_make_target_that_readme_and_contributing_page_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = PAGE + (ROOT / "README.md").read_text() + (ROOT / "tests" / "README.md").read_text()
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", pages, re.MULTILINE)) - targets == set()


def test_links_of_tests_readme_lead_to_existing_files() -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "tests" / "README.md").read_text())
    assert [link for link in links if not (ROOT / "tests" / link).exists()] == []
