"""Requests with random content, as frames: well-formed ones with any value in each field, and variants with a few
flipped, missing or repeated bytes. Pure.

Kafka's own requests are encoded by kio from its schemas. Internal ones are encoded by msgpack, mostly from the declared
types and sometimes violating them.
"""

from __future__ import annotations

import dataclasses
import random
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import kio.index
import msgpack
from kio.serial import entity_writer

import kraft.wire.rpc.controller_messages
import kraft.wire.rpc.quorum_messages  # noqa: F401 - they register the internal requests
from kraft.wire.api_keys import ApiKey, ApiVersionRange, is_flexible
from kraft.wire.records import Record, encode_batch
from kraft.wire.records.compression import Compression
from kraft.wire.rpc import FIRST_INTERNAL_KEY, request_classes

CORRELATION_ID = 77
CLIENT_ID = "fuzz"
ENTRIES_MAX = 3
MUTATIONS_MAX = 4
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 64, "datetime_i64": 64}
WELL_FORMED = 0.5
FITTING = 0.8
WRONG_TYPE = 0.03
ANY_INTERNAL_INTEGER = (2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63))


class Words(NamedTuple):
    """Existing names that a random request may use. `fitting`: name of a field → the source of most of its values."""

    strings: Sequence[str]
    uuids: Sequence[UUID]
    fitting: Mapping[str, Sequence[str]]

    def string(self, source: random.Random, field: str) -> str:
        fitting = self.fitting.get(field)
        return source.choice(fitting if fitting and source.random() < FITTING else self.strings)


class FuzzRequest(NamedTuple):
    """A frame without its length field, and the request that it was made from."""

    key: int
    version: int
    frame: bytes

    @property
    def name(self) -> str:
        return ApiKey(self.key).name if self.key < FIRST_INTERNAL_KEY else request_classes()[self.key].__name__


def kafka_request(source: random.Random, api: ApiVersionRange, words: Words) -> FuzzRequest:
    """Generate one of Kafka's own requests, in any of these versions."""
    version = source.randint(api.min, api.max)
    cls = kio.index.load_request_schema(api.key, version)
    stream = BytesIO()
    entity_writer(cls)(stream, _entity(source, cls, words))
    return FuzzRequest(api.key, version, _mutated(source, _head(api.key, version) + stream.getvalue()))


def internal_request(source: random.Random, words: Words) -> FuzzRequest:
    """Generate one of the internal requests."""
    cls = source.choice(sorted(request_classes().values(), key=lambda known: known.api_key))
    version = source.randint(cls.min_version, cls.max_version + 1)
    body = msgpack.packb(_rpc_fields(source, cls, words))
    return FuzzRequest(cls.api_key, version, _mutated(source, _head(cls.api_key, version) + body))


def _head(key: int, version: int) -> bytes:
    name = CLIENT_ID.encode()
    head = struct.pack(">hhih", key, version, CORRELATION_ID, len(name)) + name
    return head + (b"\0" if is_flexible(key, version) else b"")


