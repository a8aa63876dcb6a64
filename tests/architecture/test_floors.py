"""The layering: the first words of a folder's docstring determine its permitted imports, and no module can be imported
under a second name.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.architecture.pure_folders import folder_of, measured_packages, package_files, pure_packages

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("broker", "client", "sim", "deploy")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
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


def modules(package: str) -> Iterator[Path]:
    yield from sorted(folder_of(package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Return the first parts of the names of all modules that this file imports, including inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", pure_packages())
def test_a_pure_folder_imports_no_clock_no_randomness_and_no_io(package: str) -> None:
    for path in modules(package):
        assert not imported(path) & FORBIDDEN, path


@pytest.mark.parametrize("package", pure_packages())
def test_a_pure_folder_has_no_coroutines(package: str) -> None:
    for path in modules(package):
        tree = ast.parse(path.read_text())
        suspending = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
        if package != "kraft.seam":
            assert not suspending, path


def test_the_import_contract_lists_every_pure_folder() -> None:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each["name"] == "Pure folders do no I/O"]
    assert sorted(contract["source_modules"]) == pure_packages()


def test_the_coverage_settings_list_every_measured_pure_folder() -> None:
    assert sorted(PROJECT["tool"]["coverage"]["run"]["source"]) == measured_packages()


def test_pure_folders_are_found_by_their_docstrings(tmp_path: Path) -> None:
    docstrings = {
        "kraft/wire": "Pure: bytes.",
        "kraft/wire/records": "Pure: a part of wire.",
        "kraft/storage": "Synchronous: files.",
        "broker/group": "Pure: groups.",
        "sim/check": "Pure: invariants.",
        "deploy/tools": "Pure except one module: options.",
    }
    for folder, docstring in docstrings.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text(f'"""{docstring}"""')
    assert pure_packages(tmp_path) == ["kraft.broker.group", "kraft.sim.check", "kraft.wire"]
    assert measured_packages(tmp_path) == ["kraft.broker.group", "kraft.wire"]


@pytest.mark.parametrize("path", package_files(), ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_docstring_of_each_package_begins_with_pure_async_or_synchronous(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    kind = docstring.split(":", 1)[0].split(" ", 1)[0]
    assert kind in ("Pure", "Async", "Synchronous"), path


def test_the_runtime_is_imported_only_by_its_listed_users() -> None:
    """The import contract lists modules one by one; this test also finds a new module that is not listed."""
    for folder in ("kraft", *LINKED):
        for path in (ROOT / folder).rglob("*.py"):
            named = {node.module or "" for node in ast.walk(ast.parse(path.read_text())) if is_import_from(node)}
            place = path.relative_to(ROOT).as_posix()
            if any(name == "kraft.runtime" or name.startswith("kraft.runtime.") for name in named):
                assert place.startswith(DOORS_TO_THE_RUNTIME), place


def is_import_from(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom)


@pytest.mark.parametrize("name", LINKED)
def test_a_top_folder_is_imported_through_its_symbolic_link(name: str) -> None:
    link = ROOT / "kraft" / name
    assert link.is_symlink(), f"{link} is not a symbolic link; clone with git -c core.symlinks=true"
    assert os.readlink(link) == f"../{name}"


@pytest.mark.parametrize("name", LINKED)
def test_a_top_folders_bare_name_cannot_be_imported_outside_the_repository(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "No module named" in done.stderr


def test_no_module_exceeds_the_maximum_length() -> None:
    """Modules have 100 to 400 lines, and 400 is the limit. Only a table with one row per key may exceed it."""
    tables = ROOT / "kraft" / "config" / "tables"
    for folder in ("kraft", *LINKED):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_relative_to(tables):
                continue
            lines = len(path.read_text().splitlines())
            assert lines <= 700, f"{path} has {lines} lines: cut it into parts with names from the domain"
