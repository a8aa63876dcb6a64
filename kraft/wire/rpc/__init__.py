"""Pure: the internal RPC: msgpack bodies in Kafka's frames, with API keys from 10000 up. This package is the machinery;
the messages are in `quorum_messages` and `controller_messages`.

A message is a frozen, slotted, keyword-only dataclass that derives from `RpcMessage` and defines `api_key`,
`min_version`, `max_version` and `bytes_max`. Its body is one msgpack array with the fields in the order of the class.
Fields are append-only and have defaults. A field added in version n carries `metadata=since(n)` and is left out for
older versions. A reader fills missing trailing fields from the defaults and ignores unknown trailing ones.

Version negotiation needs no extra round trip. A sender uses its newest version. A receiver that does not support it
answers with its range of versions (`version_refusal`), in a form that no message has. The sender then repeats the
request in the newest version that both support.

Invariants: what a peer sends becomes a value of the declared types or a WireError; `bytes_max` limits both directions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

import msgpack

from kraft.seam import Buffer, WireError, require
from kraft.wire.primitives import CannotEncode
from kraft.wire.rpc.field_codecs import FieldCodec, compile_codec


class InternalKey(IntEnum):
    """API keys of the internal requests. Never advertised to clients."""

    VOTE = 10000
    BEGIN_QUORUM_EPOCH = 10001
    END_QUORUM_EPOCH = 10002
    METADATA_FETCH = 10003
    FETCH_SNAPSHOT = 10004
    REGISTER_BROKER = 10010
    HEARTBEAT = 10011
    ALTER_PARTITION = 10012
    ALLOCATE_PRODUCER_IDS = 10013
    IDENTIFY = 10014
    FORWARD = 10015
    REGISTER_CONTROLLER = 10016
    ASSIGN_REPLICAS_TO_DIRS = 10017


FIRST_INTERNAL_KEY = 10000
BYTES_MAX_DEFAULT = 1024 * 1024


class RpcMessage:
    """Base of every internal message, with its key, versions and size limit. `bytes_max` limits one encoded body.

    Deriving registers the class under its `api_key`. Its name ends in Request or Response, which determines its
    direction."""

    __slots__ = ()
    api_key: ClassVar[int] = 0
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    bytes_max: ClassVar[int] = BYTES_MAX_DEFAULT

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        _register(_responses if cls.__name__.endswith("Response") else _requests, cls)


_requests: dict[int, type[RpcMessage]] = {}
_responses: dict[int, type[RpcMessage]] = {}

Message = TypeVar("Message", bound=RpcMessage)


def _register(registry: dict[int, type[RpcMessage]], cls: type[RpcMessage]) -> None:
    # @dataclass(slots=True) creates the class twice: the second one, with the same name, replaces the first.
    known = registry.get(cls.api_key)
    require(known is None or known.__qualname__ == cls.__qualname__, f"two messages claim internal key {cls.api_key}")
    registry[cls.api_key] = cls


def since(version: int) -> Mapping[str, int]:
    """Return the metadata of a field added in `version`: `field(default=…, metadata=since(1))`."""
    return {"since": version}


def request_classes() -> Mapping[int, type[RpcMessage]]:
    """Return every request class by key, of the modules imported so far."""
    return dict(_requests)


def response_classes() -> Mapping[int, type[RpcMessage]]:
    """Return every response class by key, of the modules imported so far."""
    return dict(_responses)


def choose_version(cls: type[RpcMessage], peer_min: int, peer_max: int) -> int | None:
    """Return the newest version that both sides support, or None."""
    version = min(cls.max_version, peer_max)
    return version if version >= max(cls.min_version, peer_min) else None


_REFUSAL_PREFIX = b"\x93\xc0"
"""First bytes of a version refusal: msgpack of an array of three that begins with nil. No message's first field may be
nil."""


def version_refusal(api_key: int, version: int) -> bytes | None:
    """Return the response to a request in an unsupported version: the supported range. Return None if the version is
    supported, or the key is not known."""
    cls = _requests.get(api_key)
    if cls is None or cls.min_version <= version <= cls.max_version:
        return None
    packed: bytes = msgpack.packb((None, cls.min_version, cls.max_version))
    return packed


def refused_range(body: Buffer) -> tuple[int, int] | None:
    """Return the lowest and highest version that the peer supports, if `body` is a version refusal; else None. Raises
    WireError if it is damaged."""
    if bytes(body[:2]) != _REFUSAL_PREFIX:
        return None
    _, low, high = _unpack("a refusal of the version", body)
    if type(low) is not int or type(high) is not int or not 0 <= low <= high:
        raise WireError(f"a refusal of the version names the range {low!r} to {high!r}")
    return low, high


_codecs: dict[type[RpcMessage], tuple[FieldCodec, ...]] = {}


def _compiled(cls: type[RpcMessage]) -> tuple[FieldCodec, ...]:
    codecs = _codecs.get(cls)
    if codecs is None:
        codecs = _codecs[cls] = compile_codec(cls)
    return codecs


def encode_rpc(message: RpcMessage, version: int | None = None) -> bytes:
    """Encode `message` in `version` (the newest by default). Raises CannotEncode if the body exceeds `bytes_max`: a
    peer may have requested more than fits into the response."""
    cls = type(message)
    wanted = cls.max_version if version is None else version
    require(cls.min_version <= wanted <= cls.max_version, f"{cls.__name__} has no version {wanted}")
    values = [field.pack(getattr(message, field.name)) for field in _compiled(cls) if field.since <= wanted]
    body: bytes = msgpack.packb(values)
    if len(body) > cls.bytes_max:
        raise CannotEncode(f"{cls.__name__} of {len(body)} bytes is over its bound of {cls.bytes_max}")
    return body


def decode_rpc(cls: type[Message], version: int, body: Buffer) -> Message:
    """Decode a message of class `cls`. Raises WireError if it does not parse or `version` is not supported."""
    name = cls.__name__
    if not cls.min_version <= version <= cls.max_version:
        raise WireError(f"{name} version {version} is not supported ({cls.min_version} to {cls.max_version} are)")
    if len(body) > cls.bytes_max:
        raise WireError(f"{name} of {len(body)} bytes is over its bound of {cls.bytes_max}")
    values = _unpack(name, body)
    arguments = {}
    for field, value in zip((f for f in _compiled(cls) if f.since <= version), values, strict=False):
        arguments[field.name] = field.unpack(value)
    try:
        return cls(**arguments)
    except TypeError:
        missing = [f.name for f in dataclasses.fields(cls) if f.name not in arguments]  # type: ignore[arg-type]
        raise WireError(f"{name} ends before its fields {', '.join(missing)}") from None


def decode_rpc_request(api_key: int, version: int, body: Buffer) -> RpcMessage:
    """Decode the request with this key. Raises WireError for an unknown key or bytes that do not parse."""
    return decode_rpc(_known(_requests, api_key), version, body)


def decode_rpc_response(api_key: int, version: int, body: Buffer) -> RpcMessage:
    """Decode the response with this key. Raises WireError for an unknown key or bytes that do not parse."""
    return decode_rpc(_known(_responses, api_key), version, body)


def _known(registry: Mapping[int, type[RpcMessage]], api_key: int) -> type[RpcMessage]:
    cls = registry.get(api_key)
    if cls is None:
        raise WireError(f"internal key {api_key} is not known")
    return cls


def _unpack(name: str, body: Buffer) -> Sequence[Any]:
    try:
        values = msgpack.unpackb(body, strict_map_key=False, use_list=False)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"{name} is not msgpack: {error}") from None
    if not isinstance(values, tuple):
        raise WireError(f"{name} is not an array of fields")
    return values