def _mutated(source: random.Random, frame: bytes) -> bytes:
    """Mutate the frame with a probability of one half."""
    if source.random() < WELL_FORMED:
        return frame
    data = bytearray(frame)
    for _ in range(source.randint(1, MUTATIONS_MAX)):
        at = source.randrange(len(data) + 1)
        match source.choice(("flip", "cut", "insert", "huge")):
            case "flip" if at < len(data):
                data[at] ^= source.randint(1, 255)
            case "cut":
                del data[at : at + source.randint(1, 30)]
            case "insert":
                data[at:at] = source.randbytes(source.randint(1, 8))
            case "huge":
                data[at : at + 4] = source.choice((b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff"))
    return bytes(data)


# Kafka's own requests


def _entity(source: random.Random, cls: Any, words: Words) -> Any:
    hints = get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        if field.metadata.get("tag") is not None and source.random() < 0.5:
            continue  # its default
        values[field.name] = _value(source, hints[field.name], field.metadata.get("kafka_type"), field.name, words)
    return cls(**values)


def _value(source: random.Random, hint: Any, kind: str | None, name: str, words: Words) -> Any:
    hint, is_nullable = _without_none(hint)
    if is_nullable and source.random() < 0.15:
        return None
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return tuple(_value(source, inner, kind, name, words) for _ in range(source.randint(0, ENTRIES_MAX)))
    if dataclasses.is_dataclass(hint):
        return _entity(source, hint, words)
    return _scalar(source, hint, str(kind), name, words)


def _scalar(source: random.Random, hint: Any, kind: str, name: str, words: Words) -> Any:
    if kind.startswith("timedelta"):
        return timedelta(milliseconds=_integer(source, min(BITS[kind], 40)))
    if kind == "datetime_i64":
        return datetime.fromtimestamp(source.randint(0, 2**31), UTC)
    if kind in BITS:
        return _integer(source, BITS[kind])
    if kind in ("uint16", "uint32"):
        return abs(_integer(source, int(kind[4:])))
    match kind:
        case "bool":
            return source.random() < 0.5
        case "float64":
            return source.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
        case "string":
            return words.string(source, name)
        case "uuid":
            return source.choice(words.uuids)
        case "bytes":
            return source.randbytes(source.randint(0, 40))
        case "records":
            return _records(source)
        case "error_code":
            return next(iter(hint))
    raise TypeError(f"no values of wire type {kind} are made")


def _integer(source: random.Random, bits: int) -> int:
    edges = (0, 0, 1, 1, 2, 3, -1, -2, 100, 30_000, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))
    value = source.choice((*edges, source.getrandbits(bits - 1)))
    return max(-(2 ** (bits - 1)), min(value, 2 ** (bits - 1) - 1))


def _records(source: random.Random) -> bytes:
    count = source.randint(1, 5)
    records = [
        Record(number, 1_000 + number, None if source.random() < 0.2 else b"k", b"v" * 10) for number in range(count)
    ]
    batch = bytearray(encode_batch(records, base_offset=0, compression=source.choice(list(Compression))))
    while source.random() < 0.3:
        batch[source.randrange(len(batch))] ^= source.randint(1, 255)
    return bytes(batch)


# internal requests


def _rpc_fields(source: random.Random, cls: type[Any], words: Words) -> list[Any]:
    hints = get_type_hints(cls)
    fields = [_rpc_value(source, hints[field.name], field.name, words) for field in dataclasses.fields(cls)]
    return fields[: source.randint(0, len(fields))] if source.random() < 0.05 else fields


def _rpc_value(source: random.Random, hint: Any, name: str, words: Words) -> Any:
    if source.random() < WRONG_TYPE:
        return source.choice((None, -1, 2**64 - 1, 1.5, "x", b"\xff", [], {}, True))
    hint, is_nullable = _without_none(hint)
    if is_nullable and source.random() < 0.2:
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis:
        return [_rpc_value(source, one, name, words) for one in arguments]
    if origin in (tuple, frozenset):
        return [_rpc_value(source, arguments[0], name, words) for _ in range(source.randint(0, ENTRIES_MAX))]
    if origin is not None:
        keys = [_rpc_value(source, arguments[0], name, words) for _ in range(source.randint(0, ENTRIES_MAX))]
        return {key: _rpc_value(source, arguments[1], name, words) for key in keys if not isinstance(key, list | dict)}
    if dataclasses.is_dataclass(hint):
        return _rpc_fields(source, hint, words)  # type: ignore[arg-type]
    return _rpc_scalar(source, hint, name, words)


def _rpc_scalar(source: random.Random, hint: Any, name: str, words: Words) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return source.choice(list(hint)).value
    if hint is UUID:
        return source.choice(words.uuids).bytes
    if hint is bool:
        return source.random() < 0.5
    if hint is int:
        return source.choice(ANY_INTERNAL_INTEGER) if source.random() < 0.1 else _integer(source, 32)
    if hint is float:
        return source.choice((0.0, -1.0, 1e308))
    if hint is bytes:
        return source.randbytes(source.randint(0, 60))
    return words.string(source, name)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, UnionType):
        inner = [one for one in get_args(hint) if one is not NoneType]
        return inner[0], len(inner) < len(get_args(hint))
    return hint, False
