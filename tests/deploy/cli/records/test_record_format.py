"""Formats as kcat's print what they say."""

from __future__ import annotations

import os

import pytest

from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.records.format import compile_format, print_plain
from tests.deploy.cli.records.records import record


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s", b"value"),
        (r"%t %p %o %T\n", b"t 2 7 1700000000123\n"),
        ("%k=%s (%K, %S)", b"key=value (3, 5)"),
        ("%h", b"a=1,a=2,b=NULL"),
        (r"100%%\t\\\x41\0", b"100%\t\\A\0"),
        ("plain", b"plain"),
        ("", b""),
    ],
)
def test_a_format_prints_what_it_says(text: str, expected: bytes) -> None:
    shown = record(headers=(("a", b"1"), ("a", b"2"), ("b", None)))
    assert compile_format(text)(shown) == expected


def test_null_has_length_minus_one_and_prints_as_nothing() -> None:
    assert compile_format("[%s|%S|%k|%K]")(record(None, None)) == b"[|-1||-1]"
    assert compile_format("[%s|%S]")(record(b"", None)) == b"[|0]"


@pytest.mark.parametrize("text", ["%q", r"\q", "%s %x"])
def test_an_unknown_field_is_named_with_those_there_are(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"is unknown; fields are %s %S"):
        compile_format(text)


def test_without_a_format_key_and_value_stand_on_a_line() -> None:
    assert print_plain(record()) == b"key\tvalue\n"
    assert print_plain(record(b"value", None)) == b"value\n"
    assert print_plain(record(None, b"k")) == b"k\t\n"


def test_bytes_that_are_no_text_are_printed_as_they_were_typed() -> None:
    assert compile_format(os.fsdecode(b"\xff%k\xfe%s\xfd"))(record()) == b"\xffkey\xfevalue\xfd"
