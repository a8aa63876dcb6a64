"""The error codes in a response, including NONE: each struct with an error code counts once, as in Kafka's
`AbstractResponse.errorCounts`. The fields that hold such structs are determined once per class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

from kraft.wire.messages.schema import ENTITY, fields_of
from kraft.wire.rpc import RpcMessage

ERROR_FIELDS = frozenset({"error_code", "partition_error_code"})
"""Names that the messages give to a struct's error code."""

Plan = tuple[str, tuple[tuple[str, bool], ...]]
"""Where a message class has error codes: the name of its own field for one, or an empty name; and its fields whose
structs may have one, each with whether it is an array."""


def answered_errors(message: Any) -> Iterator[int]:
    """Yield the error code of each struct of `message` that has one. Parts that were encoded before the response are
    skipped."""
    cls: Any = type(message)
    error_field, nested = _plan(cls)
    if error_field:
        yield int(getattr(message, error_field))
    for name, is_array in nested:
        value = getattr(message, name)
        if value is None:
            continue
        if not is_array:
            yield from answered_errors(value)
        elif isinstance(value, (tuple, list)):
            for element in value:
                yield from answered_errors(element)


@cache
def _plan(cls: Any) -> Plan:
    if issubclass(cls, RpcMessage):  # an internal message has its error at the top level
        return next((field.name for field in dataclasses.fields(cls) if field.name in ERROR_FIELDS), ""), ()
    error_field, nested = "", []
    for field in fields_of(cls):
        if field.name in ERROR_FIELDS:
            error_field = field.name
        elif field.kind == ENTITY and _may_have_error(field.entity):
            nested.append((field.name, field.is_array))
    return error_field, tuple(nested)


def _may_have_error(cls: Any) -> bool:
    error_field, nested = _plan(cls)
    return bool(error_field or nested)
