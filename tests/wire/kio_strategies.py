"""Hypothesis strategies for instances of kio's message classes, derived from the classes' fields."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from kraft.wire.messages.schema import ENTITY, Field, fields_of

_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i64": st.integers(-(2**56), 2**56 - 1).map(lambda value: timedelta(milliseconds=value)),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda value: timedelta(milliseconds=value)),
}


@cache
def messages(cls: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of a kio class."""
    return st.builds(cls, **{field.name: _values(field) for field in fields_of(cls)})


def _values(field: Field) -> st.SearchStrategy[Any]:
    one = messages(field.entity) if field.kind == ENTITY else _KINDS[field.kind]
    value = st.lists(one, max_size=3).map(tuple) if field.is_array else one
    return st.none() | value if field.is_nullable else value
