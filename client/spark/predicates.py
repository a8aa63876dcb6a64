"""Pure: what the filters that Spark pushes down require of each column.

Spark gives a reader a conjunction of filters and takes back those that it must evaluate itself. `Bounds` holds, per
column, what a value must be to satisfy those that were understood. Invariant: each row that satisfies all filters is
admitted. It may admit more rows only for the filters that are given back.
Filters are distinguished by the names of their classes. Source: pyspark.sql.datasource (Spark 4.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class _Column:
    """What a value must be: one of `values` (None: any), from `low` to `high` (None: open), each end inclusive unless
    said otherwise. A bound excludes NULL; `is_null` True: it must be NULL, False: it must not."""

    values: frozenset[Any] | None = None
    low: Any = None
    low_is_open: bool = False
    high: Any = None
    high_is_open: bool = False
    prefixes: tuple[str, ...] = ()
    excluded: frozenset[Any] = frozenset()
    is_null: bool | None = None

    def admits(self, value: Any) -> bool:
        if value is None:
            return self.is_null is not False
        if self.is_null:
            return False
        if self.values is not None and value not in self.values:
            return False
        if value in self.excluded:
            return False
        if self.low is not None and (value < self.low or (self.low_is_open and value == self.low)):
            return False
        if self.high is not None and (self.high < value or (self.high_is_open and value == self.high)):
            return False
        return all(value.startswith(prefix) for prefix in self.prefixes)

    def not_null(self) -> Self:
        """Without NULL; nothing is left where the value must be NULL."""
        return replace(self, is_null=False, values=frozenset() if self.is_null else self.values)

    def with_values(self, values: frozenset[Any]) -> Self:
        known = values if self.values is None else self.values & values
        return replace(self.not_null(), values=known if not self.is_null else frozenset())

    def with_low(self, low: Any, *, is_open: bool) -> Self:
        if self.low is not None and (low < self.low or (low == self.low and not is_open)):
            return self.not_null()
        return replace(self.not_null(), low=low, low_is_open=is_open)

    def with_high(self, high: Any, *, is_open: bool) -> Self:
        if self.high is not None and (self.high < high or (high == self.high and not is_open)):
            return self.not_null()
        return replace(self.not_null(), high=high, high_is_open=is_open)

    def nulls_only(self) -> Self:
        if self.is_null is False:
            return replace(self, values=frozenset())
        return replace(self, is_null=True)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a conjunction of filters requires of each column. Can be pickled."""

    columns: Mapping[str, _Column] = field(default_factory=dict)

    def values(self, column: str) -> frozenset[Any] | None:
        """The only values that rows may have, where `=` or IN lists them; None: not limited to a set. Values out of the
        range are left out; an empty set: no row satisfies the filters."""
        known = self.columns.get(column)
        if known is None or known.values is None:
            return None
        return frozenset(value for value in known.values if known.admits(value))

    def range(self, column: str) -> tuple[Any, Any]:
        """(least, greatest) value, both inclusive, None where open. Bounds of whole numbers are exact; of other types
        `>` and `<` count as `>=` and `<=`. It spans `values` too; (None, None) if nothing is said."""
        known = self.columns.get(column)
        if known is None:
            return None, None
        low = known.low + 1 if known.low_is_open and _is_whole(known.low) else known.low
        high = known.high - 1 if known.high_is_open and _is_whole(known.high) else known.high
        only = self.values(column)
        return (min(only), max(only)) if only else (low, high)

    def admits(self, column: str, value: Any) -> bool:
        """Whether a row with this value can satisfy the filters, as far as this column shows."""
        known = self.columns.get(column)
        return known is None or known.admits(value)

    def admits_row(self, row: Mapping[str, Any]) -> bool:
        """Whether a row can satisfy the filters. Columns that it does not have are passed over."""
        return all(known.admits(row[name]) for name, known in self.columns.items() if name in row)

    @property
    def is_empty(self) -> bool:
        """Whether it is certain that no row satisfies the filters."""
        return any(self._is_empty(name, known) for name, known in self.columns.items())

    def _is_empty(self, name: str, known: _Column) -> bool:
        if self.values(name) == frozenset():
            return True
        low, high = self.range(name)
        if low is None or high is None:
            return False
        if low == high and known.values is None:
            return not _is_whole(low) and (known.low_is_open or known.high_is_open)
        return bool(high < low)


