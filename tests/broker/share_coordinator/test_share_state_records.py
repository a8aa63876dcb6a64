"""Records of `__share_group_state` have the bytes of Kafka's schemas."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from kraft.broker.share_coordinator.records import (
    ShareKey,
    ShareSnapshot,
    ShareStateEntry,
    ShareUpdate,
    decode_entry,
    encode_entry,
)
from kraft.broker.share_partition.states import StateBatch
from kraft.seam import WireError

TOPIC = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
KEY = ShareKey("grp", TOPIC, 6)
KEY_FIELDS = b"\x00\x03grp" + bytes(range(1, 17)) + b"\x00\x00\x00\x06"
BATCH = struct.pack(">qqbh", 10, 12, 2, 3) + b"\x00"


def test_a_snapshot_has_kafkas_bytes() -> None:
    value = ShareSnapshot(1, 2, 3, 10, 4, 5, 6, (StateBatch(10, 12, 2, 3),))
    record = encode_entry(ShareStateEntry(KEY, value))
    assert record.key == b"\x00\x00" + KEY_FIELDS
    head = b"\x00\x00" + struct.pack(">iiiqqq", 1, 2, 3, 10, 5, 6)
    assert record.value == head + b"\x02" + BATCH + b"\x01\x00\x04" + struct.pack(">i", 4)


def test_an_update_has_kafkas_bytes() -> None:
    record = encode_entry(ShareStateEntry(KEY, ShareUpdate(1, 3, 10, -1, (StateBatch(10, 12, 2, 3),))))
    assert record.key == b"\x00\x01" + KEY_FIELDS
    assert record.value == b"\x00\x00" + struct.pack(">iiq", 1, 3, 10) + b"\x02" + BATCH + b"\x00"


def test_a_tombstone_has_the_key_of_a_snapshot() -> None:
    record = encode_entry(ShareStateEntry(KEY, None))
    assert record == (b"\x00\x00" + KEY_FIELDS, None)
    assert decode_entry(*record) == ShareStateEntry(KEY, None)


@pytest.mark.parametrize(
    "value",
    [ShareSnapshot(1, 2, 3, -1, -1, 5, 6), ShareUpdate(7, 8, 9, 10, (StateBatch(0, 0, 0, 1), StateBatch(5, 9, 4, 2)))],
)
def test_a_record_decodes_to_what_was_encoded(value: ShareSnapshot | ShareUpdate) -> None:
    entry = ShareStateEntry(KEY, value)
    assert decode_entry(*encode_entry(entry)) == entry


def test_records_of_unknown_types_and_versions_are_skipped() -> None:
    key, value = encode_entry(ShareStateEntry(KEY, ShareUpdate(1, 2, 3, -1)))
    assert value is not None
    assert decode_entry(b"\x00\x09" + key[2:], value) is None
    assert decode_entry(key, b"\x00\x01" + value[2:]) is None


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_record_that_is_cut_is_an_error(cut: int) -> None:
    key, value = encode_entry(ShareStateEntry(KEY, ShareUpdate(1, 2, 3, 4, (StateBatch(1, 2, 0, 1),))))
    assert value is not None
    with pytest.raises(WireError):
        decode_entry(key, value[:-cut])
    with pytest.raises(WireError):
        decode_entry(key[:-cut], value)


def test_a_record_with_bytes_left_over_is_an_error() -> None:
    key, value = encode_entry(ShareStateEntry(KEY, ShareUpdate(1, 2, 3, 4)))
    assert value is not None
    with pytest.raises(WireError):
        decode_entry(key, value + b"\x00")
    with pytest.raises(WireError):
        decode_entry(key + b"\x00", value)


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        encode_entry(ShareStateEntry(KEY, ShareUpdate(1, 2, 2**63, 4)))


def test_the_coordinator_key_names_group_topic_and_partition() -> None:
    assert KEY.coordinator_key == "grp:AQIDBAUGBwgJCgsMDQ4PEA:6"
