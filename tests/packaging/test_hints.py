"""Texts for users mention no file that an installed package lacks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft

PACKAGE = Path(kraft.__file__).parent
PAGES = "docs/"


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield all strings of the code except docstrings, which may refer to pages of the repository."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


FOLDERS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())


@pytest.mark.parametrize("folder", FOLDERS)
def test_user_visible_texts_do_not_refer_to_pages_of_the_repository(folder: str) -> None:
    found = {
        (path.name, text)
        for path in sorted((PACKAGE / folder).resolve().rglob("*.py"))
        for text in texts(ast.parse(path.read_text()))
        if text.startswith(PAGES) or f" {PAGES}" in text
    }
    assert found == set()
