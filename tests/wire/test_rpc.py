from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kraft.wire.rpc.controller_messages
import kraft.wire.rpc.quorum_messages
from kraft.seam import InvariantError, WireError
from kraft.wire.primitives import STRING_BYTES_MAX, CannotEncode, compact_string, read_compact_string
from kraft.wire.rpc import (
    BYTES_MAX_DEFAULT,
    FIRST_INTERNAL_KEY,
    InternalKey,
    RpcMessage,
    choose_version,
    decode_rpc,
    decode_rpc_request,
    decode_rpc_response,
    encode_rpc,
    request_classes,
    response_classes,
    since,
)
from kraft.wire.rpc.field_codecs import Int8, Int16, Int32, Int64, Port, PortOrNone, compile_codec
from kraft.wire.varints import encode_unsigned

MESSAGES = [*request_classes().values(), *response_classes().values()]
every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
assert kraft.wire.rpc.controller_messages
assert kraft.wire.rpc.quorum_messages


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a field's type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return st.integers(*arguments[1])
    if origin is tuple and arguments[1:] == (...,):
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=2)
    if origin in (dict, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if arguments:
        return st.one_of(*[st.none() if argument is type(None) else values(argument) for argument in arguments])
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{f.name: values(hints[f.name]) for f in dataclasses.fields(hint)})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        str: st.text(max_size=8),
        bytes: st.binary(max_size=8),
        UUID: st.uuids(),
    }
    return plain[hint]


@every_message
@given(data=st.data())
def test_every_internal_message_decodes_to_what_was_encoded(cls: type[RpcMessage], data: st.DataObject) -> None:
    message = data.draw(values(cls))
    body = encode_rpc(message)
    assert decode_rpc(cls, cls.max_version, body) == message
    for cut in range(len(body)):
        with pytest.raises(WireError):
            decode_rpc(cls, cls.max_version, body[:cut])


@every_message
@given(data=st.data())
def test_mutated_internal_messages_raise_only_wire_errors(cls: type[RpcMessage], data: st.DataObject) -> None:
    body = bytearray(encode_rpc(data.draw(values(cls))))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_rpc(cls, cls.max_version, body)
    except WireError:
        return


@every_message
def test_every_internal_message_has_key_and_size_limit_and_ignores_trailing_fields(
    cls: type[RpcMessage],
) -> None:
    assert cls.api_key >= FIRST_INTERNAL_KEY
    assert InternalKey(cls.api_key)
    assert 0 <= cls.min_version <= cls.max_version <= 127
    assert 0 < cls.bytes_max <= 104_857_600 + BYTES_MAX_DEFAULT
    for f in compile_codec(cls):
        assert f.since <= cls.max_version


def test_every_internal_key_has_a_request_and_a_response() -> None:
    keys = {int(key) for key in InternalKey}
    assert keys <= {int(key) for key in request_classes()}
    assert keys <= {int(key) for key in response_classes()}


