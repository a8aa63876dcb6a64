"""Only records that match everything that was asked for are shown."""

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
def test_all_conditions_must_hold(key: str | None, value: str | None, headers: tuple[str, ...], expected: bool) -> None:
    shown = record(headers=(("a", b"1"), ("a", b"2"), ("n", None)))
    assert compile_filter(key, value, headers).matches(shown) is expected


def test_null_matches_no_expression() -> None:
    assert not compile_filter("", None, ()).matches(record(key=None))
    assert not compile_filter(None, "", ()).matches(record(value=None))


@pytest.mark.parametrize(("key", "header"), [("(", "a"), ("a", "h=(")])
def test_an_expression_that_does_not_compile_is_named(key: str, header: str) -> None:
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
def test_text_is_matched_by_letters_and_other_bytes_by_bytes(value: bytes, expression: str, expected: bool) -> None:
    assert compile_filter(None, expression, ()).matches(record(value)) is expected
