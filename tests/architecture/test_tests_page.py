"""tests/README.md is a complete map: it names each folder of tests, and no folder that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS / "README.md").read_text()
DEPTH_MAX = 2
"""Maximum depth of folders with their own row; a deeper folder belongs to the row of the folder around it."""


def named_folders() -> set[str]:
    """Return the folders in the first columns of the page's tables."""
    rows = PAGE.partition("## Tests of source folders")[2]
    cells = [line.split("|")[1] for line in rows.splitlines() if line.startswith("|")]
    return {name for cell in cells for name in re.findall(r"`([\w/]+)/`", cell)}


def test_tests_readme_names_each_folder_of_tests() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}
    with_tests = {
        folder.as_posix() for folder in folders if len(folder.parts) <= DEPTH_MAX and folder.parts != ("broker",)
    }
    assert with_tests - named_folders() == set(), "add a row for these folders to tests/README.md"


def test_tests_readme_names_only_folders_that_exist() -> None:
    assert {name for name in named_folders() if not (TESTS / name).is_dir()} == set()
