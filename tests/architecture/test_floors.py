"""The floor plan holds: what a folder's first words say is what it imports, and nothing has a second name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("broker", "client", "sim", "deploy")
PURE = ("wire", "seam", "raft", "image", "control", "config", "broker/replica", "client/core")
DOORS_TO_THE_RUNTIME = (
    "client/default_seam.py",
    "client/spark/blocking/link.py",
    "deploy/launch/",
    "deploy/cli/",
    "kraft/runtime/",
    "kraft/testing/",
    "sim/chaos/",
)
FORBIDDEN = {"trio", "time", "random", "os", "socket", "threading", "asyncio", "subprocess", "select", "ssl", "secrets"}


def modules(folder: str) -> Iterator[Path]:
    yield from sorted((ROOT / "kraft" / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """First parts of the names of all modules that this file imports, in functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def packages() -> list[Path]:
    found = [path for folder in ("kraft", *LINKED) for path in (ROOT / folder).rglob("__init__.py")]
    return sorted(path for path in found if path != ROOT / "kraft" / "__init__.py")


@pytest.mark.parametrize("folder", PURE)
def test_a_pure_folder_imports_no_clock_no_chance_and_no_world(folder: str) -> None:
    for path in modules(folder):
        assert not imported(path) & FORBIDDEN, path


@pytest.mark.parametrize("folder", PURE)
def test_a_pure_folder_has_no_coroutines(folder: str) -> None:
    for path in modules(folder):
        tree = ast.parse(path.read_text())
        suspending = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
        if folder != "seam":
            assert not suspending, path


@pytest.mark.parametrize("path", packages(), ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_the_first_word_of_a_package_says_what_kind_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    kind = docstring.split(":", 1)[0].split(" ", 1)[0]
    assert kind in ("Pure", "Async", "Synchronous"), path


def test_the_runtime_is_reached_through_its_doors_alone() -> None:
    """The contract names modules one by one; this finds a new one that nobody has named."""
    for folder in ("kraft", *LINKED):
        for path in (ROOT / folder).rglob("*.py"):
            named = {node.module or "" for node in ast.walk(ast.parse(path.read_text())) if is_import_from(node)}
            place = path.relative_to(ROOT).as_posix()
            if any(name == "kraft.runtime" or name.startswith("kraft.runtime.") for name in named):
                assert place.startswith(DOORS_TO_THE_RUNTIME), place


def is_import_from(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom)


@pytest.mark.parametrize("name", LINKED)
def test_a_top_folder_is_reached_through_a_symbolic_link(name: str) -> None:
    link = ROOT / "kraft" / name
    assert link.is_symlink(), f"{link} is not a symbolic link; clone with git -c core.symlinks=true"
    assert os.readlink(link) == f"../{name}"


@pytest.mark.parametrize("name", LINKED)
def test_the_bare_name_cannot_be_imported_from_outside_of_the_repository(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "No module named" in done.stderr


def test_no_module_is_so_long_that_it_must_be_two() -> None:
    """Modules have 100 to 400 lines; this is the ceiling, and only a table of one row per key may be higher."""
    tables = ROOT / "kraft" / "config" / "tables"
    for folder in ("kraft", *LINKED):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_relative_to(tables):
                continue
            lines = len(path.read_text().splitlines())
            assert lines <= 700, f"{path} has {lines} lines: cut it into parts with names from the domain"
