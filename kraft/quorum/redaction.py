"""Metadata as shown outside the quorum: the same batches at the same offsets, with secrets hidden.

A batch without a secret is returned unchanged, byte for byte. Source: docs/decisions/06-metadata-log.md.
"""

from __future__ import annotations

from dataclasses import replace

from kraft.config.secrets import HIDDEN, is_secret_key
from kraft.image.events import Config, decode_event, encode_event
from kraft.wire.records import BatchHeader, Record, decode_batch, encode_batch, iter_headers

_CONFIG = Config.type_number


def redacted(data: bytes) -> bytes:
    """Return whole metadata batches with every secret value hidden."""
    parts: list[bytes | bytearray | memoryview] = []
    view = memoryview(data)
    for position, header in iter_headers(data):
        hidden = None if header.is_control else _redacted_batch(data, position, header)
        parts.append(view[position : position + header.size_bytes] if hidden is None else hidden)
    return b"".join(parts)


def _redacted_batch(data: bytes, position: int, header: BatchHeader) -> bytearray | None:
    """Return the batch without its secrets; None if it has none."""
    records = decode_batch(data, position)
    hidden = [_hidden(record.value) for record in records]
    if not any(hidden):
        return None
    return encode_batch(
        [
            Record(0, record.timestamp, record.key, value or record.value, record.headers)
            for record, value in zip(records, hidden, strict=True)
        ],
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
    )


def _hidden(value: bytes | None) -> bytes | None:
    """Return the event without its secret; None if the event holds no secret. The second byte of an event is its
    type."""
    if value is None or len(value) < 2 or value[1] != _CONFIG:
        return None
    event = decode_event(value)
    if not isinstance(event, Config) or event.value is None or not is_secret_key(event.name):
        return None
    return encode_event(replace(event, value=HIDDEN))
