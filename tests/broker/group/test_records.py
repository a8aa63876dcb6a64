"""The records of the offsets topic: their bytes equal those of Apache Kafka, and versions of other releases can be
read.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.group.records import (
    GroupKey,
    GroupLogEntry,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_entry,
    encode_entry,
)
from kraft.broker.group.subscription import subscribed_topics
from kraft.broker.shard.placement import java_hash, partition_of
from kraft.seam import WireError

OFFSET_KEY = OffsetKey("g", "orders", 3)
OFFSET_KEY_BYTES = bytes.fromhex("0001 0001 67 0006 6f7264657273 00000003")
MEMBER = MemberValue("m", "i", "c", "/h", 30_000, 10_000, b"sub", b"as")
GROUP = GroupValue("consumer", 4, "range", "m", 7, (MEMBER,))

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TOPIC_IDS = st.none() | st.uuids().filter(lambda one: one.int != 0)
OFFSETS = st.builds(OffsetValue, INT64, INT32, TEXT, INT64, st.just(-1), TOPIC_IDS) | st.builds(
    OffsetValue, INT64, st.just(-1), TEXT, INT64, st.integers(0, 2**62), st.none()
)
MEMBERS = st.builds(
    MemberValue,
    TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    st.integers(0, 2**31 - 1),
    INT32,
    st.binary(max_size=8),
    st.binary(max_size=8),
)
GROUPS = st.builds(
    GroupValue, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.lists(MEMBERS, max_size=3).map(tuple)
)
ENTRIES = st.builds(GroupLogEntry, st.builds(OffsetKey, TEXT, TEXT, INT32), st.none() | OFFSETS) | st.builds(
    GroupLogEntry, st.builds(GroupKey, TEXT), st.none() | GROUPS
)


@pytest.mark.parametrize(
    ("group", "partition"),
    [("test", 48), ("my-group", 12), ("grüppe", 12), ("😀", 49), ("polygenelubricants", 0), ("tx-1", 20), ("", 0)],
)
def test_the_offsets_partition_of_a_group_id_equals_that_of_other_implementations(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_the_partition_hash_is_javas_string_hash() -> None:
    assert java_hash("my-group") == -1906497762
    assert java_hash("polygenelubricants") == -(2**31)


def test_an_offset_is_written_in_version_4_with_its_topic_id_as_a_tagged_field() -> None:
    record = encode_entry(GroupLogEntry(OFFSET_KEY, OffsetValue(42, 5, "x", 1_000, topic_id=UUID(int=1))))
    assert record.key == OFFSET_KEY_BYTES
    assert record.value == bytes.fromhex(
        "0004 000000000000002a 00000005 02 78 00000000000003e8 01 00 10 00000000000000000000000000000001"
    )


def test_an_offset_without_a_topic_id_has_no_tagged_field() -> None:
    record = encode_entry(GroupLogEntry(OFFSET_KEY, OffsetValue(42, -1, "", 1_000)))
    assert record.value == bytes.fromhex("0004 000000000000002a ffffffff 01 00000000000003e8 00")


def test_an_offset_with_a_requested_retention_time_is_written_in_version_1() -> None:
    record = encode_entry(GroupLogEntry(OFFSET_KEY, OffsetValue(42, -1, "x", 1_000, 2_000)))
    assert record.value == bytes.fromhex("0001 000000000000002a 0001 78 00000000000003e8 00000000000007d0")


def test_a_group_record_is_written_in_version_3() -> None:
    record = encode_entry(GroupLogEntry(GroupKey("g"), GROUP))
    assert record.key == bytes.fromhex("0002 0001 67")
    assert record.value == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 0000000000000007 00000001"
        "0001 6d 0001 69 0001 63 0002 2f68 00007530 00002710 00000003 737562 00000002 6173"
    )


def test_the_record_that_removes_an_offset_or_group_has_no_value() -> None:
    assert encode_entry(GroupLogEntry(OFFSET_KEY, None)) == (OFFSET_KEY_BYTES, None)


@given(ENTRIES)
def test_encoded_group_records_are_decoded_unchanged(entry: GroupLogEntry) -> None:
    assert decode_entry(*encode_entry(entry)) == entry


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 000000000000002a 0001 78 00000000000003e8", OffsetValue(42, -1, "x", 1_000)),
        ("0002 000000000000002a 0001 78 00000000000003e8", OffsetValue(42, -1, "x", 1_000)),
        ("0003 000000000000002a 00000005 0001 78 00000000000003e8", OffsetValue(42, 5, "x", 1_000)),
    ],
)
def test_older_versions_of_an_offset_record_are_read(value: str, expected: OffsetValue) -> None:
    assert decode_entry(OFFSET_KEY_BYTES, bytes.fromhex(value)) == (OFFSET_KEY, expected)
    assert decode_entry(b"\0\0" + OFFSET_KEY_BYTES[2:], None) == (OFFSET_KEY, None), "keys of type 0 too"


def test_version_0_of_a_group_record_lacks_timeouts_and_instance_ids() -> None:
    value = bytes.fromhex(
        "0000 0008 636f6e73756d6572 00000004 ffff ffff 00000001 0001 6d 0001 63 0002 2f68 00002710 00000000 00000000"
    )
    member = MemberValue("m", None, "c", "/h", 10_000, 10_000, b"", b"")
    expected = GroupValue("consumer", 4, None, None, -1, (member,))
    assert decode_entry(bytes.fromhex("0002 0001 67"), value) == (GroupKey("g"), expected)


def test_the_flexible_version_of_a_group_record_is_read() -> None:
    value = bytes.fromhex(
        "0004 09 636f6e73756d6572 00000004 06 72616e6765 02 6d 0000000000000007 02"
        "02 6d 02 69 02 63 03 2f68 00007530 00002710 04 737562 03 6173 00 00"
    )
    assert decode_entry(bytes.fromhex("0002 0001 67"), value) == (GroupKey("g"), GROUP)


@pytest.mark.parametrize("kind", [4, 17, 19, 23, 32767])
def test_a_record_of_a_type_of_another_release_is_skipped(kind: int) -> None:
    assert decode_entry(struct.pack(">h", kind) + b"anything", b"anything") is None


def test_an_offset_record_with_a_value_version_of_another_release_is_skipped() -> None:
    assert decode_entry(OFFSET_KEY_BYTES, b"\0\5anything") is None


@given(ENTRIES, st.data())
def test_a_group_record_that_is_too_short_or_too_long_is_a_wire_error(
    entry: GroupLogEntry, data: st.DataObject
) -> None:
    key, value = encode_entry(entry)
    with pytest.raises(WireError):
        decode_entry(key + b"\0", value)
    with pytest.raises(WireError):
        decode_entry(key[: data.draw(st.integers(0, len(key) - 1))], value)
    if value is not None:
        with pytest.raises(WireError):
            decode_entry(key, value + b"\0")
        with pytest.raises(WireError):
            decode_entry(key, value[: data.draw(st.integers(0, len(value) - 1))])
    with pytest.raises(WireError):
        decode_entry(None, value)


@given(st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_random_record_bytes_decode_to_an_entry_to_none_or_to_a_wire_error(key: bytes, value: bytes | None) -> None:
    with suppress(WireError):
        decode_entry(key, value)


def test_the_topics_of_a_subscription_are_read_in_every_version() -> None:
    first = bytes.fromhex("0000 00000002 0001 61 0001 62 ffffffff")
    newest = bytes.fromhex("0003 00000002 0001 61 0001 62 ffffffff 00000000 ffffffff ffff")
    assert subscribed_topics(first) == subscribed_topics(newest) == {"a", "b"}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0\0\0\0\2\0\1a", b"\0\0\0\0\0\1\xff\xff", b'{"version": 1}'])
def test_bytes_that_are_not_a_subscription_have_unknown_topics(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
