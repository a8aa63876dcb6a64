from __future__ import annotations

import dataclasses
import io
import struct
from datetime import timedelta
from typing import Any
from uuid import UUID

import kio.index
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.find_coordinator.v0.response import FindCoordinatorResponse
from kio.schema.join_group.v0.response import JoinGroupResponse
from kio.schema.join_group.v9.response import JoinGroupResponse as FlexibleJoinGroupResponse
from kio.schema.voters_record.v0.data import VotersRecord
from kio.serial import entity_reader, entity_writer

from kraft.seam import InvariantError, WireError
from kraft.wire.api_keys import BROKER_APIS, CONTROLLER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import (
    LAST_WITH_TOPIC_NAMES,
    PIECE_BYTES_MIN,
    CannotEncode,
    build,
    decode_request,
    decode_response,
    duration,
    encode_request,
    encode_response,
    encode_response_in_pieces,
    milliseconds,
    nested_class,
    newest_class,
    newest_version,
    part_class,
    request_class,
    response_class,
    versioned_class,
)
from kraft.wire.messages.compiled_readers import compile_reader
from kraft.wire.messages.compiled_writers import EncodedStructs, compile_writer
from kraft.wire.messages.quirks import MessageDirection
from kraft.wire.messages.schema import ENTITY, fields_of
from kraft.wire.varints import encode_unsigned
from tests.wire.kio_strategies import messages

