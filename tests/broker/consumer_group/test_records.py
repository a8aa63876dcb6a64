"""The bytes of each record of a consumer group, built here field by field from Kafka's schemas."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.broker.consumer_group.records import (
    ClassicMemberValue,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerLogEntry,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    MemberState,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from kraft.broker.group.records import decode_entry, encode_entry
from kraft.seam import WireError

ONE, TWO = UUID(int=1), UUID(int=2)
ONE_HEX, TWO_HEX = "00" * 15 + "01", "00" * 15 + "02"
MEMBER = ConsumerMemberValue("i", None, "c", "/h", ("a", "b"), "x.*", 30_000, "range")
MEMBER_HEX = "0000 02 69 00 02 63 03 2f68 03 02 61 02 62 04 782e2a 00007530 06 72616e6765"

RECORDS = [
    pytest.param(
        ConsumerLogEntry(ConsumerGroupKey("g"), ConsumerGroupValue(7, 0x0102030405060708)),
        "0003 0001 67",
        "0000 00000007 01 00 08 0102030405060708",
        id="group",
    ),
    pytest.param(
        ConsumerLogEntry(ConsumerGroupKey("g"), ConsumerGroupValue(7)),
        "0003 0001 67",
        "0000 00000007 00",
        id="group without topics",
    ),
    pytest.param(
        ConsumerLogEntry(ConsumerMemberKey("g", "m"), MEMBER),
        "0005 0001 67 0001 6d",
        f"{MEMBER_HEX} 00",
        id="member",
    ),
    pytest.param(
        ConsumerLogEntry(
            ConsumerMemberKey("g", "m"),
            MEMBER._replace(classic=ClassicMemberValue(10_000, (("range", b"\xab"), ("sticky", b"")))),
        ),
        "0005 0001 67 0001 6d",
        f"{MEMBER_HEX} 01 00 19 01 00002710 03 06 72616e6765 02 ab 00 07 737469636b79 01 00 00",
        id="member with the classic protocol",
    ),
    pytest.param(
        ConsumerLogEntry(TargetEpochKey("g"), TargetEpochValue(7, 1)),
        "0006 0001 67",
        "0000 00000007 01 00 08 0000000000000001",
        id="assignment epoch",
    ),
    pytest.param(
        ConsumerLogEntry(TargetMemberKey("g", "m"), TargetMemberValue({TWO: frozenset({1, 0}), ONE: frozenset({5})})),
        "0007 0001 67 0001 6d",
        f"0000 03 {ONE_HEX} 02 00000005 00 {TWO_HEX} 03 00000000 00000001 00 00",
        id="target",
    ),
    pytest.param(
        ConsumerLogEntry(
            CurrentMemberKey("g", "m"),
            CurrentMemberValue(7, 6, MemberState.UNREVOKED_PARTITIONS, {ONE: {5: 3, 2: 4}}, {TWO: {0: 1}}),
        ),
        "0008 0001 67 0001 6d",
        "0000 00000007 00000006 01"
        f" 02 {ONE_HEX} 03 00000002 00000005 01 00 09 03 00000004 00000003"
        f" 02 {TWO_HEX} 02 00000000 01 00 05 02 00000001 00",
        id="current",
    ),
    pytest.param(
        ConsumerLogEntry(RegexKey("g", "x.*"), RegexValue(("xa", "xb"), 9, 2)),
        "0010 0001 67 0003 782e2a",
        "0000 03 03 7861 03 7862 0000000000000009 0000000000000002 00",
        id="regex",
    ),
]


@pytest.mark.parametrize(("entry", "key", "value"), RECORDS)
def test_a_record_has_the_bytes_of_kafkas_schema(entry: ConsumerLogEntry, key: str, value: str) -> None:
    assert encode_entry(entry) == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode_entry(bytes.fromhex(key), bytes.fromhex(value)) == entry


@pytest.mark.parametrize(("entry", "key", "value"), RECORDS)
def test_a_removal_has_no_value(entry: ConsumerLogEntry, key: str, value: str) -> None:
    removal = ConsumerLogEntry(entry.key, None)
    assert encode_entry(removal) == (bytes.fromhex(key), None)
    assert decode_entry(bytes.fromhex(key), None) == removal


@pytest.mark.parametrize(("entry", "key", "value"), RECORDS)
def test_a_value_of_another_release_is_skipped(entry: ConsumerLogEntry, key: str, value: str) -> None:
    assert decode_entry(bytes.fromhex(key), b"\0\1" + bytes.fromhex(value)[2:]) is None


@pytest.mark.parametrize(
    "value",
    ["0000 00000007 02 00 08 0102030405060708 01 08 00000000000000ff", "0000 00000007 01 00 08 0102030405060708"],
)
def test_unknown_tagged_fields_are_skipped(value: str) -> None:
    entry = decode_entry(bytes.fromhex("0003 0001 67"), bytes.fromhex(value))
    assert entry == ConsumerLogEntry(ConsumerGroupKey("g"), ConsumerGroupValue(7, 0x0102030405060708))


@pytest.mark.parametrize(("entry", "key", "value"), RECORDS)
def test_a_value_that_is_cut_or_too_long_does_not_parse(entry: ConsumerLogEntry, key: str, value: str) -> None:
    data = bytes.fromhex(value)
    for broken in (*(data[:size] for size in range(2, len(data))), data + b"x"):
        with pytest.raises(WireError):
            decode_entry(bytes.fromhex(key), broken)


@pytest.mark.parametrize("key", ["0003 0001 67 0001 6d", "0005 0001 67", "0003"])
def test_a_key_with_other_fields_does_not_parse(key: str) -> None:
    with pytest.raises(WireError):
        decode_entry(bytes.fromhex(key), None)


def test_partitions_without_assignment_epochs_have_the_members_epoch() -> None:
    value = f"0000 00000007 00000006 00 02 {ONE_HEX} 02 00000005 00 01 00"
    entry = decode_entry(bytes.fromhex("0008 0001 67 0001 6d"), bytes.fromhex(value))
    assert entry is not None
    assert entry.value == CurrentMemberValue(7, 6, MemberState.STABLE, {ONE: {5: 7}})


def test_a_member_state_of_another_release_is_unknown() -> None:
    value = "0000 00000007 00000006 05 01 01 00"
    entry = decode_entry(bytes.fromhex("0008 0001 67 0001 6d"), bytes.fromhex(value))
    assert entry is not None
    assert entry.value == CurrentMemberValue(7, 6, MemberState.UNKNOWN)
