"""Replace rows of the product's read-only tables for one test, by a view in the place of the whole table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

_standing: dict[int, Mapping[Any, Any]] = {}
"""The view that stands for a table now, by the identity of the table."""


def replace_row(patch: pytest.MonkeyPatch, table: Mapping[Any, Any], key: Any, row: Any) -> None:
    """Show `row` at `key` to every module of the product that holds this table, until the end of the test."""
    _put(patch, table, {**_standing.get(id(table), table), key: row})


def remove_row(patch: pytest.MonkeyPatch, table: Mapping[Any, Any], key: Any) -> None:
    """The same without what stands at `key`."""
    _put(patch, table, {name: row for name, row in _standing.get(id(table), table).items() if name != key})


def reverse_rows(patch: pytest.MonkeyPatch, table: Mapping[Any, Any]) -> None:
    """The same in the opposite order."""
    _put(patch, table, dict(reversed(_standing.get(id(table), table).items())))


def _put(patch: pytest.MonkeyPatch, table: Mapping[Any, Any], rows: Mapping[Any, Any]) -> None:
    current = _standing.get(id(table), table)
    view = MappingProxyType(dict(rows))
    holders = [
        (module, name)
        for path, module in list(sys.modules.items())
        if path.partition(".")[0] == "kraft"
        for name, value in list(vars(module).items())
        if value is current
    ]
    assert holders, "no module of the product holds this table"
    for module, name in holders:
        patch.setattr(module, name, view)
    patch.setitem(_standing, id(table), view)
