"""Pure: derive conditions on each column from the filters that Spark pushes down.

Spark gives a reader filters that must all be satisfied, and takes back those that it must evaluate itself. `Bounds`
holds, for each column, the condition that the supported filters put on its value. Invariant: each row that satisfies
all filters is admitted. Rows that violate a filter may be admitted only if that filter is given back. Kinds of filters
are recognized by the names of their classes. Source: pyspark.sql.datasource (Spark 4.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class _Column:
    """The condition on one column's value: it is one of `values` (None: any), and between `low` and `high` (None: no
    limit). Each limit is inclusive unless its flag says otherwise. A limit excludes NULL. `is_null`: True requires
    NULL, False excludes NULL."""

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
        """Return the condition with NULL excluded. If it required NULL, no value satisfies the result."""
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
    """The conditions on each column that follow from filters which must all be satisfied. Can be pickled."""

    columns: Mapping[str, _Column] = field(default_factory=dict)

    def values(self, column: str) -> frozenset[Any] | None:
        """Return the only values that rows may have in this column, if `=` or IN filters list them; None if no filter
        lists values.

        Listed values that other filters exclude are dropped. An empty set means that no row satisfies the filters."""
        known = self.columns.get(column)
        if known is None or known.values is None:
            return None
        return frozenset(value for value in known.values if known.admits(value))

    def range(self, column: str) -> tuple[Any, Any]:
        """Return the (lowest, highest) value that rows may have in this column, both inclusive; None: no limit. Listed
        values limit the range too.

        Limits of whole numbers are exact. For other types, `>` and `<` count as `>=` and `<=`. Without filters on the
        column the result is (None, None)."""
        known = self.columns.get(column)
        if known is None:
            return None, None
        low = known.low + 1 if known.low_is_open and _is_whole(known.low) else known.low
        high = known.high - 1 if known.high_is_open and _is_whole(known.high) else known.high
        only = self.values(column)
        return (min(only), max(only)) if only else (low, high)

    def admits(self, column: str, value: Any) -> bool:
        """Whether a row with this value in this column can satisfy the filters."""
        known = self.columns.get(column)
        return known is None or known.admits(value)

    def admits_row(self, row: Mapping[str, Any]) -> bool:
        """Whether this row can satisfy the filters. Filters on columns that the row does not have are ignored."""
        return all(known.admits(row[name]) for name, known in self.columns.items() if name in row)

    @property
    def is_empty(self) -> bool:
        """Whether the filters contradict each other, so that no row satisfies them."""
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
    """Return the conditions that filters on `pushable` columns set, and the filters that Spark must evaluate itself.

    A filter on one of the `inexact` columns narrows what is read, and is also given back. Filters on other columns, on
    fields of structs, and of unknown kinds are given back. Filters are given back as the same objects."""
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
    """Return the column that a filter is on; None for a field of a struct or a filter of unknown form."""
    inner = getattr(one, "child", one) if type(one).__name__ == "Not" else one
    attribute = getattr(inner, "attribute", None)
    return attribute[0] if isinstance(attribute, tuple) and len(attribute) == 1 else None


def _narrow(known: _Column, one: object) -> _Column | None:
    """Return the condition `known` narrowed exactly by this filter; None if the filter's form is not supported."""
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
    listed = [each for each in value if each is not None]  # NULL in an IN list matches no row
    return known.with_values(frozenset(listed)) if all(_is_usable(each, known) for each in listed) else None


def _narrow_not(known: _Column, child: object) -> _Column | None:
    """Narrow by the negation of `child`, as `_narrow` does. NOT = and NOT IN exclude their values and NULL; NOT IS NULL
    equals IS NOT NULL."""
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
    """Whether Python compares the value as Spark does, and can compare it with the values in `known`. Not usable are
    floats (in Spark NaN is the greatest value), times without a zone, and values of another type."""
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
