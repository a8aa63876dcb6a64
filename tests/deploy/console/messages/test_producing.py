"""A record to append, from a form."""

from __future__ import annotations

import pytest

from kraft.deploy.console.messages.producing import HEADERS_MAX, BadRecord, NewRecord, parse_record


def test_text_hex_null_and_headers_are_read_from_a_form() -> None:
    form = {"key": "00 ff", "key_form": "hex", "value": "a\r\nb", "partition": "2", "headers": "x=1=2\n\nflag\n"}
    assert parse_record(form) == NewRecord(b"\x00\xff", b"a\nb", 2, (("x", b"1=2"), ("flag", None)))
    assert parse_record({"key_null": "1", "value_null": "1", "key": "k"}) == NewRecord(None, None, None, ())


@pytest.mark.parametrize(("form", "words"), [
    ({"partition": "-1"}, "partition -1"), ({"key": "0", "key_form": "hex"}, "key: expected pairs"),
    ({"headers": "a=b\n" * (HEADERS_MAX + 1)}, "101 headers"),
])  # fmt: skip
def test_a_field_that_is_wrong_is_named(form: dict[str, str], words: str) -> None:
    with pytest.raises(BadRecord, match=words):
        parse_record(form)
