"""Pure: the bytes of a key, value or header as readable text: JSON, text, Avro or hex.

The form `auto` chooses the first of these that fits: Avro for bytes in the registry's format with a known schema, JSON
for an object or list, text for UTF-8 without control characters, hex for everything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from kraft.deploy.console.messages.avro import BadAvro, decode_avro, schema_id_of

SHOWN_BYTES_MAX = 4_096
"""Maximum number of bytes of a key or value that a list of records shows. The page of one record shows
RECORD_BYTES_MAX."""
RECORD_BYTES_MAX = 1_048_576
HEX_WIDTH = 16

Schemas = Mapping[int, Any]
"""Parsed Avro schemas by schema id."""


class Form(StrEnum):
    """Form in which bytes are shown."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as text. `form` is the form that was used; null if there are no bytes. `cut_bytes` is the number of bytes
    that `text` leaves out, approximate for JSON and Avro. `problem` is the reason why the requested form does not fit.
    """

    form: str
    text: str
    size: int
    cut_bytes: int = 0
    problem: str = ""


def show(data: bytes | None, form: Form, schemas: Schemas, bytes_max: int = SHOWN_BYTES_MAX) -> Shown:
    """Show at most `bytes_max` bytes as text. Bytes that do not fit the form are shown as hex, with the reason."""
    if data is None:
        return Shown("null", "", 0)
    if form is not Form.AUTO:
        try:
            return _SHOWN_AS[form](data, schemas, bytes_max)
        except ValueError as problem:
            shown = _hex(data, schemas, bytes_max)
            return Shown(shown.form, shown.text, shown.size, shown.cut_bytes, f"not {form}: {problem}")
    for tried in _candidates(data, schemas):
        try:
            return _SHOWN_AS[tried](data, schemas, bytes_max)
        except ValueError:
            continue
    return _hex(data, schemas, bytes_max)


def schema_ids(fields: tuple[bytes | None, ...]) -> set[int]:
    """Return the schema ids that the first bytes of these keys and values contain."""
    found = (schema_id_of(data) for data in fields if data is not None)
    return {schema_id for schema_id in found if schema_id is not None}


def _candidates(data: bytes, schemas: Schemas) -> list[Form]:
    schema_id = schema_id_of(data)
    framed = [Form.AVRO] if schema_id is not None and schema_id in schemas else []
    return [*framed, *([Form.JSON] if data[:1] in (b"{", b"[") else []), Form.TEXT]


def _text(data: bytes, schemas: Schemas, bytes_max: int) -> Shown:
    head = data[:bytes_max]
    text = head.decode("utf-8", "strict" if len(head) == len(data) else "ignore")
    if any(ord(letter) < 32 and letter not in "\t\n\r" for letter in text) or (data and not text):
        raise ValueError("the bytes are no printable UTF-8")
    # more is damaged than one character at the place where the text is truncated
    if len(head) < len(data) and len(text.encode()) < len(head) - 3:
        raise ValueError("the bytes are no UTF-8")
    return Shown("text", text, len(data), len(data) - len(head))


def _json(data: bytes, schemas: Schemas, bytes_max: int) -> Shown:
    if len(data) > RECORD_BYTES_MAX:
        raise ValueError(f"more than {RECORD_BYTES_MAX} bytes are not parsed")
    try:
        return _pretty("json", json.loads(data), data, bytes_max)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _avro(data: bytes, schemas: Schemas, bytes_max: int) -> Shown:
    schema_id = schema_id_of(data)
    if schema_id is None:
        raise ValueError("it does not begin with the byte 0 and a schema id")
    if schema_id not in schemas:
        raise ValueError(f"schema {schema_id} is not known: give --schema-registry, or see whether that has it")
    try:
        return _pretty(f"avro, schema {schema_id}", decode_avro(data, schemas[schema_id]), data, bytes_max)
    except BadAvro as problem:
        raise ValueError(str(problem)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_INDENTED = json.JSONEncoder(indent=2, ensure_ascii=False, default=str)


def _pretty(form: str, value: Any, data: bytes, bytes_max: int) -> Shown:
    """Indent only the part of the JSON that is shown, because indenting makes deeply nested data many times longer."""
    pieces, letters = [], 0
    for piece in _INDENTED.iterencode(value):
        pieces.append(piece)
        letters += len(piece)
        if letters > bytes_max:
            break
    encoded = "".join(pieces).encode("utf-8", "replace")
    cut = encoded[:bytes_max]
    left_out = max(len(data) - len(cut), 1) if letters > bytes_max else len(encoded) - len(cut)
    return Shown(form, cut.decode("utf-8", "ignore"), len(data), left_out)


def _hex(data: bytes, schemas: Schemas, bytes_max: int) -> Shown:
    head = data[:bytes_max]
    return Shown("hex", "\n".join(hex_lines(head)), len(data), len(data) - len(head))


def hex_lines(data: bytes) -> list[str]:
    """Return lines like `hexdump -C`: offset, bytes, printable characters."""
    lines = []
    width = min(HEX_WIDTH, len(data)) * 3 - 1
    for at in range(0, len(data), HEX_WIDTH):
        piece = data[at : at + HEX_WIDTH]
        printable = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):{width}}  {printable}")
    return lines


_SHOWN_AS: Mapping[Form, Callable[[bytes, Schemas, int], Shown]] = MappingProxyType(
    {Form.TEXT: _text, Form.JSON: _json, Form.AVRO: _avro, Form.HEX: _hex}
)
"""Function that shows bytes in a form, by form. It raises ValueError for bytes that are not in this form."""
