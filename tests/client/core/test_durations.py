"""Durations in ISO 8601: those that Java's `Duration.parse` accepts, and weeks."""

from __future__ import annotations

import pytest

from kraft.client.core.durations import parse_iso_duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT0S", 0),
        ("PT20.345S", 20_345),
        ("PT0,5S", 500),
        ("PT1.S", 1_000),
        ("PT0.000000001S", 1),
        ("PT15M", 900_000),
        ("P2DT3H4M", 183_840_000),
        ("p1dt1h", 90_000_000),
        ("P1W", 604_800_000),
        ("PT+1H-5M", 3_300_000),
        ("-PT-6H+3M", 21_420_000),
        ("P99999999999D", 8_639_999_999_913_600_000),
    ],
)
def test_durations_that_java_accepts_are_parsed(text: str, expected: int) -> None:
    assert parse_iso_duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "-P", "T1H", "P1H", "PT1D", "PT1.5M", "PT.5S", "P1Y", "P1M", " PT1S", "PT1S\n"]
)
def test_parsing_a_text_that_java_rejects_as_a_duration_returns_none(text: str) -> None:
    assert parse_iso_duration_ms(text) is None


@pytest.mark.parametrize("text", ["-PT1S", "PT-0.0001S", "P-1D", "PT1H-61M", "-P1W"])
def test_parsing_a_negative_duration_returns_none(text: str) -> None:
    assert parse_iso_duration_ms(text) is None
