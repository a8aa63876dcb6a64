"""The error codes in a response, including NONE: each struct with an `error_code` counts once, as in Kafka's
`AbstractResponse.errorCounts`. The fields that hold such structs are determined once per class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

from kraft.wire.messages.schema import ENTITY, fields_of
from kraft.wire.rpc import RpcMessage

ERROR_FIELD = "error_code"

Plan = tuple[bool, tuple[tuple[str, bool], ...]]
"""Where a message class has error codes: whether the class itself has one, and its fields whose structs may have one,
each with whether it is an array."""


def answered_errors(message: Any) -> Iterator[int]:
    """Yield the error code of each struct of `message` that has one. Parts that were encoded before the response are
    skipped."""
    cls: Any = type(message)
    has_error, nested = _plan(cls)
    if has_error:
        yield int(message.error_code)
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
        return any(field.name == ERROR_FIELD for field in dataclasses.fields(cls)), ()
    has_error, nested = False, []
    for field in fields_of(cls):
        if field.name == ERROR_FIELD:
            has_error = True
        elif field.kind == ENTITY and _may_have_error(field.entity):
            nested.append((field.name, field.is_array))
    return has_error, tuple(nested)


def _may_have_error(cls: Any) -> bool:
    has_error, nested = _plan(cls)
    return has_error or bool(nested)