WITH_TIMES = {(ApiKey.DESCRIBE_TRANSACTIONS, MessageDirection.RESPONSE)}
"""Messages that are not compared with kio: it writes a time from a datetime, which cannot be -1; here a time is in
milliseconds."""
PAIRS = [
    pytest.param(
        key,
        version,
        direction,
        id=f"{key.name}-{version}-{direction.value}",
        marks=() if version in (row.min, row.max) else pytest.mark.slow,
    )
    for key, row in {**CONTROLLER_APIS, **BROKER_APIS}.items()
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH)
    for version in range(row.min, row.max + 1)
    for direction in MessageDirection
    if (key, direction) not in WITH_TIMES
]
FEW = settings(max_examples=max(4, settings.default.max_examples // 5))


def encode(key: int, version: int, direction: MessageDirection, message: Any) -> bytes:
    return (encode_request if direction is MessageDirection.REQUEST else encode_response)(key, version, message)


def decode(key: int, version: int, direction: MessageDirection, body: bytes | memoryview) -> Any:
    return (decode_request if direction is MessageDirection.REQUEST else decode_response)(key, version, body)


def kio_bytes(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def ours(wire: Any, message: Any) -> bytes:
    parts: list[bytes] = []
    compile_writer(wire, type(message))(parts.append, message)
    return b"".join(parts)


@pytest.mark.parametrize(("key", "version", "direction"), PAIRS)
@FEW
@given(data=st.data())
def test_every_message_version_is_encoded_and_decoded_as_by_kio(
    key: ApiKey, version: int, direction: MessageDirection, data: st.DataObject
) -> None:
    cls = versioned_class(key, version, direction)
    message = data.draw(messages(cls))
    body = kio_bytes(message)
    assert ours(cls, message) == body
    assert compile_reader(cls, cls)(memoryview(body), 0) == (message, len(body))


def expressible(key: ApiKey, version: int, direction: MessageDirection, message: Any) -> bool:
    """Return whether this version can express the message."""
    if (key, direction) == (ApiKey.DELETE_TOPICS, MessageDirection.REQUEST) and version < 6:
        return all(topic.name is not None for topic in message.topics)
    if (key, direction, version) == (ApiKey.METADATA, MessageDirection.REQUEST, 0):
        return message.topics is None or len(message.topics) > 0
    if key is ApiKey.FIND_COORDINATOR and version < 4:
        return len(message.coordinator_keys if direction is MessageDirection.REQUEST else message.coordinators) == 1
    if key is ApiKey.OFFSET_FETCH and version < 8:
        return len(message.groups) == 1 and not (version < 2 and message.groups[0].topics is None)
    if (key, direction) == (ApiKey.ADD_PARTITIONS_TO_TXN, MessageDirection.REQUEST) and version < 4:
        return len(message.transactions) == 1 and not message.transactions[0].verify_only
    if key is ApiKey.LEAVE_GROUP and version < 3:
        if direction is MessageDirection.REQUEST:
            return len(message.members) == 1
        return not message.members or message.error_code != 0
    return True


@pytest.mark.parametrize(("key", "version", "direction"), PAIRS)
@FEW
@given(data=st.data())
def test_newest_message_encoded_in_an_older_version_loses_only_fields_that_the_version_lacks(
    key: ApiKey, version: int, direction: MessageDirection, data: st.DataObject
) -> None:
    newest = newest_class(key, direction)
    message = data.draw(messages(newest).filter(lambda m: expressible(key, version, direction, m)))
    body = encode(key, version, direction, message)
    wire = versioned_class(key, version, direction)
    on_the_wire, size = entity_reader(wire)(body, 0)
    assert size == len(body), "kio reads all of it"
    back = decode(key, version, direction, body)
    assert type(back) is newest
    assert encode(key, version, direction, back) == body, "nothing more is lost by going round again"
    if wire is newest and key is not ApiKey.API_VERSIONS:
        assert back == message == on_the_wire
    same = {field.name for field in fields_of(wire) if field.kind != ENTITY and not field.is_nullable}
    if key is not ApiKey.API_VERSIONS:
        for name in same & {field.name for field in fields_of(newest)}:
            if getattr(message, name) is not None:
                assert getattr(on_the_wire, name) == getattr(message, name)


@pytest.mark.parametrize(("key", "version", "direction"), PAIRS)
@FEW
@given(data=st.data())
def test_bytes_after_a_body_are_ignored_and_a_truncated_body_is_a_wire_error(
    key: ApiKey, version: int, direction: MessageDirection, data: st.DataObject
) -> None:
    message = data.draw(messages(versioned_class(key, version, direction)))
    body = ours(type(message), message)
    assert decode(key, version, direction, body + b"tail") == decode(key, version, direction, body)
    for cut in {0, len(body) // 3, len(body) // 2, len(body) - 2, len(body) - 1} & set(range(len(body))):
        with pytest.raises(WireError):
            decode(key, version, direction, body[:cut])


@pytest.mark.parametrize(("key", "version", "direction"), PAIRS)
@FEW
@given(data=st.data())
def test_mutated_message_bodies_raise_only_wire_errors(
    key: ApiKey, version: int, direction: MessageDirection, data: st.DataObject
) -> None:
    message = data.draw(messages(versioned_class(key, version, direction)))
    body = bytearray(ours(type(message), message))
    for _ in range(data.draw(st.integers(1, 5)) if body else 0):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(key, version, direction, memoryview(body))
    except WireError:
        return


def test_unknown_tagged_fields_are_skipped_and_any_non_zero_byte_is_true() -> None:
    body = encode_request(ApiKey.METADATA, 13, build(request_class(ApiKey.METADATA), topics=None))
    tagged = body[:-1] + b"\2\5\1z\7\0"
    assert decode_request(ApiKey.METADATA, 13, tagged).topics is None
    assert decode_request(ApiKey.METADATA, 13, b"\0\5\0\0").allow_auto_topic_creation is True
    with pytest.raises(WireError, match="does not fit"):
        decode_request(ApiKey.METADATA, 13, body[:-1] + b"\2\5\0\5\0")


def test_delete_topics_by_name_decodes_to_topics_and_ids_need_version_6() -> None:
    cls = request_class(ApiKey.DELETE_TOPICS)
    topic = nested_class(cls, "topics")
    named = build(cls, topics=[build(topic, name="a"), build(topic, name="b")], timeout=500)
    for version in range(1, 7):
        assert decode_request(20, version, encode_request(20, version, named)) == named
    by_id = build(cls, topics=[build(topic, name=None, topic_id=UUID(int=5))])
    assert decode_request(20, 6, encode_request(20, 6, by_id)) == by_id
    with pytest.raises(ValueError, match="use version 6"):
        encode_request(20, 5, by_id)


def test_metadata_request_of_version_0_requests_all_topics_with_an_empty_list() -> None:
    cls = request_class(ApiKey.METADATA)
    assert decode_request(3, 0, struct.pack(">i", 0)).topics is None
    assert decode_request(3, 1, struct.pack(">i", 0)).topics == ()
    assert decode_request(3, 1, struct.pack(">i", -1)).topics is None
    assert encode_request(3, 0, build(cls, topics=None)) == struct.pack(">i", 0)
    with pytest.raises(ValueError, match="use version 1"):
        encode_request(3, 0, build(cls, topics=[]))
    assert decode_request(3, 0, struct.pack(">i", 0)).allow_auto_topic_creation is True


def test_a_null_that_an_old_version_does_not_permit_becomes_zero() -> None:
    cls = response_class(ApiKey.METADATA)
    topic = build(nested_class(cls, "topics"), name=None, topic_id=UUID(int=9), error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    message = build(cls, topics=[topic])
    assert decode_response(3, 12, encode_response(3, 12, message)).topics[0].name is None
    assert decode_response(3, 9, encode_response(3, 9, message)).topics[0].name == ""


@pytest.mark.parametrize("key", LAST_WITH_TOPIC_NAMES)
@pytest.mark.parametrize("direction", MessageDirection)
def test_topics_in_messages_have_names_up_to_a_version_and_only_ids_in_later_versions(
    key: ApiKey, direction: MessageDirection
) -> None:
    cls = newest_class(key, direction)
    names, ids = LAST_WITH_TOPIC_NAMES[key], newest_version(key)
    topic = {"name": "orders", "topic_id": UUID(int=9), "partitions": []}
    if (key, direction) == (ApiKey.OFFSET_FETCH, MessageDirection.REQUEST):
        topic = {"name": "orders", "topic_id": UUID(int=9), "partition_indexes": [3]}
    message = build(cls, **({"groups": [{"topics": [topic]}]} if key is ApiKey.OFFSET_FETCH else {"topics": [topic]}))
    for version, expected in ((names, ("orders", None)), (ids, (None, UUID(int=9)))):
        back = decode(key, version, direction, encode(key, version, direction, message))
        (found,) = back.groups[0].topics if key is ApiKey.OFFSET_FETCH else back.topics
        assert (found.name, found.topic_id) == expected
        assert encode(key, version, direction, back) == encode(key, version, direction, message)
    assert versioned_class(key, ids, direction) is not cls, "what is on the wire is kio's"


ID = UUID("11223344-5566-7788-99aa-bbccddeeff00")
AS_JAVA_WRITES = [
    (
        (ApiKey.OFFSET_COMMIT, MessageDirection.REQUEST),
        "026700000003026d0002112233445566778899aabbccddeeff0002000000010000000000000007000000020278000000",
        {
            "group_id": "g",
            "generation_id_or_member_epoch": 3,
            "member_id": "m",
            "topics": [
                {
                    "topic_id": ID,
                    "partitions": [
                        {
                            "partition_index": 1,
                            "committed_offset": 7,
                            "committed_leader_epoch": 2,
                            "committed_metadata": "x",
                        }
                    ],
                }
            ],
        },
    ),
    (
        (ApiKey.OFFSET_COMMIT, MessageDirection.RESPONSE),
        "0000000002112233445566778899aabbccddeeff0002000000010064000000",
        {
            "topics": [
                {"topic_id": ID, "partitions": [{"partition_index": 1, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}]}
            ]
        },
    ),
    (
        (ApiKey.OFFSET_FETCH, MessageDirection.REQUEST),
        "03026700ffffffff02112233445566778899aabbccddeeff000300000000000000010000026800ffffffff00000100",
        {
            "groups": [
                {"group_id": "g", "topics": [{"topic_id": ID, "partition_indexes": [0, 1]}]},
                {"group_id": "h", "topics": None},
            ],
            "require_stable": True,
        },
    ),
    (
        (ApiKey.OFFSET_FETCH, MessageDirection.RESPONSE),
        "0000000002026702112233445566778899aabbccddeeff00020000000100000000000000070000000202780000000000000000",
        {
            "groups": [
                {
                    "group_id": "g",
                    "topics": [
                        {
                            "topic_id": ID,
                            "partitions": [
                                {
                                    "partition_index": 1,
                                    "committed_offset": 7,
                                    "committed_leader_epoch": 2,
                                    "metadata": "x",
                                }
                            ],
                        }
                    ],
                }
            ]
        },
    ),
    (
        (ApiKey.LIST_OFFSETS, MessageDirection.REQUEST),
        "ffffffff0002076f7264657273020000000100000002fffffffffffffffa0000000001f400",
        {
            "replica_id": -1,
            "topics": [
                {
                    "name": "orders",
                    "partitions": [{"partition_index": 1, "current_leader_epoch": 2, "timestamp": -6}],
                }
            ],
            "timeout": 500,
        },
    ),
    (
        (ApiKey.DESCRIBE_LOG_DIRS, MessageDirection.RESPONSE),
        "000000000000020000032f640100000000000000090000000000000004010000",
        {"results": [{"log_dir": "/d", "topics": [], "total_bytes": 9, "usable_bytes": 4, "is_cordoned": True}]},
    ),
]
"""(message, its newest version as written by Kafka 4.3's own serializer, its fields)."""


@pytest.mark.parametrize(("what", "written", "fields"), AS_JAVA_WRITES)
def test_newest_message_versions_are_encoded_as_by_kafka(
    what: tuple[ApiKey, MessageDirection], written: str, fields: dict[str, Any]
) -> None:
    key, direction = what
    message = build(newest_class(key, direction), **fields)
    version = newest_version(key)
    assert decode(key, version, direction, bytes.fromhex(written)) == message
    assert encode(key, version, direction, message).hex() == written


def test_a_nested_struct_class_is_found_by_schema_name_at_any_depth() -> None:
    cls = response_class(ApiKey.OFFSET_FETCH)
    rows = nested_class(nested_class(nested_class(cls, "groups"), "topics"), "partitions")
    assert part_class(cls, "OffsetFetchResponsePartitions") is rows


def test_update_features_version_0_has_a_downgrade_flag() -> None:
    cls = request_class(ApiKey.UPDATE_FEATURES)
    update = nested_class(cls, "feature_updates")
    updates = [build(update, feature="f", max_version_level=3, upgrade_type=kind) for kind in (1, 2, 3)]
    body = encode_request(57, 0, build(cls, feature_updates=updates))
    assert [u.upgrade_type for u in decode_request(57, 0, body).feature_updates] == [1, 2, 2]
    body = encode_request(57, 1, build(cls, feature_updates=updates))
    assert [u.upgrade_type for u in decode_request(57, 1, body).feature_updates] == [1, 2, 3]


def test_api_versions_leaves_out_features_that_an_old_client_would_refuse() -> None:
    cls = response_class(ApiKey.API_VERSIONS)
    supported = nested_class(cls, "supported_features")
    finalized = nested_class(cls, "finalized_features")
    message = build(
        cls,
        supported_features=[
            build(supported, name="old", min_version=1, max_version=2),
            build(supported, name="new", min_version=0, max_version=1),
        ],
        finalized_features=[
            build(finalized, name="on", max_version_level=2, min_version_level=2),
            build(finalized, name="off", max_version_level=0, min_version_level=0),
        ],
    )
    shown = {version: decode_response(18, version, encode_response(18, version, message)) for version in range(5)}
    assert [[f.name for f in shown[v].supported_features] for v in range(5)] == [[], [], [], ["old"], ["old", "new"]]
    assert [[f.name for f in shown[v].finalized_features] for v in range(5)] == [[], [], [], ["on"], ["on"]]


def test_message_build_fills_in_defaults_and_accepts_lists_and_milliseconds() -> None:
    cls = request_class(ApiKey.CREATE_TOPICS)
    topic = build(nested_class(cls, "topics"), name="t", num_partitions=3, replication_factor=1)
    message = build(cls, topics=[topic], timeout=30_000)
    assert message.topics == (topic,)
    assert topic.assignments == topic.configs == ()
    assert message.timeout == timedelta(seconds=30) == duration(30_000)
    assert milliseconds(message.timeout) == milliseconds(30_000) == 30_000
    topic_request = nested_class(request_class(ApiKey.METADATA), "topics")
    assert build(topic_request, name=None, topic_id=UUID(int=0)).topic_id is None
    with pytest.raises(TypeError, match="has no field nonsense"):
        build(cls, nonsense=1)


def test_message_build_converts_mappings_to_structs() -> None:
    cls = request_class(ApiKey.CREATE_TOPICS)
    topic = nested_class(cls, "topics")
    config = nested_class(topic, "configs")
    built = build(cls, topics=[{"name": "t", "configs": [{"name": "k", "value": "v"}]}])
    assert built == build(cls, topics=[build(topic, name="t", configs=[build(config, name="k", value="v")])])
    with pytest.raises(TypeError, match="has no field nonsense"):
        build(cls, topics=[{"nonsense": 1}])
    voter = build(nested_class(VotersRecord, "voters"), k_raft_version_feature={"max_supported_version": 4})
    assert voter.k_raft_version_feature.max_supported_version == 4
    reply = response_class(ApiKey.API_VERSIONS)
    assert build(reply, api_keys=[{"api_key": 3}]).api_keys[0].api_key == 3


def test_message_fields_accept_plain_numbers_as_error_codes_and_durations() -> None:
    cls = response_class(ApiKey.INIT_PRODUCER_ID)
    message = dataclasses.replace(build(cls, producer_id=5), error_code=ErrorCode.NOT_COORDINATOR, throttle_time=77)
    back = decode_response(22, 4, encode_response(22, 4, message))
    assert (back.error_code, back.throttle_time) == (16, timedelta(milliseconds=77))
    body = bytearray(encode_response(22, 4, message))
    struct.pack_into(">h", body, 4, 30_000)
    assert decode_response(22, 4, body).error_code == 30_000, "a code of a later release is not an error"


def test_produce_and_fetch_are_not_handled_by_the_general_codec() -> None:
    for key in (ApiKey.PRODUCE, ApiKey.FETCH):
        with pytest.raises(InvariantError):
            decode_request(key, 10, b"")
        with pytest.raises(InvariantError):
            encode_response(key, 10, None)


def test_a_field_type_without_a_codec_is_refused_when_the_class_is_first_used() -> None:
    number = ("number", int, dataclasses.field(metadata={"kafka_type": "int128"}))
    strange = dataclasses.make_dataclass("Strange", [number], namespace={"__flexible__": False})
    with pytest.raises(TypeError, match="int128"):
        compile_reader(strange, strange)


def test_an_array_length_beyond_the_body_is_refused_before_allocation() -> None:
    for body in (struct.pack(">i", 2**31 - 1), struct.pack(">i", 5) + b"\0\0\0"):
        with pytest.raises(WireError, match="an array of"):
            decode_request(ApiKey.METADATA, 1, body)
    with pytest.raises(WireError, match="an array of"):
        decode_request(ApiKey.METADATA, 13, b"\xff\xff\xff\xff\x0f")


def test_nulls_in_fields_that_are_not_nullable_are_wire_errors() -> None:
    with pytest.raises(WireError, match="may not be null"):
        decode_request(ApiKey.CREATE_TOPICS, 7, b"\0")
    with pytest.raises(WireError, match="may not be null"):
        decode_request(ApiKey.DELETE_TOPICS, 1, struct.pack(">ih", 1, -1) + bytes(4))


def test_a_string_that_is_not_utf_8_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="not UTF-8"):
        decode_request(ApiKey.METADATA, 1, struct.pack(">ih", 1, 2) + b"\xff\xff")


def test_a_string_too_long_for_readers_is_not_encoded_in_any_version() -> None:
    topic = nested_class(response_class(ApiKey.CREATE_TOPICS), "topics")
    for length, fits in ((2**15 - 1, True), (2**15, False)):
        row = build(topic, name="t", error_message="x" * length)
        response = build(response_class(ApiKey.CREATE_TOPICS), topics=[row])
        for version in range(BROKER_APIS[ApiKey.CREATE_TOPICS].min, BROKER_APIS[ApiKey.CREATE_TOPICS].max + 1):
            if fits:
                body = encode_response(ApiKey.CREATE_TOPICS, version, response)
                assert decode_response(ApiKey.CREATE_TOPICS, version, body).topics[0].error_message == "x" * length
            else:
                with pytest.raises(CannotEncode, match="32768 bytes"):
                    encode_response(ApiKey.CREATE_TOPICS, version, response)


def test_a_string_too_long_for_an_old_version_is_not_shortened_silently() -> None:
    cls = request_class(ApiKey.METADATA)
    message = build(cls, topics=[build(nested_class(cls, "topics"), name="x" * 40_000)])
    with pytest.raises(ValueError, match="16-bit"):
        encode_request(3, 1, message)
    with pytest.raises(ValueError, match="at most 32767 are allowed"):
        encode_request(3, 9, message)
    with pytest.raises(WireError, match="at most 32767 are allowed"):
        decode_request(3, 9, b"\2" + encode_unsigned(40_001) + b"x" * 40_000 + b"\0" * 5)


OTHER_CLASSES = [
    DescribeTopicPartitionsRequest,
    FindCoordinatorResponse,
    JoinGroupResponse,
    FlexibleJoinGroupResponse,
    VotersRecord,
]


@pytest.mark.parametrize("cls", OTHER_CLASSES)
@FEW
@given(data=st.data())
def test_nullable_structs_and_byte_strings_of_later_apis_are_encoded_and_decoded(cls: Any, data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    body = kio_bytes(message)
    assert ours(cls, message) == body
    assert compile_reader(cls, cls)(memoryview(body), 0) == (message, len(body))


def test_message_classes_are_imported_on_first_use() -> None:
    assert kio.index.load_request_schema(3, 13) is request_class(3)


def test_pre_encoded_structs_of_another_version_are_refused() -> None:
    topic = nested_class(response_class(ApiKey.METADATA), "topics")
    for version in (9, 12):
        structs = EncodedStructs(0, (), version)
        response = build(response_class(ApiKey.METADATA), topics=[build(topic, name="orders")])
        response = dataclasses.replace(response, topics=(dataclasses.replace(response.topics[0], partitions=structs),))
        if version == 9:
            assert encode_response(ApiKey.METADATA, 9, response)
        else:
            with pytest.raises(InvariantError, match="not in version 9"):
                encode_response(ApiKey.METADATA, 9, response)


@pytest.mark.parametrize("sizes", [[], [10], [100_000], [10, 100_000, 10, 70_000, 200_000], [1_000] * 200])
def test_a_response_encoded_in_pieces_equals_one_encoded_at_once_and_long_pieces_are_not_copied(
    sizes: list[int],
) -> None:
    topic = nested_class(response_class(ApiKey.METADATA), "topics")
    arrays = [EncodedStructs(1, (bytes([number % 256]) * size,), 12) for number, size in enumerate(sizes)]
    topics = tuple(dataclasses.replace(build(topic, name="orders"), partitions=array) for array in arrays)
    response = dataclasses.replace(build(response_class(ApiKey.METADATA)), topics=topics)
    pieces = encode_response_in_pieces(ApiKey.METADATA, 12, response)
    assert b"".join(pieces) == encode_response(ApiKey.METADATA, 12, response)
    long = [data for array in arrays for data in array.pieces if len(data) >= PIECE_BYTES_MIN]
    assert all(any(piece is data for piece in pieces) for data in long)
    assert all(len(piece) < 2 * PIECE_BYTES_MIN for piece in pieces if not any(piece is data for data in long))
    assert len(pieces) <= 1 + 2 * sum(map(len, pieces)) // PIECE_BYTES_MIN
