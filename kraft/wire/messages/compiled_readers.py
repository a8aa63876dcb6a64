"""Compiled readers: from the bytes of any version to a newest-version message, in one pass.

One plain function is generated for each pair (class of the version on the wire, class of the result). Fields that the
result's class lacks are read and dropped. Fields that the wire's class lacks get their default. Unknown tagged fields
are skipped, and any non-zero byte is true, as in Kafka. kio 0.6.5 raises an error on both, so its reader is only used
in tests, to compare with.

Invariants: bytes that do not parse are a WireError; an array's length is checked against the remaining bytes before
anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any

from kraft.seam import WireError
from kraft.wire.messages.compiled_writers import SHARED_MAX, SHARED_MIN, STRUCT_CODES
from kraft.wire.messages.schema import ENTITY, Field, fields_of
from kraft.wire.primitives import (
    read_array_count,
    read_byte_string,
    read_compact_array_count,
    read_compact_byte_string,
    read_compact_string,
    read_string,
    uuid_or_none,
)
from kraft.wire.varints import read_unsigned

Read = Callable[[memoryview, int], tuple[Any, int]]

SHARED_BYTES_MAX = 65_536
"""Maximum size in bytes of an array that is cached."""


def _duration(milliseconds: int) -> timedelta:
    """Read a duration. 64-bit milliseconds can exceed the range of a timedelta; then the result is the longest
    timedelta."""
    try:
        return timedelta(milliseconds=milliseconds)
    except OverflowError:
        return timedelta.max if milliseconds > 0 else timedelta.min


def _tags(data: memoryview, position: int, known: dict[int, tuple[str, Read]]) -> tuple[dict[str, Any], int]:
    """Read tagged fields by name; unknown ones are skipped."""
    values: dict[str, Any] = {}
    count, position = read_unsigned(data, position)
    last = -1
    for _ in range(count):
        tag, position = read_unsigned(data, position)
        size, position = read_unsigned(data, position)
        end = position + size
        if end > len(data) or tag <= last:
            raise WireError(f"tagged field {tag} of {size} bytes at byte {position} does not fit")
        last = tag
        if tag in known:
            name, read = known[tag]
            values[name], _ = read(data[:end], position)
        position = end
    return values, position


def _skip_tags(data: memoryview, position: int) -> int:
    """Return the position after the tagged fields, none of which is known. Usually there are none."""
    if position < len(data) and not data[position]:
        return position + 1
    return _tags(data, position, {})[1]


@cache
def compile_reader(wire: Any, target: Any) -> Read:
    """Return `read(data, position) -> (message of class target, next position)` for the version of class `wire`. The
    function may raise struct.error where bytes are missing; `messages` turns it into a WireError."""
    return _ReaderGenerator(wire, target).compile()


class _ReaderGenerator:
    """Generates one reader function, line by line."""

    def __init__(self, wire: Any, target: Any) -> None:
        self.wire = wire
        self.target = target
        self.is_flexible: bool = wire.__flexible__
        self.target_fields = {field.name: field for field in fields_of(target)}
        self.lines = ["def read(data, position):"]
        self.names: dict[str, Any] = {"uuid": uuid_or_none, "duration": _duration, "WireError": WireError}
        self.run: list[tuple[str, str]] = []
        self.arguments: dict[str, str] = {}

    def compile(self) -> Read:
        fields = fields_of(self.wire)
        for field in fields:
            if field.tag is None:
                self.field(field)
        self.flush()
        tagged = [field for field in fields if field.tag is not None]
        if self.is_flexible:
            self.tags(tagged)
        for name, field in self.target_fields.items():
            if name not in self.arguments:
                self.arguments[name] = self.name(field.default)
        arguments = ", ".join(f"{name}={self.arguments[name]}" for name in self.target_fields)
        self.line(f"return {self.name(self.target)}({arguments}), position")
        exec("\n".join(self.lines), self.names)
        read: Read = self.names["read"]
        return read

    def name(self, value: object) -> str:
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name

    def line(self, text: str) -> None:
        self.lines.append("    " + text)

    def field(self, field: Field) -> None:
        variable = f"f_{field.name}"
        code = STRUCT_CODES.get(field.kind)
        if code is not None and not field.is_array:
            self.run.append((code, variable))
            self.keep(field, self.fixed(field.kind, variable))
            return
        self.flush()
        read = self.array(field) if field.is_array else self.single(field)
        self.line(f"{variable}, position = {self.name(read)}(data, position)")
        if not field.is_nullable:
            self.line(f"if {variable} is None: raise WireError('{self.wire.__name__}.{field.name} may not be null')")
        self.keep(field, variable)

    def keep(self, field: Field, expression: str) -> None:
        if field.name in self.target_fields:
            self.arguments[field.name] = expression

    def fixed(self, kind: str, variable: str) -> str:
        if kind.startswith("timedelta"):
            return f"duration({variable})"
        return f"uuid({variable})" if kind == "uuid" else variable

    def flush(self) -> None:
        if self.run:
            form = struct.Struct(">" + "".join(code for code, _ in self.run))
            self.line(f"{', '.join(name for _, name in self.run)}, = {self.name(form.unpack_from)}(data, position)")
            self.line(f"position += {form.size}")
            self.run = []

    def single(self, field: Field) -> Read:
        """Return the reader of one value of the field's type."""
        code = STRUCT_CODES.get(field.kind)
        if code is not None:
            return _fixed_reader(field.kind, struct.Struct(">" + code))
        if field.kind == "string":
            return read_compact_string if self.is_flexible else read_string
        if field.kind == "bytes":
            return read_compact_byte_string if self.is_flexible else read_byte_string
        target = self.target_fields.get(field.name)
        entity = field.entity
        read = compile_reader(entity, target.entity if target is not None and target.entity is not None else entity)
        return _nullable_reader(read) if field.is_nullable and not field.is_array else read

    def array(self, field: Field) -> Read:
        read_count = read_compact_array_count if self.is_flexible else read_array_count
        read_item = self.single(field)
        may_be_null = field.kind in (ENTITY, *STRUCT_CODES)

        def read(data: memoryview, position: int) -> tuple[tuple[Any, ...] | None, int]:
            count, position = read_count(data, position)
            if count < 0:
                return None, position
            items = []
            for _ in range(count):
                item, position = read_item(data, position)
                if item is None and not may_be_null:
                    raise WireError(f"an item of {field.name} may not be null")
                items.append(item)
            return tuple(items), position

        return _shared(read) if field.kind == ENTITY else read

    def tags(self, fields: list[Field]) -> None:
        if not fields:
            self.line(f"position = {self.name(_skip_tags)}(data, position)")
            return
        known: dict[int, tuple[str, Read]] = {}
        for field in fields:
            read = self.array(field) if field.is_array else self.single(field)
            known[field.tag or 0] = (field.name, read)
        self.line(f"tagged, position = {self.name(_tags)}(data, position, {self.name(known)})")
        for field in fields:
            self.keep(field, f"tagged.get('{field.name}', {self.name(field.default)})")


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "timedelta_i32": _duration,
        "timedelta_i64": _duration,
        "uuid": uuid_or_none,
    }
)


def _fixed_reader(kind: str, form: struct.Struct) -> Read:
    convert = _CONVERSIONS.get(kind)

    def read(data: memoryview, position: int) -> tuple[Any, int]:
        (value,) = form.unpack_from(data, position)
        return (value if convert is None else convert(value)), position + form.size

    return read


def _shared(read_array: Read) -> Read:
    """Cache the last array that was read. Many topics may have the same array (their settings), so the same bytes give
    the same shared value."""
    last: list[tuple[bytes, tuple[Any, ...]]] = [(b"", ())]

    def read(data: memoryview, position: int) -> tuple[Any, int]:
        known, items = last[0]
        end = position + len(known)
        if known and data[position:end] == known:
            return items, end
        items, end = read_array(data, position)
        if items is not None and SHARED_MIN <= len(items) <= SHARED_MAX and end - position <= SHARED_BYTES_MAX:
            last[0] = bytes(data[position:end]), items
        return items, end

    return read


def _nullable_reader(read_entity: Read) -> Read:
    def read(data: memoryview, position: int) -> tuple[Any, int]:
        (marker,) = struct.unpack_from(">b", data, position)
        return (None, position + 1) if marker < 0 else read_entity(data, position + 1)

    return read
