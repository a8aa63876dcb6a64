"""The pure folders: packages whose docstring begins with `Pure:`. Only this module finds them.

The import contract and the coverage settings in pyproject.toml are literal lists. A test compares them with the folders
found here.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kraft", "broker", "client", "sim", "deploy")
"""Top folders with source files. The last four are also reached through symbolic links below kraft/."""

NOT_MEASURED = ("kraft.client.spark", "kraft.sim")
"""Packages that `make coverage` leaves out: their tests need Spark or a whole simulated cluster."""


def package_files(root: Path = ROOT) -> list[Path]:
    """Return the `__init__.py` of every package below the top folders, each file once."""
    found = [path for folder in FOLDERS for path in (root / folder).rglob("__init__.py")]
    return sorted(
        path for path in found if not _is_behind_a_link(path, root) and path != root / "kraft" / "__init__.py"
    )


def pure_packages(root: Path = ROOT) -> list[str]:
    """Return the dotted names of the pure packages, without those inside another pure package."""
    names: list[str] = []
    for path in package_files(root):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        if docstring.startswith("Pure:"):
            parts = path.parent.relative_to(root).parts
            names.append(".".join(parts if parts[0] == "kraft" else ("kraft", *parts)))
    return sorted(name for name in names if not any(name.startswith(f"{other}.") for other in names))


def measured_packages(root: Path = ROOT) -> list[str]:
    """Return the pure packages whose coverage `make coverage` measures."""
    return [name for name in pure_packages(root) if not f"{name}.".startswith(tuple(f"{no}." for no in NOT_MEASURED))]


def folder_of(package: str) -> Path:
    """Return the path of a package's folder below kraft/, where top folders are symbolic links."""
    return ROOT.joinpath(*package.split("."))


def _is_behind_a_link(path: Path, root: Path) -> bool:
    first, second = path.relative_to(root).parts[:2]
    return first == "kraft" and second in FOLDERS