class Color(enum.IntEnum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, slots=True)
class Inner:
    number: Int32
    text: str = "later"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest(RpcMessage):
    api_key = 19990
    max_version = 2
    bytes_max = 200

    name: str
    number: Int32 = 5
    ratio: float = 0.5
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    pair: tuple[Int32, str] = (0, "")
    members: frozenset[Int32] = frozenset()
    table: Mapping[str, Int32] = field(default_factory=dict)
    color: Color = Color.RED
    who: UUID | None = None
    anything: Any = None
    second: Int32 = field(default=7, metadata=since(1))
    third: str = field(default="three", metadata=since(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class WideRequest(RpcMessage):
    api_key = 19991
    bytes_max = 10_000
    number: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResponse(RpcMessage):
    api_key = 19990
    ok: bool = False


FULL = SampleRequest(
    name="n",
    number=-1,
    ratio=2.0,
    inner=Inner(1, "x"),
    many=(Inner(2, "y"), Inner(3, "z")),
    pair=(4, "w"),
    members=frozenset({3, 1, 2}),
    table={"a": 1},
    color=Color.BLUE,
    who=UUID(int=5),
    anything=[1, "two"],
    second=8,
    third="drei",
)


def test_every_internal_field_type_decodes_to_what_was_encoded() -> None:
    back = decode_rpc(SampleRequest, 2, encode_rpc(FULL))
    assert back == dataclasses.replace(FULL, anything=(1, "two"))
    assert type(back.color) is Color


def test_older_internal_versions_omit_later_fields_and_readers_fill_in_defaults() -> None:
    for version, second, third in ((0, 7, "three"), (1, 8, "three"), (2, 8, "drei")):
        back = decode_rpc(SampleRequest, version, encode_rpc(FULL, version))
        assert (back.second, back.third) == (second, third)


def test_missing_trailing_fields_get_defaults_and_unknown_ones_are_ignored() -> None:
    assert decode_rpc(SampleRequest, 2, msgpack.packb(["n"])) == SampleRequest(name="n")
    longer = [*msgpack.unpackb(encode_rpc(FULL)), "from a later release", {"x": 1}]
    assert decode_rpc(SampleRequest, 2, msgpack.packb(longer)).third == "drei"
    assert decode_rpc(SampleRequest, 2, msgpack.packb(["n", 5, 0.5, [9]])).inner == Inner(9)
    with pytest.raises(WireError, match="ends before its fields name"):
        decode_rpc(SampleRequest, 2, msgpack.packb([]))
    with pytest.raises(WireError, match="Inner ends after 0 fields"):
        decode_rpc(SampleRequest, 2, msgpack.packb(["n", 5, 0.5, []]))


@pytest.mark.parametrize(
    "fields",
    [
        [1],
        ["n", "5"],
        ["n", True],
        ["n", 5, "x"],
        ["n", 5, 1, 9],
        ["n", 5, 1, None, 7],
        ["n", 5, 1, None, [], [1]],
        ["n", 5, 1, None, [], [1, "a"], {}],
        ["n", 5, 1, None, [], [1, "a"], [], []],
        ["n", 5, 1, None, [], [1, "a"], [], {"k": "v"}],
        ["n", 5, 1, None, [], [1, "a"], [], {}, 3],
        ["n", 5, 1, None, [], [1, "a"], [], {}, [1]],
        ["n", 5, 1, None, [], [1, "a"], [], {}, 1, b"short"],
    ],
)
def test_a_value_of_another_type_is_a_wire_error(fields: list[Any]) -> None:
    with pytest.raises(WireError, match=r"SampleRequest\."):
        decode_rpc(SampleRequest, 2, msgpack.packb(fields))


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x93\1", msgpack.packb({"a": 1}), msgpack.packb(5), b"\x91" * 5000, b"\x81\x90\1"]
)
def test_an_internal_body_that_is_not_a_msgpack_array_is_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_rpc(WideRequest, 0, body)


RANGES = {
    Int8: (-128, 127),
    Int16: (-32_768, 32_767),
    Int32: (-2_147_483_648, 2_147_483_647),
    Int64: (-(2**63), 2**63 - 1),
    Port: (0, 65_535),
    PortOrNone: (-1, 65_535),
}


@pytest.mark.parametrize(("hint", "ends"), RANGES.items(), ids=[str(ends[1]) for ends in RANGES.values()])
def test_an_integer_outside_its_fields_range_is_a_wire_error(hint: Any, ends: tuple[int, int]) -> None:
    (codec,) = compile_codec(dataclasses.make_dataclass("Odd", [("value", hint)]))
    for value in (*ends, 0):
        assert codec.unpack(value) == value
    for value in (ends[0] - 1, ends[1] + 1, 2**64 - 1):
        with pytest.raises(WireError, match=rf"Odd.value is .* from {ends[0]} to {ends[1]}"):
            codec.unpack(value)


@every_message
@given(data=st.data())
def test_every_integer_of_every_message_is_refused_outside_its_range(
    cls: type[RpcMessage], data: st.DataObject
) -> None:
    hints = get_type_hints(cls, include_extras=True)
    row = msgpack.unpackb(encode_rpc(data.draw(values(cls))))
    for position, name in enumerate(field_.name for field_ in dataclasses.fields(cls)):  # type: ignore[arg-type]
        if get_origin(hints[name]) is Annotated:
            low, high = get_args(hints[name])[1]
            for wrong in {max(low - 1, -(2**63)), min(high + 1, 2**64 - 1)} - {low}:
                damaged = [*row[:position], wrong, *row[position + 1 :]]
                with pytest.raises(WireError, match=f"{cls.__name__}.{name} is"):
                    decode_rpc(cls, cls.max_version, msgpack.packb(damaged))


def test_a_string_longer_than_16_bit_lengths_is_a_wire_error() -> None:
    longest = "x" * STRING_BYTES_MAX
    (codec,) = compile_codec(dataclasses.make_dataclass("Odd", [("value", str)]))
    assert codec.unpack(longest) == longest
    for longer in (longest + "x", "\u20ac" * 10_923):
        with pytest.raises(WireError, match=r"Odd.value is a string of 3276[89] bytes"):
            codec.unpack(longer)


def test_a_compact_string_longer_than_16_bit_lengths_is_a_wire_error() -> None:
    longest = compact_string("x" * STRING_BYTES_MAX)
    assert read_compact_string(memoryview(longest), 0)[1] == len(longest)
    with pytest.raises(WireError, match="has 32768 bytes, at most 32767 are allowed"):
        read_compact_string(memoryview(encode_unsigned(STRING_BYTES_MAX + 2) + b"x" * (STRING_BYTES_MAX + 1)), 0)


def test_internal_message_size_limits_apply_to_encoding_and_decoding() -> None:
    with pytest.raises(WireError, match="over its bound of 200"):
        decode_rpc(SampleRequest, 2, bytes(201))
    with pytest.raises(CannotEncode, match="over its bound of 200"):
        encode_rpc(SampleRequest(name="x" * 300))


def test_internal_message_versions_are_negotiated_and_checked() -> None:
    assert choose_version(SampleRequest, 0, 5) == 2
    assert choose_version(SampleRequest, 0, 1) == 1
    assert choose_version(SampleRequest, 3, 5) is None
    with pytest.raises(WireError, match="version 3 is not supported"):
        decode_rpc(SampleRequest, 3, b"")
    with pytest.raises(InvariantError, match="no version 9"):
        encode_rpc(FULL, 9)


def test_internal_messages_are_found_by_api_key() -> None:
    assert decode_rpc_request(19990, 2, encode_rpc(SampleRequest(name="n"))) == SampleRequest(name="n")
    assert decode_rpc_response(19990, 0, encode_rpc(SampleResponse(ok=True))) == SampleResponse(ok=True)
    for decode in (decode_rpc_request, decode_rpc_response):
        with pytest.raises(WireError, match="key 12345 is not known"):
            decode(12345, 0, b"")


def test_two_internal_message_classes_with_the_same_api_key_are_refused() -> None:
    with pytest.raises(InvariantError, match="two messages claim"):

        class OtherRequest(RpcMessage):
            api_key = 19990


@pytest.mark.parametrize("hint", [int, complex, list[Int32], Int32 | str])
def test_a_field_type_without_an_rpc_codec_is_refused(hint: Any) -> None:
    cls = dataclasses.make_dataclass("Odd", [("value", hint)])
    with pytest.raises(TypeError, match=r"has no place|has a place"):
        compile_codec(cls)
