"""A topic's rules for batches: which batches a producer may append, with one test case per row of
docs/produce-checks.md.
"""

from __future__ import annotations

import pytest

from kraft.broker.replica.validate import BatchRules, check_batch, check_block, read_batch
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BatchRefused, Record, encode_batch, open_records, patch, read_header
from kraft.wire.records.compression import Compression

NOW_MS = 1_700_000_000_000


def batch(*, key: bytes | None = b"k", timestamp: int = NOW_MS, **options: object) -> memoryview:
    return memoryview(encode_batch([Record(0, timestamp, key, b"value", ())], **options))  # type: ignore[arg-type]


DEFAULT_RULES = BatchRules()


def verdict(data: memoryview, rules: BatchRules = DEFAULT_RULES) -> ErrorCode | None:
    header = read_header(data)
    refused = check_batch(data, header, rules)
    if refused is None:
        found = check_block(open_records(data, 0, header, output_bytes_max=1 << 20), header, rules, NOW_MS)
        refused = found if isinstance(found, BatchRefused) else None
    return None if refused is None else ErrorCode(refused.error)


def changed(position: int, value: int) -> memoryview:
    data = batch()
    data[position] = value
    return data


def moved() -> memoryview:
    data = batch()
    patch(data, 0, base_offset=5, partition_leader_epoch=-1)
    return data


@pytest.mark.parametrize("codec", list(Compression))
def test_a_valid_batch_of_any_codec_is_accepted(codec: Compression) -> None:
    assert verdict(batch(compression=codec)) is None


@pytest.mark.parametrize(
    ("data", "rules", "error"),
    [
        (moved(), BatchRules(), ErrorCode.INVALID_RECORD),
        (batch(), BatchRules(max_message_bytes=20), ErrorCode.MESSAGE_TOO_LARGE),
        (changed(65, 99), BatchRules(), ErrorCode.CORRUPT_MESSAGE),
        (batch(control=True), BatchRules(), ErrorCode.INVALID_RECORD),
        (batch(producer_id=5, producer_epoch=0, base_sequence=-1), BatchRules(), ErrorCode.INVALID_RECORD),
        (batch(key=None), BatchRules(compacted=True), ErrorCode.INVALID_RECORD),
        (batch(key=None, compression=Compression.GZIP), BatchRules(compacted=True), ErrorCode.INVALID_RECORD),
        (batch(timestamp=NOW_MS + 3_600_001), BatchRules(), ErrorCode.INVALID_TIMESTAMP),
        (batch(timestamp=NOW_MS - 11), BatchRules(timestamp_before_max_ms=10), ErrorCode.INVALID_TIMESTAMP),
        (batch(), BatchRules(segment_bytes=20), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_a_batch_that_breaks_a_topic_rule_is_rejected_with_the_error_of_that_rule(
    data: memoryview, rules: BatchRules, error: ErrorCode
) -> None:
    assert verdict(data, rules) is error


def test_a_compacted_topic_accepts_a_batch_with_keys() -> None:
    assert verdict(batch(compression=Compression.LZ4), BatchRules(compacted=True)) is None


def test_read_batch_rejects_a_zstd_batch_below_produce_version_7() -> None:
    data = batch(compression=Compression.ZSTD)
    refused = read_batch(data, 6)
    assert ErrorCode(refused.error) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE  # type: ignore[union-attr]
    assert read_batch(data, 7)[1] == len(data)  # type: ignore[index]


def test_a_produce_with_no_batch_or_two_batches_is_rejected() -> None:
    two = memoryview(bytearray(bytes(batch()) * 2))
    for data in (None, memoryview(b""), two):
        found = read_batch(data, 9)
        assert ErrorCode(found.error) is ErrorCode.INVALID_RECORD  # type: ignore[union-attr]
