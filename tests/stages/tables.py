"""Change rows of the product's read-only tables for one test. Afterwards the tables are as before, in the same order.

A table is a mapping proxy, so that neither the product nor a test can change it by mistake. Only this module accesses
the dictionary behind a proxy.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest


def replace_row(patch: pytest.MonkeyPatch, table: Mapping[Any, Any], key: Any, row: Any) -> None:
    """Set the row of `key`, which may be a new key, until `patch` is undone. A replaced row keeps its place in the
    order."""
    patch.setitem(_rows_behind(table), key, row)


@contextmanager
def shown_as(table: Mapping[Any, Any], rows: Mapping[Any, Any]) -> Iterator[None]:
    """Replace all rows of the table by these rows, in this order."""
    behind = _rows_behind(table)
    kept, shown = dict(behind), dict(rows)
    _fill(behind, shown)
    try:
        yield
    finally:
        _fill(behind, kept)


def _rows_behind(table: Mapping[Any, Any]) -> dict[Any, Any]:
    assert isinstance(table, MappingProxyType), "it is no read-only table"
    (behind,) = gc.get_referents(table)
    assert isinstance(behind, dict)
    return behind


def _fill(behind: dict[Any, Any], rows: Mapping[Any, Any]) -> None:
    behind.clear()
    behind.update(rows)
