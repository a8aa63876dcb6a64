"""Bytes of keys, values and headers as text: each form, truncation, and bytes that do not fit a form."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc

import pytest

from kraft.deploy.console.messages.avro import BadAvro, parse_schema, schema_id_of
from kraft.deploy.console.messages.decoding import SHOWN_BYTES_MAX, Form, hex_lines, schema_ids, show


@pytest.mark.parametrize(("data", "form"), [
    (None, "null"), (b"", "text"), (b"hello", "text"), ("Grüße".encode(), "text"), (b'{"a": 1}', "json"),
    (b"[1, 2]", "json"), (b"{no json", "text"), (b"\xff\xfe", "hex"), (b"a\x00b", "hex"), (b"12", "text"),
])  # fmt: skip
def test_decoding_auto_chooses_the_first_form_that_fits(data: bytes | None, form: str) -> None:
    shown = show(data, Form.AUTO, {})
    assert (shown.form, shown.problem) == (form, "")
    assert shown.size == len(data or b"")


def test_decoded_json_is_indented_and_keeps_non_ascii_characters() -> None:
    assert show('{"a":"ü"}'.encode(), Form.AUTO, {}).text == '{\n  "a": "ü"\n}'


@pytest.mark.parametrize(("data", "form"), [(b"\xff", Form.TEXT), (b"{", Form.JSON), (b"text", Form.AVRO)])
def test_bytes_that_do_not_fit_the_form_are_shown_as_hex_with_the_reason(data: bytes, form: Form) -> None:
    shown = show(data, form, {})
    assert shown.form == "hex"
    assert shown.problem.startswith(f"not {form}: ")


def test_json_that_is_nested_too_deeply_is_shown_in_another_form() -> None:
    assert show(b"[" * 200_000, Form.AUTO, {}).form in ("text", "hex")


def test_json_is_formatted_only_up_to_the_shown_size() -> None:
    """The whole value would have 240 MB when indented, because each of its numbers is on a line after 800 spaces."""
    data = b"[" * 400 + b",".join([b"1"] * 300_000) + b"]" * 400
    tracemalloc.start()
    shown = show(data, Form.AUTO, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (shown.form, len(shown.text)) == ("json", SHOWN_BYTES_MAX)
    assert 0 < shown.cut_bytes < len(data)
    assert peak < 10 * len(data)


def test_truncated_json_of_one_long_string_reports_the_missing_bytes() -> None:
    shown = show(b'{"a":"' + b"x" * 10_000 + b'"}', Form.AUTO, {})
    assert len(shown.text) == SHOWN_BYTES_MAX
    assert 10_000 - SHOWN_BYTES_MAX < shown.cut_bytes < 10_000


def test_long_text_is_truncated_between_characters_and_reports_the_missing_bytes() -> None:
    data = ("ü" * SHOWN_BYTES_MAX).encode()
    shown = show(b"a" + data, Form.TEXT, {})
    assert shown.text == "a" + "ü" * (SHOWN_BYTES_MAX // 2 - 1)
    assert shown.cut_bytes == len(data) + 1 - SHOWN_BYTES_MAX


def test_hex_lines_show_offset_bytes_and_printable_characters() -> None:
    assert hex_lines(b"kafka\x00\xff" + b"z" * 10) == [
        "00000000  6b 61 66 6b 61 00 ff 7a 7a 7a 7a 7a 7a 7a 7a 7a  kafka..zzzzzzzzz",
        "00000010  7a" + " " * 45 + "  z",
    ]


@pytest.mark.parametrize(("data", "schema_id"), [
    (b"\x00\x00\x00\x00\x07x", 7), (b"\x00\x00\x00\x00\x07", 7), (b"\x01\x00\x00\x00\x07", None), (b"\x00\x00", None),
    (b"\x00\xff\xff\xff\xff", None), (b"\x00\x00\x00\x00\x00", None),
])  # fmt: skip
def test_the_schema_id_is_read_only_from_bytes_in_the_registry_format(data: bytes, schema_id: int | None) -> None:
    assert schema_id_of(data) == schema_id
    assert schema_ids((data, None)) == ({schema_id} if schema_id is not None else set())


SCHEMA = json.dumps({
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
})  # fmt: skip


def encoded(value: dict[str, object]) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(SCHEMA)), value)
    return struct.pack(">bi", 0, 7) + stream.getvalue()


def test_an_avro_record_in_the_registry_format_is_decoded_with_its_schema() -> None:
    shown = show(encoded({"id": 5, "note": "ü"}), Form.AUTO, {7: parse_schema(SCHEMA)})
    assert shown.form == "avro, schema 7"
    assert json.loads(shown.text) == {"id": 5, "note": "ü"}


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data + b"x"])
def test_avro_bytes_that_contradict_the_schema_are_shown_as_hex_with_the_reason(spoil: object) -> None:
    data = spoil(encoded({"id": 5, "note": "abc"}))  # type: ignore[operator]
    shown = show(data, Form.AVRO, {7: parse_schema(SCHEMA)})
    assert (shown.form, shown.problem.startswith("not avro: ")) == ("hex", True)


def test_an_invalid_avro_schema_is_refused() -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(BadAvro, match="cannot be read"):
        parse_schema('{"type": "nonsense"}')
