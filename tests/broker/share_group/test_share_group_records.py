"""Records of share groups have the bytes that Apache Kafka 4.3.1 writes."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.broker.group.records import decode_entry, encode_entry
from kraft.broker.share_group.records import (
    ShareCurrentKey,
    ShareCurrentValue,
    ShareGroupKey,
    ShareGroupLogEntry,
    ShareGroupValue,
    ShareMemberKey,
    ShareMemberValue,
    ShareStatesKey,
    ShareStatesValue,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetKey,
    ShareTargetValue,
    TopicStates,
)
from kraft.seam import WireError

TOPIC = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
PLACES = {TOPIC: frozenset({0, 2})}
TOPIC_BYTES = "0102030405060708090a0b0c0d0e0f10"
NUMBERS = "030000000000000002"

BY_KAFKA = [
    (ShareMemberKey("g", "m"), ShareMemberValue("r", "c", "/h", ("a", "b")), "000002720263032f68030261026200"),
    (ShareGroupKey("g"), ShareGroupValue(5, 77), "000000000005000000000000004d00"),
    (ShareTargetEpochKey("g"), ShareTargetEpochValue(5, 1234), "00000000000501000800000000000004d2"),
    (ShareTargetEpochKey("g"), ShareTargetEpochValue(5), "00000000000500"),
    (ShareTargetKey("g", "m"), ShareTargetValue(PLACES), f"000002{TOPIC_BYTES}{NUMBERS}0000"),
    (
        ShareCurrentKey("g", "m"),
        ShareCurrentValue(5, 4, PLACES),
        f"000000000005000000040002{TOPIC_BYTES}{NUMBERS}0000",
    ),
    (
        ShareStatesKey("g"),
        ShareStatesValue(
            {TOPIC: TopicStates("a", frozenset({1}))}, {TOPIC: TopicStates("a", frozenset({0, 2}))}, {TOPIC: "d"}
        ),
        f"000002{TOPIC_BYTES}026102000000010002{TOPIC_BYTES}0261{NUMBERS}0002{TOPIC_BYTES}02640000",
    ),
]
KEY_BYTES = {
    ShareMemberKey: "000a000167" + "00016d",
    ShareGroupKey: "000b000167",
    ShareTargetEpochKey: "000c000167",
    ShareTargetKey: "000d000167" + "00016d",
    ShareCurrentKey: "000e000167" + "00016d",
    ShareStatesKey: "000f000167",
}


@pytest.mark.parametrize(("key", "value", "expected"), BY_KAFKA)
def test_a_record_has_the_bytes_that_kafka_writes(key: object, value: object, expected: str) -> None:
    entry = ShareGroupLogEntry(key, value)  # type: ignore[arg-type]
    record = encode_entry(entry)
    assert record.key.hex() == KEY_BYTES[type(key)]  # type: ignore[index]
    assert record.value is not None
    assert record.value.hex() == expected
    assert decode_entry(*record) == entry


@pytest.mark.parametrize(("key", "value", "expected"), BY_KAFKA)
def test_a_record_that_is_cut_or_has_bytes_left_over_is_an_error(key: object, value: object, expected: str) -> None:
    record = encode_entry(ShareGroupLogEntry(key, value))  # type: ignore[arg-type]
    data = bytes.fromhex(expected)
    for damaged in (data[:-1], data + b"\0", data[: len(data) // 2]):
        with pytest.raises(WireError):
            decode_entry(record.key, damaged)


def test_a_removal_and_an_unknown_version_are_read() -> None:
    record = encode_entry(ShareGroupLogEntry(ShareGroupKey("g"), None))
    assert decode_entry(*record) == ShareGroupLogEntry(ShareGroupKey("g"), None)
    assert decode_entry(record.key, b"\0\1") is None
