"""Times and durations as users type them."""

from __future__ import annotations

import pytest

from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.times import format_time, parse_duration_ms, parse_time_ms, time_before_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H30M", 5_400_000),
        ("P1DT0.5S", 86_400_500),
        ("P2W", 1_209_600_000),
        ("1h30m", 5_400_000),
        ("90m", 5_400_000),
        ("1.5s", 1_500),
        ("500ms", 500),
        ("1d2h", 93_600_000),
    ],
)
def test_a_duration_is_parsed_to_milliseconds(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "h", "1x", "30m1h", "-1h", "1"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW_MS),
        ("-1m", NOW_MS - 60_000),
        ("-PT1M", NOW_MS - 60_000),
        ("1234", 1_234),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:01.250+01:00", 1_250),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_time_is_parsed_to_milliseconds(text: str, expected: int) -> None:
    assert parse_time_ms(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="is not a time"):
        parse_time_ms(text, NOW_MS)


def test_a_time_is_shown_in_utc_with_milliseconds_and_parses_back() -> None:
    shown = format_time(NOW_MS + 7)
    assert shown == "2023-11-14T22:13:20.007Z"
    assert parse_time_ms(shown, 0) == NOW_MS + 7
    assert (format_time(None), format_time(-1)) == (None, None)


@pytest.mark.parametrize("year", ["1999", "2026"])
def test_a_year_without_month_and_day_is_refused_with_the_text_to_write_instead(year: str) -> None:
    with pytest.raises(CommandFailed, match=f"write {year}-01-01"):
        parse_time_ms(year, NOW_MS)
    assert parse_time_ms(f"{year}-01-01", NOW_MS) > 0


@pytest.mark.parametrize("text", ["-99999999d", "1969-12-31T23:59:59", "-P20000W"])
def test_a_time_before_1970_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="before 1970"):
        parse_time_ms(text, NOW_MS)


def test_a_time_beyond_64_bits_and_a_duration_that_reaches_before_1970_are_refused() -> None:
    assert parse_time_ms(str(2**63 - 1), NOW_MS) == 2**63 - 1
    with pytest.raises(CommandFailed, match="not a time that a record can have"):
        parse_time_ms(str(2**63), NOW_MS)
    with pytest.raises(CommandFailed, match="before 1970"):
        time_before_ms("9" * 400 + "d", NOW_MS)


def test_a_time_beyond_the_year_9999_is_shown_in_milliseconds() -> None:
    assert format_time(253_402_300_799_000) == "9999-12-31T23:59:59.000Z"
    assert format_time(2**63 - 1) == f"{2**63 - 1} ms"
