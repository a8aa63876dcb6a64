"""Records as JSON lines survive a round trip unchanged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client import ShareRecord
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.records.json_lines import NewRecord, from_json, to_json
from tests.deploy.cli.records.records import record

some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@given(some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple))
def test_every_record_survives_a_round_trip_through_json(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    shown = record(value, key, headers)
    line = json.dumps(to_json(shown)).encode()
    assert from_json(line) == NewRecord(value, key, headers, shown.partition, shown.timestamp_ms)


def test_json_records_hold_utf_8_as_text_and_other_bytes_as_base64() -> None:
    shown = to_json(record(b"\xff", "ü".encode(), (("h", b"\xff"),)))
    assert (shown["key"], shown["value_base64"], shown["headers"]) == ("ü", "/w==", [["h", {"base64": "/w=="}]])
    assert "value" not in shown


def test_a_record_of_a_share_group_has_its_delivery_count_and_can_be_sent_again() -> None:
    shown = to_json(ShareRecord("t", 1, 5, 1_000, None, b"v", (), 0, 3))
    assert shown["delivery_count"] == 3
    assert from_json(json.dumps(shown).encode()) == NewRecord(b"v", None, (), 1, 1_000)
    assert "delivery_count" not in to_json(record(b"v"))


def test_json_records_accept_headers_as_an_object() -> None:
    assert from_json(b'{"value": null, "headers": {"a": "1", "b": null}}').headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nonsense", "not a record as JSON"),
        ("[" * 100_000, "not a record as JSON"),
        ("[1]", "expected an object"),
        ('{"valu": "x"}', "there is no field valu"),
        ('{"value": 5}', "value is 5, expected text or null"),
        ('{"value_base64": "%%%"}', "not a record as JSON"),
        ('{"partition": "0"}', 'partition is "0", expected a whole number'),
        ('{"timestamp_ms": true}', "expected a whole number"),
        ('{"timestamp_ms": -2}', "expected milliseconds since 1970"),
        ('{"timestamp_ms": 9223372036854775808}', "expected milliseconds since 1970"),
        ('{"headers": [["a"]]}', "headers: expected"),
        ('{"value": null, "headers": [["\\ud800", null]]}', "surrogates not allowed"),
    ],
)
def test_a_json_line_that_is_not_a_record_is_refused_with_the_reason(line: str, expected: str) -> None:
    with pytest.raises(CommandFailed, match="not a record as JSON") as failure:
        from_json(line.encode())
    assert expected in str(failure.value)
    assert failure.value.code == 2
