"""Pure: events as dictionaries of printable values. Fields with secrets, and settings of type password, become
`[hidden]`.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

from kraft.config.secrets import HIDDEN, is_secret_key
from kraft.image import Event
from kraft.seam.ids import encode_uuid

_SECRET_FIELDS = frozenset({"salt", "stored_key", "server_key", "hmac", "password", "secret"})
_PLAIN = frozenset({int, str, bool, float, type(None)})
_names: dict[type, tuple[str, ...]] = {}
"""Names of the fields of each class, cached."""


def event_fields(event: Event) -> dict[str, Any]:
    """Return a metadata event as a dictionary with its type and fields. Secrets are hidden."""
    return {"type": type(event).__name__, **plain_fields(event)}


def plain_fields(value: Any) -> dict[str, Any]:
    """Return a dataclass as a dictionary of printable values, with secrets hidden."""
    row: dict[str, Any] = {}
    for name in _names_of(value):
        item = getattr(value, name)
        row[name] = HIDDEN if name in _SECRET_FIELDS else item if type(item) in _PLAIN else _printable(item)
    if row.get("value") is not None:
        key = getattr(value, "name", None) or getattr(value, "key", None)
        if isinstance(key, str) and is_secret_key(key):
            row["value"] = HIDDEN
    return row


def _names_of(value: Any) -> tuple[str, ...]:
    names = _names.get(type(value))
    if names is None:
        names = _names[type(value)] = tuple(field.name for field in dataclasses.fields(value))
    return names


def _printable(value: Any) -> Any:
    if type(value) is tuple:
        return [item if type(item) in _PLAIN else _printable(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain_fields(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, UUID):
        return encode_uuid(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _printable(item) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _printable(item) for name, item in value.items()}
    return getattr(value, "name", value) if not isinstance(value, str | int | float | bool | None) else value