def bounds_of(
    filters: Iterable[object], pushable: Collection[str], *, inexact: Collection[str] = ()
) -> tuple[Bounds, list[object]]:
    """What the filters on `pushable` columns require, and those that Spark must evaluate itself, by identity.

    Filters on `inexact` columns, which only narrow what is read, are understood and given back. Filters on other
    columns, on fields of structs, and of kinds that are not known are given back."""
    columns: dict[str, _Column] = {}
    rest: list[object] = []
    for one in filters:
        name = _column_of(one)
        narrowed: _Column | None = None
        if name is not None and (name in pushable or name in inexact):
            narrowed = _narrow(columns.get(name, _Column()), one)
        if name is not None and narrowed is not None:
            columns[name] = narrowed
        if narrowed is None or name in inexact:
            rest.append(one)
    return Bounds(columns), rest


def _column_of(one: object) -> str | None:
    """The column that a filter is on; None if that is a field of a struct, or the filter is of an unknown form."""
    inner = getattr(one, "child", one) if type(one).__name__ == "Not" else one
    attribute = getattr(inner, "attribute", None)
    return attribute[0] if isinstance(attribute, tuple) and len(attribute) == 1 else None


def _narrow(known: _Column, one: object) -> _Column | None:
    """`known` and this filter; None if the filter is of a form that is not understood. It must be exact."""
    kind = type(one).__name__
    value = getattr(one, "value", None)
    if kind == "IsNull":
        return known.nulls_only()
    if kind == "IsNotNull":
        return known.not_null()
    if kind == "EqualNullSafe" and value is None:
        return known.nulls_only()
    if kind == "Not":
        return _narrow_not(known, getattr(one, "child", None))
    if kind == "In":
        return _narrow_in(known, value)
    if not _is_usable(value, known):
        return None
    if kind in ("EqualTo", "EqualNullSafe"):
        return known.with_values(frozenset((value,)))
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return known.with_low(value, is_open=kind == "GreaterThan")
    if kind in ("LessThan", "LessThanOrEqual"):
        return known.with_high(value, is_open=kind == "LessThan")
    if kind == "StringStartsWith" and isinstance(value, str):
        return replace(known.not_null(), prefixes=(*known.prefixes, value))
    return None


def _narrow_in(known: _Column, value: object) -> _Column | None:
    if not isinstance(value, list | tuple):
        return None
    listed = [each for each in value if each is not None]  # NULL is in no list
    return known.with_values(frozenset(listed)) if all(_is_usable(each, known) for each in listed) else None


def _narrow_not(known: _Column, child: object) -> _Column | None:
    """NOT = and NOT IN exclude values and NULL; NOT IS NULL is IS NOT NULL."""
    kind = type(child).__name__
    value = getattr(child, "value", None)
    if kind == "IsNull" or (kind == "EqualNullSafe" and value is None):
        return known.not_null()
    if kind == "IsNotNull":
        return known.nulls_only()
    if kind == "EqualTo" and _is_usable(value, known):
        return replace(known.not_null(), excluded=known.excluded | {value})
    if kind == "In" and isinstance(value, list | tuple) and all(_is_usable(each, known) for each in value):
        return replace(known.not_null(), excluded=known.excluded | set(value))
    return None


def _is_usable(value: object, known: _Column) -> bool:
    """Whether Python compares the value as Spark does, and it can be compared with what is known. Not so: floats, where
    NaN is greater than all in Spark; times without a zone; values of another type."""
    if not isinstance(value, int | str | bytes | datetime):
        return False
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    others = [known.low, known.high, *(known.values or ()), *known.excluded, *known.prefixes]
    return all(other is None or _family(other) is _family(value) for other in others)


def _family(value: object) -> type:
    return datetime if isinstance(value, datetime) else type(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
