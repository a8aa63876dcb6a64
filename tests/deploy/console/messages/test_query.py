"""The address of a page of records: its parameters, times and filters."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from kraft.client.core.records import ConsumerRecord
from kraft.deploy.console.messages.query import (
    PATTERN_LETTERS_MAX,
    BadQuery,
    Filter,
    PageStart,
    Query,
    format_cursor,
    format_time,
    parse_cursor,
    parse_query,
    parse_time_ms,
)

BACKTRACKING = "(a|a)*$"
HARD_TEXT = b"a" * 20_000 + b"c"


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> ConsumerRecord:
    return ConsumerRecord("orders", 0, 0, 0, key, value, headers, 0)


@pytest.mark.parametrize("given", [
    {}, {"partition": "3", "where": "offset", "offset": "17"}, {"where": "time", "time": "-1h"}, {"where": "begin"},
    {"where": "before", "cursor": "0-17.2-9"}, {"filter": "a.b", "regex": "1", "part": "key", "form": "hex"},
    {"count": "500"},
])  # fmt: skip
def test_a_messages_query_survives_a_round_trip_through_its_address(given: dict[str, str]) -> None:
    query = parse_query("orders", given)
    assert parse_query("orders", dict(parse_qsl(query.parameters()))) == query


def test_a_query_with_only_an_offset_starts_at_that_offset() -> None:
    assert parse_query("orders", {"offset": "4"}) == Query("orders", where=PageStart.OFFSET, offset=4)


@pytest.mark.parametrize("given", [
    {"partition": "-1"}, {"partition": "x"}, {"where": "nowhere"}, {"offset": "9" * 20}, {"cursor": "0-1-2"},
    {"part": "all"}, {"form": "xml"}, {"count": "0"}, {"count": "501"}, {"partition": "٣"},
])  # fmt: skip
def test_an_invalid_query_parameter_is_named(given: dict[str, str]) -> None:
    with pytest.raises(BadQuery, match=next(iter(given))):
        parse_query("orders", given)


def test_a_cursor_survives_a_round_trip_through_text() -> None:
    assert parse_cursor(format_cursor({3: 17, 0: 4})) == {0: 4, 3: 17}
    assert parse_cursor("") == {}


@pytest.mark.parametrize(("text", "time_ms"), [
    ("1970-01-01T00:00:01", 1_000), ("1970-01-01T01:00+01:00", 0), ("1970-01-01", 0), ("86400000", 86_400_000),
    ("-1s", 99_000), ("-1d", 0),
])  # fmt: skip
def test_a_time_in_a_messages_query_may_be_iso_8601_milliseconds_or_an_age(text: str, time_ms: int) -> None:
    assert parse_time_ms(text, 100_000) == time_ms


@pytest.mark.parametrize("text", ["", "soon", "-1y", "1969-12-31", "2026", "-99999999999h"])
def test_an_invalid_time_in_a_messages_query_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        parse_time_ms(text, 100_000)


@pytest.mark.parametrize(
    ("time_ms", "text"), [(-1, ""), (1_001, "1970-01-01 00:00:01.001"), (1 << 62, f"{1 << 62} ms")]
)
def test_a_time_in_a_messages_query_is_written_with_milliseconds(time_ms: int, text: str) -> None:
    assert format_time(time_ms) == text


@pytest.mark.parametrize(("only", "is_wanted"), [
    (Filter(), True), (Filter("ell"), True), (Filter("h.llo"), False), (Filter("h.llo", is_regex=True), True),
    (Filter("hello", part="key"), False), (Filter("k1", part="key"), True), (Filter("trace=7", part="header"), True),
    (Filter("trace", part="value"), False), (Filter("^k1$", is_regex=True), True),
])  # fmt: skip
def test_a_message_filter_searches_only_the_named_part_of_a_record(only: Filter, is_wanted: bool) -> None:
    assert only.matches(only.compiled(), record(b"k1", b"hello", ("trace", b"7"))) is is_wanted


def test_a_record_with_null_key_and_value_matches_no_message_filter() -> None:
    only = Filter("", is_regex=True, part="value")
    assert only.matches(only.compiled(), record(None, None))
    only = Filter(".*", is_regex=True)
    assert not only.matches(only.compiled(), record(None, None))


@pytest.mark.parametrize("only", [Filter("(", is_regex=True), Filter("x" * (PATTERN_LETTERS_MAX + 1))])
def test_an_invalid_message_filter_is_refused(only: Filter) -> None:
    with pytest.raises(BadQuery):
        only.compiled()


def test_matching_a_regular_expression_that_backtracks_endlessly_times_out() -> None:
    only = Filter(BACKTRACKING, is_regex=True, part="value")
    with pytest.raises(BadQuery, match="took more than 50 ms with the record at orders-0, offset 0"):
        only.matches(only.compiled(), record(None, HARD_TEXT))
    assert only.matches(only.compiled(), record(None, b"aaa"))
