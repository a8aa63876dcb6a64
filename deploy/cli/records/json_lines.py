"""Records as JSON objects, one per line: what `kraft consume --json` prints and `kraft produce --from-json` reads.

Bytes that are UTF-8 become text. Other bytes become base64: `value_base64` instead of `value`, and `{"base64": …}` as a
header's value. So every record survives the round trip unchanged.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed
from kraft.deploy.cli.times import TIME_MS_MAX

if TYPE_CHECKING:
    from kraft.client.core.records import ConsumerRecord
    from kraft.client.core.share.records import ShareRecord

_KNOWN = frozenset(
    {
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "leader_epoch",
        "delivery_count",
        "key",
        "key_base64",
        "value",
        "value_base64",
        "headers",
    }
)


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to send. If `partition` or `timestamp_ms` is None, the producer decides it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def to_json(record: ConsumerRecord | ShareRecord) -> dict[str, Any]:
    """Return a record as an object. A record of a share group has its delivery count, too."""
    count = getattr(record, "delivery_count", None)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [[name, _header(value)] for name, value in record.headers],
        **({} if count is None else {"delivery_count": count}),
    }


def from_json(line: bytes) -> NewRecord:
    """Return the record that a line of JSON describes. Raise CommandFailed with the error in the line."""
    try:
        given = json.loads(line)
        if not isinstance(given, dict):
            raise TypeError("expected an object")
        unknown = given.keys() - _KNOWN
        if unknown:
            raise ValueError(f"there is no field {', '.join(sorted(unknown))}; there are {', '.join(sorted(_KNOWN))}")
        return NewRecord(
            _bytes(given, "value"),
            _bytes(given, "key"),
            tuple(_headers(given.get("headers"))),
            _number(given, "partition"),
            _timestamp(given),
        )
    except (ValueError, TypeError, RecursionError) as problem:
        shown = line[:80].decode("utf-8", "backslashreplace")
        raise CommandFailed(f"{shown}: not a record as JSON: {problem}", code=EXIT_USAGE) from None


def _field(name: str, data: bytes | None) -> dict[str, str | None]:
    text = None if data is None else _text(data)
    if data is not None and text is None:
        return {f"{name}_base64": base64.b64encode(data).decode()}
    return {name: text}


def _header(data: bytes | None) -> Any:
    text = None if data is None else _text(data)
    return {"base64": base64.b64encode(data).decode()} if data is not None and text is None else text


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _bytes(given: dict[str, Any], name: str) -> bytes | None:
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    return _as_bytes(given.get(name), name)


def _as_bytes(value: Any, name: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    raise TypeError(f"{name} is {json.dumps(value)}, expected text or null")


def _headers(given: Any) -> list[tuple[str, bytes | None]]:
    pairs = given.items() if isinstance(given, dict) else given or []
    found = []
    for entry in pairs:
        if len(entry) != 2 or not isinstance(entry[0], str):
            raise TypeError("headers: expected [[name, value], …] or an object")
        entry[0].encode()  # a single surrogate is valid JSON, but a name that contains one cannot be sent
        found.append((entry[0], _as_bytes(entry[1], f"header {entry[0]}")))
    return found


def _timestamp(given: dict[str, Any]) -> int | None:
    """Return the timestamp. Also accept -1, which is printed for a record without a time."""
    value = _number(given, "timestamp_ms")
    if value is not None and not -1 <= value <= TIME_MS_MAX:
        raise ValueError(f"timestamp_ms is {value}, expected milliseconds since 1970")
    return value


def _number(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{name} is {json.dumps(value)}, expected a whole number")
    return value
