"""Pure: parse a record to append from the fields of a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HEADERS_MAX = 100


class BadRecord(Exception):
    """A field of the form is invalid; the text names it."""


@dataclass(frozen=True, slots=True)
class FormRecord:
    """A record to append. If `partition` is None, the partition follows from the key, or is random without a key."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: tuple[tuple[str, bytes | None], ...]


def parse_record(form: Mapping[str, str]) -> FormRecord:
    """Parse `key` and `value` (as text, or as hex with `key_form=hex`), `key_null`, `value_null`, `partition`, and
    `headers`: lines of NAME=VALUE."""
    partition = form.get("partition", "")
    if partition and not (partition.isascii() and partition.isdigit() and len(partition) <= 9):
        raise BadRecord(f"partition {partition}: expected a number, or nothing")
    return FormRecord(
        _bytes(form, "key"),
        _bytes(form, "value"),
        int(partition) if partition else None,
        _headers(form.get("headers", "")),
    )


def _bytes(form: Mapping[str, str], name: str) -> bytes | None:
    if form.get(f"{name}_null"):
        return None
    text = form.get(name, "")
    if form.get(f"{name}_form") != "hex":
        return text.replace("\r\n", "\n").encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadRecord(f"{name}: expected pairs of hexadecimal digits, such as 00 ff") from None


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > HEADERS_MAX:
        raise BadRecord(f"there are {len(lines)} headers; at most {HEADERS_MAX} are sent from here")
    pairs = [line.partition("=") for line in lines]
    return tuple((name.strip(), value.encode() if equals else None) for name, equals, value in pairs)
