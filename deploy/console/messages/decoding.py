"""Pure: the bytes of a key, value or header as text for people: JSON, text, Avro or hex.

`auto` takes the first that fits: Avro where the bytes are framed and the schema is known, JSON for an object or list,
text where it is UTF-8 without control characters, hex for everything else.
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
"""Default of how many bytes of a key or value a list shows; the page of one record shows RECORD_BYTES_MAX."""
RECORD_BYTES_MAX = 1_048_576
HEX_WIDTH = 16

Schemas = Mapping[int, Any]
"""Schema id → the parsed Avro schema."""


class Form(StrEnum):
    """How bytes are shown."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Shown:
    """`form`: what was taken; null for no bytes at all. `cut_bytes`: how many bytes `text` leaves out, of JSON and Avro
    about. `problem`: why the form that was asked for does not fit."""

    form: str
    text: str
    size: int
    cut_bytes: int = 0
    problem: str = ""


def show(data: bytes | None, form: Form, schemas: Schemas, bytes_max: int = SHOWN_BYTES_MAX) -> Shown:
    """The bytes as text of at most `bytes_max` bytes of them. What does not fit the form is shown as hex, and why."""
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
    """The schemas that these keys and values may be written with, as their first bytes have it."""
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
    if len(head) < len(data) and len(text.encode()) < len(head) - 3:  # more than a letter that the cut went through
        raise ValueError("the bytes are no UTF-8")
    return Shown("text", text, len(data), len(data) - len(head))


def _json(data: bytes, schemas: Schemas, bytes_max: int) -> Shown:
    if len(data) > RECORD_BYTES_MAX:
        raise ValueError(f"more than {RECORD_BYTES_MAX} bytes are not parsed")
    try:
        return _pretty("json", json.loads(data), data, bytes_max)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


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
        raise ValueError("it is nested too deep") from None


_INDENTED = json.JSONEncoder(indent=2, ensure_ascii=False, default=str)


def _pretty(form: str, value: Any, data: bytes, bytes_max: int) -> Shown:
    """Written as far as it is shown: what is nested deep is many times as long when it is indented."""
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
    """As `hexdump -C` has it: offset, bytes, and what of them is printable."""
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
"""Form → how; ValueError where the bytes do not have it."""
