"""Tests of pushed filters as bounds: a row that satisfies all filters is always admitted."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.spark.predicates import Bounds, bounds_of


@dataclass(frozen=True)
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class EqualNullSafe(EqualTo):
    pass


@dataclass(frozen=True)
class GreaterThan(EqualTo):
    pass


@dataclass(frozen=True)
class GreaterThanOrEqual(EqualTo):
    pass


@dataclass(frozen=True)
class LessThan(EqualTo):
    pass


@dataclass(frozen=True)
class LessThanOrEqual(EqualTo):
    pass


@dataclass(frozen=True)
class In(EqualTo):
    pass


@dataclass(frozen=True)
class StringStartsWith(EqualTo):
    pass


@dataclass(frozen=True)
class StringEndsWith(EqualTo):
    pass


@dataclass(frozen=True)
class IsNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class IsNotNull(IsNull):
    pass


@dataclass(frozen=True)
class Not:
    child: Any


def satisfied(row: dict[str, Any], one: Any) -> bool | None:
    """Evaluate a filter on a row by SQL's three-valued logic, as the reference for bounds. None means unknown."""
    if isinstance(one, Not):
        inner = satisfied(row, one.child)
        return None if inner is None else not inner
    value = row[one.attribute[0]]
    if isinstance(one, IsNotNull):
        return value is not None
    if isinstance(one, IsNull):
        return value is None
    if isinstance(one, EqualNullSafe):
        return bool(value == one.value)
    if isinstance(one, In):
        if value is None:
            return None
        return True if value in one.value else None if None in one.value else False
    if value is None or one.value is None:
        return None
    compare = {
        EqualTo: lambda: value == one.value,
        GreaterThan: lambda: value > one.value,
        GreaterThanOrEqual: lambda: value >= one.value,
        LessThan: lambda: value < one.value,
        LessThanOrEqual: lambda: value <= one.value,
        StringStartsWith: lambda: value.startswith(one.value),
        StringEndsWith: lambda: value.endswith(one.value),
    }
    return bool(compare[type(one)]())


EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "offset": st.integers(-2, 5),
    "topic": st.text("ab", max_size=2),
    "timestamp": st.integers(0, 4).map(lambda seconds: EPOCH + timedelta(seconds=seconds)),
}
COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@st.composite
def filters(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(VALUES)))
    value = VALUES[name]
    forms = [
        *(st.builds(kind, st.just((name,)), st.none() | value) for kind in COMPARISONS),
        st.builds(In, st.just((name,)), st.lists(st.none() | value, max_size=3)),
        st.builds(IsNull, st.just((name,))),
        st.builds(IsNotNull, st.just((name,))),
    ]
    if name == "topic":
        forms += [st.builds(kind, st.just((name,)), value) for kind in (StringStartsWith, StringEndsWith)]
    one = draw(st.one_of(forms))
    return Not(one) if draw(st.booleans()) else one


rows = st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()})


@given(st.lists(filters(), max_size=6), st.lists(rows, max_size=20))
def test_bounds_admit_each_row_that_satisfies_all_filters(conjunction: list[Any], some: list[dict[str, Any]]) -> None:
    bounds, _ = bounds_of(conjunction, ("offset", "topic"), inexact=("timestamp",))
    for row in some:
        if all(satisfied(row, one) is True for one in conjunction):
            assert bounds.admits_row(row)
            assert not bounds.is_empty
            for name, value in row.items():
                only, (low, high) = bounds.values(name), bounds.range(name)
                assert only is None or value in only
                assert value is None or ((low is None or low <= value) and (high is None or value <= high))


@given(st.lists(filters(), max_size=6), st.lists(rows, max_size=20))
def test_rows_admitted_by_bounds_satisfy_every_filter_that_was_not_returned_to_spark(
    conjunction: list[Any], some: list[dict[str, Any]]
) -> None:
    bounds, rest = bounds_of(conjunction, tuple(VALUES))
    kept = [one for one in conjunction if not any(one is other for other in rest)]
    for row in some:
        if bounds.admits_row(row):
            assert all(satisfied(row, one) is True for one in kept)


def test_filters_on_inexact_columns_narrow_the_bounds_and_are_returned_to_spark() -> None:
    late = GreaterThanOrEqual(("timestamp",), EPOCH)
    bounds, rest = bounds_of([late], ("offset",), inexact=("timestamp",))
    assert bounds.range("timestamp") == (EPOCH, None)
    assert rest[0] is late


def test_filters_on_unpushable_columns_struct_fields_or_of_unknown_kinds_are_returned_to_spark() -> None:
    given_back = [
        EqualTo(("key",), b"x"),
        EqualTo(("offset", "x"), 1),
        StringEndsWith(("topic",), "a"),
        EqualTo(("timestamp",), datetime(2026, 1, 1)),
        EqualTo(("offset",), float("nan")),
        Not(GreaterThan(("offset",), 3)),
        object(),
    ]
    bounds, rest = bounds_of(given_back, ("offset", "topic", "timestamp"))
    assert all(one is other for one, other in zip(given_back, rest, strict=True))
    assert bounds == Bounds()
    assert bounds.values("offset") is None
    assert bounds.range("offset") == (None, None)
    assert bounds.admits("offset", 7)


def test_bounds_of_a_range_filter_and_an_in_filter_have_the_listed_values_within_the_range() -> None:
    bounds, rest = bounds_of(
        [IsNotNull(("partition",)), In(("partition",), [1, 5, 9]), GreaterThan(("partition",), 1)], ("partition",)
    )
    assert not rest
    assert bounds.values("partition") == {5, 9}
    assert bounds.range("partition") == (5, 9)


def test_bounds_convert_exclusive_limits_of_whole_numbers_to_inclusive_limits() -> None:
    bounds, _ = bounds_of([GreaterThan(("offset",), 3), LessThan(("offset",), 9)], ("offset",))
    assert bounds.range("offset") == (4, 8)


@pytest.mark.parametrize(
    "conjunction",
    [
        [GreaterThan(("offset",), 3), LessThan(("offset",), 4)],
        [EqualTo(("topic",), "a"), EqualTo(("topic",), "b")],
        [EqualTo(("topic",), "a"), IsNull(("topic",))],
        [GreaterThan(("topic",), "a"), LessThanOrEqual(("topic",), "a")],
        [In(("topic",), [])],
    ],
)
def test_contradictory_filters_give_empty_bounds(conjunction: list[Any]) -> None:
    assert bounds_of(conjunction, ("offset", "topic"))[0].is_empty


def test_bounds_can_be_pickled() -> None:
    bounds, _ = bounds_of([EqualTo(("topic",), "a")], ("topic",))
    assert pickle.loads(pickle.dumps(bounds)) == bounds
