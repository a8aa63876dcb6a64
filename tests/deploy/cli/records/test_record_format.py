"""Output formats of records, with the same fields as kcat's `-f`."""

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
def test_a_record_format_prints_the_named_fields(text: str, expected: bytes) -> None:
    shown = record(headers=(("a", b"1"), ("a", b"2"), ("b", None)))
    assert compile_format(text)(shown) == expected


def test_a_record_format_prints_null_as_empty_with_length_minus_one() -> None:
    assert compile_format("[%s|%S|%k|%K]")(record(None, None)) == b"[|-1||-1]"
    assert compile_format("[%s|%S]")(record(b"", None)) == b"[|0]"


@pytest.mark.parametrize("text", ["%q", r"\q", "%s %x"])
def test_an_unknown_format_field_is_refused_with_the_known_fields(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"is unknown; fields are %s %S"):
        compile_format(text)


def test_without_a_format_a_record_is_a_line_with_key_and_value() -> None:
    assert print_plain(record()) == b"key\tvalue\n"
    assert print_plain(record(b"value", None)) == b"value\n"
    assert print_plain(record(None, b"k")) == b"k\t\n"


def test_non_utf_8_bytes_of_a_format_are_printed_unchanged() -> None:
    assert compile_format(os.fsdecode(b"\xff%k\xfe%s\xfd"))(record()) == b"\xffkey\xfevalue\xfd"
