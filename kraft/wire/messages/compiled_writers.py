"""Compiled writers: from a newest-version message to the bytes of any version, in one pass.

One plain function is generated for each pair (class of the version on the wire, class of the value). Runs of fixed-size
fields become one struct call. Fields that the value's class lacks are constants, and fields that the wire's class lacks
are left out. A None that the wire's class does not permit becomes the zero of its type. The tests compare with kio's
writer; it is ten to thirty times slower, which would delay Metadata responses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from kraft.seam import require
from kraft.wire.messages.schema import ENTITY, Field, fields_of
from kraft.wire.primitives import (
    array_count,
    byte_string,
    compact_array_count,
    compact_byte_string,
    compact_string,
    milliseconds,
    string,
    uuid_bytes,
)
from kraft.wire.varints import encode_unsigned

Append = Callable[[bytes], Any]
Write = Callable[[Append, Any], None]

STRUCT_CODES = MappingProxyType(
    {
        "bool": "?",
        "int8": "b",
        "int16": "h",
        "int32": "i",
        "int64": "q",
        "uint16": "H",
        "uint32": "I",
        "float64": "d",
        "error_code": "h",
        "timedelta_i32": "i",
        "timedelta_i64": "q",
        "uuid": "16s",
    }
)


@cache
def compile_writer(wire: Any, source: Any) -> Write:
    """Return `write(append, message)` for a message of class `source`, in the version of class `wire`."""
    return _WriterGenerator(wire, source).compile()


class EncodedStructs:
    """Pre-encoded bytes of an array of structs in this version of the message; used instead of the array."""

    __slots__ = ("_count", "pieces", "version")

    def __init__(self, count: int, pieces: Sequence[bytes], version: int) -> None:
        self._count = count
        self.pieces = pieces
        self.version = version

    def __len__(self) -> int:
        return self._count


SHARED_MIN, SHARED_MAX = 8, 256
"""Minimum and maximum number of structs in an array that is cached: shorter arrays are as quick to write, and longer
ones are rarely shared."""


class _WriterGenerator:
    """Generates one writer function, line by line."""

    def __init__(self, wire: Any, source: Any) -> None:
        self.wire = wire
        self.is_flexible: bool = wire.__flexible__
        self.source_fields = {field.name: field for field in fields_of(source)}
        self.lines = ["def write(append, m):"]
        self.names: dict[str, Any] = {
            "milliseconds": milliseconds,
            "uuid": uuid_bytes,
            "uvarint": encode_unsigned,
            "EncodedStructs": EncodedStructs,
            "require": require,
        }
        self.run: list[tuple[str, str]] = []

    def compile(self) -> Write:
        fields = fields_of(self.wire)
        for field in fields:
            if field.tag is None:
                self.field(field)
        self.flush()
        if self.is_flexible:
            self.tagged([field for field in fields if field.tag is not None])
        if len(self.lines) == 1:
            self.lines.append("    pass")
        exec("\n".join(self.lines), self.names)
        write: Write = self.names["write"]
        return write

    def name(self, value: object) -> str:
        """Return a name by which the generated code refers to `value`."""
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name

    def line(self, text: str) -> None:
        self.lines.append("    " + text)

    def value(self, field: Field) -> str:
        """Return the expression for the field's value."""
        source = self.source_fields.get(field.name)
        if source is None:
            return self.name(field.default)
        if source.is_nullable and not field.is_nullable:
            zero = self.name(() if field.is_array else field.default)
            return f"({zero} if m.{field.name} is None else m.{field.name})"
        return f"m.{field.name}"

    def field(self, field: Field) -> None:
        code = STRUCT_CODES.get(field.kind)
        value = self.value(field)
        if field.is_array:
            self.flush()
            self.array(field, value)
        elif code is not None:
            self.run.append((code, self.fixed(field.kind, value)))
        elif field.kind == ENTITY:
            self.flush()
            self.entity(field, value)
        else:
            self.flush()
            self.line(f"append({self.name(self.variable(field.kind))}({value}))")

    def fixed(self, kind: str, value: str) -> str:
        if kind.startswith("timedelta"):
            return f"milliseconds({value})"
        return f"uuid({value})" if kind == "uuid" else value

    def flush(self) -> None:
        """Write the run of fixed-size fields as one struct."""
        if self.run:
            pack = self.name(struct.Struct(">" + "".join(code for code, _ in self.run)).pack)
            self.line(f"append({pack}({', '.join(value for _, value in self.run)}))")
            self.run = []

    def variable(self, kind: str) -> Callable[[Any], bytes]:
        if kind == "string":
            return compact_string if self.is_flexible else string
        return compact_byte_string if self.is_flexible else byte_string

    def nested(self, field: Field) -> str:
        """Return the writer of a nested struct, against the same field of the value's class where it has one."""
        source = self.source_fields.get(field.name)
        return self.name(compile_writer(field.entity, source.entity if source is not None else field.entity))

    def entity(self, field: Field, value: str) -> None:
        write = self.nested(field)
        if field.is_nullable:
            self.line(f"append(b'\\xff' if {value} is None else b'\\x01')")
            self.line(f"if {value} is not None: {write}(append, {value})")
        else:
            self.line(f"{write}(append, {value})")

    def array(self, field: Field, value: str) -> None:
        count = self.name(compact_array_count if self.is_flexible else array_count)
        self.line(f"items = {value}")
        code = STRUCT_CODES.get(field.kind)
        if field.kind == ENTITY:
            self.structs(count, self.nested(field))
            return
        self.line(f"append({count}(items))")
        self.line("for item in items or ():")
        if code is not None:
            pack = self.name(struct.Struct(">" + code).pack)
            self.line(f"    append({pack}({self.fixed(field.kind, 'item')}))")
        else:
            self.line(f"    append({self.name(self.variable(field.kind))}(item))")

    def structs(self, count: str, write: str) -> None:
        """Return the writer of an array of structs.

        Many topics may share one array (their settings), so a tuple identical to the last one is not encoded again. A
        message's top-level array is never shared and may have megabytes, so it is not cached."""
        if self.wire.__type__.name == "nested":
            last = self.name([None, b""])
            self.line(f"if items is not None and items is {last}[0]:")
            self.line(f"    append({last}[1])")
            self.line(f"elif items.__class__ is tuple and {SHARED_MIN} <= len(items) <= {SHARED_MAX}:")
            self.line(f"    parts = [{count}(items)]")
            self.line("    for item in items:")
            self.line(f"        {write}(parts.append, item)")
            self.line(f"    {last}[:] = items, b''.join(parts)")
            self.line(f"    append({last}[1])")
            self.line("elif items.__class__ is EncodedStructs:")
        else:
            self.line("if items.__class__ is EncodedStructs:")
        version = int(self.wire.__version__)
        self.line(f"    require(items.version == {version}, 'these structs are not in version {version}')")
        self.line(f"    append({count}(items))")
        self.line("    for piece in items.pieces: append(piece)")
        self.line("else:")
        self.line(f"    append({count}(items))")
        self.line("    for item in items or ():")
        self.line(f"        {write}(append, item)")

    def tagged(self, fields: list[Field]) -> None:
        """Write tagged fields that differ from their default, by ascending tag."""
        if not fields:
            self.line("append(b'\\0')")
            return
        self.line("count, tags = 0, []")
        for field in sorted(fields, key=lambda field: field.tag or 0):
            self.line(f"if {self.value(field)} != {self.name(field.default)}:")
            single = _Single(self, field)
            self.line("    parts = []")
            self.line(f"    {self.name(single.compile())}(parts.append, m)")
            self.line("    data = b''.join(parts)")
            self.line("    count += 1")
            self.line(f"    tags += {encode_unsigned(field.tag or 0)!r}, uvarint(len(data)), data")
        self.line("append(uvarint(count))")
        self.line("append(b''.join(tags))")


class _Single(_WriterGenerator):
    """Writes one tagged field of a message, without its tag and size."""

    def __init__(self, parent: _WriterGenerator, field: Field) -> None:
        super().__init__(parent.wire, parent.wire)
        self.source_fields = parent.source_fields
        self.tagged_field = field

    def compile(self) -> Write:
        self.field(self.tagged_field)
        self.flush()
        exec("\n".join(self.lines), self.names)
        write: Write = self.names["write"]
        return write
