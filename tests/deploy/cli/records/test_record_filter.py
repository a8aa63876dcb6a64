"""The filter of printed records: a record must match all given expressions."""

from __future__ import annotations

import os

import pytest

from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.records.filter import compile_filter
from tests.deploy.cli.records.records import record


@pytest.mark.parametrize(
    ("key", "value", "headers", "expected"),
    [
        (None, None, (), True),
        ("^ke", None, (), True),
        ("^e", None, (), False),
        (None, "al", (), True),
        ("k", "x", (), False),
        (None, None, ("a",), True),
        (None, None, ("c",), False),
        (None, None, ("a=^2$",), True),
        (None, None, ("a=3",), False),
        (None, None, ("n",), True),
        (None, None, ("n=",), False),
        (None, None, ("a", "c"), False),
    ],
)
def test_a_record_filter_requires_all_conditions(
    key: str | None, value: str | None, headers: tuple[str, ...], expected: bool
) -> None:
    shown = record(headers=(("a", b"1"), ("a", b"2"), ("n", None)))
    assert compile_filter(key, value, headers).matches(shown) is expected


def test_a_null_value_matches_no_filter_expression() -> None:
    assert not compile_filter("", None, ()).matches(record(key=None))
    assert not compile_filter(None, "", ()).matches(record(value=None))


@pytest.mark.parametrize(("key", "header"), [("(", "a"), ("a", "h=(")])
def test_an_invalid_filter_expression_is_refused_by_name(key: str, header: str) -> None:
    with pytest.raises(CommandFailed, match="not a regular expression"):
        compile_filter(key, None, (header,))


@pytest.mark.parametrize(
    ("value", "expression", "expected"),
    [
        ("ключ".encode(), "^.{4}$", True),
        ("ä".encode(), "^[äö]$", True),
        ("Größe".encode(), r"^\w+$", True),
        ("É".encode(), "(?i)^é$", True),
        (b"\xff\x00", r"^\xff\x00$", True),
        (b"\xff\x00", os.fsdecode(b"^\xff."), True),
        (b"\xff\x00", os.fsdecode(b"\xfe"), False),
    ],
)
def test_filter_expressions_match_characters_of_utf_8_and_bytes_of_other_data(
    value: bytes, expression: str, expected: bool
) -> None:
    assert compile_filter(None, expression, ()).matches(record(value)) is expected
