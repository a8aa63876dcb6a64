"""Only records that match everything that was asked for are shown."""

from __future__ import annotations

import pytest

from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.record_filter import compile_filter
from tests.cli.records import record


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
