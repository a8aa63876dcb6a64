"""Pure: Avro in the wire format of Confluent's serializers: the byte 0, a schema id of four bytes, then the datum.

Source: Confluent's schema registry wire format, Apache Avro specification.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

MAGIC = 0
HEAD = struct.Struct(">bi")


class BadAvro(Exception):
    """The schema or the datum is invalid, or fastavro is not installed."""


def schema_id_of(data: bytes) -> int | None:
    """Return the schema id of bytes in Confluent's wire format; None for other bytes."""
    if len(data) < HEAD.size:
        return None
    magic, schema_id = HEAD.unpack_from(data)
    return schema_id if magic == MAGIC and schema_id > 0 else None


def parse_schema(text: str) -> Any:
    """Parse a schema as the registry returns it. Raise BadAvro if it is invalid."""
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(json.loads(text))
    except Exception as problem:  # noqa: BLE001  fastavro raises whatever its parser came across
        raise BadAvro(f"the schema cannot be read: {problem}") from None


def decode_avro(data: bytes, schema: Any) -> Any:
    """Decode the datum after the header. Raise BadAvro if it does not match the schema, or if bytes follow it."""
    fastavro = _fastavro()
    stream = io.BytesIO(data[HEAD.size :])
    try:
        value = fastavro.schemaless_reader(stream, schema, None)
    except Exception as problem:  # noqa: BLE001  fastavro raises whatever its reader came across
        raise BadAvro(f"the bytes do not match the schema: {problem or type(problem).__name__}") from None
    if rest := len(data) - HEAD.size - stream.tell():
        raise BadAvro(f"{rest} bytes are left over: the bytes do not match the schema")
    return value


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise BadAvro("fastavro is not installed: pip install 'pykraft[console]'") from None
    return fastavro
