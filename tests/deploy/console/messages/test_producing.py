"""The form of the console from which a record is appended."""

from __future__ import annotations

import pytest

from kraft.deploy.console.messages.producing import HEADERS_MAX, BadRecord, FormRecord, parse_record


def test_a_record_form_accepts_text_hex_null_and_headers() -> None:
    form = {"key": "00 ff", "key_form": "hex", "value": "a\r\nb", "partition": "2", "headers": "x=1=2\n\nflag\n"}
    assert parse_record(form) == FormRecord(b"\x00\xff", b"a\nb", 2, (("x", b"1=2"), ("flag", None)))
    assert parse_record({"key_null": "1", "value_null": "1", "key": "k"}) == FormRecord(None, None, None, ())


@pytest.mark.parametrize(("form", "words"), [
    ({"partition": "-1"}, "partition -1"), ({"key": "0", "key_form": "hex"}, "key: expected pairs"),
    ({"headers": "a=b\n" * (HEADERS_MAX + 1)}, "101 headers"),
])  # fmt: skip
def test_an_invalid_field_of_a_record_form_is_named(form: dict[str, str], words: str) -> None:
    with pytest.raises(BadRecord, match=words):
        parse_record(form)
