"""Extras of the installation: the product uses each package of an extra, and its own dependencies have version
ranges.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
CODE = "\n".join(path.read_text() for folder in (ROOT / "kraft").iterdir() for path in folder.rglob("*.py"))


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def modules_of(distribution: str) -> set[str]:
    return {
        module
        for module, names in packages_distributions().items()
        if distribution in {name.lower() for name in names} and not module.startswith("_")
    }


def used(modules: set[str]) -> bool:
    """Return the imported packages, by statement or by name where a package is optional."""
    return any(re.search(rf"""^\s*(?:import|from) {name}\b|["']{name}["'.]""", CODE, re.MULTILINE) for name in modules)


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"dev"}))
def test_every_package_of_an_extra_is_used_by_the_product(extra: str) -> None:
    for requirement in EXTRAS[extra]:
        assert used(modules_of(name_of(requirement))), requirement


def test_checks_catch_a_package_of_an_extra_that_is_not_imported() -> None:
    assert not used({"no_such_package"})
    assert not used(modules_of("pytest-randomly"))


def test_only_extras_pin_exact_releases() -> None:
    assert [one for one in PROJECT["dependencies"] if "==" in one] == []
    (pin,) = EXTRAS["sim"]
    assert pin.startswith("trio==")
    assert pin in EXTRAS["dev"], "recorded runs are compared on the release that they were recorded with"
