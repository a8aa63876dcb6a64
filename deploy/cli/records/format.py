r"""Output format of records, as kcat's `-f`.

`%s` value, `%S` its length (-1: null), `%k` key, `%K` its length, `%t` topic, `%p` partition, `%o` offset, `%T`
timestamp in ms, `%h` headers as name=value,…, `%%` a percent sign; and `\n`, `\t`, `\r`, `\0`, `\xHH` and `\\`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed
from kraft.deploy.cli.records.value_text import typed_bytes

if TYPE_CHECKING:
    from kraft.client.core.records import ConsumerRecord

Part = Callable[["ConsumerRecord"], bytes]

_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)
_ESCAPES = MappingProxyType({"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"})


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


_FIELDS: Mapping[str, Part] = MappingProxyType(
    {
        "s": lambda record: record.value or b"",
        "S": lambda record: _length(record.value),
        "k": lambda record: record.key or b"",
        "K": lambda record: _length(record.key),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "h": _headers,
        "%": lambda record: b"%",
    }
)


def compile_format(text: str) -> Part:
    """Return a function that formats a record. Raise CommandFailed for an unknown field or escape."""
    parts: list[bytes | Part] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(typed_bytes(text[at : token.start()]))
        parts.append(_part(text, token))
        at = token.end()
    parts.append(typed_bytes(text[at:]))
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def print_plain(record: ConsumerRecord) -> bytes:
    """Return the value as a line, with key and tab in front if the record has a key."""
    value = record.value or b""
    return (value if record.key is None else record.key + b"\t" + value) + b"\n"


def _part(text: str, token: re.Match[str]) -> bytes | Part:
    field, hexadecimal, escape = token.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    known = _FIELDS.get(field) if field is not None else _ESCAPES.get(escape)
    if known is None:
        expected = " ".join(f"%{name}" for name in _FIELDS)
        raise CommandFailed(f"--format {text!r}: {token.group()} is unknown; fields are {expected}", code=EXIT_USAGE)
    return known
